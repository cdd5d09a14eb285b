#include "driftless/detail/kernels/logarithm.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace driftless::detail {
namespace {

/// The distance from the true logarithm in units of its last place.
double ulps(double x) {
  const double actual = naturalLogarithm(x);
  // Doubles have a neighbour closer than that only at powers of two, where this asks for more.
  const double unit = std::nextafter(std::abs(actual), std::numeric_limits<double>::infinity()) - std::abs(actual);
  const long double distance = std::abs(std::log(static_cast<long double>(x)) - static_cast<long double>(actual));
  return static_cast<double>(distance / static_cast<long double>(unit));
}

}  // namespace

TEST_CASE("naturalLogarithm is within an ulp of the true one, for numbers of every size") {
  std::mt19937_64 engine(1);
  double worst = 0;
  const auto check = [&](double x) {
    const double error = ulps(x);
    if (error > worst) worst = error;
  };
  for (int i = 0; i < 400'000; ++i) {
    // Any bits of a positive number, subnormal ones included, then some that are near 1 and from 1 to 1,000.
    const double any = std::bit_cast<double>(engine() >> 1);
    if (std::isfinite(any)) check(any);
    const double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
    check(1 + (unit - 0.5) * std::pow(2.0, -static_cast<double>(engine() % 52)));
    check(1 + 999 * unit);
  }
  for (int exponent = -1074; exponent < 1024; ++exponent)
    for (const double x : {std::ldexp(1.0, exponent), std::ldexp(0.5 * std::sqrt(2.0), exponent)})
      if (x > 0 && x != 1) check(x);
  INFO("worst: ", worst);
  CHECK(worst <= 1);  // where long double is double, whole ulps are all there is
}

TEST_CASE("naturalLogarithm at the ends of its range") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CHECK(naturalLogarithm(1) == 0);
  CHECK_FALSE(std::signbit(naturalLogarithm(1)));
  CHECK(naturalLogarithm(0) == -kInfinity);
  CHECK(naturalLogarithm(-0.0) == -kInfinity);
  CHECK(naturalLogarithm(kInfinity) == kInfinity);
  CHECK(std::isnan(naturalLogarithm(std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::isnan(naturalLogarithm(-1)));
  CHECK(std::isnan(naturalLogarithm(-kInfinity)));
  CHECK(naturalLogarithm(std::numeric_limits<double>::denorm_min()) == doctest::Approx(-744.4400719213812));
  CHECK(naturalLogarithm(std::numeric_limits<double>::max()) == doctest::Approx(709.782712893384));
}

}  // namespace driftless::detail
