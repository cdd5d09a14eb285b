#pragma once

#include <algorithm>
#include <cmath>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// LayerNorm: out = (x - mean) / sqrt(variance + epsilon) * weight + bias over one row [C]. Weight, bias and out are
/// padded to whole lanes.
template <class Scalar>
void normalizeRow(const Scalar* x, Index C, Scalar epsilon, const Scalar* weight, const Scalar* bias, Scalar* out) {
  using L = Lanes<Scalar>;
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
  const Scalar inverse = Scalar(1) / std::sqrt(variance + epsilon);

  for (Index c = 0; c < padded; c += kLanes) {
    const L deviation = L::load(out + c) - L::broadcast(mean);
    fusedMultiplyAdd(product(deviation, L::broadcast(inverse)), L::load(weight + c), L::load(bias + c)).store(out + c);
  }
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
