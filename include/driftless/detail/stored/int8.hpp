#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Symmetric quantisation without a zero point: numbers are whole numbers times one scale, which is returned, their
/// largest magnitude over 127. It is NaN, and the whole numbers are zeros, if one of them is not finite. Strides are in
/// numbers.
template <class Scalar>
EIGEN_STRONG_INLINE float quantize(const Scalar* values, Eigen::Index stride, Eigen::Index count, std::int8_t* stored,
                                   Eigen::Index stored_stride) {
  constexpr float kLargest = 127;
  // The bits of magnitudes are in the order of the magnitudes, with infinity and NaN after all others.
  std::uint32_t largest_bits = 0;
  for (Eigen::Index i = 0; i < count; ++i)
    largest_bits =
        (std::max)(largest_bits, std::bit_cast<std::uint32_t>(std::abs(static_cast<float>(values[i * stride]))));
  const float largest = std::bit_cast<float>(largest_bits);
  const float scale = std::isfinite(largest) ? largest / kLargest : std::numeric_limits<float>::quiet_NaN();
  if (!(scale > 0)) {
    for (Eigen::Index i = 0; i < count; ++i) stored[i * stored_stride] = 0;
    return scale;
  }
  for (Eigen::Index i = 0; i < count; ++i) {
    const float whole = std::nearbyint(static_cast<float>(values[i * stride]) / scale);
    stored[i * stored_stride] = static_cast<std::int8_t>(std::clamp(whole, -kLargest, kLargest));
  }
  return scale;
}

/// Every column with a scale of its own. False if a number of the panel [in, width] is not finite.
template <class Scalar>
bool storeElements(const Scalar* values, Eigen::Index in, Eigen::Index width, std::int8_t* stored, float* scales) {
  for (Eigen::Index column = 0; column < width; ++column) {
    scales[column] = quantize(values + column, width, in, stored + column, width);
    if (!std::isfinite(scales[column])) return false;
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
