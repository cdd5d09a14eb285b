#pragma once

#include <algorithm>
#include <cmath>

#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

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

  // Padding that does not deviate from the mean.
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
void layerNorm(const PaddedRows<Scalar>& x, const LayerNorm<Scalar>& norm, ThreadPool& pool, PaddedRows<Scalar>& out) {
  constexpr Index kTaskRows = 16;
  out.resize(x.rows(), x.cols());
  pool.parallelFor((x.rows() + kTaskRows - 1) / kTaskRows, [&](Index task, int) {
    const Index end = (std::min)((task + 1) * kTaskRows, x.rows());
    for (Index row = task * kTaskRows; row < end; ++row) normalizeRow(x.row(row), norm, out.row(row));
  });
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
