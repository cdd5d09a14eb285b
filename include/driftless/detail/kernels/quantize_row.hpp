#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Rounds one row [width] to whole numbers from -127 to 127, to be multiplied by the scale that is returned, and adds
/// up those of each group. They are followed by zeros up to `padded`. A row that is as good as zero has the scale 0,
/// one with a number that is not finite the scale NaN.
template <class Scalar>
Scalar quantizeRow(const Scalar* x, Index width, Index group, Index padded, std::int8_t* values, std::int32_t* sums) {
  using L = Lanes<Scalar>;
  constexpr Scalar kLargest = 127;
  const auto load = [&](Index i) {
    if (i + kLanes <= width) return L::load(x + i);
    Scalar rest[kLanes] = {};
    std::copy(x + i, x + width, rest);
    return L::load(rest);
  };
  const L zero = L::broadcast(Scalar(0));
  L largest = zero, not_finite = zero;
  for (Index i = 0; i < width; i += kLanes) {
    const L number = load(i), negative = zero - number;
    const L magnitude = selectLess(number, negative, negative, number);
    largest = selectLess(largest, magnitude, magnitude, largest);
    not_finite = not_finite + (number - number);
  }
  const Scalar most = maxOfLanes(largest);
  std::fill_n(values, padded, std::int8_t{0});
  std::fill_n(sums, (width + group - 1) / group, 0);
  if (!(sumOfLanes(not_finite) == 0)) return std::numeric_limits<Scalar>::quiet_NaN();
  if (most < kLargest * kLargest * std::numeric_limits<Scalar>::min()) return 0;

  // Added to a number, it leaves the nearest integer.
  const L rounder = L::broadcast(Scalar(1.5) / std::numeric_limits<Scalar>::epsilon());
  const L inverse = L::broadcast(kLargest / most);
  for (Index i = 0; i < width; i += kLanes) {
    Scalar whole[kLanes];
    (fusedMultiplyAdd(load(i), inverse, rounder) - rounder).store(whole);
    std::int32_t sum = 0;
    for (Index lane = 0; lane < kLanes; ++lane) {
      const auto integer = static_cast<std::int32_t>(whole[lane]);
      values[i + lane] = static_cast<std::int8_t>(integer);
      sum += integer;
    }
    sums[i / group] += sum;
  }
  return most / kLargest;
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
