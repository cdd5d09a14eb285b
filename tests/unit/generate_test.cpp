#include "driftless/generate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "driftless/detail/stored/elements.hpp"
#include "driftless/reference.hpp"
#include "support/random_models.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

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
  SUBCASE("the callback sees every id and stops after the one it refuses") {
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
    options.sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.95, .seed = 3};
    const std::vector<int> recomputed = generate(prompt, options).output_ids;
    options.use_cache = true;
    CHECK(generate(prompt, options).output_ids == recomputed);
  }
  SUBCASE("a seed gives the same ids again, another seed others") {
    options.sampling = {.temperature = 1.2, .seed = 3};
    const std::vector<int> sampled = generate(prompt, options).output_ids;
    CHECK(generate(prompt, options).output_ids == sampled);
    options.sampling.seed = 4;
    CHECK(generate(prompt, options).output_ids != sampled);
  }
  SUBCASE("as many tokens as fit, by the largest number of any type") {
    const std::vector<int> most =
        generateTokens(std::span<const int>(prompt), std::numeric_limits<Index>::max(), oddWeights());
    CHECK(most.size() == 14);
    CHECK(generateTokens(std::span<const int>(prompt), std::numeric_limits<std::size_t>::max(), oddWeights()) == most);
    CHECK_THROWS_WITH_AS(generateTokens(std::span<const int>(prompt), -1, oddWeights()),
                         "expected max_tokens of 0 or more, got -1", ArgumentError);
  }
  SUBCASE("a prompt without tokens is an error") { CHECK_THROWS_AS(generate({}, options), ArgumentError); }
}

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A model of its own output weights, a few of whose numbers a test may spoil.
Parameters<float> untiedParameters() { return livelyParameters(oddConfig(), true); }

std::string errorOf(const std::vector<int>& prompt, const Weights<float>& weights, double temperature) {
  GenerateOptions options;
  options.sampling.temperature = temperature;
  try {
    generateTokens(std::span<const int>(prompt), options, weights);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("generateTokens: logits that are not numbers are an error that names position and tensors") {
  const std::string expected = "expected a largest logit that is finite, got ";
  const auto check = [&](const Parameters<float>& parameters, const std::string& error, bool fits_int8 = true) {
    for (const StoredType stored :
         {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8, StoredType::int4}) {
      if (driftless::detail::isQuantized(stored) && !fits_int8) continue;  // refused when it is loaded
      const Weights<float> weights(parameters, {.stored = stored});
      for (const double temperature : {0.0, 1.0}) CHECK(errorOf({1, 2}, weights, temperature) == error);
      ModelCache<float> cache(weights);
      const RowVector<float> logits = prefill(std::vector<int>{1, 2}, weights, cache);
      CHECK_THROWS_WITH_AS(checkLogits(logits, 1, weights), error.c_str(), ArgumentError);
    }
  };
  Parameters<float> spoilt = untiedParameters();
  spoilt.ln_f.bias[3] = kInfinity;
  spoilt.lm_head->col(3).setOnes();
  check(spoilt,
        "logits at position 1: " + expected + "infinity for token id 0; not all numbers are finite in ln_f.bias");
  spoilt.ln_f.bias[3] = kNaN;
  spoilt.h[1].mlp.c_fc.bias[2] = -kInfinity;
  check(spoilt, "logits at position 1: " + expected +
                    "259 times NaN and 0 times minus infinity; not all numbers are finite in h.1.mlp.c_fc.bias, "
                    "ln_f.bias");
  spoilt = untiedParameters();
  spoilt.wpe(1, 0) = kNaN;
  check(spoilt, "logits at position 1: " + expected +
                    "259 times NaN and 0 times minus infinity; not all numbers are finite in wpe.weight");
  spoilt = untiedParameters();
  (*spoilt.lm_head)(200, 7) = kNaN;
  spoilt.h[2].attn.c_proj.weight(4, 5) = kNaN;
  spoilt.wte(258, 1) = kNaN;
  check(spoilt,
        "logits at position 1: " + expected +
            "259 times NaN and 0 times minus infinity; not all numbers are finite in wte.weight, "
            "h.2.attn.c_proj.weight, lm_head.weight",
        false);
  spoilt = untiedParameters();
  (*spoilt.lm_head)(200, 7) = kNaN;
  CHECK(errorOf({1, 2}, Weights<float>(spoilt), 1) == "none");  // one id that is never drawn
  spoilt = untiedParameters();
  spoilt.ln_f.bias.setConstant(3e38f);
  spoilt.lm_head->setConstant(2);
  check(spoilt, "logits at position 1: " + expected +
                    "infinity for token id 0; all weights are finite, but what is computed "
                    "from them is not");
  spoilt = untiedParameters();
  spoilt.wte(5, 0) = kNaN;  // of a token that does not come up
  const Weights<float> harmless(spoilt), sound(untiedParameters());
  const std::vector<int> prompt = {1, 2};
  CHECK(generateTokens(std::span<const int>(prompt), 3, harmless) ==
        generateTokens(std::span<const int>(prompt), 3, sound));
}
