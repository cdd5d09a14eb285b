#include "driftless/observer.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "driftless/forward.hpp"
#include "driftless/reference.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

struct Prompts {
  Parameters<float> parameters = livelyParameters(smallConfig(24, 4, 40, 61, 90));
  Weights<float> weights{parameters, Threads(3)};
  std::vector<int> ids = someIds(70, 61);
};

/// How `layer` attends in one head, from the plain reference: [T, T].
Matrix<float> expectedWeights(const Prompts& prompts, Index layer, Index head) {
  const Config& config = prompts.parameters.config;
  const Index C = config.n_embd, D = config.headSize();
  Matrix<float> x = reference::embed<float>(prompts.ids, prompts.parameters);
  for (Index before = 0; before < layer; ++before) x = reference::block(x, prompts.parameters, before);
  const auto& block = prompts.parameters.h[static_cast<std::size_t>(layer)];
  const Matrix<float> normed = reference::layerNorm(x, block.ln_1, config.layer_norm_epsilon);
  const Matrix<float> qkv = reference::linear(normed, block.attn.c_attn);
  const Matrix<float> scores = qkv.middleCols(head * D, D) * qkv.middleCols(C + head * D, D).transpose();
  return reference::softmax<float>(scores / std::sqrt(static_cast<float>(D)) + buildCausalMask<float>(x.rows()));
}

}  // namespace

TEST_CASE("observer: attention weights are those of the plain reference, each row once, by prefill and by decoding") {
  const Prompts prompts;
  const Index T = static_cast<Index>(prompts.ids.size()), H = prompts.parameters.config.n_head;
  std::vector<Matrix<float>> seen(static_cast<std::size_t>(3 * H), Matrix<float>::Zero(T, T));
  std::set<std::tuple<Index, Index, Index>> rows;
  std::mutex mutex;
  const auto observer = [&](const AttentionWeights<float>& row) {
    const std::scoped_lock lock(mutex);
    CHECK(rows.insert({row.layer, row.head, row.position}).second);
    CHECK(row.sequence == 0);
    REQUIRE(static_cast<Index>(row.weights.size()) == row.position + 1);
    for (Index key = 0; key <= row.position; ++key)
      seen[static_cast<std::size_t>(row.layer * H + row.head)](row.position, key) =
          row.weights[static_cast<std::size_t>(key)];
  };
  ModelCache cache(prompts.weights);
  const std::span<const int> ids = prompts.ids;
  prefill(ids.first(67), prompts.weights, cache, observer);
  for (std::size_t i = 67; i < ids.size(); ++i)
    decodeStep(ids[i], static_cast<Index>(i), prompts.weights, cache, observer);

  CHECK(static_cast<Index>(rows.size()) == 3 * H * T);
  for (Index layer = 0; layer < 3; ++layer)
    for (Index head = 0; head < H; ++head)
      checkClose(seen[static_cast<std::size_t>(layer * H + head)], expectedWeights(prompts, layer, head),
                 "layer " + std::to_string(layer) + ", head " + std::to_string(head));
}

TEST_CASE("observer: hidden states are what blockStep makes of them, layer by layer and sequence by sequence") {
  const Prompts prompts;
  ModelCache first(prompts.weights), second(prompts.weights), alone(prompts.weights);
  const std::span<const int> ids = prompts.ids;
  prefill(ids.first(5), prompts.weights, second);
  prefill(ids.first(5), prompts.weights, alone);

  std::vector<Matrix<float>> states;  // of the second sequence
  prefill(std::vector<Chunk<float>>{{ids.first(3), &first}, {ids.subspan(5, 9), &second}}, prompts.weights,
          [&](const HiddenStates<float>& seen) {
            CHECK(seen.x.rows() == (seen.sequence == 0 ? 3 : 9));
            CHECK(seen.position == (seen.sequence == 0 ? 0 : 5));
            if (seen.sequence == 1) {
              CHECK(seen.layer == static_cast<Index>(states.size()));
              states.push_back(seen.x);
            }
          });

  REQUIRE(states.size() == 4);
  for (Index layer = 0; layer < 3; ++layer) {
    const std::size_t index = static_cast<std::size_t>(layer);
    const Matrix<float> next = blockStep(states[index], prompts.weights.h[index], alone.layer(layer));
    CHECK(std::memcmp(next.data(), states[index + 1].data(), static_cast<std::size_t>(next.size()) * sizeof(float)) ==
          0);
  }
}

TEST_CASE("observer: a prompt of more rows than a piece holds is seen piece after piece") {
  const Weights<float> weights(livelyParameters(smallConfig(8, 1, 8, 11, 600, 2)));
  ModelCache cache(weights);
  std::vector<std::tuple<Index, Index, Index>> seen;  // layer, position, rows
  prefill(someIds(520, 11), weights, cache, [&](const HiddenStates<float>& states) {
    seen.emplace_back(states.layer, states.position, states.x.rows());
  });
  const std::vector<std::tuple<Index, Index, Index>> expected = {{0, 0, 512}, {1, 0, 512}, {2, 0, 512},
                                                                 {0, 512, 8}, {1, 512, 8}, {2, 512, 8}};
  CHECK((seen == expected));
}

TEST_CASE("observer: logits are the same bits with and without one") {
  const Prompts prompts;
  ModelCache watched(prompts.weights), plain(prompts.weights);
  int parts = 0;
  struct {
    int& parts;
    void operator()(Part) { ++parts; }
    void operator()(const AttentionWeights<float>&) {}
    void operator()(const HiddenStates<float>&) {}
  } everything{parts};
  const RowVector<float> logits = prefill(prompts.ids, prompts.weights, watched, everything);
  const RowVector<float> expected = prefill(prompts.ids, prompts.weights, plain);
  CHECK(std::memcmp(logits.data(), expected.data(), static_cast<std::size_t>(logits.size()) * sizeof(float)) == 0);
  CHECK(parts == 1 + 3 * 6 + 2);
  for (Index layer = 0; layer < 3; ++layer) {
    CHECK(watched.layer(layer).keys() == plain.layer(layer).keys());
    CHECK(watched.layer(layer).values() == plain.layer(layer).values());
  }
}

TEST_CASE("observer: where it throws, the cache is as it was") {
  const Prompts prompts;
  ModelCache cache(prompts.weights);
  prefill(std::span<const int>(prompts.ids).first(5), prompts.weights, cache);
  for (const Part last : {Part::embedding, Part::attention, Part::unembedding}) {
    const auto impatient = [&](Part part) {
      if (part == last) throw std::runtime_error("enough");
    };
    CHECK_THROWS_AS(decodeStep(1, 5, prompts.weights, cache, impatient), std::runtime_error);
    CHECK(cache.length() == 5);
  }
}
