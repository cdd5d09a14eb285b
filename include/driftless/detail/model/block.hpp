#pragma once

#include "driftless/block.hpp"
#include "driftless/detail/model/attention.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// c_proj(activation(c_fc(x [T, C]))), to a destination of T rows.
template <class Scalar>
void mlp(Step<Scalar>& step, const PaddedRows<Scalar>& x, const Mlp<Scalar>& mlp, const Destination<Scalar>& to) {
  step.hidden.resize(x.rows(), mlp.c_fc.weight.out());
  Destination<Scalar> activated = destinationOf(step.hidden);
  activated.activation = mlp.activation_function;
  linear(step, x, mlp.c_fc, activated);
  linear(step, step.hidden, mlp.c_proj, to);
}

/// Takes the residual stream step.x [T, C] through one block. Its rows are those of step.segments.
template <class Scalar>
void blockStep(Step<Scalar>& step, const Block<Scalar>& block) {
  Destination<Scalar> residual = destinationOf(step.x);
  residual.adds = true;
  layerNorm(step.x, block.ln_1, step.pool, step.normed);
  step.tell(Part::norm);
  attnStep(step, step.normed, block.attn, residual);
  layerNorm(step.x, block.ln_2, step.pool, step.normed);
  step.tell(Part::norm);
  mlp(step, step.normed, block.mlp, residual);
  step.tell(Part::linear);
}

}  // namespace detail

template <FloatingScalar Scalar>
Matrix<Scalar> layerNorm(const std::type_identity_t<Matrix<Scalar>>& x, const LayerNorm<Scalar>& norm) {
  detail::checkWidth(x, norm.width);
  detail::ThreadPool pool(1);
  detail::PaddedRows<Scalar> out;
  detail::layerNorm(detail::PaddedRows<Scalar>(x), norm, pool, out);
  return out.matrix();
}

template <FloatingScalar Scalar>
Matrix<Scalar> mlp(const std::type_identity_t<Matrix<Scalar>>& x, const Mlp<Scalar>& mlp) {
  detail::checkWidth(x, mlp.c_fc.weight.in());
  Workspace<Scalar> workspace(Threads(1));
  detail::PaddedRows<Scalar> out(x.rows(), x.cols());
  detail::mlp(workspace.step(), detail::PaddedRows<Scalar>(x), mlp, detail::destinationOf(out));
  return out.matrix();
}

template <FloatingScalar Scalar>
Matrix<Scalar> blockStep(const std::type_identity_t<Matrix<Scalar>>& x, const Block<Scalar>& block,
                         LayerCache<Scalar>& cache) {
  Workspace<Scalar> workspace = detail::layerStep(x, block.ln_1.width, block.attn.n_head, cache);
  workspace.step().x = detail::PaddedRows<Scalar>(x);
  detail::blockStep(workspace.step(), block);
  Matrix<Scalar> result = workspace.step().x.matrix();
  detail::CacheAccess::grow(cache, x.rows());
  return result;
}

}}  // namespace driftless::DRIFTLESS_ABI
