#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <cstring>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/lanes.hpp"

#if defined(EIGEN_VECTORIZE_AVX512) || (defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__))
#include <immintrin.h>
#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace driftless::inline DRIFTLESS_ABI::detail {

/// Sixteen stored numbers in the type of arithmetic. Widening is exact, so it is the same by every instruction.
template <class Scalar, class Stored>
EIGEN_STRONG_INLINE Lanes<Scalar> loadLanes(const Stored* from) {
  Scalar values[kLanes];
  for (Eigen::Index i = 0; i < kLanes; ++i) values[i] = static_cast<Scalar>(from[i]);
  return Lanes<Scalar>::load(values);
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, float>(const float* from) {
  return Lanes<float>::load(from);
}

template <>
EIGEN_STRONG_INLINE Lanes<double> loadLanes<double, double>(const double* from) {
  return Lanes<double>::load(from);
}

#if defined(EIGEN_VECTORIZE_AVX512)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::half>(const Eigen::half* from) {
  return {{_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))}};
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::bfloat16>(const Eigen::bfloat16* from) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))}};
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, std::int8_t>(const std::int8_t* from) {
  return {{_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))}};
}

#elif defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::half>(const Eigen::half* from) {
  const auto widen = [&](int i) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  };
  return {{widen(0), widen(8)}};
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::bfloat16>(const Eigen::bfloat16* from) {
  const auto widen = [&](int i) {
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  };
  return {{widen(0), widen(8)}};
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, std::int8_t>(const std::int8_t* from) {
  const auto widen = [&](int i) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i))));
  };
  return {{widen(0), widen(8)}};
}

#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)

inline uint16x4_t loadHalves(const void* from) {
  uint16x4_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::half>(const Eigen::half* from) {
  const auto widen = [&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(loadHalves(from + i))); };
  return {{widen(0), widen(4), widen(8), widen(12)}};
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, Eigen::bfloat16>(const Eigen::bfloat16* from) {
  const auto widen = [&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(loadHalves(from + i), 16)); };
  return {{widen(0), widen(4), widen(8), widen(12)}};
}

template <>
EIGEN_STRONG_INLINE Lanes<float> loadLanes<float, std::int8_t>(const std::int8_t* from) {
  const int8x16_t bytes = vld1q_s8(from);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

#endif

}  // namespace driftless::inline DRIFTLESS_ABI::detail
