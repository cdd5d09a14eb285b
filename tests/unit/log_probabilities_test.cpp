#include "driftless/log_probabilities.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/error.hpp"
#include "support/log_probabilities.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Scalar>
RowVector<Scalar> randomLogits(Index count, double spread, unsigned seed) {
  std::mt19937 engine(seed);
  RowVector<Scalar> logits(count);
  for (Scalar& logit : logits) logit = static_cast<Scalar>((static_cast<double>(engine()) * 0x1p-32 - 0.5) * spread);
  return logits;
}

}  // namespace

TEST_CASE_TEMPLATE("log-probabilities: as Eigen and the standard's functions have them", Scalar, float, double) {
  for (const Index count : {1, 2, 15, 16, 17, 511, 512, 513, 2048, 5000}) {
    for (const double spread : {0.0, 1.0, 30.0, 2000.0}) {
      const RowVector<Scalar> logits = randomLogits<Scalar>(count, spread, static_cast<unsigned>(count));
      const RowVector<double> expected = logSoftmax(logits);
      double worst = 0, total = 0;
      for (int id = 0; id < count; ++id) {
        const double actual = logProbability(logits, id);
        CHECK(actual <= 0);
        worst = std::max(worst, std::abs(actual - expected[id]) / std::max(1.0, std::abs(expected[id])));
        total += std::exp(actual);
      }
      INFO(count << " logits that are up to " << spread << " apart");
      CHECK(worst < 1e-13);
      CHECK(total == doctest::Approx(1).epsilon(1e-12));
    }
  }
}

TEST_CASE("log-probabilities do not depend on a number that is added to all logits, nor on where the row lies") {
  const RowVector<float> logits = randomLogits<float>(1000, 16, 1).array().round();
  const RowVector<float> moved = logits.array() + 64;
  Matrix<float> columns(1000, 3);
  columns.col(1) = logits;
  for (int id = 0; id < 1000; id += 37) {
    CHECK(logProbability(moved, id) == logProbability(logits, id));
    CHECK(logProbability(columns.col(1).transpose(), id) == logProbability(logits, id));
  }
}

TEST_CASE("log-probabilities: what is NaN or minus infinity has a probability of zero") {
  RowVector<float> logits(20);
  logits.setConstant(-kInfinity);
  for (Index i = 0; i < 20; i += 2) logits[i] = kNaN;
  logits[3] = 1.5f;
  logits[8] = 1.5f;
  CHECK(logProbability(logits, 3) == doctest::Approx(-std::log(2.0)));
  CHECK(logProbability(logits, 8) == logProbability(logits, 3));
  for (int id = 0; id < 20; ++id)
    if (id != 3 && id != 8) CHECK(logProbability(logits, id) == -std::numeric_limits<double>::infinity());
  const auto top = topLogProbabilities(logits, 4);
  REQUIRE(top.size() == 4);
  CHECK(top[0].id == 3);
  CHECK(top[1].id == 8);
  CHECK(top[2].id == 0);
  CHECK(top[3].id == 1);
  CHECK(top[3].log_probability == -std::numeric_limits<double>::infinity());
}

TEST_CASE("log-probabilities: a token that is certain has zero, also where logits are as large as a float") {
  const float largest = std::numeric_limits<float>::max();
  RowVector<float> logits(3);
  logits << -largest, largest, 0;
  CHECK(logProbability(logits, 1) == 0);
  CHECK(logProbability(logits, 2) == -static_cast<double>(largest));
  CHECK(logProbability(logits, 0) == -2 * static_cast<double>(largest));
}

TEST_CASE("the likeliest tokens are those of a full sort, the lower id first on ties") {
  RowVector<float> logits = randomLogits<float>(3000, 8, 5);
  logits = logits.array().round();  // many ties
  std::vector<int> ids(3000);
  for (int id = 0; id < 3000; ++id) ids[static_cast<std::size_t>(id)] = id;
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (const Index n : {0, 1, 5, 1000, 2999, 3000, 4000}) {
    const auto top = topLogProbabilities(logits, n);
    REQUIRE(static_cast<Index>(top.size()) == std::min(n, Index{3000}));
    for (std::size_t i = 0; i < top.size(); ++i) {
      REQUIRE(top[i].id == ids[i]);
      REQUIRE(top[i].log_probability == logProbability(logits, ids[i]));
    }
  }
  CHECK(topLogProbabilities(logits, 1)[0].id == argmax(logits));
}

TEST_CASE("log-probabilities: arguments that are out of range") {
  const RowVector<float> logits = randomLogits<float>(10, 1, 1);
  CHECK_THROWS_WITH_AS(logProbability(logits, 10), "expected a token id from 0 to 9, got 10", ArgumentError);
  CHECK_THROWS_WITH_AS(logProbability(logits, -1), "expected a token id from 0 to 9, got -1", ArgumentError);
  CHECK_THROWS_WITH_AS(topLogProbabilities(logits, -1), "expected a number of likeliest tokens of 0 or more, got -1",
                       ArgumentError);
  RowVector<float> spoilt = logits;
  spoilt[4] = kInfinity;
  CHECK_THROWS_WITH_AS(logProbability(spoilt, 0),
                       "expected a largest logit that is finite, got infinity for token id 4", ArgumentError);
  spoilt.setConstant(kNaN);
  CHECK_THROWS_WITH_AS(topLogProbabilities(spoilt, 1),
                       "expected a largest logit that is finite, got 10 times NaN and 0 times minus infinity",
                       ArgumentError);
}
