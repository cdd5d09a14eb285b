#pragma once

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

#if defined(EIGEN_VECTORIZE_AVX512)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::half>(const Eigen::half* from) {
  return {{_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))}};
}

/// Of NaN, only the sign is kept, as by a cast in software.
template <>
EIGEN_STRONG_INLINE void storeLanes<float, Eigen::half>(const float* from, Eigen::half* to) {
  const __m512 numbers = _mm512_loadu_ps(from);
  const __m512i bits = _mm512_castps_si512(numbers), sign = _mm512_set1_epi32(static_cast<int>(0x80000000));
  const __m512i nan = _mm512_or_si512(_mm512_and_si512(bits, sign), _mm512_set1_epi32(0x7FC00000));
  const __m512i plain = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q), bits, nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(_mm512_castsi512_ps(plain), _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::half>(const Eigen::half* from) {
  const auto widen = [&](int i) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  };
  return {{widen(0), widen(8)}};
}

/// Of NaN, only the sign is kept, as by a cast in software.
template <>
EIGEN_STRONG_INLINE void storeLanes<float, Eigen::half>(const float* from, Eigen::half* to) {
  for (int i = 0; i < kLanes; i += 8) {
    const __m256 numbers = _mm256_loadu_ps(from + i), sign = _mm256_set1_ps(-0.0f);
    const __m256 nan = _mm256_or_ps(_mm256_and_ps(numbers, sign), _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
    const __m256 plain = _mm256_blendv_ps(numbers, nan, _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(plain, _MM_FROUND_TO_NEAREST_INT));
  }
}

#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::half>(const Eigen::half* from) {
  const auto widen = [&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(loadHalves(from + i))); };
  return {{widen(0), widen(4), widen(8), widen(12)}};
}

#endif

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
