#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "adapters.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/log_probabilities.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;
using driftless::Index, driftless::Matrix, driftless::RowVector;

namespace {

constexpr char kFullForwardHint[] =
    "hint: if all logits are off by a little, look at the activation (gelu_new is the tanh form, gelu the erf form) "
    "and at layer_norm_epsilon (inside the root, variance over C, not C - 1); if by a lot, at the final ln_f, the "
    "residual sums, and the unembedding (logits = x * wte^T unless there is an lm_head); if only when there are "
    "several "
    "tokens, at the mask, the scale 1 / sqrt(C / H), and the split of c_attn's columns into Q, K, V and then heads.";

}  // namespace

TEST_SUITE("full-forward") {
  TEST_CASE("logits of the last token agree with the float64 goldens") {
    Diagnosis diagnosis;
    INFO(kFullForwardHint);
    const auto checkLast = [&](const std::string& model, std::vector<int> ids, const RowVector<double>& expected,
                               const std::string& what) {
      const driftless::Parameters<float>& parameters = fixtureParameters(model);
      const auto call = [&] { return adapters::runFullForward(parameters, ids); };
      const Matrix<float> logits = graded(what, call);
      const OnFailure diagnose =
          diagnosis.of(what, parameters, logits, call, [=](const PlainModel& plain) { return plain.fullForward(ids); });
      if (logits.rows() != static_cast<Index>(ids.size())) diagnose();
      REQUIRE(logits.rows() == static_cast<Index>(ids.size()));
      checkClose(logits.bottomRows(1), expected, what, diagnose);
    };
    for (const std::string& model : kFixtureModels)
      for (const LogitsCase& golden : logitsCases(model)) {
        checkLast(model, golden.prompt_ids, golden.prefill_logits, golden.name);
        if (!golden.next_id) continue;
        std::vector<int> ids = golden.prompt_ids;
        ids.push_back(*golden.next_id);
        checkLast(model, ids, golden.decode_logits, golden.name + ", and one more");
      }
  }

  TEST_CASE("logits of every token agree with the float64 goldens") {
    Diagnosis diagnosis;
    INFO(kFullForwardHint);
    for (const std::string& model : kFixtureModels) {
      if (model == "tales-gpt2") continue;
      const nlohmann::json& rows = fixtureJson(model + "/goldens.json").at("rows");
      const driftless::Parameters<float>& parameters = fixtureParameters(model);
      const std::vector<int> ids = rows.at("ids");
      const auto call = [&] { return adapters::runFullForward(parameters, ids); };
      const Matrix<float> logits = graded(model, call);
      checkClose(logits, toMatrix(rows.at("logits")), model,
                 diagnosis.of(model, parameters, logits, call,
                              [=](const PlainModel& plain) { return plain.fullForward(ids); }));
    }
  }

  TEST_CASE("the loss of every token of an original tale agrees with the float64 goldens") {
    INFO(kFullForwardHint);
    const nlohmann::json& golden = fixtureJson("tales-gpt2/goldens/perplexity.json");
    const std::vector<int> ids = golden.at("ids");
    const std::vector<int> inputs(ids.begin(), ids.end() - 1);
    const Matrix<float> logits =
        graded("losses", [&] { return adapters::runFullForward(fixtureParameters("tales-gpt2"), inputs); });
    REQUIRE(logits.rows() == static_cast<Index>(inputs.size()));
    checkClose(-logProbabilities(logits, ids, 1), toVector(golden.at("nll")), "losses");
  }
}
