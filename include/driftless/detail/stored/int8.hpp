#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Rows of a matrix of int8 that is packed for products in whole numbers.
constexpr Index roundUpToQuads(Index rows) { return (rows + 3) / 4 * 4; }

/// What is added there to numbers from -127 to 127.
inline constexpr int kInt8Shift = 128;

inline namespace DRIFTLESS_VECTORS {

/// Symmetric quantisation without a zero point: a column is its whole numbers times one scale, the column's largest
/// magnitude over 127. Calls put(row, column, number); false if a number of the panel [in, width] is not finite.
template <class Scalar, class Put>
bool roundToInt8(const Scalar* values, Eigen::Index in, Eigen::Index width, float* scales, Put put) {
  constexpr float kLargest = 127;
  for (Eigen::Index column = 0; column < width; ++column) {
    float largest = 0;
    for (Eigen::Index i = column; i < in * width; i += width) {
      const float magnitude = std::abs(static_cast<float>(values[i]));
      if (!std::isfinite(magnitude)) return false;
      largest = (std::max)(largest, magnitude);
    }
    const float scale = largest / kLargest;
    for (Eigen::Index row = 0; row < in; ++row) {
      const float whole = scale > 0 ? std::nearbyint(static_cast<float>(values[row * width + column]) / scale) : 0.0f;
      put(row, column, static_cast<std::int8_t>(std::clamp(whole, -kLargest, kLargest)));
    }
    scales[column] = scale;
  }
  return true;
}

template <class Scalar>
bool storeElements(const Scalar* values, Eigen::Index in, Eigen::Index width, std::int8_t* stored, float* scales) {
  return roundToInt8(values, in, width, scales, [=](Eigen::Index row, Eigen::Index column, std::int8_t number) {
    stored[row * width + column] = number;
  });
}

/// The same for products in whole numbers: four rows of a column side by side, [in / 4, width, 4], rounded up with rows
/// of zeros, each number with 128 added to it.
template <class Scalar>
bool storeInt8Quads(const Scalar* values, Eigen::Index in, Eigen::Index width, std::byte* quads, float* scales) {
  std::fill_n(quads, roundUpToQuads(in) * width, std::byte{kInt8Shift});
  return roundToInt8(values, in, width, scales, [=](Eigen::Index row, Eigen::Index column, std::int8_t number) {
    quads[(row / 4 * width + column) * 4 + row % 4] = static_cast<std::byte>(number + kInt8Shift);
  });
}

/// Row `row` of sixteen columns of such a panel.
template <class Scalar>
Lanes<Scalar> loadInt8Quads(const std::byte* quads, Index width, Index row, Index column) {
  std::uint32_t bits[kLanes];
  std::memcpy(bits, quads + (row / 4 * width + column) * 4, sizeof bits);
  const Index byte = std::endian::native == std::endian::little ? row % 4 : 3 - row % 4;
  Scalar numbers[kLanes];
  for (Index c = 0; c < kLanes; ++c)
    numbers[c] = static_cast<Scalar>(static_cast<std::int32_t>(bits[c] >> (8 * byte) & 0xFF) - kInt8Shift);
  return Lanes<Scalar>::load(numbers);
}

/// Row `row` of a column.
inline int int8QuadAt(const std::byte* quads, Index width, Index row, Index column) {
  return static_cast<int>(quads[(row / 4 * width + column) * 4 + row % 4]) - kInt8Shift;
}

#if defined(EIGEN_VECTORIZE_AVX512)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, std::int8_t>(const std::int8_t* from) {
  return {{_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))}};
}

#elif defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, std::int8_t>(const std::int8_t* from) {
  const auto widen = [&](int i) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i))));
  };
  return {{widen(0), widen(8)}};
}

#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, std::int8_t>(const std::int8_t* from) {
  const int8x16_t bytes = vld1q_s8(from);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

#endif

}  // namespace DRIFTLESS_VECTORS

}}}  // namespace driftless::DRIFTLESS_ABI::detail
