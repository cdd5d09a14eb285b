#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "driftless/detail/kernels/lanes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

// Products of whole numbers of 8 bits, added up in 32. Such sums are exact, so that they are the same in whatever order
// and by whatever instruction. Each processor has the operations below on its own registers:
//
// IntegerPacket        32-bit sums, kPacketIntegers of them; or four bytes for each of these, a quad
// repeatInteger        one number in every sum
// loadPacket           from memory, at any alignment
// repeatQuad           one quad, over and over
// lowNibbles, highNibbles   of every byte
// addNibbleDots(sum, a, b)  to every sum the dot product of a quad of a, 0 to 15, and one of b, -127 to 127
// int8Weights          a packet of numbers from -127 to 127 that 128 has been added to, made ready for
// addDots(sum, a, b)   as above, but for the sum of b times kInt8Offset, which is to be taken off: what is left of the
//                      128 where an instruction wants one factor to be unsigned
// storeIntegers        the sums as numbers of type Scalar, each rounded once if it has too many digits

#if defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512BW__)

using IntegerPacket = __m512i;
inline constexpr int kPacketIntegers = 16;
EIGEN_STRONG_INLINE IntegerPacket repeatInteger(std::int32_t value) { return _mm512_set1_epi32(value); }
EIGEN_STRONG_INLINE IntegerPacket loadPacket(const std::byte* from) { return _mm512_loadu_si512(from); }
EIGEN_STRONG_INLINE void storeIntegers(IntegerPacket sums, float* to) {
  _mm512_storeu_ps(to, _mm512_cvtepi32_ps(sums));
}
EIGEN_STRONG_INLINE IntegerPacket bytewiseAnd(IntegerPacket packet, char mask) {
  return _mm512_and_si512(packet, _mm512_set1_epi8(mask));
}
EIGEN_STRONG_INLINE IntegerPacket shiftedBy4(IntegerPacket packet) { return _mm512_srli_epi16(packet, 4); }
#if !DRIFTLESS_HAS_BYTE_DOTS
EIGEN_STRONG_INLINE IntegerPacket addPairDots(IntegerPacket sum, IntegerPacket a, IntegerPacket b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1)));
}
/// The magnitudes as unsigned bytes; their signs go to the other factor.
struct Int8Weights {
  IntegerPacket magnitudes;
  __mmask64 is_negative;
};
EIGEN_STRONG_INLINE Int8Weights int8Weights(IntegerPacket packet) {
  const IntegerPacket numbers = _mm512_xor_si512(packet, _mm512_set1_epi8(char(0x80)));
  return {_mm512_abs_epi8(numbers), _mm512_movepi8_mask(numbers)};
}
EIGEN_STRONG_INLINE IntegerPacket withSigns(IntegerPacket factor, const Int8Weights& weights) {
  return _mm512_mask_sub_epi8(factor, weights.is_negative, _mm512_setzero_si512(), factor);
}
#endif

#elif defined(EIGEN_VECTORIZE_AVX2)

using IntegerPacket = __m256i;
inline constexpr int kPacketIntegers = 8;
EIGEN_STRONG_INLINE IntegerPacket repeatInteger(std::int32_t value) { return _mm256_set1_epi32(value); }
EIGEN_STRONG_INLINE IntegerPacket loadPacket(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
EIGEN_STRONG_INLINE void storeIntegers(IntegerPacket sums, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtepi32_ps(sums));
}
EIGEN_STRONG_INLINE IntegerPacket bytewiseAnd(IntegerPacket packet, char mask) {
  return _mm256_and_si256(packet, _mm256_set1_epi8(mask));
}
EIGEN_STRONG_INLINE IntegerPacket shiftedBy4(IntegerPacket packet) { return _mm256_srli_epi16(packet, 4); }
#if !DRIFTLESS_HAS_BYTE_DOTS
EIGEN_STRONG_INLINE IntegerPacket addPairDots(IntegerPacket sum, IntegerPacket a, IntegerPacket b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
/// The magnitudes as unsigned bytes; their signs go to the other factor.
struct Int8Weights {
  IntegerPacket magnitudes, numbers;
};
EIGEN_STRONG_INLINE Int8Weights int8Weights(IntegerPacket packet) {
  const IntegerPacket numbers = _mm256_xor_si256(packet, _mm256_set1_epi8(char(0x80)));
  return {_mm256_abs_epi8(numbers), numbers};
}
EIGEN_STRONG_INLINE IntegerPacket withSigns(IntegerPacket factor, const Int8Weights& weights) {
  return _mm256_sign_epi8(factor, weights.numbers);
}
#endif

#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)

using IntegerPacket = int32x4_t;
inline constexpr int kPacketIntegers = 4;
EIGEN_STRONG_INLINE IntegerPacket repeatInteger(std::int32_t value) { return vdupq_n_s32(value); }
EIGEN_STRONG_INLINE IntegerPacket loadPacket(const std::byte* from) {
  return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
}
EIGEN_STRONG_INLINE void storeIntegers(IntegerPacket sums, float* to) { vst1q_f32(to, vcvtq_f32_s32(sums)); }
EIGEN_STRONG_INLINE IntegerPacket bytewiseAnd(IntegerPacket packet, std::uint8_t mask) {
  return vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(packet), vdupq_n_u8(mask)));
}
EIGEN_STRONG_INLINE IntegerPacket shiftedBy4(IntegerPacket packet) {
  return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(packet), 4));
}
EIGEN_STRONG_INLINE IntegerPacket withoutOffset(IntegerPacket packet) {
  return vreinterpretq_s32_u8(veorq_u8(vreinterpretq_u8_s32(packet), vdupq_n_u8(0x80)));
}
EIGEN_STRONG_INLINE IntegerPacket addSignedDots(IntegerPacket sum, IntegerPacket a, IntegerPacket b) {
  const int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(b);
#if DRIFTLESS_HAS_BYTE_DOTS
  return vdotq_s32(sum, x, y);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
  return vpadalq_s16(sum, vpaddq_s16(low, high));  // of two products: at most 2 * 127 * 127 in 16 bits
#endif
}

#else

inline constexpr int kPacketIntegers = static_cast<int>(kLanes);
struct IntegerPacket {
  std::int32_t integer[std::size_t{kPacketIntegers}];
};
EIGEN_STRONG_INLINE IntegerPacket repeatInteger(std::int32_t value) {
  IntegerPacket packet;
  for (std::int32_t& integer : packet.integer) integer = value;
  return packet;
}
EIGEN_STRONG_INLINE IntegerPacket loadPacket(const std::byte* from) {
  IntegerPacket packet;
  std::memcpy(&packet, from, sizeof packet);
  return packet;
}
/// f(byte) for every byte.
template <class F>
EIGEN_STRONG_INLINE IntegerPacket eachByte(F f, const IntegerPacket& a) {
  std::uint8_t bytes[sizeof(IntegerPacket)];
  std::memcpy(bytes, &a, sizeof bytes);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(f(byte));
  IntegerPacket result;
  std::memcpy(&result, bytes, sizeof bytes);
  return result;
}
EIGEN_STRONG_INLINE IntegerPacket bytewiseAnd(const IntegerPacket& packet, int mask) {
  return eachByte([mask](int byte) { return byte & mask; }, packet);
}
EIGEN_STRONG_INLINE IntegerPacket shiftedBy4(const IntegerPacket& packet) {
  return eachByte([](int byte) { return byte >> 4; }, packet);
}
EIGEN_STRONG_INLINE IntegerPacket withoutOffset(const IntegerPacket& packet) {
  return eachByte([](int byte) { return byte ^ 0x80; }, packet);
}
EIGEN_STRONG_INLINE IntegerPacket addSignedDots(IntegerPacket sum, const IntegerPacket& a, const IntegerPacket& b) {
  std::int8_t x[sizeof(IntegerPacket)], y[sizeof(IntegerPacket)];
  std::memcpy(x, &a, sizeof x);
  std::memcpy(y, &b, sizeof y);
  for (int i = 0; i < kPacketIntegers; ++i)
    for (int j = 4 * i; j < 4 * i + 4; ++j) sum.integer[i] += x[j] * y[j];
  return sum;
}
EIGEN_STRONG_INLINE void storeIntegers(const IntegerPacket& sums, float* to) {
  for (int i = 0; i < kPacketIntegers; ++i) to[i] = static_cast<float>(sums.integer[i]);
}

#endif

#if DRIFTLESS_HAS_BYTE_DOTS && defined(EIGEN_VECTORIZE_AVX2)

inline constexpr std::int32_t kInt8Offset = 128;
struct Int8Weights {
  IntegerPacket packet;
};
EIGEN_STRONG_INLINE Int8Weights int8Weights(IntegerPacket packet) { return {packet}; }
EIGEN_STRONG_INLINE IntegerPacket addNibbleDots(IntegerPacket sum, IntegerPacket a, IntegerPacket b) {
// For the intrinsics, g++ 12 copies most sums to another register or to memory before it adds to them: half as fast.
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512VNNI__)
  asm("{vpdpbusd %2, %1, %0|vpdpbusd %0, %1, %2}" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#elif defined(__GNUC__) && !defined(__clang__)
  asm("%{vex%} {vpdpbusd %2, %1, %0|vpdpbusd %0, %1, %2}" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
#elif defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(sum, a, b);
#else
  return _mm256_dpbusd_avx_epi32(sum, a, b);
#endif
}
EIGEN_STRONG_INLINE IntegerPacket addDots(IntegerPacket sum, const Int8Weights& a, IntegerPacket b) {
  return addNibbleDots(sum, a.packet, b);
}

#elif defined(EIGEN_VECTORIZE_AVX2)

// An instruction adds two products of an unsigned and a signed byte in 16 bits, and saturates: 2 * 127 * 127 does not.
inline constexpr std::int32_t kInt8Offset = 0;
EIGEN_STRONG_INLINE IntegerPacket addNibbleDots(IntegerPacket sum, IntegerPacket a, IntegerPacket b) {
  return addPairDots(sum, a, b);
}
EIGEN_STRONG_INLINE IntegerPacket addDots(IntegerPacket sum, const Int8Weights& a, IntegerPacket b) {
  return addPairDots(sum, a.magnitudes, withSigns(b, a));
}

#else

inline constexpr std::int32_t kInt8Offset = 0;
struct Int8Weights {
  IntegerPacket numbers;
};
EIGEN_STRONG_INLINE Int8Weights int8Weights(const IntegerPacket& packet) { return {withoutOffset(packet)}; }
EIGEN_STRONG_INLINE IntegerPacket addNibbleDots(const IntegerPacket& sum, const IntegerPacket& a,
                                                const IntegerPacket& b) {
  return addSignedDots(sum, a, b);
}
EIGEN_STRONG_INLINE IntegerPacket addDots(const IntegerPacket& sum, const Int8Weights& a, const IntegerPacket& b) {
  return addSignedDots(sum, a.numbers, b);
}

#endif

EIGEN_STRONG_INLINE IntegerPacket lowNibbles(const IntegerPacket& packet) { return bytewiseAnd(packet, 0x0F); }
EIGEN_STRONG_INLINE IntegerPacket highNibbles(const IntegerPacket& packet) {
  return bytewiseAnd(shiftedBy4(packet), 0x0F);
}

EIGEN_STRONG_INLINE IntegerPacket repeatQuad(const std::int8_t* quad) {
  std::int32_t bytes;
  std::memcpy(&bytes, quad, sizeof bytes);
  return repeatInteger(bytes);
}

EIGEN_STRONG_INLINE void storeIntegers(const IntegerPacket& sums, double* to) {
  std::int32_t integers[std::size_t{kPacketIntegers}];
  std::memcpy(integers, &sums, sizeof integers);
  for (int i = 0; i < kPacketIntegers; ++i) to[i] = integers[i];
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
