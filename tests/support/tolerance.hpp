#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "driftless/config.hpp"

/// How near is near enough, for all stages in one place: numbers within the tolerance, bits and ids exactly.
namespace driftless::test {

/// |actual - expected| <= kAbsoluteTolerance + kRelativeTolerance * |expected|.
inline constexpr double kAbsoluteTolerance = 1e-3;
inline constexpr double kRelativeTolerance = 1e-2;

/// The number that is farthest out, as a share of what is allowed there; NaN is farther out than anything.
struct WorstNumber {
  Index row = 0;
  Index col = 0;
  double share = 0;
  Index failures = 0;
};

template <class Actual, class Expected>
WorstNumber findWorst(const Eigen::MatrixBase<Actual>& actual, const Eigen::MatrixBase<Expected>& expected) {
  WorstNumber worst;
  for (Index row = 0; row < expected.rows(); ++row)
    for (Index col = 0; col < expected.cols(); ++col) {
      const double wanted = static_cast<double>(expected(row, col));
      const double allowed = kAbsoluteTolerance + kRelativeTolerance * std::abs(wanted);
      const double share = std::abs(static_cast<double>(actual(row, col)) - wanted) / allowed;
      if (!(share <= 1)) ++worst.failures;
      if (!std::isnan(worst.share) && !(share <= worst.share)) worst = {row, col, share, worst.failures};
    }
  return worst;
}

/// Called before a failure is reported.
using OnFailure = std::function<void()>;

/// Checks numbers of the same shape against each other; `what` says of what they are.
template <class Actual, class Expected>
void checkClose(
    const Eigen::MatrixBase<Actual>& actual, const Eigen::MatrixBase<Expected>& expected, const std::string& what,
    const OnFailure& onFailure = [] {}) {
  INFO(what);
  const bool is_of_same_shape = actual.rows() == expected.rows() && actual.cols() == expected.cols();
  if (!is_of_same_shape) onFailure();
  REQUIRE_MESSAGE(is_of_same_shape, "expected shape [", expected.rows(), ", ", expected.cols(), "], got [",
                  actual.rows(), ", ", actual.cols(), "]");
  const WorstNumber worst = findWorst(actual, expected);
  if (worst.failures != 0) onFailure();
  CHECK_MESSAGE(
      worst.failures == 0, worst.failures, " of ", expected.size(), " numbers are out of tolerance; worst at [",
      worst.row, ", ", worst.col, "]: expected ", static_cast<double>(expected(worst.row, worst.col)), ", got ",
      static_cast<double>(actual(worst.row, worst.col)), ", ", worst.share, " times the allowed difference away");
}

/// Checks that two vectors hold the same bits.
inline void checkSameBits(
    const RowVector<float>& actual, const RowVector<float>& expected, const std::string& what,
    const OnFailure& onFailure = [] {}) {
  INFO(what);
  REQUIRE(actual.size() == expected.size());
  Index differing = 0, first = 0;
  for (Index i = actual.size() - 1; i >= 0; --i)
    if (std::memcmp(&actual[i], &expected[i], sizeof(float)) != 0) ++differing, first = i;
  if (differing != 0) onFailure();
  CHECK_MESSAGE(differing == 0, differing, " of ", actual.size(), " numbers differ in their bits, first at [", first,
                "]: expected ", static_cast<double>(expected[first]), ", got ", static_cast<double>(actual[first]),
                ", difference ", static_cast<double>(actual[first] - expected[first]));
}

/// Checks token ids, integer for integer.
inline void checkSameIds(
    const std::vector<int>& actual, const std::vector<int>& expected, const std::string& what,
    const OnFailure& onFailure = [] {}) {
  INFO(what);
  const auto difference = std::mismatch(actual.begin(), actual.end(), expected.begin(), expected.end());
  const auto text = [](auto position, auto end) { return position == end ? "no more" : std::to_string(*position); };
  const bool are_same = actual == expected;
  if (!are_same) onFailure();
  CHECK_MESSAGE(are_same, "first difference at index ", difference.first - actual.begin(), ": expected ",
                text(difference.second, expected.end()), ", got ", text(difference.first, actual.end()));
}

}  // namespace driftless::test
