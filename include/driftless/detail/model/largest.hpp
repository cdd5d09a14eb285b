#pragma once

#include <limits>
#include <span>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// The largest number; minus infinity where there is none. In lanes, for it is on every token's way.
template <class Scalar>
Scalar largestOf(std::span<const Scalar> numbers) {
  const auto take = [](const Lanes<Scalar>& largest, const Lanes<Scalar>& some) {
    return selectLess(largest, some, some, largest);
  };
  const Scalar* at = numbers.data();
  const Scalar* const end = at + numbers.size();
  Lanes<Scalar> largest = Lanes<Scalar>::broadcast(-std::numeric_limits<Scalar>::infinity());
  for (; end - at >= kLanes; at += kLanes) largest = take(largest, Lanes<Scalar>::load(at));
  for (; at != end; ++at) largest = take(largest, Lanes<Scalar>::broadcast(*at));
  return maxOfLanes(largest);
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
