#include "driftless/sample.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/error.hpp"
#include "driftless/workspace.hpp"
#include "support/fixtures.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowVector<float> logitsOf(const std::vector<float>& values) {
  return Eigen::Map<const RowVector<float>>(values.data(), static_cast<Index>(values.size()));
}

std::vector<int> draw(const RowVector<float>& logits, const Sampling& sampling, int count) {
  std::mt19937_64 engine(sampling.seed);
  std::vector<int> ids;
  for (int i = 0; i < count; ++i) ids.push_back(sample(logits, sampling, engine));
  return ids;
}

/// What `sample` is to draw, in the plainest way: every token is sorted, weighed and looked at.
int plainSample(const RowVector<float>& logits, const Sampling& sampling, std::mt19937_64& engine) {
  std::vector<int> ids;
  for (int id = 0; id < logits.size(); ++id)
    if (!std::isnan(logits[id])) ids.push_back(id);
  std::ranges::stable_sort(ids, [&](int a, int b) { return logits[a] > logits[b]; });
  const double largest = static_cast<double>(logits[ids.front()]);
  if (sampling.temperature == 0) return ids.front();
  const auto weight = [&](int id) {
    return std::exp((static_cast<double>(logits[id]) - largest) / sampling.temperature);
  };
  const auto total = [&] {
    return std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, int id) { return sum + weight(id); });
  };
  if (sampling.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(sampling.top_k)));
  if (sampling.top_p < 1) {
    const double enough = sampling.top_p * total();
    double reached = 0;
    std::size_t count = 0;
    while (count < ids.size() && reached < enough) reached += weight(ids[count++]);
    ids.resize(count);
  }
  if (sampling.top_k == 0 && sampling.top_p == 1) std::ranges::sort(ids);
  std::erase_if(ids, [&](int id) { return weight(id) < sampling.min_p; });
  if (sampling.typical_p < 1) {
    const double all = total();
    const auto surprise = [&](int id) { return -std::log(weight(id) / all); };
    double entropy = 0;
    for (const int id : ids)
      if (weight(id) > 0) entropy += weight(id) / all * surprise(id);
    std::vector<int> by_typicality = ids;
    const auto untypical = [&](int id) { return std::abs(surprise(id) - entropy); };
    std::ranges::stable_sort(by_typicality, [&](int a, int b) { return untypical(a) < untypical(b); });
    double reached = 0;
    int last = by_typicality.front();
    for (const int id : by_typicality) {
      if (!(reached < sampling.typical_p * all)) break;
      reached += weight(last = id);
    }
    std::erase_if(ids, [&](int id) { return untypical(id) > untypical(last); });
  }
  const double target = static_cast<double>(engine() >> 11) * 0x1p-53 * total();
  double reached = 0;
  for (const int id : ids)
    if ((reached += weight(id)) > target) return id;
  return -1;
}

}  // namespace

TEST_CASE("argmax: the first of the largest, never NaN") {
  CHECK(argmax(logitsOf({1, 3, 2})) == 1);
  CHECK(argmax(logitsOf({3, 1, 3})) == 0);
  CHECK(argmax(logitsOf({1, 3, 3, 3})) == 1);
  CHECK(argmax(logitsOf({-0.0f, 0.0f})) == 0);
  CHECK(argmax(logitsOf({kNaN, -5, kNaN, -4})) == 3);
  CHECK(argmax(logitsOf({kNaN, -kInfinity})) == 1);
  CHECK(argmax(logitsOf({1, kInfinity, kInfinity})) == 1);
  CHECK_THROWS_AS(argmax(logitsOf({})), ArgumentError);
  CHECK_THROWS_WITH_AS(argmax(logitsOf({kNaN, kNaN})),
                       "argmax: expected at least one logit that is a number, got 2 logits, all NaN", ArgumentError);
}

TEST_CASE("sample: temperature 0 is argmax and draws no number") {
  std::mt19937_64 engine(5), untouched(5);
  CHECK(sample(logitsOf({1, 3, 3}), Sampling(), engine) == 1);
  CHECK(engine == untouched);
  Sampling warm;
  warm.temperature = 1;
  sample(logitsOf({1, 3, 3}), warm, engine);
  untouched.discard(1);
  CHECK(engine == untouched);
}

TEST_CASE("sample: frequencies follow the softmax of logits over temperature, cut to top_k and top_p") {
  const std::vector<float> values = {0.5f, 2.0f, -1.0f, 1.5f, -kInfinity, 2.0f, -kInfinity};
  struct Case {
    double temperature;
    int top_k;
    double top_p;
    std::vector<int> in_the_draw;
  };
  for (const Case& c : {Case{1, 0, 1, {0, 1, 2, 3, 5}}, Case{0.5, 0, 1, {0, 1, 2, 3, 5}}, Case{3, 2, 1, {1, 5}},
                        Case{1, 1, 1, {1}}, Case{1, 3, 1, {1, 3, 5}}, Case{1, 0, 0.69, {1, 5}}, Case{1, 0, 0.01, {1}},
                        Case{1, 3, 0.99, {1, 3, 5}}, Case{1, 99, 0.98, {0, 1, 3, 5}}}) {
    CAPTURE(c.temperature);
    CAPTURE(c.top_k);
    CAPTURE(c.top_p);
    double total = 0;
    std::map<int, double> expected;
    for (const int id : c.in_the_draw)
      total += expected[id] = std::exp(static_cast<double>(values[static_cast<std::size_t>(id)]) / c.temperature);
    constexpr int kDraws = 20000;
    std::map<int, int> seen;
    for (const int id :
         draw(logitsOf(values), {.temperature = c.temperature, .top_k = c.top_k, .top_p = c.top_p, .seed = 11}, kDraws))
      ++seen[id];
    CHECK(seen.size() == expected.size());
    for (const auto& [id, count] : seen) {
      REQUIRE(expected.contains(id));
      const double share = expected[id] / total;
      const double deviation = std::sqrt(share * (1 - share) / kDraws);
      CHECK(std::abs(static_cast<double>(count) / kDraws - share) <= 4 * deviation);
    }
  }
}

TEST_CASE("sample: a seed draws the ids that an independent program drew") {
  const nlohmann::json& golden = fixtureJson("sampling.json");
  const RowVector<float> logits = logitsOf(golden.at("logits"));
  for (const nlohmann::json& json : golden.at("cases")) {
    const Sampling sampling{.temperature = json.at("temperature"),
                            .top_k = json.at("top_k"),
                            .top_p = json.at("top_p"),
                            .seed = json.at("seed")};
    const std::vector<int> expected = json.at("ids");
    CHECK(draw(logits, sampling, static_cast<int>(expected.size())) == expected);
  }
}

TEST_CASE("sample: what stays in the draw is what stays by transformers, in the shares of the softmax") {
  constexpr int kDraws = 5000;  // enough for every token that stays: see scripts/make_rules_goldens.py
  for (const nlohmann::json& json : fixtureJson("rules.json").at("draws")) {
    CAPTURE(json.dump());
    const Sampling sampling{.temperature = json.at("temperature"),
                            .top_k = json.at("top_k"),
                            .top_p = json.at("top_p"),
                            .min_p = json.value("min_p", 0.0),
                            .typical_p = json.value("typical_p", 1.0),
                            .seed = 7};
    const RowVector<float> logits = floatsOf(json.at("logits"));
    std::map<int, int> seen;
    for (const int id : draw(logits, sampling, kDraws)) ++seen[id];
    std::vector<int> ids;
    for (const auto& [id, count] : seen) ids.push_back(id);
    REQUIRE(ids == json.at("ids").get<std::vector<int>>());
    double total = 0;
    std::vector<double> weights;
    for (const int id : ids)
      total += weights.emplace_back(std::exp(static_cast<double>(logits[id]) / sampling.temperature));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const double share = weights[i] / total;
      const double deviation = std::sqrt(share * (1 - share) / kDraws);
      CHECK(std::abs(static_cast<double>(seen[ids[i]]) / kDraws - share) <= 5 * deviation);
    }
  }
}

TEST_CASE(
    "sample: min_p of 1 leaves the likeliest, all of them, and a typical_p near 0 the most typical, all of them") {
  const auto drawn = [](const Sampling& sampling) {
    std::vector<int> ids = draw(logitsOf({2, 1, 2, -kInfinity, kNaN, 1}), sampling, 100);
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  };
  CHECK(drawn({.temperature = 1, .min_p = 1}) == std::vector<int>{0, 2});
  CHECK(drawn({.temperature = 1, .top_k = 1, .min_p = 1}) == std::vector<int>{0});
  CHECK(drawn({.temperature = 1, .typical_p = 1e-300}) == std::vector<int>{0, 2});
  CHECK(drawn({.temperature = 1, .top_k = 3, .typical_p = 1e-300}) == std::vector<int>{0, 2});
  CHECK(drawn({.temperature = 1, .min_p = 0.3, .typical_p = 1 - 1e-15}) == std::vector<int>{0, 1, 2, 5});
}

TEST_CASE("sample: bad settings are refused by name") {
  std::mt19937_64 engine;
  const RowVector<float> logits = logitsOf({1, 2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Sampling& bad :
       {Sampling{-1, 0, 1}, Sampling{nan, 0, 1}, Sampling{HUGE_VAL, 0, 1}, Sampling{1, -1, 1}, Sampling{1, 0, 0},
        Sampling{1, 0, 1.5}, Sampling{1, 0, nan}, Sampling{1, 0, 1, -0.1}, Sampling{1, 0, 1, 1.1},
        Sampling{1, 0, 1, nan}, Sampling{1, 0, 1, 0, 0}, Sampling{1, 0, 1, 0, 1.1}, Sampling{1, 0, 1, 0, nan}})
    CHECK_THROWS_AS(sample(logits, bad, engine), ArgumentError);
  const auto check = [&](const Sampling& bad, const char* error) {
    CHECK_THROWS_WITH_AS(sample(logits, bad, engine), error, ArgumentError);
  };
  check({.temperature = 1, .top_k = -1}, "expected a top_k of 0 or more, got -1");
  check({.temperature = 1, .min_p = 1.5}, "expected a min_p from 0 to 1, got 1.5");
  check({.temperature = 1, .typical_p = 0}, "expected a typical_p above 0 and up to 1, got 0");
}

TEST_CASE("sample: draws what the plainest implementation draws, for logits and settings of every kind") {
  std::mt19937_64 random(17);
  const auto number = [&] { return static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 250; };
  struct Row {
    std::string name;
    RowVector<float> logits;
  };
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, Index size, auto next) {
    RowVector<float> logits(size);
    for (float& logit : logits) logit = next();
    logits[size / 2] = 1;  // one that is a finite number in any case
    rows.push_back({name, logits});
  };
  const auto rarely = [&](float odd) { return [&, odd] { return random() % 5 == 0 ? odd : number(); }; };
  const auto inSteps = [](float begin, float step) { return [=]() mutable { return begin += step; }; };
  for (const Index size : {1, 2, 15, 16, 17, 100, 3000, 50257}) {
    add("numbers", size, number);
    add("peaked", size, [&] { return 3 * number() * static_cast<float>(random() % 8) / 8; });
    add("ties", size, [&] { return static_cast<float>(random() % 4); });
    add("all equal", size, [] { return 1.0f; });
    add("nearly equal", size, [&] { return 1 + static_cast<float>(random() % 100000) * 0x1p-23f; });
    add("ever larger", size, inSteps(-3, 0x1p-12f));
    add("ever smaller", size, inSteps(9, -0x1p-12f));
    add("minus infinity", size, rarely(-kInfinity));
    add("mostly minus infinity", size, [] { return -kInfinity; });
    add("NaN", size, rarely(kNaN));
    add("mostly NaN", size, [&] { return random() % 100 == 0 ? number() : kNaN; });
    add("far apart", size, [&] { return 1e30f * number(); });
  }
  Workspace<float> workspace{Threads(1)};
  const auto check = [&](const Row& row, const Sampling& sampling, int draws) {
    std::mt19937_64 engine(sampling.seed), plain_engine(sampling.seed);
    for (int i = 0; i < draws; ++i) {
      const int id =
          i % 2 == 0 ? sample(row.logits, sampling, engine, workspace) : sample(row.logits, sampling, engine);
      const int expected = plainSample(row.logits, sampling, plain_engine);
      const bool same = id == expected && engine == plain_engine;
      CHECK_MESSAGE(same, row.name, " [", row.logits.size(), "], temperature ", sampling.temperature, ", top_k ",
                    sampling.top_k, ", top_p ", sampling.top_p, ", min_p ", sampling.min_p, ", typical_p ",
                    sampling.typical_p, ": expected ", expected, ", got ", id);
    }
  };
  for (const Row& row : rows) {
    if (row.logits.size() > 10000) {
      for (const Sampling& sampling : {Sampling{1, 0, 1, 0, 1, random()}, Sampling{1, 40, 1, 0, 1, random()},
                                       Sampling{1, 0, 0.95, 0, 1, random()}, Sampling{1, 40, 0.95, 0, 1, random()}})
        check(row, sampling, 2);
      continue;
    }
    for (const double temperature : {0.0, 1e-300, 0.01, 0.7, 1.0, 2.5, 1e6})
      for (const int top_k : {0, 1, 2, 7, 40, 100000})
        for (const double top_p : {1e-9, 0.1, 0.5, 0.9, 0.999, 1 - 1e-15, 1.0})
          check(row, {temperature, top_k, top_p, 0, 1, random()}, row.logits.size() > 1000 ? 1 : 4);
    // In equal steps, tokens on both sides of the entropy are equally typical but for rounding.
    if (row.logits.size() > 100 || row.name.starts_with("ever")) continue;
    for (const double temperature : {0.01, 0.7, 2.5})
      for (const int top_k : {0, 7})
        for (const double top_p : {0.9, 1.0})
          for (const double min_p : {0.0, 0.001, 0.2, 1.0})
            for (const double typical_p : {0.1, 0.9, 1.0})
              check(row, {temperature, top_k, top_p, min_p, typical_p, random()}, 2);
  }
}

TEST_CASE("sample: takes a row or a part of a matrix, in float and in double") {
  std::mt19937_64 random(3);
  Matrix<float> logits(3, 50);
  for (float& logit : logits.reshaped()) logit = static_cast<float>(random() % 1000) / 100;
  const Matrix<double> wide = logits.cast<double>();
  const Eigen::MatrixXf column_major = logits;
  for (const Sampling& sampling : {Sampling(), Sampling{0.8, 20, 0.9, 0.001, 0.9, 5}})
    for (Index row = 0; row < 3; ++row) {
      const RowVector<float> copy = logits.row(row);
      const auto drawn = [&](const auto& any_logits) {
        std::mt19937_64 engine(sampling.seed);
        return sample(any_logits, sampling, engine);
      };
      CHECK(drawn(logits.row(row)) == drawn(copy));
      CHECK(drawn(column_major.row(row)) == drawn(copy));
      CHECK(drawn(wide.row(row)) == drawn(copy));
      CHECK(drawn(logits.row(row).head(30)) == drawn(RowVector<float>(copy.head(30))));
    }
}

TEST_CASE("sample: NaN is never drawn, and the largest logit must be finite, at every temperature") {
  const auto check = [](const std::vector<float>& logits, const char* error) {
    for (const double temperature : {0.0, 1.0}) {
      std::mt19937_64 engine(5), untouched(5);
      CHECK_THROWS_WITH_AS(sample(logitsOf(logits), Sampling{.temperature = temperature}, engine), error,
                           ArgumentError);
      CHECK(engine == untouched);
    }
  };
  check({1, 2, kInfinity}, "expected a largest logit that is finite, got infinity for token id 2");
  check({kNaN, kInfinity}, "expected a largest logit that is finite, got infinity for token id 1");
  check({kNaN, kNaN, -kInfinity},
        "expected a largest logit that is finite, got 2 times NaN and 1 times minus infinity");
  check({}, "expected a largest logit that is finite, got 0 times NaN and 0 times minus infinity");
  std::mt19937_64 engine;
  for (const double temperature : {0.0, 1.0})
    for (const int top_k : {0, 2})
      for (const double top_p : {0.5, 1.0})
        CHECK(sample(logitsOf({-kInfinity, kNaN, -3, -kInfinity, kNaN}), Sampling{temperature, top_k, top_p}, engine) ==
              2);
}
