#pragma once

#include <cstdint>

#include "driftless/config.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// An element of a row whose magnitude is above so many times the mean of all is an outlier. In GPT-2, a few channels
/// are such, and rounding the others by a scale that they set would lose most of these. (Dettmers et al. 2022,
/// LLM.int8(), look for columns in which any row has one; what is decided row by row does not depend on a row's
/// company.)
inline constexpr int kOutlierRatio = 6;

/// Consecutive rows rounded to 8 bits, where a kernel finds them.
template <class Scalar>
struct QuantizedTile {
  const std::int8_t* values;  ///< [rows, stride], -127 to 127, and zeros up to whole groups
  Index stride;
  const std::int32_t* sums;  ///< [rows, groups] of the values of each group
  Index groups;
  const Scalar* scales;          ///< [rows] by which the values are to be multiplied
  const std::int32_t* outliers;  ///< [rows, outlier_stride] indices of what is not rounded, -1 after the last
  Index outlier_stride;
  const Scalar* numbers;  ///< [rows, number_stride] what was rounded
  Index number_stride;

  /// The same from another row on.
  EIGEN_STRONG_INLINE QuantizedTile from(Index row) const {
    return {values + row * stride,           stride,         sums + row * groups,           groups,       scales + row,
            outliers + row * outlier_stride, outlier_stride, numbers + row * number_stride, number_stride};
  }
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
