#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// The natural logarithm to about an ulp, the same bits on every platform, which the standard's are not: x is 2^n (1 +
/// f) with 1 + f between sqrt(1/2) and sqrt(2), and with s = f / (2 + f),
/// ln(1 + f) = 2 artanh(s) = f - f^2 / 2 + s (f^2 / 2 + 2 s^2 / 3 + 2 s^4 / 5 + ...): what is rounded most is small
/// next to f. That of zero is minus infinity, that of a number below it NaN.
inline double naturalLogarithm(double x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (x == 0) return -kInfinity;
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (!(x < kInfinity)) return x;  // infinity and NaN

  // ln 2 in two parts, the first short enough that its product with n is exact.
  constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
  constexpr int kTerms = 11;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 0.5 * std::numbers::sqrt2) {
    mantissa *= 2;
    --exponent;
  }
  const double n = exponent;
  const double f = mantissa - 1;
  const double s = f / (2 + f);
  const double square = s * s;
  double series = 0;
  for (int k = kTerms; k > 0; --k) series = std::fma(series, square, 2.0 / (2 * k + 1));
  // Every product that feeds a sum is fused by name: as an expression, it would be if the compiler pleases.
  const double half = 0.5 * f;
  const double low = std::fma(s, std::fma(half, f, square * series), n * kLn2Low);
  return std::fma(n, kLn2High, f - std::fma(half, f, -low));
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
