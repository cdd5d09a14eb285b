#pragma once

#include <cmath>
#include <type_traits>

#include "driftless/attention.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless::inline DRIFTLESS_ABI {

namespace detail {

/// out = (x - mean) / sqrt(variance + epsilon) * weight + bias over one row [C].
template <class Scalar>
void normalizeRow(const Scalar* x, const LayerNorm<Scalar>& norm, Scalar* out) {
  using L = Lanes<Scalar>;
  const Index C = norm.width;
  const Index padded = roundUpToLanes(C);
  std::copy_n(x, C, out);

  std::fill(out + C, out + padded, Scalar(0));
  L sum = L::broadcast(Scalar(0));
  for (Index c = 0; c < padded; c += kLanes) sum = sum + L::load(out + c);
  const Scalar mean = sumOfLanes(sum) / static_cast<Scalar>(C);

  // Padding that deviates from the mean by nothing.
  std::fill(out + C, out + padded, mean);
  L squares = L::broadcast(Scalar(0));
  for (Index c = 0; c < padded; c += kLanes) {
    const L deviation = L::load(out + c) - L::broadcast(mean);
    squares = fusedMultiplyAdd(deviation, deviation, squares);
  }
  const Scalar variance = sumOfLanes(squares) / static_cast<Scalar>(C);
  const Scalar inverse = Scalar(1) / std::sqrt(variance + norm.epsilon);

  for (Index c = 0; c < padded; c += kLanes) {
    const L deviation = L::load(out + c) - L::broadcast(mean);
    fusedMultiplyAdd(product(deviation, L::broadcast(inverse)), L::load(norm.weight.data() + c),
                     L::load(norm.bias.data() + c))
        .store(out + c);
  }
}

template <class Scalar>
void layerNorm(const Rows<Scalar>& x, const LayerNorm<Scalar>& norm, ThreadPool& pool, Rows<Scalar>& out) {
  constexpr Index kTaskRows = 16;
  out.resize(x.rows(), x.cols());
  pool.parallelFor((x.rows() + kTaskRows - 1) / kTaskRows, [&](Index task, int) {
    const Index end = (std::min)((task + 1) * kTaskRows, x.rows());
    for (Index row = task * kTaskRows; row < end; ++row) normalizeRow(x.row(row), norm, out.row(row));
  });
}

template <class Scalar>
Lanes<Scalar> activate(Activation activation, const Lanes<Scalar>& x) {
  using L = Lanes<Scalar>;
  const L zero = L::broadcast(Scalar(0)), one = L::broadcast(Scalar(1)), two = L::broadcast(Scalar(2));
  switch (activation) {
    case Activation::gelu_new: {
      // 0.5 x (1 + tanh(u)) = x * sigmoid(2u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
      constexpr Scalar kTwiceSlope = Scalar(2) * std::numbers::sqrt2_v<Scalar> * std::numbers::inv_sqrtpi_v<Scalar>;
      const L cubic = fusedMultiplyAdd(product(x, x), L::broadcast(Scalar(0.044715)), one);
      return product(x, sigmoid(product(product(x, cubic), L::broadcast(kTwiceSlope))));
    }
    case Activation::gelu: {
      const L half = product(x, L::broadcast(Scalar(0.5)));
      return fusedMultiplyAdd(half, erfOverSqrt2(x), half);
    }
    case Activation::relu:
      return selectLess(x, zero, zero, x);
    case Activation::silu:
      return product(x, sigmoid(x));
    case Activation::tanh:
      return fusedMultiplyAdd(two, sigmoid(product(two, x)), zero - one);
  }
  return x;
}

/// c_proj(activation(c_fc(x [T, C]))), [T, C], as store(row, column, lanes).
template <class Scalar, class Stored, class Store>
void mlp(const Rows<Scalar>& x, const Mlp<Scalar, Stored>& mlp, ThreadPool& pool, Rows<Scalar>& hidden, Store store) {
  hidden.resize(x.rows(), mlp.c_fc.weight.out());
  linear(x, mlp.c_fc, pool, [&](Index row, Index column, const Lanes<Scalar>& value) {
    activate(mlp.activation_function, value).store(hidden.row(row) + column);
  });
  linear(hidden, mlp.c_proj, pool, store);
}

/// Takes the residual stream workspace.x [T, C] through one block. Its rows are those of workspace.segments.
template <class Scalar, class Stored, class CacheStored, class Observer>
void blockStep(const Block<Scalar, Stored>& block, ThreadPool& pool, Workspace<Scalar, CacheStored>& workspace,
               Observer& observer) {
  layerNorm(workspace.x, block.ln_1, pool, workspace.normed);
  tell(observer, Part::norm);
  attnStep(workspace.normed, block.attn, pool, workspace, addTo(workspace.x), observer);
  layerNorm(workspace.x, block.ln_2, pool, workspace.normed);
  tell(observer, Part::norm);
  mlp(workspace.normed, block.mlp, pool, workspace.hidden, addTo(workspace.x));
  tell(observer, Part::linear);
}

}  // namespace detail

/// LayerNorm (Ba et al. 2016) of every row of x [T, C], with the biased variance: [T, C].
template <class Scalar>
Matrix<Scalar> layerNorm(const std::type_identity_t<Matrix<Scalar>>& x, const LayerNorm<Scalar>& norm) {
  detail::checkWidth(x, norm.width);
  detail::ThreadPool pool(1);
  detail::Rows<Scalar> out;
  detail::layerNorm(detail::rowsOf(x), norm, pool, out);
  return out.matrix();
}

/// The feed-forward sublayer of ln_2's output x [T, C]: [T, C], before the residual is added.
template <class Scalar, class Stored>
Matrix<Scalar> mlp(const std::type_identity_t<Matrix<Scalar>>& x, const Mlp<Scalar, Stored>& mlp) {
  detail::checkWidth(x, mlp.c_fc.weight.in());
  detail::ThreadPool pool(1);
  detail::Rows<Scalar> hidden, out;
  out.resize(x.rows(), x.cols());
  detail::mlp(detail::rowsOf(x), mlp, pool, hidden, detail::writeTo(out));
  return out.matrix();
}

/// One block over T new rows of one sequence: x + attnStep(ln_1(x)), then that + mlp(ln_2(that)). x is the residual
/// stream [T, C], and so is what is returned. Errors as for attnStep.
template <class Scalar, class Stored, class CacheStored>
Matrix<Scalar> blockStep(const std::type_identity_t<Matrix<Scalar>>& x, const Block<Scalar, Stored>& block,
                         LayerCache<Scalar, CacheStored>& cache) {
  detail::checkLayerStep(x, block.ln_1.width, block.attn.n_head, cache);
  detail::ThreadPool pool(1);
  detail::Workspace<Scalar, CacheStored> workspace;
  workspace.segments = {{&cache, 0, x.rows(), 0, cache.length(), nullptr}};
  detail::NoObserver observer;
  return detail::allOrNothing(cache, [&]() -> Matrix<Scalar> {
    workspace.x = detail::rowsOf(x);
    detail::blockStep(block, pool, workspace, observer);
    return workspace.x.matrix();
  });
}

}  // namespace driftless::inline DRIFTLESS_ABI
