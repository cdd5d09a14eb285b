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
using driftless::RowVector;

namespace {

constexpr char kGreedyDecodeHint[] =
    "hint: (1) the first token is chosen from the prefill's logits, before any decode step; (2) positions are absolute "
    "and go on counting from the prompt; (3) every layer has a cache of its own, and every generation starts with "
    "empty ones; (4) of equal logits the first index is chosen; (5) the result holds the new ids only, and does not "
    "stop at <|endoftext|>. The first difference tells which: at index 0 see (1) and (3), at 1 see (2), later see (4) "
    "and the stage per-step-identity.";

std::vector<int> greedyIds(const std::string& model, const std::vector<int>& prompt_ids, driftless::Index max_tokens) {
  return adapters::runGreedyGenerate(fixtureParameters(model), prompt_ids, max_tokens);
}

RowVector<float> logitsOf(std::initializer_list<float> values) {
  RowVector<float> logits(static_cast<driftless::Index>(values.size()));
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
    const auto chosenBy = [&](auto argmax) {
      std::vector<int> ids;
      for (const RowVector<float>& logits : cases) ids.push_back(argmax(logits));
      return ids;
    };
    const std::vector<int> ids = chosenBy(adapters::runArgmax);
    checkSameIds(ids, {1, 0, 1, 0}, "argmax of four rows", diagnosis.of("argmax", ids, [&](planted::Mistake mistake) {
      return chosenBy([&](const RowVector<float>& logits) { return planted::argmax(logits, mistake); });
    }));
  }

  TEST_CASE("ids equal the goldens, integer for integer") {
    Diagnosis diagnosis;
    INFO(kGreedyDecodeHint);
    for (const std::string& model : kFixtureModels)
      for (const GreedyCase& golden : greedyCases(model)) {
        const std::vector<int> ids = greedyIds(model, golden.prompt_ids, golden.max_tokens);
        const std::vector<int> telling = tellingIds(ids, golden.output_ids);
        checkSameIds(ids, golden.output_ids, golden.name,
                     diagnosis.of(golden.name, fixtureParameters(model), telling, [&](const PlainModel& plain) {
                       return plain.greedyGenerate(golden.prompt_ids, std::ssize(telling));
                     }));
      }
  }

  TEST_CASE("a prompt that fills the context yields one id, however many are asked for") {
    INFO(
        "hint: the last token of a full context has logits, and so a next id, but there is no position left for that "
        "id.");
    for (const std::string& model : kFixtureModels) {
      const driftless::Index N = fixtureParameters(model).config.n_positions;
      for (const GreedyCase& golden : greedyCases(model)) {
        std::vector<int> full = golden.prompt_ids;
        full.insert(full.end(), golden.output_ids.begin(), golden.output_ids.end());
        if (static_cast<driftless::Index>(full.size()) <= N) continue;
        full.pop_back();
        REQUIRE(static_cast<driftless::Index>(full.size()) == N);
        checkSameIds(greedyIds(model, full, 5), {golden.output_ids.back()},
                     golden.name + ", and all but the last output");
      }
    }
  }

  TEST_CASE("if no token is asked for, none is given") {
    INFO(kGreedyDecodeHint);
    CHECK(greedyIds("odd-gpt2", {1, 2, 3}, 0).empty());
  }

  TEST_CASE("the same call gives the same ids again, whatever was generated in between") {
    INFO(kGreedyDecodeHint);
    const GreedyCase golden = greedyCases("odd-gpt2").at(1);
    for (int repetition = 0; repetition < 2; ++repetition) {
      checkSameIds(greedyIds("odd-gpt2", golden.prompt_ids, golden.max_tokens), golden.output_ids, golden.name);
      greedyIds("odd-gpt2", {5, 6, 7}, 4);
    }
  }
}
