#pragma once

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

#if defined(EIGEN_VECTORIZE_AVX512)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::bfloat16>(const Eigen::bfloat16* from) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))}};
}

#elif defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::bfloat16>(const Eigen::bfloat16* from) {
  const auto widen = [&](int i) {
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  };
  return {{widen(0), widen(8)}};
}

#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::bfloat16>(const Eigen::bfloat16* from) {
  const auto widen = [&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(loadHalves(from + i), 16)); };
  return {{widen(0), widen(4), widen(8), widen(12)}};
}

#endif

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
