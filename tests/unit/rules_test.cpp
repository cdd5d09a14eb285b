#include "driftless/rules.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "driftless/error.hpp"
#include "driftless/workspace.hpp"
#include "support/fixtures.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

LogitsRules rulesOf(const nlohmann::json& json) {
  LogitsRules rules;
  for (const nlohmann::json& bias : json.value("logit_bias", nlohmann::json::array()))
    rules.logit_bias.push_back({bias.at("id"), bias.at("bias")});
  rules.repetition_penalty = json.value("repetition_penalty", 1.0);
  rules.presence_penalty = json.value("presence_penalty", 0.0);
  rules.frequency_penalty = json.value("frequency_penalty", 0.0);
  rules.no_repeat_ngram_size = json.value("no_repeat_ngram_size", Index{0});
  rules.suppress_tokens = json.value("suppress_tokens", std::vector<int>());
  return rules;
}

/// Equal numbers, or both NaN. Transformers adds a bias of 0 to other logits, which makes 0 of -0.
template <class Scalar>
bool areEqualLogits(const RowVector<Scalar>& a, const RowVector<Scalar>& b) {
  return std::ranges::equal(a, b, [](Scalar x, Scalar y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

template <class Scalar>
RowVector<Scalar> changedBy(RowVector<Scalar> logits, const LogitsRules& rules, TokenIds ids,
                            std::size_t prompt_tokens) {
  Workspace<Scalar> workspace{Threads(1)};
  applyRules(logits, rules, ids, prompt_tokens, workspace);
  return logits;
}

/// The ids that no_repeat_ngram_size suppresses, by looking at every run.
std::set<int> completingRepeated(const std::vector<int>& ids, std::size_t size) {
  std::set<int> found;
  if (ids.size() + 1 < size) return found;
  for (std::size_t begin = 0; begin + size <= ids.size(); ++begin)
    if (std::equal(ids.end() - static_cast<std::ptrdiff_t>(size - 1), ids.end(),
                   ids.begin() + static_cast<std::ptrdiff_t>(begin)))
      found.insert(ids[begin + size - 1]);
  return found;
}

}  // namespace

TEST_CASE("rules: logits become, to the bit, what transformers makes of them in float32") {
  Workspace<float> workspace{Threads(1)};  // one for all, so that nothing of one case may be left for the next
  for (const nlohmann::json& json : fixtureJson("rules.json").at("rules")) {
    CAPTURE(json.dump());
    RowVector<float> logits = floatsOf(json.at("logits"));
    const std::vector<int> ids = json.at("ids");
    applyRules(logits, rulesOf(json), ids, json.at("prompt_tokens"), workspace);
    CHECK(areEqualLogits(logits, floatsOf(json.at("changed"))));
  }
}

TEST_CASE("rules: what each does, in double") {
  const RowVector<double> logits = RowVector<double>{{1, -2, 0, 4, -kInfinite, kNotANumber}};
  const std::vector<int> ids = {3, 1, 3, 1, 1};
  const auto check = [&](const LogitsRules& rules, const RowVector<double>& expected) {
    CHECK(areEqualLogits(changedBy(logits, rules, ids, 2), expected));
  };
  check({}, logits);
  check({.logit_bias = {{0, 2}, {4, 9}, {0, 0.5}}}, RowVector<double>{{3.5, -2, 0, 4, -kInfinite, kNotANumber}});
  check({.repetition_penalty = 2}, RowVector<double>{{1, -4, 0, 2, -kInfinite, kNotANumber}});
  check({.presence_penalty = 0.5}, RowVector<double>{{1, -2.5, 0, 3.5, -kInfinite, kNotANumber}});
  check({.frequency_penalty = 0.5}, RowVector<double>{{1, -3, 0, 3.5, -kInfinite, kNotANumber}});
  check({.presence_penalty = -1, .frequency_penalty = 0.25},
        RowVector<double>{{1, -1.5, 0, 4.75, -kInfinite, kNotANumber}});
  check({.no_repeat_ngram_size = 1}, RowVector<double>{{1, -kInfinite, 0, -kInfinite, -kInfinite, kNotANumber}});
  check({.no_repeat_ngram_size = 2}, RowVector<double>{{1, -kInfinite, 0, -kInfinite, -kInfinite, kNotANumber}});
  check({.no_repeat_ngram_size = 3}, logits);
  check({.suppress_tokens = {5, 0, 0}}, RowVector<double>{{-kInfinite, -2, 0, 4, -kInfinite, -kInfinite}});
}

TEST_CASE("rules: n-grams that would come a second time, for runs of every kind") {
  std::mt19937 random(4);
  for (int i = 0; i < 3000; ++i) {
    const auto letters = 1 + random() % 3;
    std::vector<int> ids(random() % 30);
    for (int& id : ids) id = static_cast<int>(random() % letters);
    const std::size_t size = 1 + random() % 8;
    const LogitsRules rules{.no_repeat_ngram_size = static_cast<Index>(size)};
    const RowVector<float> logits = changedBy<float>(RowVector<float>::Zero(4), rules, ids, 0);
    std::set<int> suppressed;
    for (int id = 0; id < 4; ++id)
      if (std::isinf(logits[id])) suppressed.insert(id);
    CAPTURE(size);
    CAPTURE(ids.size());
    CHECK(suppressed == completingRepeated(ids, size));
  }
  const Index largest = std::numeric_limits<Index>::max();
  CHECK(changedBy<float>(RowVector<float>::Zero(4), {.no_repeat_ngram_size = largest}, {1, 1, 1}, 0).isZero(0));
}

TEST_CASE("rules: time is linear in the history, even for n-grams as long as half of it") {
  const std::vector<int> ids(1 << 20, 0);  // to compare every run would be 2^38 comparisons
  const RowVector<float> logits =
      changedBy<float>(RowVector<float>::Zero(4), {.no_repeat_ngram_size = 1 << 19}, ids, ids.size());
  CHECK(std::isinf(logits[0]));
}

TEST_CASE("rules: logits may be part of a matrix") {
  Matrix<float> logits = Matrix<float>::Zero(3, 10);
  Workspace<float> workspace{Threads(1)};
  applyRules(logits.row(1).segment(2, 5), {.logit_bias = {{4, 1.5}}}, {}, 0, workspace);
  CHECK(logits(1, 6) == 1.5f);
  CHECK(logits.sum() == 1.5f);
}

TEST_CASE("rules: what is out of range is refused by name, before anything is changed") {
  Config config;
  config.vocab_size = 50;
  const auto check = [&](const LogitsRules& rules, const char* error) {
    CHECK_THROWS_WITH_AS(checkRules(rules, config), error, ArgumentError);
    RowVector<float> logits = RowVector<float>::Zero(50);
    Workspace<float> workspace{Threads(1)};
    CHECK_THROWS_WITH_AS(applyRules(logits, rules, {1}, 0, workspace), error, ArgumentError);
    CHECK(logits.isZero(0));
  };
  check({.logit_bias = {{7, 1}, {50, 1}}}, "logit_bias: expected token ids from 0 to 49, got 50");
  check({.logit_bias = {{-1, 1}}}, "logit_bias: expected token ids from 0 to 49, got -1");
  check({.logit_bias = {{7, kNotANumber}}}, "expected a logit_bias that is finite as a float, got nan");
  check({.logit_bias = {{7, -1e39}}}, "expected a logit_bias that is finite as a float, got -1e+39");
  check({.repetition_penalty = 0}, "expected a repetition_penalty above 0, as a float too, got 0");
  check({.repetition_penalty = -1.5}, "expected a repetition_penalty above 0, as a float too, got -1.5");
  check({.repetition_penalty = 1e-60}, "expected a repetition_penalty above 0, as a float too, got 1e-60");
  check({.repetition_penalty = kInfinite}, "expected a repetition_penalty that is finite as a float, got inf");
  check({.repetition_penalty = kNotANumber}, "expected a repetition_penalty that is finite as a float, got nan");
  check({.presence_penalty = kInfinite}, "expected a presence_penalty that is finite as a float, got inf");
  check({.frequency_penalty = -kInfinite}, "expected a frequency_penalty that is finite as a float, got -inf");
  check({.logit_bias = {{7, 1}}, .no_repeat_ngram_size = -1}, "expected a no_repeat_ngram_size of 0 or more, got -1");
  check({.logit_bias = {{7, 1}}, .suppress_tokens = {3, 50}},
        "suppress_tokens: expected token ids from 0 to 49, got 50");

  const RowVector<float> logits = RowVector<float>::Zero(50);
  CHECK_THROWS_WITH_AS(changedBy(logits, {}, {3, 50}, 0), "ids: expected token ids from 0 to 49, got 50",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(changedBy(logits, {}, {3, -1}, 0), "ids: expected token ids from 0 to 49, got -1",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(changedBy(logits, {}, {3, 4}, 3), "expected prompt_tokens of at most 2, as many as ids, got 3",
                       ArgumentError);
}
