#pragma once

#include <algorithm>
#include <limits>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Softmax without the final division: turns the scores of one row over `count` keys into numerators, in place, and
/// returns their sum, by which the weighted sum of the values is still to be divided. Writes up to the next whole
/// lanes.
template <class Scalar>
Scalar softmaxNumerators(Scalar* scores, Index count) {
  using L = Lanes<Scalar>;
  const Index padded = roundUpToLanes(count);
  std::fill(scores + count, scores + padded, -std::numeric_limits<Scalar>::infinity());
  L largest = L::load(scores);
  for (Index i = kLanes; i < padded; i += kLanes) {
    const L candidate = L::load(scores + i);
    largest = selectLess(largest, candidate, candidate, largest);
  }
  const L offset = L::broadcast(maxOfLanes(largest));
  L sum = L::broadcast(Scalar(0));
  for (Index i = 0; i < padded; i += kLanes) {
    const L numerator = exp(L::load(scores + i) - offset);
    numerator.store(scores + i);
    sum = sum + numerator;
  }
  return sumOfLanes(sum);
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
