#pragma once

#include <algorithm>
#include <span>

#include "driftless/block.hpp"
#include "driftless/detail/model/attention.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Applies the activation to step.hidden alone, with the bits that it has together with a product.
template <class Scalar>
void activate(Step<Scalar>& step, Destination<Scalar> to) {
  PaddedRows<Scalar>& hidden = step.hidden;
  PaddedRows<Scalar> no_bias(1, hidden.cols());
  std::fill_n(no_bias.row(0), no_bias.stride(), Scalar(-0.0));  // not 0, which would make 0 of -0
  to.bias = no_bias.row(0);
  for (Index row = 0; row < hidden.rows(); ++row)
    for (Index column = 0; column < hidden.stride(); column += kPanelWidth)
      kernels<Scalar>().finish_tile(hidden.row(row) + column, 1, (std::min)(kPanelWidth, hidden.stride() - column),
                                    nullptr, column, hidden.row(row), to);
}

/// c_proj(activation(c_fc(x [T, C]))), to a destination of T rows.
template <class Scalar>
void mlp(Step<Scalar>& step, const PaddedRows<Scalar>& x, const Mlp<Scalar>& mlp, const Destination<Scalar>& to) {
  step.hidden.resize(x.rows(), mlp.c_fc.weight.out());
  Destination<Scalar> activated = destinationOf(step.hidden);
  activated.activation = mlp.activation_function;
  if (step.visits(Point::mlp_pre)) {
    linear(step, x, mlp.c_fc, destinationOf(step.hidden));
    visit(step, Point::mlp_pre, step.hidden);
    activate(step, activated);
  } else {
    linear(step, x, mlp.c_fc, activated);
  }
  visit(step, Point::mlp_post, step.hidden);
  linearOut(step, step.hidden, mlp.c_proj, to, step.visits(Point::mlp_out),
            [&](PaddedRows<Scalar>& out) { visit(step, Point::mlp_out, out); });
}

/// Takes the residual stream step.x [T, C] through one block. Its rows are those of step.segments.
template <class Scalar>
void blockStep(Step<Scalar>& step, const Block<Scalar>& block) {
  Destination<Scalar> residual = destinationOf(step.x);
  residual.adds = true;
  visit(step, Point::resid_pre, step.x);
  layerNorm(step.x, block.ln_1, step.pool, step.normed);
  step.tell(Part::norm);
  visit(step, Point::ln1, step.normed);
  attnStep(step, step.normed, block.attn, residual);
  visit(step, Point::resid_mid, step.x);
  layerNorm(step.x, block.ln_2, step.pool, step.normed);
  step.tell(Part::norm);
  visit(step, Point::ln2, step.normed);
  mlp(step, step.normed, block.mlp, residual);
  step.tell(Part::linear);
  visit(step, Point::resid_post, step.x);
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
  detail::Growth<Scalar> growth(std::span(&cache, 1), x.rows());
  workspace.step().x = detail::PaddedRows<Scalar>(x);
  detail::blockStep(workspace.step(), block);
  Matrix<Scalar> result = workspace.step().x.matrix();
  growth.commit();
  return result;
}

}}  // namespace driftless::DRIFTLESS_ABI
