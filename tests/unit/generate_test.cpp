#include "driftless/generate.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "driftless/reference.hpp"
#include "support/fixtures.hpp"
#include "support/random_models.hpp"

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

const Weights<float>& oddWeights() {
  static const Weights<float> weights(livelyParameters(oddConfig()));
  return weights;
}

Generation generate(
    const std::vector<int>& prompt, const GenerateOptions& options,
    const std::function<bool(int)>& onToken = [](int) { return true; }) {
  return generateTokens(std::span<const int>(prompt), options, oddWeights(), onToken);
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
  const std::vector<float> values = {0.5f, 2.0f, -1.0f, 1.5f, kNaN, 2.0f, -kInfinity};
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
    for (const int id : draw(logitsOf(values), {c.temperature, c.top_k, c.top_p, 11}, kDraws)) ++seen[id];
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
    const Sampling sampling{json.at("temperature"), json.at("top_k"), json.at("top_p"), json.at("seed")};
    const std::vector<int> expected = json.at("ids");
    CHECK(draw(logits, sampling, static_cast<int>(expected.size())) == expected);
  }
}

TEST_CASE("sample: bad settings are refused by name") {
  std::mt19937_64 engine;
  const RowVector<float> logits = logitsOf({1, 2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Sampling& bad :
       {Sampling{-1, 0, 1, 0}, Sampling{nan, 0, 1, 0}, Sampling{HUGE_VAL, 0, 1, 0}, Sampling{1, -1, 1, 0},
        Sampling{1, 0, 0, 0}, Sampling{1, 0, 1.5, 0}, Sampling{1, 0, nan, 0}})
    CHECK_THROWS_AS(sample(logits, bad, engine), ArgumentError);
  CHECK_THROWS_WITH_AS(sample(logits, Sampling{1, -1, 1, 0}, engine), "expected a top_k of 0 or more, got -1",
                       ArgumentError);
}

TEST_CASE("generateTokens: greedy ids are those of recomputing with the reference") {
  const Parameters<float> parameters = livelyParameters(oddConfig());
  for (const std::size_t length : {1u, 5u, 12u}) {
    const std::vector<int> prompt = someIds(static_cast<Index>(length), 259);
    std::vector<int> ids = generateTokens(std::span<const int>(prompt), 4, oddWeights());
    ids.insert(ids.begin(), prompt.begin(), prompt.end());
    CHECK(ids == greedyDecode(std::span<const int>(prompt), parameters, 4));
  }
}

TEST_CASE("generateTokens: says why it ended") {
  const std::vector<int> prompt = {1, 2, 3};
  GenerateOptions options;
  options.max_tokens = 8;
  const Generation all = generate(prompt, options);
  CHECK(all.finish_reason == FinishReason::length);
  REQUIRE(all.output_ids.size() == 8);

  SUBCASE("stop ids are not part of the output") {
    options.stop_ids = {all.output_ids[5]};
    const auto first = std::ranges::find(all.output_ids, all.output_ids[5]);
    const Generation stopped = generate(prompt, options);
    CHECK(stopped.finish_reason == FinishReason::stop);
    CHECK(stopped.output_ids == std::vector<int>(all.output_ids.begin(), first));
  }
  SUBCASE("the callback sees every id and stops behind the one it refuses") {
    std::vector<int> seen;
    const Generation stopped = generate(prompt, options, [&](int id) {
      seen.push_back(id);
      return seen.size() < 3;
    });
    CHECK(stopped.finish_reason == FinishReason::callback);
    CHECK(stopped.output_ids == seen);
    CHECK(seen == std::vector<int>(all.output_ids.begin(), all.output_ids.begin() + 3));
  }
  SUBCASE("a prompt of n_positions tokens yields one more id") {
    const Generation last = generate(someIds(16, 259), options);
    CHECK(last.output_ids.size() == 1);
    CHECK(last.finish_reason == FinishReason::context_full);
    const Generation fourteen = generate(someIds(14, 259), options);
    CHECK(fourteen.output_ids.size() == 3);
    CHECK(fourteen.finish_reason == FinishReason::context_full);
    options.max_tokens = 1;
    CHECK(generate(someIds(16, 259), options).finish_reason == FinishReason::length);
  }
  SUBCASE("one token more than n_positions is an error") {
    CHECK_THROWS_AS(generate(someIds(17, 259), options), ContextFull);
  }
  SUBCASE("no tokens are asked for") {
    options.max_tokens = 0;
    CHECK(generate(prompt, options).output_ids.empty());
    CHECK(generate(prompt, options).finish_reason == FinishReason::length);
    options.max_tokens = -1;
    CHECK_THROWS_AS(generate(prompt, options), ArgumentError);
  }
  SUBCASE("recomputing at every step gives the same ids") {
    options.use_cache = false;
    CHECK(generate(prompt, options).output_ids == all.output_ids);
    options.sampling = {0.8, 20, 0.95, 3};
    const std::vector<int> recomputed = generate(prompt, options).output_ids;
    options.use_cache = true;
    CHECK(generate(prompt, options).output_ids == recomputed);
  }
  SUBCASE("a seed gives the same ids again, another seed others") {
    options.sampling = {1.2, 0, 1, 3};
    const std::vector<int> sampled = generate(prompt, options).output_ids;
    CHECK(generate(prompt, options).output_ids == sampled);
    options.sampling.seed = 4;
    CHECK(generate(prompt, options).output_ids != sampled);
  }
  SUBCASE("a prompt without tokens is an error") { CHECK_THROWS_AS(generate({}, options), ArgumentError); }
}
