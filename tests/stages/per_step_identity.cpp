#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "adapters.hpp"
#include "driftless/argmax.hpp"
#include "driftless/reference.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;
using driftless::Index, driftless::Matrix, driftless::RowVector;

namespace {

constexpr char kPerStepIdentityHint[] =
    "hint: if an early step is out of tolerance, see full-decode-step; if it takes many steps, look at what grows with "
    "the cache (positions, the number of keys, a buffer that is not cleared). If only bits differ from a prefill from "
    "scratch, the two add the same numbers in another order: matrix products over one row and over many take different "
    "routes through a linear algebra library. Compute each row of a prefill by itself, exactly as a decode step does.";

constexpr std::size_t kSteps = 64;

/// Checks every step of a generation whose ids are known: kSteps ids after the prompt, or as many as the case has.
void checkEveryStep(const std::string& model, const GreedyCase& golden, Diagnosis& diagnosis) {
  const std::size_t steps = std::min(golden.output_ids.size(), kSteps);
  const auto firstOutputs = [&](std::size_t count) {
    return std::vector<int>(golden.output_ids.begin(), golden.output_ids.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const driftless::Parameters<float>& parameters = fixtureParameters(model);
  const Matrix<float> logits = graded(
      golden.name, [&] { return adapters::runStepwise(parameters, golden.prompt_ids, firstOutputs(steps - 1)); });
  REQUIRE(logits.rows() == static_cast<Index>(steps));

  std::vector<int> ids = golden.prompt_ids;
  for (std::size_t step = 0; step < steps; ++step) {
    const RowVector<float> row = logits.row(static_cast<Index>(step));
    const std::string where = golden.name + ", step " + std::to_string(step);
    const std::vector<int> next_ids = firstOutputs(step);
    const auto call = [&]() -> RowVector<float> {
      return adapters::runStepwise(parameters, golden.prompt_ids, next_ids).bottomRows(1);
    };
    checkClose(row, driftless::lastLogits<float>(ids, parameters), where + ", recomputed",
               diagnosis.of(where, parameters, row, call, [=](const PlainModel& plain) -> Matrix<float> {
                 return plain.stepwise(golden.prompt_ids, next_ids).bottomRows(1);
               }));
    const Index size = static_cast<Index>(ids.size());
    const std::string from_scratch = where + ", prefilled from scratch";
    const auto prefill = [&] { return adapters::runPrefill(parameters, ids, {size}); };
    const adapters::Prefilled prefilled = graded(from_scratch, prefill);
    checkSameBits(row, prefilled.logits, from_scratch,
                  diagnosis.of(from_scratch, parameters, prefilled, prefill,
                               [=](const PlainModel& plain) { return plain.prefill(ids, {size}); }));
    ids.push_back(golden.output_ids[step]);
  }
}

}  // namespace

TEST_SUITE("per-step-identity") {
  TEST_CASE("models of awkward shapes keep every step up to the end of their context") {
    Diagnosis diagnosis;
    INFO(kPerStepIdentityHint);
    for (const std::string& model : kFixtureModels) {
      if (model == "tales-gpt2") continue;
      for (const GreedyCase& golden : greedyCases(model)) checkEveryStep(model, golden, diagnosis);
    }
  }

  TEST_CASE("every step of 64 agrees with a recompute, and bit for bit with a prefill from scratch") {
    Diagnosis diagnosis;
    INFO(kPerStepIdentityHint);
    const GreedyCase once_upon = greedyCases("tales-gpt2").at(3);
    REQUIRE(once_upon.output_ids.size() >= kSteps);
    checkEveryStep("tales-gpt2", once_upon, diagnosis);
  }
}
