#pragma once

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Numbers become e to their power, in place. Their count is a multiple of kLanes.
template <class Scalar>
void exponentiate(Scalar* numbers, Index count) {
  for (Index i = 0; i < count; i += kLanes) exp(Lanes<Scalar>::load(numbers + i)).store(numbers + i);
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
