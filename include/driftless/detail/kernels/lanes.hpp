#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/kernels/shapes.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#if !defined(DRIFTLESS_ALLOW_FAST_MATH)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0) ||        \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__) || \
    defined(_M_FP_FAST)
#error "driftless promises identical bits, which -ffast-math voids; define DRIFTLESS_ALLOW_FAST_MATH to give that up"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "driftless promises identical bits, which -mfpmath=387 voids; define DRIFTLESS_ALLOW_FAST_MATH to give that up"
#endif
static_assert(std::is_same_v<decltype(1.0), double>,
              "driftless promises identical bits, which -fsingle-precision-constant voids; define "
              "DRIFTLESS_ALLOW_FAST_MATH to give that up");
#endif

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// a * b + c, rounded once: the only way in which a product may feed a sum in this library. Written as an expression,
/// it would be rounded once or twice as the compiler pleases. Where there is no instruction for it, the standard
/// library computes the same number, slowly.
template <class Scalar>
EIGEN_STRONG_INLINE Scalar fusedMultiplyAdd(Scalar a, Scalar b, Scalar c) {
  return std::fma(a, b, c);
}

/// Sixteen numbers in as many registers as they need.
template <class Scalar>
struct Lanes {
  using Packet = typename Eigen::internal::packet_traits<Scalar>::type;
  static constexpr int kPacketSize =
      Eigen::internal::packet_traits<Scalar>::Vectorizable ? int{Eigen::internal::packet_traits<Scalar>::size} : 1;
  static constexpr int kPackets = static_cast<int>(kLanes) / kPacketSize;

  Packet packet[std::size_t{kPackets}];

  static EIGEN_STRONG_INLINE Lanes broadcast(Scalar value) {
    Lanes result;
    for (Packet& packet : result.packet) packet = Eigen::internal::pset1<Packet>(value);
    return result;
  }

  static EIGEN_STRONG_INLINE Lanes load(const Scalar* from) {
    Lanes result;
    for (int i = 0; i < kPackets; ++i) result.packet[i] = Eigen::internal::ploadu<Packet>(from + i * kPacketSize);
    return result;
  }

  EIGEN_STRONG_INLINE void store(Scalar* to) const {
    for (int i = 0; i < kPackets; ++i) Eigen::internal::pstoreu(to + i * kPacketSize, packet[i]);
  }
};

/// Sixteen stored numbers in the type of arithmetic. Widening is exact, so it is the same by every instruction; the
/// files in detail/stored/ have faster ways for the types that processors know.
template <class Scalar, class Element>
EIGEN_STRONG_INLINE Lanes<Scalar> loadLanes(const Element* from) {
  if constexpr (std::is_same_v<Element, Scalar>) {
    return Lanes<Scalar>::load(from);
  } else {
    Scalar values[kLanes];
    // Where a loop around this one is unrolled and this is not, g++ 12 gives wrong numbers at -O1.
#pragma GCC unroll 16
    for (Eigen::Index i = 0; i < kLanes; ++i) values[i] = static_cast<Scalar>(from[i]);
    return Lanes<Scalar>::load(values);
  }
}

/// Sixteen numbers, each cast to a stored type; the files in detail/stored/ have faster ways to the same bits.
template <class Scalar, class Element>
EIGEN_STRONG_INLINE void storeLanes(const Scalar* from, Element* to) {
  for (Eigen::Index i = 0; i < kLanes; ++i) to[i] = static_cast<Element>(from[i]);
}

#if defined(EIGEN_VECTORIZE_NEON) && defined(__aarch64__)
/// Four numbers of sixteen bits, at any alignment.
inline uint16x4_t loadHalves(const void* from) {
  uint16x4_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}
#endif

/// {f(a[0], b[0], ...), f(a[1], b[1], ...), ...}, a packet at a time.
template <class F, class Scalar, class... More>
EIGEN_STRONG_INLINE Lanes<Scalar> eachPacket(F f, const Lanes<Scalar>& first, const More&... more) {
  Lanes<Scalar> result;
  for (int i = 0; i < Lanes<Scalar>::kPackets; ++i) result.packet[i] = f(first.packet[i], more.packet[i]...);
  return result;
}

template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> operator+(const Lanes<Scalar>& a, const Lanes<Scalar>& b) {
  return eachPacket([](const auto& x, const auto& y) { return Eigen::internal::padd(x, y); }, a, b);
}

template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> operator-(const Lanes<Scalar>& a, const Lanes<Scalar>& b) {
  return eachPacket([](const auto& x, const auto& y) { return Eigen::internal::psub(x, y); }, a, b);
}

/// The exact IEEE quotient, never an estimate.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> operator/(const Lanes<Scalar>& a, const Lanes<Scalar>& b) {
  return eachPacket([](const auto& x, const auto& y) { return Eigen::internal::pdiv(x, y); }, a, b);
}

/// Not an operator*, so that no product feeds a sum by the look of it: that is what fusedMultiplyAdd is for.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> product(const Lanes<Scalar>& a, const Lanes<Scalar>& b) {
  return eachPacket([](const auto& x, const auto& y) { return Eigen::internal::pmul(x, y); }, a, b);
}

#if defined(__SSE2__)
/// result = x * y + z, rounded once, computed in double: the product is exact there, and the sum is rounded first to
/// double and then to float, which is the same as once unless the double lies halfway between two floats or the float
/// is subnormal. False if one of the four is such a number.
inline bool fuseInDouble(__m128 x, __m128 y, __m128 z, __m128& result) {
  const auto sum = [](__m128 a, __m128 b, __m128 c) {
    return _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c));
  };
  const auto upper = [](__m128 four) { return _mm_movehl_ps(four, four); };
  const __m128d first = sum(x, y, z), second = sum(upper(x), upper(y), upper(z));
  result = _mm_movelh_ps(_mm_cvtpd_ps(first), _mm_cvtpd_ps(second));

  // The lower and upper halves of the doubles' bits.
  const __m128 a = _mm_castpd_ps(first), b = _mm_castpd_ps(second);
  const __m128i low = _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
  const __m128i high =
      _mm_and_si128(_mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1))), _mm_set1_epi32(0x7FFFFFFF));
  // Of a double's 52 bits of fraction, a float has all but the last 29.
  const __m128i is_halfway =
      _mm_cmpeq_epi32(_mm_and_si128(low, _mm_set1_epi32(0x1FFFFFFF)), _mm_set1_epi32(0x10000000));
  const __m128i is_small = _mm_cmplt_epi32(high, _mm_set1_epi32((1023 - 126) << 20));
  const __m128i is_zero = _mm_cmpeq_epi32(_mm_or_si128(low, high), _mm_setzero_si128());
  return _mm_movemask_epi8(_mm_or_si128(is_halfway, _mm_andnot_si128(is_zero, is_small))) == 0;
}
#endif

/// fusedMultiplyAdd for processors that multiply and add packets only one after the other.
template <class Scalar, class Packet>
Packet fusedBySoftware(const Packet& a, const Packet& b, const Packet& c) {
  Packet result;
#if defined(__SSE2__)
  if constexpr (std::is_same_v<Scalar, float>) {
    constexpr std::size_t kParts = sizeof(Packet) / sizeof(__m128);
    __m128 x[kParts], y[kParts], z[kParts], sums[kParts];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    std::memcpy(z, &c, sizeof c);
    bool is_done = true;
    for (std::size_t i = 0; i < kParts; ++i) is_done = fuseInDouble(x[i], y[i], z[i], sums[i]) && is_done;
    std::memcpy(&result, sums, sizeof result);
    if (is_done) return result;
  }
#endif
  constexpr std::size_t kCount = sizeof(Packet) / sizeof(Scalar);
  Scalar x[kCount], y[kCount], z[kCount];
  std::memcpy(x, &a, sizeof a);
  std::memcpy(y, &b, sizeof b);
  std::memcpy(z, &c, sizeof c);
  for (std::size_t i = 0; i < kCount; ++i) x[i] = fusedMultiplyAdd(x[i], y[i], z[i]);
  std::memcpy(&result, x, sizeof result);
  return result;
}

template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> fusedMultiplyAdd(const Lanes<Scalar>& a, const Lanes<Scalar>& b,
                                                   const Lanes<Scalar>& c) {
  return eachPacket(
      [](const auto& x, const auto& y, const auto& z) {
        if constexpr (Lanes<Scalar>::kPacketSize == 1)
          return fusedMultiplyAdd(x, y, z);
        else if constexpr (DRIFTLESS_PACKETS_FUSE)
          return Eigen::internal::pmadd(x, y, z);
        else
          return fusedBySoftware<Scalar>(x, y, z);
      },
      a, b, c);
}

/// Lane by lane: a < b ? yes : no. A NaN compares as false.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> selectLess(const Lanes<Scalar>& a, const Lanes<Scalar>& b, const Lanes<Scalar>& yes,
                                             const Lanes<Scalar>& no) {
  return eachPacket([](const auto& x, const auto& y, const auto& z,
                       const auto& w) { return Eigen::internal::pselect(Eigen::internal::pcmp_lt(x, y), z, w); },
                    a, b, yes, no);
}

/// Lane by lane: a is NaN ? yes : no.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> selectNaN(const Lanes<Scalar>& a, const Lanes<Scalar>& yes, const Lanes<Scalar>& no) {
  return eachPacket([](const auto& x, const auto& y,
                       const auto& z) { return Eigen::internal::pselect(Eigen::internal::pcmp_eq(x, x), z, y); },
                    a, yes, no);
}

template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> magnitude(const Lanes<Scalar>& a) {
  return eachPacket([](const auto& x) { return Eigen::internal::pabs(x); }, a);
}

/// Lane by lane: zero where a is finite, NaN where it is not.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> zeroIfFinite(const Lanes<Scalar>& a) {
  return eachPacket([](const auto& x) { return Eigen::internal::psub(x, x); }, a);
}

/// Whether a < b in any lane.
template <class Scalar>
EIGEN_STRONG_INLINE bool isAnyLess(const Lanes<Scalar>& a, const Lanes<Scalar>& b) {
  bool is_any = false;
  for (int i = 0; i < Lanes<Scalar>::kPackets; ++i)
    is_any = is_any || Eigen::internal::predux_any(Eigen::internal::pcmp_lt(a.packet[i], b.packet[i]));
  return is_any;
}

/// The sum of the lanes, by one fixed tree.
template <class Scalar>
Scalar sumOfLanes(const Lanes<Scalar>& lanes) {
  Scalar value[kLanes];
  lanes.store(value);
  for (Eigen::Index half = kLanes / 2; half > 0; half /= 2)
    for (Eigen::Index i = 0; i < half; ++i) value[i] += value[i + half];
  return value[0];
}

/// The largest lane that is not NaN; -infinity where there is none.
template <class Scalar>
Scalar maxOfLanes(const Lanes<Scalar>& lanes) {
  Scalar value[kLanes];
  lanes.store(value);
  Scalar largest = -std::numeric_limits<Scalar>::infinity();
  for (const Scalar candidate : value) largest = candidate > largest ? candidate : largest;
  return largest;
}

/// value * 2^n, by adding n to the exponent bits: exact wherever the result is a normal number. `shifted` is n plus a
/// constant that leaves n in the low bits of its mantissa.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> scaleByPowerOfTwo(const Lanes<Scalar>& value, const Lanes<Scalar>& shifted) {
  using Bits = std::conditional_t<sizeof(Scalar) == 8, std::uint64_t, std::uint32_t>;
  constexpr int kMantissaBits = std::numeric_limits<Scalar>::digits - 1;
  return eachPacket(
      [](auto x, const auto& n) {
#if defined(__GNUC__)
        // In registers: through memory, g++ stores halves that the load of the whole has to wait for.
        typedef Bits Whole __attribute__((vector_size(sizeof x)));
        Whole bits, exponents;
        std::memcpy(&bits, &x, sizeof x);
        std::memcpy(&exponents, &n, sizeof x);
        bits += exponents << kMantissaBits;
        std::memcpy(&x, &bits, sizeof x);
#else
        constexpr int kCount = sizeof x / sizeof(Bits);
        Bits bits[kCount], exponents[kCount];
        std::memcpy(bits, &x, sizeof x);
        std::memcpy(exponents, &n, sizeof x);
        for (int i = 0; i < kCount; ++i) bits[i] += exponents[i] << kMantissaBits;
        std::memcpy(&x, bits, sizeof x);
#endif
        return x;
      },
      value, shifted);
}

/// 1 / k! rounded to Scalar.
template <class Scalar>
constexpr Scalar inverseFactorial(int k) {
  double factorial = 1;
  for (int i = 2; i <= k; ++i) factorial *= i;
  return static_cast<Scalar>(1 / factorial);
}

/// e^x to about an ulp: x is split into n ln 2 + r with |r| <= ln 2 / 2, e^r is a Taylor series, and n goes into the
/// exponent. Below about the smallest normal number it is zero, above about half the largest infinity.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> exp(const Lanes<Scalar>& x) {
  using L = Lanes<Scalar>;
  constexpr bool kDouble = sizeof(Scalar) == 8;
  constexpr int kDegree = kDouble ? 13 : 7;
  // ln 2 in two parts, the first short enough that its product with n is exact.
  constexpr Scalar kLn2High = kDouble ? Scalar(0x1.62e42fefa38p-1) : Scalar(0x1.62e4p-1);
  constexpr Scalar kLn2Low = kDouble ? Scalar(0x1.ef35793c7673p-45) : Scalar(0x1.7f7d1cp-20);
  // Added to a number, it leaves the nearest integer in the low bits of the mantissa.
  const L rounder = L::broadcast(Scalar(1.5) / std::numeric_limits<Scalar>::epsilon());
  const L lowest = L::broadcast(Scalar(std::numeric_limits<Scalar>::min_exponent + 1) * kLn2High);
  const L highest = L::broadcast(Scalar(std::numeric_limits<Scalar>::max_exponent - 1) * kLn2High);

  const L shifted = fusedMultiplyAdd(x, L::broadcast(std::numbers::log2e_v<Scalar>), rounder);
  const L n = shifted - rounder;
  const L r = fusedMultiplyAdd(n, L::broadcast(-kLn2Low), fusedMultiplyAdd(n, L::broadcast(-kLn2High), x));
  L series = L::broadcast(inverseFactorial<Scalar>(kDegree));
  for (int k = kDegree - 1; k >= 0; --k)
    series = fusedMultiplyAdd(series, r, L::broadcast(inverseFactorial<Scalar>(k)));
  const L result = scaleByPowerOfTwo(series, shifted);
  const L saturated = selectLess(x, lowest, L::broadcast(Scalar(0)),
                                 selectLess(highest, x, L::broadcast(std::numeric_limits<Scalar>::infinity()), result));
  return selectNaN(x, x, saturated);
}

/// 1 / (1 + e^-x).
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> sigmoid(const Lanes<Scalar>& x) {
  const Lanes<Scalar> one = Lanes<Scalar>::broadcast(Scalar(1));
  return one / (one + exp(Lanes<Scalar>::broadcast(Scalar(0)) - x));
}

/// erf(x / sqrt(2)), by Abramowitz & Stegun 7.1.6: sqrt(2 / pi) x e^(-x^2 / 2) (1 + x^2 / 3 + x^4 / (3 * 5) + ...). Its
/// terms are all positive, so nothing cancels.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> erfOverSqrt2(const Lanes<Scalar>& x) {
  using L = Lanes<Scalar>;
  constexpr bool kDouble = sizeof(Scalar) == 8;
  constexpr int kTerms = kDouble ? 140 : 60;
  const L saturated = L::broadcast(Scalar(kDouble ? 8.4 : 5.6));  // beyond it, erf rounds to 1
  const L zero = L::broadcast(Scalar(0)), one = L::broadcast(Scalar(1));
  const L square = product(x, x);
  L series = one;
  for (int n = kTerms; n > 0; --n)
    series = fusedMultiplyAdd(series, product(square, L::broadcast(Scalar(1) / Scalar(2 * n + 1))), one);
  const L slope = product(x, L::broadcast(std::numbers::sqrt2_v<Scalar> * std::numbers::inv_sqrtpi_v<Scalar>));
  const L result = product(product(slope, exp(product(square, L::broadcast(Scalar(-0.5))))), series);
  return selectLess(saturated, x, one, selectLess(x, zero - saturated, zero - one, result));
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
