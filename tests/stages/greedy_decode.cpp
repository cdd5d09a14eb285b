#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "adapters.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;
using driftless::Index, driftless::Matrix, driftless::RowVector;

namespace {

constexpr char kGreedyDecodeHint[] =
    "hint: (1) the first token is chosen from the prefill's logits, before any decode step; (2) positions are absolute "
    "and go on counting from the prompt; (3) every layer has a cache of its own, and every generation starts with "
    "empty ones; (4) of equal logits the first index is chosen; (5) the result holds the new ids only, and does not "
    "stop at <|endoftext|>. The first difference tells which: at index 0 see (1) and (3), at 1 see (2), later see (4) "
    "and the stage per-step-identity.";

/// Checks the ids of one generation.
void checkGreedy(const std::string& model, const std::vector<int>& prompt_ids, Index max_tokens,
                 const std::vector<int>& expected, const std::string& what, Diagnosis& diagnosis) {
  const auto call = [&] { return adapters::runGreedyGenerate(fixtureParameters(model), prompt_ids, max_tokens); };
  const std::vector<int> ids = graded(what, call);
  const Index enough = tellingCount(ids, expected);
  const std::vector<int> telling = firstOf(ids, enough);
  const OnFailure diagnose = diagnosis.of(
      what, fixtureParameters(model), telling, [&] { return firstOf(call(), enough); },
      [=](const PlainModel& plain) { return plain.greedyGenerate(prompt_ids, max_tokens, enough); });
  checkSameIds(ids, expected, what, diagnose);
}

RowVector<float> logitsOf(std::initializer_list<float> values) {
  RowVector<float> logits(static_cast<Index>(values.size()));
  std::copy(values.begin(), values.end(), logits.data());
  return logits;
}

}  // namespace

TEST_SUITE("greedy-decode") {
  TEST_CASE("of equal logits the first is chosen") {
    Diagnosis diagnosis;
    INFO("hint: replace the best so far only by a logit that is greater, not by one that is equal.");
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::vector<RowVector<float>> cases = {logitsOf({-1, 3, 2, 3, 3, 0}), logitsOf({-7, -7, -7}),
                                                 logitsOf({-kInfinity, -2, -5, -2}), logitsOf({4})};
    const std::vector<int> expected = {1, 0, 1, 0};
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const RowVector<float> logits = cases[i];
      const std::string what = "argmax of row " + std::to_string(i) + " of logits";
      // One id is enough to compare here, unlike those of a generation.
      const auto asNumber = [](int id) { return Matrix<float>::Constant(1, 1, static_cast<float>(id)).eval(); };
      const auto call = [&] { return asNumber(adapters::runArgmax(logits)); };
      const Matrix<float> id = graded(what, call);
      checkSameIds({static_cast<int>(id(0, 0))}, {expected[i]}, what,
                   diagnosis.of(what, id, call, [=](planted::Mistakes mistakes) {
                     return asNumber(planted::argmax(logits, mistakes));
                   }));
    }
  }

  // Before the others: an implementation that runs out of room by what earlier calls left would throw in all of them.
  TEST_CASE("the same call gives the same ids again, whatever was generated in between") {
    Diagnosis diagnosis;
    INFO(kGreedyDecodeHint);
    const GreedyCase golden = greedyCases("odd-gpt2").at(1);
    const auto generate = [](const std::vector<int>& prompt_ids, Index max_tokens) {
      return adapters::runGreedyGenerate(fixtureParameters("odd-gpt2"), prompt_ids, max_tokens);
    };
    const auto call = [&] { return generate(golden.prompt_ids, golden.max_tokens); };
    const std::vector<int> first = graded(golden.name, call);
    const auto callAgain = [&] {
      generate({5, 6, 7}, 4);
      return call();
    };
    diagnosis.checkRepeats(golden.name, callAgain, first);
  }

  TEST_CASE("ids equal the goldens, integer for integer") {
    Diagnosis diagnosis;
    INFO(kGreedyDecodeHint);
    for (const std::string& model : kFixtureModels)
      for (const GreedyCase& golden : greedyCases(model)) {
        checkGreedy(model, golden.prompt_ids, golden.max_tokens, golden.output_ids, golden.name, diagnosis);
      }
  }

  TEST_CASE("a prompt that fills the context yields one id, however many are asked for") {
    Diagnosis diagnosis;
    INFO(
        "hint: the last token of a full context has logits, and so a next id, but there is no position left for that "
        "id.");
    for (const std::string& model : kFixtureModels) {
      const Index N = fixtureParameters(model).config.n_positions;
      for (const GreedyCase& golden : greedyCases(model)) {
        std::vector<int> full = golden.prompt_ids;
        full.insert(full.end(), golden.output_ids.begin(), golden.output_ids.end());
        if (static_cast<Index>(full.size()) <= N) continue;
        full.pop_back();
        REQUIRE(static_cast<Index>(full.size()) == N);
        checkGreedy(model, full, 5, {golden.output_ids.back()}, golden.name + ", and all but the last output",
                    diagnosis);
      }
    }
  }

  TEST_CASE("if no token is asked for, none is given") {
    Diagnosis diagnosis;
    INFO(kGreedyDecodeHint);
    checkGreedy("odd-gpt2", {1, 2, 3}, 0, {}, "odd-gpt2, no token", diagnosis);
  }
}
