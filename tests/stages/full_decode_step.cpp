#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "adapters.hpp"
#include "driftless/reference.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;
using driftless::Matrix;

namespace {

constexpr char kFullDecodeStepHint[] =
    "hint: the new token stands at position promptIds.size(), counted from 0: not at 0, and not one earlier or later. "
    "It goes through every layer with that layer's own cache and attends to the whole prompt and itself, and its "
    "logits "
    "are computed after ln_f.";

}  // namespace

TEST_SUITE("full-decode-step") {
  TEST_CASE("prefill and one decode give the logits of a full recompute and of the float64 goldens") {
    Diagnosis diagnosis;
    INFO(kFullDecodeStepHint);
    for (const std::string& model : kFixtureModels)
      for (const LogitsCase& golden : logitsCases(model)) {
        if (!golden.next_id) continue;
        std::vector<int> ids = golden.prompt_ids;
        ids.push_back(*golden.next_id);
        const driftless::Parameters<float>& parameters = fixtureParameters(model);
        const auto call = [&] { return adapters::runDecodeStep(parameters, golden.prompt_ids, *golden.next_id); };
        const driftless::RowVector<float> logits = graded(golden.name, call);
        const OnFailure diagnose =
            diagnosis.of(golden.name, parameters, logits, call, [=](const PlainModel& plain) -> Matrix<float> {
              return plain.stepwise(golden.prompt_ids, {*golden.next_id}).bottomRows(1);
            });
        checkClose(logits, driftless::lastLogits<float>(ids, parameters), golden.name + ", recomputed", diagnose);
        checkClose(logits, golden.decode_logits, golden.name + ", golden", diagnose);
      }
  }
}
