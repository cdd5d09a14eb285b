#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/generate.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

std::vector<int> promptOf(Index length, int salt) {
  std::vector<int> ids = someIds(length, 300);
  for (int& id : ids) id = (id + salt * 41) % 300;
  return ids;
}

const Weights<float>& batchWeights() {
  static const Weights<float> weights(livelyParameters(smallConfig(136, 2, 130, 300, 131)));
  return weights;
}

/// Logits [T, V] of a sequence run alone.
Matrix<float> alone(const std::vector<int>& ids, StoredType stored = StoredType::full) {
  ModelCache<float> cache(batchWeights(), stored);
  Workspace<float> workspace(Threads(1));
  return prefillLogits(ids, batchWeights(), cache, workspace);
}

}  // namespace

TEST_CASE("batch: prompts of different lengths, prefilled together and decoded together, are as if alone") {
  const Weights<float>& weights = batchWeights();
  for (const int threads : {1, 3}) {
    Workspace<float> workspace{Threads(threads)};
    std::vector<std::vector<int>> sequences;
    std::vector<ModelCache<float>> caches;
    std::vector<Chunk<float>> chunks;
    std::vector<std::size_t> lengths;
    for (int i = 0; i < 9; ++i) {
      lengths.push_back(static_cast<std::size_t>(1 + i * 14));
      sequences.push_back(promptOf(131, i));
      caches.emplace_back(weights, static_cast<StoredType>(i % 4));  // of every type
    }
    std::vector<Matrix<float>> expected;
    for (std::size_t i = 0; i < sequences.size(); ++i)
      expected.push_back(alone(sequences[i], static_cast<StoredType>(i % 4)));
    for (std::size_t i = 0; i < sequences.size(); ++i)
      chunks.push_back({std::span(sequences[i]).first(lengths[i]), &caches[i]});
    const MatrixView<float> first = prefill(chunks, weights, workspace);
    for (std::size_t i = 0; i < sequences.size(); ++i)
      checkSameBits(first.row(static_cast<Index>(i)), expected[i].row(static_cast<Index>(lengths[i]) - 1),
                    "prefill of sequence " + std::to_string(i));

    // Sequences leave in turn; those that stay don't notice.
    for (int step = 0; step < 12; ++step) {
      std::vector<int> ids;
      std::vector<Index> positions;
      std::vector<ModelCache<float>*> running;
      std::vector<std::size_t> who;
      for (std::size_t i = static_cast<std::size_t>(step) / 2; i < sequences.size(); ++i) {
        ids.push_back(sequences[i][lengths[i]]);
        positions.push_back(caches[i].length());
        running.push_back(&caches[i]);
        who.push_back(i);
      }
      const MatrixView<float> logits = decodeStep(ids, positions, weights, running, workspace);
      for (std::size_t row = 0; row < who.size(); ++row) {
        const std::size_t i = who[row];
        checkSameBits(logits.row(static_cast<Index>(row)), expected[i].row(static_cast<Index>(lengths[i])),
                      "step " + std::to_string(step) + ", sequence " + std::to_string(i));
        ++lengths[i];
      }
    }
  }
}

TEST_CASE("batch: prompts that together are longer than one piece of a step") {
  const Weights<float> weights(livelyParameters(smallConfig(12, 2, 9, 300, 700, 2)));
  std::vector<std::vector<int>> prompts;
  for (const Index length : {300, 211, 1, 1, 600, 5}) prompts.push_back(promptOf(length, static_cast<int>(length)));
  std::vector<ModelCache<float>> caches;
  for (std::size_t i = 0; i < prompts.size(); ++i) caches.emplace_back(weights);
  std::vector<Chunk<float>> chunks;
  for (std::size_t i = 0; i < prompts.size(); ++i) chunks.push_back({prompts[i], &caches[i]});
  Workspace<float> workspace;
  const MatrixView<float> together = prefill(chunks, weights, workspace);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ModelCache<float> cache(weights);
    checkSameBits(together.row(static_cast<Index>(i)), prefill(prompts[i], weights, cache),
                  "prompt " + std::to_string(i));
  }
}

TEST_CASE("batch: a step that fails leaves every cache as it was") {
  const Weights<float>& weights = batchWeights();
  ModelCache<float> one(weights), two(weights);
  Workspace<float> workspace;
  prefill(std::vector<int>{1, 2, 3}, weights, one);
  const std::vector<int> good = {5}, bad = {300}, nothing;
  using Chunks = std::vector<Chunk<float>>;
  CHECK_THROWS_AS(prefill(Chunks{{good, &one}, {bad, &two}}, weights, workspace), ArgumentError);
  CHECK_THROWS_AS(prefill(Chunks{{good, &one}, {nothing, &two}}, weights, workspace), ArgumentError);
  CHECK_THROWS_AS(prefill(Chunks{}, weights, workspace), ArgumentError);
  CHECK_THROWS_WITH_AS(prefill(Chunks{{good, &one}, {good, nullptr}}, weights, workspace),
                       "expected a cache for sequence 1, got none", ArgumentError);
  CHECK_THROWS_WITH_AS(prefill(Chunks{{good, &one}, {good, &two}, {good, &one}}, weights, workspace),
                       "expected a cache of its own for every sequence, got the same one for sequences 0 and 2",
                       ArgumentError);
  const std::vector<int> ids = {1, 2};
  const std::vector<Index> positions = {3, 1};
  const std::vector<ModelCache<float>*> caches = {&one, &two};
  CHECK_THROWS_WITH_AS(decodeStep(ids, positions, weights, caches, workspace),
                       "decodeStep: expected position 0, the cache's length, got 1", ArgumentError);
  CHECK_THROWS_AS(decodeStep(good, positions, weights, caches, workspace), ArgumentError);
  CHECK_THROWS_AS(decodeStep(ids, positions, weights, {&one, nullptr}, workspace), ArgumentError);
  CHECK(one.length() == 3);
  CHECK(two.length() == 0);
}

TEST_CASE("batch: a list of prompts yields what each yields alone, in its order, however many run together") {
  const Weights<float>& weights = batchWeights();
  Workspace<float> workspace;
  std::vector<std::vector<int>> prompts;
  for (int i = 0; i < 21; ++i) prompts.push_back(promptOf(1 + i * 6 % 131, i));
  GenerateOptions options;
  options.max_tokens = 9;
  for (const double temperature : {0.0, 1.0}) {
    options.sampling.temperature = temperature;
    options.stop_ids = {argmax(alone(prompts[3]).bottomRows(1).row(0))};  // one that some sequences meet
    std::vector<Generation> expected;
    for (const std::vector<int>& prompt : prompts) expected.push_back(generateTokens(prompt, options, weights));
    for (const Index together : {1, 2, 5, 30}) {
      std::vector<std::vector<int>> streamed(prompts.size());
      const std::vector<Generation> generations = generateTokens(
          prompts, options, weights, workspace, {.sequences = together}, [&](std::size_t prompt, int id) {
            streamed[prompt].push_back(id);
            return true;
          });
      REQUIRE(generations.size() == prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        CHECK(generations[i].output_ids == expected[i].output_ids);
        CHECK(generations[i].finish_reason == expected[i].finish_reason);
        CHECK(streamed[i] == expected[i].output_ids);
      }
    }
  }
  CHECK(generateTokens(std::vector<std::vector<int>>{}, options, weights).empty());
  CHECK_THROWS_WITH_AS(generateTokens(prompts, options, weights, workspace, {.sequences = 0}),
                       "batch: expected sequences of 1 or more, got 0", ArgumentError);
}

TEST_CASE("batch: a long prompt that joins a running batch is run in pieces, beside the tokens of the others") {
  const Weights<float> weights(livelyParameters(smallConfig(12, 2, 9, 300, 700, 2)));
  const std::vector<std::vector<int>> prompts = {promptOf(3, 0), promptOf(2, 1), promptOf(300, 2)};
  GenerateOptions options;
  options.max_tokens = 30;
  options.sampling.temperature = 1;
  for (const bool use_cache : {true, false}) {
    options.use_cache = use_cache;
    Workspace<float> workspace;
    std::vector<std::size_t> order;
    const auto onToken = [&](std::size_t prompt, int) {
      order.push_back(prompt);
      return prompt != 1;  // which leaves its place to the long one
    };
    const auto generations = generateTokens(prompts, options, weights, workspace, {.sequences = 2}, onToken);
    // Five pieces of at most 64, in each of whose steps the first prompt gets a token.
    CHECK(std::vector(order.begin(), order.begin() + 9) == std::vector<std::size_t>{0, 1, 0, 0, 0, 0, 0, 2, 0});
    for (const std::size_t i : {0u, 2u})
      CHECK(generations[i].output_ids == generateTokens(prompts[i], options, weights).output_ids);
  }
}

TEST_CASE("batch: prompts that join together are run in their order, and fail or go on as if alone") {
  Parameters<float> parameters = livelyParameters(smallConfig(12, 2, 9, 300, 300, 2), true);
  parameters.wte(299, 3) = std::numeric_limits<float>::quiet_NaN();
  const Weights<float> weights(parameters);
  GenerateOptions options;
  options.max_tokens = 12;
  std::vector<std::vector<int>> prompts = {{1}};
  for (int i = 0; i < 4; ++i) prompts.push_back({2 + i});
  for (const Index length : {40, 40, 1, 200, 64, 300, 65, 24, 129}) {
    prompts.push_back(promptOf(length, static_cast<int>(length)));
    for (int& id : prompts.back()) id %= 299;
  }
  prompts[8][100] = 299;  // in its second piece
  for (const double temperature : {0.0, 1.0})
    for (const bool use_cache : {true, false}) {
      options.sampling.temperature = temperature;
      options.use_cache = use_cache;
      Workspace<float> workspace(Threads(2));
      std::vector<std::size_t> begun;
      std::vector<bool> has_begun(prompts.size(), false);
      const auto onToken = [&](std::size_t prompt, int) {
        if (!has_begun[prompt]) begun.push_back(prompt);
        has_begun[prompt] = true;
        return prompt == 0 || prompt > 4;  // four places are free at once
      };
      const auto generations = generateTokens(prompts, options, weights, workspace, {.sequences = 5}, onToken);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        const auto alone = generateTokens(std::vector<std::vector<int>>{prompts[i]}, options, weights,
                                          [&](std::size_t, int) { return i == 0 || i > 4; });
        CHECK(generations[i].output_ids == alone.front().output_ids);
        CHECK(generations[i].finish_reason == alone.front().finish_reason);
        CHECK(generations[i].error == alone.front().error);
      }
      CHECK(generations[8].finish_reason == FinishReason::error);
      CHECK(std::vector(begun.begin(), begun.begin() + 8) == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
    }
}

TEST_CASE("batch: a prompt whose logits are not numbers fails alone, and every result is told as soon as it is there") {
  Parameters<float> parameters = livelyParameters(smallConfig(136, 2, 130, 300, 131), true);
  parameters.wte(5, 3) = std::numeric_limits<float>::quiet_NaN();
  const Weights<float> weights(parameters);
  const std::vector<std::vector<int>> prompts = {{1, 2}, {5}, {7}, {1, 5, 2}, {9, 8, 7, 6}};
  GenerateOptions options;
  bool some_fail_later = false, some_succeed = false;
  for (const double temperature : {0.0, 1.0})
    for (const Index together : {1, 2, 5})
      for (const Index max_tokens : {0, 6}) {
        options.sampling.temperature = temperature;
        options.max_tokens = max_tokens;
        Workspace<float> workspace;
        std::vector<Generation> finished(prompts.size());
        std::vector<std::size_t> order;
        const std::vector<Generation> generations =
            generateTokens(prompts, options, weights, workspace, {.sequences = together}, {},
                           [&](std::size_t prompt, const Generation& generation) {
                             order.push_back(prompt);
                             finished[prompt] = generation;
                           });
        CHECK(order.size() == prompts.size());
        // The one that fails is told of before those that go on.
        if (together == 5 && max_tokens > 0) CHECK(order[0] == 1);
        for (std::size_t i = 0; i < prompts.size(); ++i) {
          const Generation alone = generateTokens(std::vector<std::vector<int>>{prompts[i]}, options, weights).front();
          for (const Generation& generation : {generations[i], finished[i]}) {
            CHECK(generation.output_ids == alone.output_ids);
            CHECK(generation.finish_reason == alone.finish_reason);
            CHECK(generation.error == alone.error);
          }
          if (max_tokens == 0) continue;
          CHECK((alone.finish_reason == FinishReason::error) != alone.error.empty());
          if (i == 1 || i == 3) {
            CHECK(alone.output_ids.empty());
            CHECK(alone.error.starts_with(i == 1 ? "logits at position 0: " : "logits at position 2: "));
            CHECK(alone.error.ends_with("not all numbers are finite in wte.weight"));
            CHECK_THROWS_WITH_AS(generateTokens(prompts[i], options, weights), alone.error.c_str(), ArgumentError);
          } else if (!alone.error.empty()) {
            CHECK(alone.output_ids.back() == 5);  // which came up by itself
          }
          some_fail_later = some_fail_later || (!alone.error.empty() && !alone.output_ids.empty());
          some_succeed = some_succeed || alone.finish_reason == FinishReason::length;
        }
      }
  CHECK(some_fail_later);
  CHECK(some_succeed);
}

TEST_CASE("batch: one model on several threads, each with a cache and a workspace of its own, all sharing one pool") {
  const Weights<float>& weights = batchWeights();
  const Threads threads(2);
  std::vector<std::vector<int>> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(generateTokens(promptOf(20, i), 30, weights));
  std::atomic<int> right = 0;
  std::vector<std::thread> users;
  for (int i = 0; i < 4; ++i)
    users.emplace_back([&, i] {
      ModelCache<float> cache(weights);
      Workspace<float> workspace(threads);
      GenerateOptions options;
      options.max_tokens = 30;
      const auto generation = generateTokens(promptOf(20, i), options, weights, cache, workspace);
      if (generation.output_ids == expected[static_cast<std::size_t>(i)]) ++right;
    });
  for (std::thread& user : users) user.join();
  CHECK(right == 4);
}
