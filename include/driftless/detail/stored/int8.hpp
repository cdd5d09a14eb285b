#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Rows of a matrix of int8 that is packed for products in whole numbers.
EIGEN_STRONG_INLINE constexpr Index roundUpToQuads(Index rows) { return (rows + 3) / 4 * 4; }

/// What is added there to numbers from -127 to 127, so that they are stored without a sign.
inline constexpr int kInt8ZeroPoint = 128;

inline namespace DRIFTLESS_VECTORS {

inline constexpr float kInt8Largest = 127;

/// The scales of int8 columns: a column's largest magnitude over 127. False if a number of the panel [in, width] is not
/// finite.
template <class Scalar>
bool findInt8Scales(const Scalar* values, Eigen::Index in, Eigen::Index width, float* scales) {
  using L = Lanes<float>;
  const L zero = L::broadcast(0);
  L faults = zero;
  std::fill_n(scales, width, 0.0f);
  for (Eigen::Index row = 0; row < in; ++row)
    for (Eigen::Index column = 0; column < width; column += kLanes) {
      const L number = loadLanes<float>(values + row * width + column);
      const L size = magnitude(number), largest = L::load(scales + column);
      selectLess(largest, size, size, largest).store(scales + column);
      faults = faults + zeroIfFinite(number);
    }
  for (Eigen::Index column = 0; column < width; ++column) scales[column] /= kInt8Largest;
  return !std::isnan(sumOfLanes(faults));
}

/// Sixteen numbers of as many columns, each over its column's scale, rounded to whole numbers; zeros if that is zero.
EIGEN_STRONG_INLINE void roundToInt8(const Lanes<float>& numbers, const float* scales, std::int8_t* rounded) {
  using L = Lanes<float>;
  const L scale = L::load(scales), zero = L::broadcast(0);
  // Added to a number, it leaves the nearest integer.
  const L rounder = L::broadcast(1.5f / std::numeric_limits<float>::epsilon());
  float whole[kLanes];
  selectLess(zero, scale, (numbers / scale + rounder) - rounder, zero).store(whole);
  // Two loops, of which compilers do all sixteen at once. A scale that is subnormal may be too small by half.
  std::int32_t clamped[kLanes];
  constexpr auto kMost = static_cast<std::int32_t>(kInt8Largest);
  for (Eigen::Index i = 0; i < kLanes; ++i) clamped[i] = std::clamp(static_cast<std::int32_t>(whole[i]), -kMost, kMost);
  for (Eigen::Index i = 0; i < kLanes; ++i) rounded[i] = static_cast<std::int8_t>(clamped[i]);
}

/// Symmetric quantisation without a zero point: a column is its whole numbers times its scale. As storePanel.
template <class Scalar>
bool storeElements(const Scalar* values, Eigen::Index in, Eigen::Index width, std::int8_t* stored, float* scales) {
  if (!findInt8Scales(values, in, width, scales)) return false;
  for (Eigen::Index row = 0; row < in; ++row)
    for (Eigen::Index column = 0; column < width; column += kLanes) {
      const Eigen::Index at = row * width + column;
      roundToInt8(loadLanes<float>(values + at), scales + column, stored + at);
    }
  return true;
}

/// Stores one head's key or value, numbers `stride` apart, and returns its scale. That is NaN, and the whole numbers
/// are zeros, if one of the numbers is not finite.
template <class Scalar>
float storeInt8Row(const Scalar* values, Eigen::Index count, std::int8_t* stored, Eigen::Index stride) {
  float largest = 0, faults = 0;
  for (Eigen::Index i = 0; i < count; ++i) {
    const float value = static_cast<float>(values[i]);
    largest = (std::max)(largest, std::abs(value));
    faults += value - value;
  }
  const float scale = std::isnan(faults) ? std::numeric_limits<float>::quiet_NaN() : largest / kInt8Largest;
  float scales[kLanes];
  std::fill_n(scales, kLanes, scale > 0 ? scale : 0.0f);
  for (Eigen::Index first = 0; first < count; first += kLanes) {
    const Eigen::Index some = (std::min)(kLanes, count - first);
    float numbers[kLanes] = {};
    for (Eigen::Index i = 0; i < some; ++i) numbers[i] = static_cast<float>(values[first + i]);
    std::int8_t rounded[kLanes];
    roundToInt8(Lanes<float>::load(numbers), scales, rounded);
    for (Eigen::Index i = 0; i < some; ++i) stored[(first + i) * stride] = rounded[i];
  }
  return scale;
}

/// The same for products in whole numbers: four rows of a column side by side, [in / 4, width, 4], rounded up with rows
/// of zeros, each number with 128 added to it.
template <class Scalar>
bool storeInt8Quads(const Scalar* values, Eigen::Index in, Eigen::Index width, std::byte* quads, float* scales) {
  if (!findInt8Scales(values, in, width, scales)) return false;
  std::fill_n(quads, roundUpToQuads(in) * width, std::byte{kInt8ZeroPoint});
  for (Eigen::Index row = 0; row < in; ++row)
    for (Eigen::Index column = 0; column < width; column += kLanes) {
      std::int8_t rounded[kLanes];
      roundToInt8(loadLanes<float>(values + row * width + column), scales + column, rounded);
      std::byte* const bytes = quads + (row / 4 * width + column) * 4 + row % 4;
      for (Eigen::Index i = 0; i < kLanes; ++i) bytes[4 * i] = static_cast<std::byte>(rounded[i] + kInt8ZeroPoint);
    }
  return true;
}

/// Row `row` of sixteen columns of such a panel.
template <class Scalar>
Lanes<Scalar> loadInt8Quads(const std::byte* quads, Index width, Index row, Index column) {
  std::uint32_t bits[kLanes];
  std::memcpy(bits, quads + (row / 4 * width + column) * 4, sizeof bits);
  const Index byte = std::endian::native == std::endian::little ? row % 4 : 3 - row % 4;
  Scalar numbers[kLanes];
  for (Index c = 0; c < kLanes; ++c)
    numbers[c] = static_cast<Scalar>(static_cast<std::int32_t>(bits[c] >> (8 * byte) & 0xFF) - kInt8ZeroPoint);
  return Lanes<Scalar>::load(numbers);
}

/// Row `row` of a column.
inline int int8QuadAt(const std::byte* quads, Index width, Index row, Index column) {
  return static_cast<int>(quads[(row / 4 * width + column) * 4 + row % 4]) - kInt8ZeroPoint;
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
