#pragma once

#include <cstdint>
#include <cstring>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// The cast in whole numbers, of which compilers do sixteen at once: to the nearest, an even one on ties.
template <>
EIGEN_STRONG_INLINE void storeLanes<float, Eigen::bfloat16>(const float* from, Eigen::bfloat16* to) {
  std::uint32_t bits[kLanes];
  std::memcpy(bits, from, sizeof bits);
  for (std::uint32_t& number : bits) {
    const std::uint32_t nan = (number >> 16 & 0x8000) | 0x7FC0;
    const std::uint32_t rounded = (number + 0x7FFF + (number >> 16 & 1)) >> 16;
    number = (number & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded;
  }
  std::uint16_t halves[kLanes];
  for (Eigen::Index i = 0; i < kLanes; ++i) halves[i] = static_cast<std::uint16_t>(bits[i]);
  std::memcpy(static_cast<void*>(to), halves, sizeof halves);
}

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
