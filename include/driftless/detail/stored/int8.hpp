#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Symmetric quantisation without a zero point: a column is its whole numbers times one scale, the column's largest
/// magnitude over 127. False if a number of the panel [in, width] is not finite.
template <class Scalar>
bool storeElements(const Scalar* values, Eigen::Index in, Eigen::Index width, std::int8_t* stored, float* scales) {
  constexpr float kLargest = 127;
  for (Eigen::Index column = 0; column < width; ++column) {
    float largest = 0;
    for (Eigen::Index i = column; i < in * width; i += width) {
      const float magnitude = std::abs(static_cast<float>(values[i]));
      if (!std::isfinite(magnitude)) return false;
      largest = (std::max)(largest, magnitude);
    }
    const float scale = largest / kLargest;
    for (Eigen::Index i = column; i < in * width; i += width) {
      const float whole = scale > 0 ? std::nearbyint(static_cast<float>(values[i]) / scale) : 0.0f;
      stored[i] = static_cast<std::int8_t>(std::clamp(whole, -kLargest, kLargest));
    }
    scales[column] = scale;
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
