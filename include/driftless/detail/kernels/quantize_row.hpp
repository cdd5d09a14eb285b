#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/kernels/quantized_tile.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Rounds the elements of one row [width] that are no outliers to whole numbers from -127 to 127, to be multiplied by
/// the scale that is returned, and adds up those of each group. Those of the others, and of what follows up to
/// `padded`, are zero. `outliers` gets the indices of the others and a -1 at the end. A row of numbers that are hardly
/// more than the smallest is taken for zero: its scale is 0. That of a row with a number that is not finite is NaN.
template <class Scalar>
Scalar quantizeRow(const Scalar* x, Index width, Index group, Index padded, std::int8_t* values, std::int32_t* sums,
                   std::int32_t* outliers) {
  using L = Lanes<Scalar>;
  constexpr Scalar kLargest = 127;
  constexpr Scalar kSmallest = kLargest * kLargest * (std::numeric_limits<Scalar>::min)();
  const auto load = [&](Index i) {
    if (i + kLanes <= width) return L::load(x + i);
    Scalar rest[kLanes] = {};
    std::copy(x + i, x + width, rest);
    return L::load(rest);
  };
  const L zero = L::broadcast(Scalar(0));
  L total = zero, largest = zero, not_finite = zero;
  for (Index i = 0; i < width; i += kLanes) {
    const L number = load(i), size = magnitude(number);
    total = total + size;
    largest = selectLess(largest, size, size, largest);
    not_finite = not_finite + zeroIfFinite(number);
  }
  std::fill_n(values, padded, std::int8_t{0});
  std::fill_n(sums, (width + group - 1) / group, 0);
  *outliers = -1;
  if (!(sumOfLanes(not_finite) == 0)) return std::numeric_limits<Scalar>::quiet_NaN();

  const Scalar outlier_limit = sumOfLanes(total) / static_cast<Scalar>(width) * Scalar(kOutlierRatio);
  if (outlier_limit < kSmallest) return 0;
  const L limit = L::broadcast(outlier_limit);
  if (isAnyLess(limit, largest)) {
    largest = zero;
    for (Index i = 0; i < width; i += kLanes) {
      const L size = magnitude(load(i));
      if (isAnyLess(limit, size)) {
        Scalar sizes[kLanes];
        size.store(sizes);
        for (std::int32_t lane = 0; lane < kLanes; ++lane)
          if (sizes[lane] > outlier_limit) *outliers++ = static_cast<std::int32_t>(i) + lane;
      }
      largest = selectLess(largest, size, selectLess(limit, size, largest, size), largest);
    }
    *outliers = -1;
  }
  const Scalar most = maxOfLanes(largest);
  if (most < kSmallest) return 0;

  // Added to a number, it leaves the nearest integer in the low bits.
  const L rounder = L::broadcast(Scalar(1.5) / std::numeric_limits<Scalar>::epsilon());
  const L inverse = L::broadcast(kLargest / most);
  for (Index begin = 0; begin < width; begin += group) {
    L sum = zero;  // exact: of whole numbers
    for (Index i = begin; i < (std::min)(begin + group, width); i += kLanes) {
      const L number = load(i);
      const L shifted = fusedMultiplyAdd(selectLess(limit, magnitude(number), zero, number), inverse, rounder);
      sum = sum + (shifted - rounder);
      using Bits = std::conditional_t<sizeof(Scalar) == 8, std::uint64_t, std::uint32_t>;
      Bits bits[kLanes];
      static_assert(sizeof bits == sizeof shifted);
      std::memcpy(bits, &shifted, sizeof bits);
      for (Index lane = 0; lane < kLanes; ++lane)
        values[i + lane] = static_cast<std::int8_t>(static_cast<std::uint8_t>(bits[lane]));
    }
    sums[begin / group] = static_cast<std::int32_t>(sumOfLanes(sum));
  }
  return most / kLargest;
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
