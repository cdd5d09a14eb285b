#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/stored/f16.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Rows of a panel that share a scale in each column.
inline constexpr Index kInt4Group = 32;

/// What is added to whole numbers from -8 to 7 so that they are stored without a sign.
inline constexpr std::int32_t kInt4Offset = 8;

/// Rows of a column in the four bytes that a column takes at once.
inline constexpr int kInt4Octet = 8;

/// A group in memory, for each column of a panel: its scale, and all rows.
inline constexpr Index kInt4GroupBytes = Index{sizeof(Eigen::half)} + kInt4Group / 2;

/// The largest magnitude that surely has a finite scale.
inline constexpr float kInt4Largest = 4 * 65504.0f;

inline namespace DRIFTLESS_VECTORS {

/// Row `row`, 0 to 7, of a column, which has rows 0 to 3 in the lower halves of four bytes and 4 to 7 in the upper
/// ones: from -8 to 7.
inline int nibbleAt(const std::byte* column, int row) {
  return static_cast<int>(column[row % 4] >> (row / 4 * 4) & std::byte{15}) - kInt4Offset;
}

/// The same of sixteen columns.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> loadNibbles(const std::byte* columns, int row) {
  Scalar values[kLanes];
#pragma GCC unroll 16
  for (Index c = 0; c < kLanes; ++c) values[c] = static_cast<Scalar>(nibbleAt(columns + 4 * c, row));
  return Lanes<Scalar>::load(values);
}

#if defined(EIGEN_VECTORIZE_AVX512)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadNibbles<float>(const std::byte* columns, int row) {
  const __m512i nibbles =
      _mm512_srli_epi32(_mm512_loadu_si512(columns), static_cast<unsigned>(row % 4 * 8 + row / 4 * 4));
  const __m512 numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  return {{_mm512_permutexvar_ps(nibbles, numbers)}};  // looks at the low four bits
}

#elif defined(EIGEN_VECTORIZE_AVX2)

template <>
EIGEN_STRONG_INLINE Lanes<float> loadNibbles<float>(const std::byte* columns, int row) {
  const auto widen = [&](int i) {
    const __m256i packet = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(columns + 4 * i));
    const __m256i nibbles = _mm256_srli_epi32(packet, row % 4 * 8 + row / 4 * 4);
    const __m256i low = _mm256_and_si256(nibbles, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(low, _mm256_set1_epi32(kInt4Offset)));
  };
  return {{widen(0), widen(8)}};
}

#endif

/// Eight rows of a panel of some width, from one of its columns on.
struct Int4Octet {
  const Eigen::half* scales;  ///< one per column
  const std::byte* nibbles;   ///< four bytes per column

  EIGEN_STRONG_INLINE Int4Octet(const std::byte* panel, Index width, Index first_row, Index column) {
    const std::byte* const group = panel + first_row / kInt4Group * kInt4GroupBytes * width;
    scales = reinterpret_cast<const Eigen::half*>(group) + column;
    nibbles = group + width * static_cast<Index>(sizeof(Eigen::half)) +
              (first_row % kInt4Group / kInt4Octet * width + column) * 4;
  }
};

/// A panel's numbers in one row of sixteen columns. Exact: a scale has 11 digits, a whole number four.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> loadInt4(const std::byte* panel, Index width, Index row, Index column) {
  const Int4Octet octet(panel, width, row / kInt4Octet * kInt4Octet, column);
  return product(loadNibbles<Scalar>(octet.nibbles, static_cast<int>(row % kInt4Octet)),
                 loadLanes<Scalar>(octet.scales));
}

/// The number in one row of a column.
inline float int4At(const std::byte* panel, Index width, Index row, Index column) {
  const Int4Octet octet(panel, width, row / kInt4Octet * kInt4Octet, column);
  return static_cast<float>(nibbleAt(octet.nibbles, static_cast<int>(row % kInt4Octet))) *
         static_cast<float>(*octet.scales);
}

/// number * inverse_scale, rounded to a whole number from -8 to 7.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> roundToInt4(const Lanes<Scalar>& number, const Lanes<Scalar>& inverse_scale) {
  using L = Lanes<Scalar>;
  // Added to a number, it leaves the nearest integer.
  const L rounder = L::broadcast(Scalar(1.5) / std::numeric_limits<Scalar>::epsilon());
  const L least = L::broadcast(Scalar(-kInt4Offset)), most = L::broadcast(Scalar(kInt4Offset - 1));
  const L whole = fusedMultiplyAdd(number, inverse_scale, rounder) - rounder;
  return selectLess(whole, least, least, selectLess(most, whole, most, whole));
}

/// 1 / scale, and zero where that is zero.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> inverseOf(const Lanes<Scalar>& scale) {
  using L = Lanes<Scalar>;
  const L zero = L::broadcast(Scalar(0)), inverse = L::broadcast(Scalar(1)) / scale;
  return selectLess(zero, scale, inverse, selectLess(scale, zero, inverse, zero));
}

/// The scales of sixteen columns of a group, [rows] numbers `stride` apart: the one of the least squared error among
/// some around that which makes -8 of the number with the largest magnitude.
template <class Scalar>
Lanes<Scalar> findInt4Scales(const Scalar* numbers, Index stride, Index rows) {
  using L = Lanes<Scalar>;
  const L zero = L::broadcast(Scalar(0));
  L extreme = zero, largest = zero;
  for (Index k = 0; k < rows; ++k) {
    const L number = L::load(numbers + k * stride), size = magnitude(number);
    extreme = selectLess(largest, size, number, extreme);
    largest = selectLess(largest, size, size, largest);
  }
  L scale = zero, least_error = L::broadcast(std::numeric_limits<Scalar>::infinity());
  for (int percent = 80; percent <= 110; percent += 5) {
    Scalar rounded[kLanes];
    product(extreme, L::broadcast(Scalar(percent) / Scalar(-100 * kInt4Offset))).store(rounded);
    for (Scalar& number : rounded) number = static_cast<Scalar>(static_cast<Eigen::half>(number));
    const L candidate = L::load(rounded), inverse = inverseOf(candidate), negative = zero - candidate;
    L error = zero;
    for (Index k = 0; k < rows; ++k) {
      const L number = L::load(numbers + k * stride);
      const L rest = fusedMultiplyAdd(roundToInt4(number, inverse), negative, number);
      error = fusedMultiplyAdd(rest, rest, error);
    }
    scale = selectLess(error, least_error, candidate, scale);
    least_error = selectLess(error, least_error, error, least_error);
  }
  return scale;
}

/// Stores a panel's numbers [in, width]. False if one is not finite or beyond kInt4Largest.
template <class Scalar>
bool storeInt4(const Scalar* values, Index in, Index width, std::byte* panel) {
  for (Index i = 0; i < in * width; ++i)
    if (!(std::abs(values[i]) <= Scalar(kInt4Largest))) return false;
  for (Index first = 0; first < in; first += kInt4Group) {
    const Index rows = (std::min)(kInt4Group, in - first);
    auto* const scales = reinterpret_cast<Eigen::half*>(panel);
    std::byte* const octets = panel + width * static_cast<Index>(sizeof(Eigen::half));
    for (Index column = 0; column < width; column += kLanes) {
      const Scalar* const numbers = values + first * width + column;
      const Lanes<Scalar> scale = findInt4Scales(numbers, width, rows), inverse = inverseOf(scale);
      Scalar lane[kLanes];
      scale.store(lane);
      for (Index c = 0; c < kLanes; ++c) scales[column + c] = static_cast<Eigen::half>(lane[c]);
      for (Index k = 0; k < kInt4Group; ++k) {
        const Lanes<Scalar> zero = Lanes<Scalar>::broadcast(Scalar(0));
        (k < rows ? roundToInt4(Lanes<Scalar>::load(numbers + k * width), inverse) : zero).store(lane);
        std::byte* const bytes = octets + (k / kInt4Octet * width + column) * 4 + k % 4;
        for (Index c = 0; c < kLanes; ++c) {
          const auto nibble = static_cast<std::byte>(static_cast<int>(lane[c]) + kInt4Offset);
          bytes[4 * c] = k % kInt4Octet < 4 ? nibble : bytes[4 * c] | nibble << 4;
        }
      }
    }
    panel += kInt4GroupBytes * width;
  }
  return true;
}

}  // namespace DRIFTLESS_VECTORS

}}}  // namespace driftless::DRIFTLESS_ABI::detail
