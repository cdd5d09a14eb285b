#pragma once

#include <cstdint>

#include "driftless/config.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Up to kTileRows rows of numbers rounded to 8 bits, where a kernel finds them.
template <class Scalar>
struct QuantizedTile {
  const std::int8_t* values;  ///< [rows, stride], -127 to 127, and zeros up to whole groups
  Index stride;
  const std::int32_t* sums;  ///< [rows, groups] of the values of each group
  Index groups;
  const Scalar* scales;  ///< [rows] by which the values are to be multiplied

  /// The same from another row on.
  QuantizedTile from(Index row) const {
    return {values + row * stride, stride, sums + row * groups, groups, scales + row};
  }
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
