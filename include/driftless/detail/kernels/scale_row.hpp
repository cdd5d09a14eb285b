#pragma once

#include "driftless/config.hpp"
#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Numbers become their products with a scale each, in place. Their count is a multiple of kLanes.
template <class Scalar>
void scaleRow(Scalar* row, Index count, const float* scales) {
  for (Index i = 0; i < count; i += kLanes)
    product(Lanes<Scalar>::load(row + i), loadLanes<Scalar>(scales + i)).store(row + i);
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
