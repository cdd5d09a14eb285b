#include "driftless/cache.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/block.hpp"
#include "driftless/forward.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

// What would make positions that nobody has written part of a cache is not for its users.
template <class Cache>
concept CanGrow = requires(Cache cache) {
  cache.grow(Index{1});
};
template <class Cache>
concept CanBeWritten = requires(Cache cache, const float* row) {
  cache.write(Index{0}, Index{0}, row, row);
};
static_assert(!CanGrow<LayerCache<float>> && !CanBeWritten<LayerCache<float>>);

}  // namespace

TEST_CASE("cache: a step that fails leaves it as it was") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  ModelCache<float> cache(weights);
  const std::vector<int> ids = someIds(10, 259);
  prefill(std::span<const int>(ids), weights, cache);
  ModelCache<float> before = cache.clone();

  const auto run = [&](const std::vector<int>& more) { prefill(std::span<const int>(more), weights, cache); };
  CHECK_THROWS_WITH_AS(run({1, 2, 259}), "expected token ids from 0 to 258, got 259 at index 2", ArgumentError);
  CHECK_THROWS_WITH_AS(run({-1}), "expected token ids from 0 to 258, got -1 at index 0", ArgumentError);
  CHECK_THROWS_WITH_AS(run({}), "expected at least one token id, got none", ArgumentError);
  CHECK_THROWS_WITH_AS(run({1, 2, 3, 4, 5, 6, 7}),
                       "expected at most 6 more tokens (n_positions is 16, the cache holds 10), got 7", ContextFull);
  CHECK_THROWS_WITH_AS(decodeStep(1, 0, weights, cache), "decodeStep: expected position 10, the cache's length, got 0",
                       ArgumentError);
  CHECK_THROWS_AS(decodeStep(1, 11, weights, cache), ArgumentError);
  CHECK_THROWS_AS(decodeStep(1000, 10, weights, cache), ArgumentError);
  CHECK_THROWS_AS(prefillLogits(std::vector<int>{1, 259}, weights, cache), ArgumentError);

  CHECK(cache.length() == 10);
  checkSameBits(decodeStep(5, 10, weights, cache), decodeStep(5, 10, weights, before), "the next step");
}

TEST_CASE("cache: one of another model's shape is refused") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  for (const Config& other : {smallConfig(20, 5, 12, 259, 16, 2), smallConfig(20, 4, 12, 259, 16),
                              smallConfig(20, 5, 12, 259, 17), smallConfig(40, 5, 12, 259, 16)}) {
    ModelCache<float> cache(Weights<float>{randomParameters<float>(other, 1)});
    CHECK_THROWS_WITH_AS(decodeStep(1, 0, weights, cache),
                         doctest::Contains("expected a cache made for these weights, of "), ArgumentError);
    CHECK(cache.length() == 0);
  }
}

TEST_CASE("cache: a layer of another shape is refused, whichever it is") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  for (const Index layer : {0, 1, 2}) {
    const auto checkRefused = [&](LayerCache<float> other, const std::string& size) {
      ModelCache<float> cache(weights);
      cache.layer(layer) = std::move(other);
      const std::string message =
          "expected a cache made for these weights, of " + size + " in layer " + std::to_string(layer);
      CHECK_THROWS_WITH_AS(decodeStep(1, 0, weights, cache), message.c_str(), ArgumentError);
      CHECK(cache.length() == 0);
    };
    checkRefused(LayerCache<float>(4, 4, 16), "n_head 5, got 4");
    checkRefused(LayerCache<float>(5, 8, 16), "head size 4, got 8");
    checkRefused(LayerCache<float>(5, 4, 17), "n_positions 16, got 17");
  }
}

TEST_CASE("cache: each layer can be stored as a type of its own") {
  const Weights<float> weights(livelyParameters(smallConfig(20, 5, 12, 259, 200, 4)));
  const std::vector<int> ids = someIds(150, 259);
  std::vector<StoredType> types = {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8};
  do {
    ModelCache<float> cache(weights);
    std::vector<LayerCache<float>> expected;
    for (Index layer = 0; layer < 4; ++layer) {
      const StoredType stored = types[static_cast<std::size_t>(layer)];
      cache.layer(layer) = LayerCache<float>(5, 4, 200, stored);
      expected.emplace_back(5, 4, 200, stored);
    }
    prefill({ids.data(), 100}, weights, cache);
    const ModelCache<float> parent = cache.clone();  // so that pages are also copied
    prefill({ids.data() + 100, 50}, weights, cache);

    Matrix<float> x(150, 20);
    for (Index position = 0; position < 150; ++position)
      x.row(position) = embedToken(ids[static_cast<std::size_t>(position)], position, weights);
    for (std::size_t layer = 0; layer < 4; ++layer) {
      CAPTURE(layer);
      x = blockStep(x, weights.h[layer], expected[layer]);
      const LayerCache<float>& found = cache.layer(static_cast<Index>(layer));
      CHECK(found.stored() == types[layer]);
      CHECK(found.keys() == expected[layer].keys());
      CHECK(found.values() == expected[layer].values());
      CHECK(parent.layer(static_cast<Index>(layer)).keys() == expected[layer].keys().topRows(100));
    }
  } while (std::next_permutation(types.begin(), types.end()));
}

TEST_CASE("cache: sizes that no model has are refused by name") {
  constexpr Index kHuge = std::numeric_limits<Index>::max();
  const auto make = [](Index n_head, Index head_size, Index capacity) {
    LayerCache<float>(n_head, head_size, capacity);
  };
  CHECK_THROWS_WITH_AS(make(1, 4, -100), "LayerCache: expected capacity from 1 to 1048576, got -100", ArgumentError);
  CHECK_THROWS_WITH_AS(make(0, 4, 16), "LayerCache: expected n_head from 1 to 262144, got 0", ArgumentError);
  CHECK_THROWS_WITH_AS(make(1, 0, 16), "LayerCache: expected head_size from 1 to 1048576, got 0", ArgumentError);
  for (const Index bad : {Index{-1}, Index{0}, kHuge / 2, kHuge}) {
    CHECK_THROWS_AS(make(bad, 4, 16), ArgumentError);
    CHECK_THROWS_AS(make(1, bad, 16), ArgumentError);
    CHECK_THROWS_AS(make(1, 4, bad), ArgumentError);
  }
  // Each is in range; their product in bytes would be zero again if it overflowed.
  CHECK_THROWS_AS(make(Index{1} << 20, Index{1} << 20, Index{1} << 20), ArgumentError);

  Weights<float> weights(livelyParameters(oddConfig()));
  weights.config.n_head = 0;
  CHECK_THROWS_WITH_AS(ModelCache<float>{weights}, "n_head: expected 1 to 20, got 0", ConfigError);
}

TEST_CASE("cache: layers that are out of step are refused") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  ModelCache<float> cache(weights);
  const Matrix<float> x = Matrix<float>::Ones(2, 20);
  attnStep(x, weights.h[1].attn, cache.layer(1));
  CHECK_THROWS_WITH_AS(decodeStep(1, 0, weights, cache),
                       "the cache's layers are out of step: layer 0 holds 0 positions, layer 1 holds 2", ArgumentError);
  attnStep(x, weights.h[0].attn, cache.layer(0));
  CHECK_THROWS_WITH_AS(cache.truncate(1), "truncate: expected a length from 0 to 0, got 1", ArgumentError);
  CHECK(cache.layer(0).length() == 2);
}

TEST_CASE("cache: a layer that there is not is refused") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  ModelCache<float> cache(weights);
  CHECK_THROWS_WITH_AS(cache.layer(3), "expected a layer from 0 to 2, got 3", ArgumentError);
  CHECK_THROWS_AS(cache.layer(-1), ArgumentError);
}

TEST_CASE("cache: a step of one layer checks its shapes before it writes") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  LayerCache<float> layer(5, 4, 16), narrow(5, 3, 16);
  const auto& block = weights.h[0];
  const Matrix<float> x = Matrix<float>::Ones(3, 20), wide = Matrix<float>::Ones(3, 21), none(0, 20);
  CHECK_THROWS_WITH_AS(attnStep(wide, block.attn, layer), "expected x of shape [T >= 1, 20], got [3, 21]",
                       ArgumentError);
  CHECK_THROWS_AS(attnStep(none, block.attn, layer), ArgumentError);
  CHECK_THROWS_AS(blockStep(wide, block, layer), ArgumentError);
  CHECK_THROWS_AS(layerNorm(wide, block.ln_1), ArgumentError);
  CHECK_THROWS_AS(mlp(wide, block.mlp), ArgumentError);
  CHECK_THROWS_AS(unembed(wide, weights), ArgumentError);
  CHECK_THROWS_AS(attnStep(x, block.attn, narrow), ArgumentError);
  const Matrix<float> no_columns(3, 0);
  CHECK_THROWS_WITH_AS(attnStep(no_columns, Attention<float>(), layer),
                       "expected attention with n_head of 1 or more, got 0", ArgumentError);
  const Matrix<float> many = Matrix<float>::Ones(17, 20);
  CHECK_THROWS_WITH_AS(blockStep(many, block, layer), "expected at most 16 more rows for this cache, got 17",
                       ContextFull);
  CHECK(layer.length() == 0);
  CHECK_THROWS_AS(embedToken(259, 0, weights), ArgumentError);
  CHECK_THROWS_AS(embedToken(0, 16, weights), ArgumentError);
}

TEST_CASE("cache: it takes the memory of the pages in use") {
  const Weights<float> weights(livelyParameters(smallConfig(20, 5, 12, 259, 1000, 2)));
  ModelCache<float> cache(weights);
  CHECK(cache.bytes() == 0);
  const Index page = 2 * 64 * 5 * (4 + 16) * static_cast<Index>(sizeof(float));  // values of whole sixteens
  const std::vector<int> ids = someIds(200, 259);
  const auto run = [&](std::size_t count) { prefill(std::span(ids).first(count), weights, cache); };
  run(1);
  CHECK(cache.bytes() == page);
  run(63);
  CHECK(cache.bytes() == page);
  run(1);
  CHECK(cache.bytes() == 2 * page);
  run(200);
  CHECK(cache.bytes() == 5 * page);
  CHECK(cache.clone().bytes() == 5 * page);
  CHECK(2 * cache.layer(0).bytesFor(265) == 5 * page);
  cache.truncate(129);
  CHECK(cache.bytes() == 3 * page);
  cache.truncate(128);
  CHECK(cache.bytes() == 2 * page);
  cache.reset();
  CHECK(cache.bytes() == 0);
}

TEST_CASE("cache: truncate and clone") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  StoredType stored{};
  SUBCASE("full") { stored = StoredType::full; }
  SUBCASE("int8") { stored = StoredType::int8; }
  ModelCache<float> cache(weights, stored);
  const std::vector<int> ids = someIds(9, 259);
  prefill(std::span<const int>(ids), weights, cache);
  CHECK_THROWS_WITH_AS(cache.truncate(10), "truncate: expected a length from 0 to 9, got 10", ArgumentError);
  CHECK_THROWS_AS(cache.truncate(-1), ArgumentError);
  const Matrix<float> keys = cache.layer(2).keys();
  CHECK(keys.rows() == 9);
  CHECK(keys.cols() == 20);
  const Matrix<float> values = cache.layer(2).values();
  ModelCache<float> copy = cache.clone();
  cache.truncate(4);
  CHECK(cache.layer(2).keys() == keys.topRows(4));
  CHECK(copy.length() == 9);
  CHECK(copy.layer(2).keys() == keys);
  CHECK(copy.layer(2).values() == values);
  CHECK(copy.bytes() == cache.bytes());
  cache.reset();
  CHECK(cache.length() == 0);
  CHECK(cache.layer(0).values().rows() == 0);
}
