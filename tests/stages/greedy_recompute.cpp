#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "adapters.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;

namespace {

constexpr char kGreedyRecomputeHint[] =
    "hint: the result is the whole prompt, unchanged, followed by the new ids. Each new id is the argmax of the LAST "
    "row of logits, the first index if several are largest, from a forward pass over everything before it. Nothing may "
    "be left over from an earlier call.";

/// Recomputing everything is slow: longer continuations are left to the cached stages.
constexpr std::size_t kLongestRecompute = 48;

std::vector<int> promptAndOutput(const GreedyCase& golden) {
  std::vector<int> ids = golden.prompt_ids;
  ids.insert(ids.end(), golden.output_ids.begin(), golden.output_ids.end());
  return ids;
}

}  // namespace

TEST_SUITE("greedy-recompute") {
  TEST_CASE("the prompt is kept and the golden ids follow it") {
    Diagnosis diagnosis;
    INFO(kGreedyRecomputeHint);
    for (const std::string& model : kFixtureModels)
      for (const GreedyCase& golden : greedyCases(model)) {
        const std::vector<int> expected = promptAndOutput(golden);
        if (expected.size() > kLongestRecompute) continue;
        const driftless::Parameters<float>& parameters = fixtureParameters(model);
        const auto call = [&] {
          return adapters::runGreedyRecompute(parameters, golden.prompt_ids, golden.max_tokens);
        };
        const std::vector<int> ids = graded(golden.name, call);
        const driftless::Index enough = tellingCount(ids, expected);
        const std::vector<int> telling = firstOf(ids, enough);
        const OnFailure diagnose = diagnosis.of(
            golden.name, parameters, telling, [&] { return firstOf(call(), enough); },
            [=](const PlainModel& plain) {
              return plain.greedyRecompute(golden.prompt_ids, golden.max_tokens, enough);
            });
        checkSameIds(ids, expected, golden.name, diagnose);
      }
  }

  TEST_CASE("if no new id is asked for, the prompt alone comes back") {
    INFO(kGreedyRecomputeHint);
    const std::vector<int> prompt = {7, 0, 258, 7};
    const auto call = [&] { return adapters::runGreedyRecompute(fixtureParameters("odd-gpt2"), prompt, 0); };
    checkSameIds(graded("n = 0", call), prompt, "n = 0");
  }

  TEST_CASE("the same call gives the same ids again") {
    Diagnosis diagnosis;
    INFO(kGreedyRecomputeHint);
    for (const std::string model : {"odd-gpt2", "odd-gpt2-untied"}) {
      const GreedyCase golden = greedyCases(model).at(1);
      const auto run = [&] {
        return adapters::runGreedyRecompute(fixtureParameters(model), golden.prompt_ids, golden.max_tokens);
      };
      diagnosis.checkRepeats(golden.name, run, graded(golden.name, run));
    }
  }
}
