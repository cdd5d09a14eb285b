#include "driftless/generate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

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
    options.sampling = {0.8, 20, 0.95, 3};
    const std::vector<int> recomputed = generate(prompt, options).output_ids;
    options.use_cache = true;
    CHECK(generate(prompt, options).output_ids == recomputed);
  }
  SUBCASE("a seed gives the same ids again, another seed others") {
    options.sampling = {1.2, 0, 1, 3};
    const std::vector<int> sampled = generate(prompt, options).output_ids;
    CHECK(generate(prompt, options).output_ids == sampled);
    options.sampling.seed = 4;
    CHECK(generate(prompt, options).output_ids != sampled);
  }
  SUBCASE("a prompt without tokens is an error") { CHECK_THROWS_AS(generate({}, options), ArgumentError); }
}
