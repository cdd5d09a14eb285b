#include <doctest/doctest.h>

#include <random>
#include <span>
#include <vector>

#include "driftless/driftless.hpp"
#include "support/random_models.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

template <class Logits>
concept HasArgmax = requires(const Logits& logits) {
  argmax(logits);
};
template <class Logits>
concept HasSample = requires(const Logits& logits, std::mt19937_64& engine) {
  sample(logits, Sampling{}, engine);
};

// An index into a matrix would be that of its first row only by luck.
static_assert(HasArgmax<RowVector<float>> && HasSample<RowVector<float>>);
static_assert(!HasArgmax<Matrix<float>> && !HasSample<Matrix<float>>);

}  // namespace

TEST_CASE("arguments: one row of a batch's logits goes into argmax and sample") {
  Matrix<float> logits = Matrix<float>::Zero(2, 5);
  logits(0, 3) = logits(1, 1) = 1;
  std::mt19937_64 engine;
  CHECK(argmax(logits.row(0)) == 3);
  CHECK(argmax(logits.row(1)) == 1);
  CHECK(sample(logits.row(0), {}, engine) == 3);
  CHECK(sample(logits.row(1), {}, engine) == 1);
  CHECK(argmax(logits.col(3)) == 0);
}

TEST_CASE("arguments: ids may be braces, a vector, an array or a span") {
  const Parameters<float> parameters = livelyParameters(oddConfig());
  const Weights<float> weights(parameters);
  ModelCache<float> cache(weights);
  Workspace<float> workspace;
  const std::vector<int> ids = {1, 2, 3};
  const int array[] = {1, 2, 3};
  const RowVector<float> expected = prefill(ids, weights, cache);
  const auto again = [&](auto run) {
    cache.reset();
    CHECK(run() == expected);
  };
  again([&] { return prefill({1, 2, 3}, weights, cache); });
  again([&] { return prefill(array, weights, cache); });
  again([&] { return prefill(std::span(ids), weights, cache); });
  again([&]() -> RowVector<float> { return prefill({1, 2, 3}, weights, cache, workspace); });
  again([&]() -> RowVector<float> { return prefillLogits({1, 2, 3}, weights, cache).row(2); });
  CHECK(lastLogits<float>({1, 2, 3}, parameters) == lastLogits<float>(ids, parameters));

  const std::vector<int> next = generateTokens(ids, 4, weights);
  CHECK(generateTokens({1, 2, 3}, 4, weights) == next);
  CHECK(generateTokens({1, 2, 3}, GenerateOptions{.max_tokens = 4}, weights).output_ids == next);
  CHECK(greedyDecode({1, 2, 3}, parameters, 4) == greedyDecode(ids, parameters, 4));
  const std::vector<Generation> several =
      generateTokens({{1, 2, 3}, {4, 5}}, GenerateOptions{.max_tokens = 4}, weights);
  REQUIRE(several.size() == 2);
  CHECK(several[0].output_ids == next);
  CHECK(several[1].output_ids == generateTokens({4, 5}, 4, weights));
  CHECK(generateTokens({7}, 2, weights) == generateTokens(std::vector<int>{7}, 2, weights));
}
