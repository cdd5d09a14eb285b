#include "driftless/scoring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "driftless/error.hpp"
#include "driftless/forward.hpp"
#include "support/fixtures.hpp"
#include "support/log_probabilities.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

template <class Scalar = float>
Weights<Scalar> weightsOf(const std::string& model, StoredType stored = StoredType::full) {
  LoadOptions options;
  options.stored = stored;
  options.threads = Threads(1);
  return loadWeights<Scalar>(fixturePath(model), options);
}

const Weights<float>& odd() {
  static const Weights<float> weights = weightsOf("odd-gpt2-untied");
  return weights;
}

std::vector<int> oddIds() { return fixtureJson("scores.json").at("ids").at("odd-gpt2-untied"); }

void checkClose(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i)
    worst = std::max(worst, std::abs(actual[i] - expected[i]) / (1 + std::abs(expected[i])));
  CHECK(worst < 1e-4);
}

std::vector<int> together(std::vector<int> prompt, const std::vector<int>& more) {
  prompt.insert(prompt.end(), more.begin(), more.end());
  return prompt;
}

}  // namespace

TEST_CASE("scoring: log-probabilities in windows, as transformers has them") {
  const nlohmann::json& golden = fixtureJson("scores.json");
  const Weights<float> tales = weightsOf("tales-gpt2");
  for (const nlohmann::json& one : golden.at("cases")) {
    const std::string model = one.at("model");
    const std::vector<int> ids = golden.at("ids").at(model);
    ScoreOptions options;
    options.max_length = one.at("max_length").get<Index>();
    options.stride = one.at("stride").get<Index>();
    INFO(model << ", windows of " << *options.max_length << ", stride " << *options.stride);
    const Score score = scoreTokens(ids, model == "tales-gpt2" ? tales : odd(), options);
    checkClose(score.log_probabilities, one.at("log_probabilities"));
    CHECK(score.total == doctest::Approx(one.at("total").get<double>()).epsilon(1e-5));
    CHECK(score.total == std::accumulate(score.log_probabilities.begin(), score.log_probabilities.end(), 0.0));
    CHECK(score.top.empty());
  }
}

TEST_CASE("scoring: windows are as long as the context, and half of that apart, unless asked otherwise") {
  ScoreOptions options;
  options.max_length = 16;
  options.stride = 8;
  CHECK(scoreTokens(oddIds(), odd()).log_probabilities == scoreTokens(oddIds(), odd(), options).log_probabilities);
  options.max_length = 9;
  options.stride = 4;
  const Score expected = scoreTokens(oddIds(), odd(), options);
  options.stride.reset();
  CHECK(scoreTokens(oddIds(), odd(), options).log_probabilities == expected.log_probabilities);
}

TEST_CASE("scoring: the perplexity of the held-out tale") {
  const nlohmann::json& golden = fixtureJson("tales-gpt2/goldens/perplexity.json");
  const std::vector<int> ids = golden.at("ids");
  const Score score = scoreTokens(ids, weightsOf("tales-gpt2"));
  CHECK(score.log_probabilities.size() == golden.at("count").get<std::size_t>());
  CHECK(score.mean() == doctest::Approx(-golden.at("mean_nll").get<double>()).epsilon(1e-6));
  CHECK(score.perplexity() == doctest::Approx(golden.at("perplexity").get<double>()).epsilon(1e-6));
  CHECK(score.perplexity() == doctest::Approx(std::exp(-score.mean())).epsilon(1e-14));
}

TEST_CASE_TEMPLATE("scoring: the bits are those of prefill and of decodeStep, whatever is stored", Scalar, float,
                   double) {
  const std::vector<int> tale = fixtureJson("tales-gpt2/goldens/perplexity.json").at("ids");
  const std::vector<int> ids(tale.begin(), tale.begin() + 150);  // more than two of the pieces that are run together
  for (const StoredType stored : {StoredType::full, StoredType::int8}) {
    const Weights<Scalar> weights = weightsOf<Scalar>("tales-gpt2", stored);
    ModelCache<Scalar> cache(weights, stored), stepped(weights, stored), whole(weights, stored);
    Workspace<Scalar> workspace(weights.threads);
    ScoreOptions options;
    options.top = 3;
    const Score score = scoreTokens(ids, weights, cache, workspace, options);
    REQUIRE(score.log_probabilities.size() == ids.size() - 1);
    REQUIRE(score.top.size() == ids.size() - 1);
    const Matrix<Scalar> rows = prefillLogits(ids, weights, whole);
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      const RowVector<Scalar> logits = decodeStep(ids[t], static_cast<Index>(t), weights, stepped);
      REQUIRE(score.log_probabilities[t] == logProbability(logits, ids[t + 1]));
      REQUIRE(score.log_probabilities[t] == logProbability(rows.row(static_cast<Index>(t)), ids[t + 1]));
      const std::vector<TokenLogProbability> top = topLogProbabilities(logits, 3);
      REQUIRE(score.top[t].size() == 3);
      for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE(score.top[t][i].id == top[i].id);
        REQUIRE(score.top[t][i].log_probability == top[i].log_probability);
      }
    }
    // What was in the cache before is forgotten.
    CHECK(scoreTokens(ids, weights, cache, workspace).log_probabilities == score.log_probabilities);
  }
}

TEST_CASE("scoring: every token of a window that is not the first is scored by exactly those from its beginning on") {
  const std::vector<int> ids = oddIds();
  ScoreOptions options;
  options.max_length = 7;
  options.stride = 3;
  const Score score = scoreTokens(ids, odd(), options);
  std::size_t begin = 0;
  for (std::size_t t = 1; t < ids.size(); ++t) {
    while (t >= begin + 7) begin += 3;
    ModelCache<float> cache(odd());
    const RowVector<float> logits = prefill(std::span(ids).subspan(begin, t - begin), odd(), cache);
    REQUIRE(score.log_probabilities[t - 1] == logProbability(logits, ids[t]));
  }
}

TEST_CASE("scoring: progress is told, up to all tokens but the first") {
  std::vector<std::size_t> told;
  const Score score = scoreTokens(oddIds(), odd(), {}, [&](std::size_t scored) { told.push_back(scored); });
  REQUIRE_FALSE(told.empty());
  CHECK(std::is_sorted(told.begin(), told.end()));
  CHECK(told.size() == 11);  // the first window's 15, eight each from nine more, and two
  CHECK(told.front() == 15);
  CHECK(told.back() == oddIds().size() - 1);
  CHECK(score.log_probabilities.size() == told.back());
}

TEST_CASE("scoring: a single token has nothing before it") {
  const Score score = scoreTokens({3}, odd());
  CHECK(score.log_probabilities.empty());
  CHECK(score.total == 0);
  CHECK(std::isnan(score.mean()));
  CHECK(std::isnan(score.perplexity()));
}

TEST_CASE("scoring: arguments that are out of range leave the cache as it was") {
  ModelCache<float> cache(odd());
  Workspace<float> workspace(Threads(1));
  prefill({1, 2, 3}, odd(), cache);
  const auto refuses = [&](const std::vector<int>& ids, ScoreOptions options, const std::string& expected) {
    CHECK_THROWS_WITH_AS(scoreTokens(ids, odd(), cache, workspace, options), expected.c_str(), ArgumentError);
    CHECK(cache.length() == 3);
  };
  const auto lengths = [](Index max_length, std::optional<Index> stride = {}) {
    ScoreOptions options;
    options.max_length = max_length;
    options.stride = stride;
    return options;
  };
  refuses({}, {}, "expected at least one token id, got none");
  refuses({1, -1}, {}, "expected token ids from 0 to 258, got -1 at index 1");
  refuses({1, 2}, lengths(1), "expected a max_length from 2 to 16, which is n_positions, got 1");
  refuses({1, 2}, lengths(17), "expected a max_length from 2 to 16, which is n_positions, got 17");
  refuses({1, 2}, lengths(8, 0), "expected a stride from 1 to 7, one less than max_length, got 0");
  refuses({1, 2}, lengths(8, 8), "expected a stride from 1 to 7, one less than max_length, got 8");
  ScoreOptions top;
  top.top = -1;
  refuses({1, 2}, top, "expected a top of 0 or more, got -1");
}

TEST_CASE("scoring: logits by which no token can be chosen are an error that names the tensor") {
  Parameters<float> parameters = fixtureParameters("odd-gpt2-untied");
  parameters.ln_f.bias[0] = std::numeric_limits<float>::quiet_NaN();
  const Weights<float> weights(parameters, {});
  const char* const expected =
      "logits at position 0: expected a largest logit that is finite, got 259 times NaN and 0 times minus infinity; "
      "not all numbers are finite in ln_f.bias";
  CHECK_THROWS_WITH_AS(scoreTokens({1, 2}, weights), expected, ArgumentError);
  CHECK_THROWS_WITH_AS(scoreContinuations({1}, {{2}}, weights), expected, ArgumentError);
}

TEST_CASE("continuations: log-probabilities as transformers has them") {
  const nlohmann::json& golden = fixtureJson("scores.json");
  std::vector<std::vector<int>> continuations;
  for (const nlohmann::json& one : golden.at("continuations")) continuations.push_back(one.at("ids"));
  const std::vector<int> prompt = golden.at("prompt_ids");
  const std::vector<Score> scores = scoreContinuations(prompt, continuations, weightsOf("tales-gpt2"));
  REQUIRE(scores.size() == continuations.size());
  for (std::size_t i = 0; i < scores.size(); ++i)
    checkClose(scores[i].log_probabilities, golden.at("continuations").at(i).at("log_probabilities"));
}

TEST_CASE("continuations: each has the bits of prompt and continuation scored alone") {
  const std::vector<int> ids = fixtureJson("scores.json").at("ids").at("tales-gpt2");
  const auto piece = [&](std::size_t from, std::size_t count) {
    return std::vector<int>(ids.begin() + static_cast<std::ptrdiff_t>(from),
                            ids.begin() + static_cast<std::ptrdiff_t>(from + count));
  };
  for (const StoredType stored : {StoredType::full, StoredType::int8}) {
    const Weights<float> weights = weightsOf("tales-gpt2", stored);
    ModelCache<float> cache(weights, stored);
    Workspace<float> workspace(weights.threads);
    const std::vector<int> prompt = piece(0, 90);
    const std::vector<std::vector<int>> continuations = {piece(90, 1),  piece(90, 200), piece(300, 2),
                                                         piece(90, 65), piece(90, 64),  piece(0, 512 - 90)};
    const std::vector<Score> scores = scoreContinuations(prompt, continuations, weights, cache, workspace);
    REQUIRE(scores.size() == continuations.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      INFO("continuation " << i);
      const Score alone = scoreTokens(together(prompt, continuations[i]), weights, cache, workspace);
      const std::vector<double> expected(alone.log_probabilities.begin() + 89, alone.log_probabilities.end());
      CHECK(scores[i].log_probabilities == expected);
      CHECK(scores[i].total == std::accumulate(expected.begin(), expected.end(), 0.0));
    }
  }
}

TEST_CASE("continuations: arguments that are out of range leave the cache as it was") {
  ModelCache<float> cache(odd());
  Workspace<float> workspace(Threads(1));
  prefill({1, 2, 3}, odd(), cache);
  const std::vector<int> ten(10, 1), seven(7, 1);
  CHECK_THROWS_WITH_AS(scoreContinuations({}, {ten}, odd(), cache, workspace),
                       "expected at least one token id, got none", ArgumentError);
  CHECK_THROWS_WITH_AS(scoreContinuations(ten, {}, odd(), cache, workspace),
                       "expected at least one continuation, got none", ArgumentError);
  CHECK_THROWS_WITH_AS(scoreContinuations(ten, {{1}, {}}, odd(), cache, workspace),
                       "expected at least one token id, got none", ArgumentError);
  CHECK_THROWS_WITH_AS(scoreContinuations(ten, {{259}}, odd(), cache, workspace),
                       "expected token ids from 0 to 258, got 259 at index 0", ArgumentError);
  CHECK_THROWS_WITH_AS(scoreContinuations(ten, {{1}, seven}, odd(), cache, workspace),
                       "expected at most 16 tokens (n_positions) of prompt and continuation 1 together, got 10 and 7",
                       ContextFull);
  CHECK(cache.length() == 3);
}
