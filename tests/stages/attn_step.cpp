#include <doctest/doctest.h>

#include <string>

#include "adapters.hpp"
#include "driftless/reference.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;
using driftless::Index, driftless::Matrix;
namespace reference = driftless::reference;

namespace {

constexpr char kAttnStepHint[] =
    "hint: append the new row's key and value to the layer's cache first, then attend over all of it, the new row "
    "included. If row 0 is right and later ones are wrong: is the cache read in the order of positions, and is softmax "
    "over exactly the rows so far? If row 0 is wrong too: c_attn's columns are Q, K, V, each with its heads side by "
    "side; scores are scaled by 1 / sqrt(C / H); the heads are joined again before c_proj; both biases are added.";

}  // namespace

TEST_SUITE("attn-step") {
  TEST_CASE("rows fed one by one agree with attention recomputed over all of them") {
    Diagnosis diagnosis;
    INFO(kAttnStepHint);
    for (const std::string& model : kFixtureModels) {
      const driftless::Parameters<float>& parameters = fixtureParameters(model);
      const LogitsCase prompt = logitsCases(model).at(4);  // 40 tokens, or as many as the context holds
      Matrix<float> stream = reference::embed<float>(prompt.prompt_ids, parameters);
      for (Index layer = 0; layer < parameters.config.n_layer; ++layer) {
        const auto& block = parameters.h[static_cast<std::size_t>(layer)];
        const Matrix<float> x = reference::layerNorm(stream, block.ln_1, parameters.config.layer_norm_epsilon);
        const std::string what = prompt.name + ", layer " + std::to_string(layer);
        const auto call = [&] { return adapters::runAttnStep(parameters, layer, x); };
        const Matrix<float> out = graded(what, call);
        checkClose(out, reference::attention(x, block.attn, parameters.config, layer), what,
                   diagnosis.of(what, parameters, out, call,
                                [=](const PlainModel& plain) { return plain.attention(layer, x); }));
        stream = reference::block(stream, parameters, layer);
      }
    }
  }

  TEST_CASE("rows fed one by one agree with the float64 golden") {
    Diagnosis diagnosis;
    INFO(kAttnStepHint);
    const driftless::Parameters<float>& parameters = fixtureParameters("tales-gpt2");
    const nlohmann::json& golden = fixtureJson("tales-gpt2/goldens/layers.json");
    const Matrix<float> embedding = toMatrix(golden.at("embedding")).cast<float>();
    const Matrix<float> x =
        reference::layerNorm(embedding, parameters.h.front().ln_1, parameters.config.layer_norm_epsilon);
    const std::string what = "tales-gpt2, layer 0";
    const auto call = [&] { return adapters::runAttnStep(parameters, 0, x); };
    const Matrix<float> out = graded(what, call);
    checkClose(
        out, toMatrix(golden.at("attn_out_layer0")), what,
        diagnosis.of(what, parameters, out, call, [=](const PlainModel& plain) { return plain.attention(0, x); }));
  }
}
