#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

inline constexpr float kInt8Largest = 127;

/// The scales of int8 columns: a column's largest magnitude over 127. False if a number of the panel [in, width] is not
/// finite.
template <class Scalar>
bool findInt8Scales(const Scalar* values, Eigen::Index in, Eigen::Index width, float* scales) {
  using L = Lanes<float>;
  const L zero = L::broadcast(0);
  L faults = zero;  // NaN where a number is not finite, for only then x - x is NaN
  std::fill_n(scales, width, 0.0f);
  for (Eigen::Index row = 0; row < in; ++row)
    for (Eigen::Index column = 0; column < width; column += kLanes) {
      const L number = loadLanes<float>(values + row * width + column), negative = zero - number;
      const L magnitude = selectLess(number, negative, negative, number), largest = L::load(scales + column);
      selectLess(largest, magnitude, magnitude, largest).store(scales + column);
      faults = faults + (number - number);
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

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
