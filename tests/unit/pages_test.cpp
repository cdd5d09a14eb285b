#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/detail/model/page.hpp"
#include "driftless/forward.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

const Weights<float>& pagedWeights() {
  static const Weights<float> weights(livelyParameters(smallConfig(20, 5, 12, 259, 300, 2)), {.threads = Threads(1)});
  return weights;
}

/// A cache and the logits that its last step gave.
struct Sequence {
  ModelCache<float> cache;
  RowVector<float> logits = {};

  explicit Sequence(ModelCache<float> start) : cache(std::move(start)) {}

  void run(const std::vector<int>& ids) { logits = prefill(ids, pagedWeights(), cache); }
};

/// Checks a sequence against one that shares nothing, run from its start.
void checkAgainstFresh(const Sequence& sequence, const std::vector<int>& ids, StoredType stored) {
  Sequence fresh{ModelCache<float>(pagedWeights(), stored)};
  REQUIRE(sequence.cache.length() == static_cast<Index>(ids.size()));
  checkSameIds(sequence.cache.ids(), ids, "ids");
  if (ids.empty()) return;
  fresh.run(ids);
  for (Index layer = 0; layer < fresh.cache.layers(); ++layer) {
    CAPTURE(layer);
    CHECK(sequence.cache.layer(layer).keys() == fresh.cache.layer(layer).keys());
    CHECK(sequence.cache.layer(layer).values() == fresh.cache.layer(layer).values());
  }
}

std::vector<int> joined(std::vector<int> ids, const std::vector<int>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

/// How many pages of a layer two caches share.
Index sharedPages(const ModelCache<float>& a, const ModelCache<float>& b) {
  Index count = 0;
  for (Index position = 0; position < (std::min)(a.length(), b.length()); position += 64)
    count += detail::CacheAccess::page(a.layer(0), position) == detail::CacheAccess::page(b.layer(0), position);
  return count;
}

const std::vector<StoredType> kStored = {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8};

}  // namespace

TEST_CASE("pages: a clone shares all of them, and a step copies the one that it begins in") {
  const std::vector<int> ids = someIds(300, 259);
  for (const Index length : {1, 63, 64, 65, 127, 128, 200}) {
    CAPTURE(length);
    Sequence parent{ModelCache<float>(pagedWeights())};
    parent.run({ids.begin(), ids.begin() + length});
    ModelCache<float> child = parent.cache.clone();
    const Index pages = (length + 63) / 64, whole = length / 64;
    CHECK(sharedPages(parent.cache, child) == pages);
    decodeStep(7, length, pagedWeights(), child);
    CHECK(sharedPages(parent.cache, child) == whole);
    const std::byte* const last = detail::CacheAccess::page(parent.cache.layer(0), length - 1);
    decodeStep(8, length, pagedWeights(), parent.cache);  // the only owner now
    CHECK(detail::CacheAccess::page(parent.cache.layer(0), length - 1) == last);
  }
}

TEST_CASE("pages: what a clone takes does not depend on the width of the model") {
  // It is the number of pages that counts: were any copied, this would need 12 GB of memory.
  const LayerCache<float> wide = [] {
    const Weights<float> weights(randomParameters<float>(smallConfig(2048, 2, 1, 1, 640, 1), 1));
    LayerCache<float> layer(2, 1024, 640);
    attnStep(Matrix<float>::Ones(600, 2048), weights.h[0].attn, layer);
    return layer;
  }();
  std::vector<LayerCache<float>> clones;
  for (int i = 0; i < 1000; ++i) clones.push_back(wide.clone());
  for (const LayerCache<float>& clone : clones)
    for (Index position = 0; position < 600; position += 64)
      REQUIRE(detail::CacheAccess::page(clone, position) == detail::CacheAccess::page(wide, position));
  CHECK(wide.bytes() == Index{10} * 64 * 2 * 2048 * 4);
}

TEST_CASE("pages: whoever writes first, parent, child or grandchild, nobody sees it but itself") {
  const std::vector<int> ids = someIds(100, 259);
  for (const StoredType stored : kStored) {
    CAPTURE(nameOf(stored));
    std::vector<std::size_t> order = {0, 1, 2};
    do {
      std::vector<Sequence> sequences;
      sequences.emplace_back(ModelCache<float>(pagedWeights(), stored));
      sequences[0].run(ids);
      sequences.emplace_back(sequences[0].cache.clone());
      sequences.emplace_back(sequences[1].cache.clone());
      std::vector<std::vector<int>> expected(3, ids);
      for (int round = 0; round < 2; ++round)
        for (const std::size_t i : order) {
          const std::vector<int> more(i + 1, static_cast<int>(10 * i) + round);
          sequences[i].run(more);
          expected[i] = joined(expected[i], more);
        }
      for (std::size_t i = 0; i < 3; ++i) checkAgainstFresh(sequences[i], expected[i], stored);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("pages: a clone outlives the cache that it was made from, and the other way round") {
  const std::vector<int> ids = someIds(90, 259);
  Sequence parent{ModelCache<float>(pagedWeights())};
  parent.run(ids);
  {
    Sequence child{parent.cache.clone()};
    child.run({1, 2, 3});
    Sequence other{child.cache.clone()};
    child.cache.reset();
    checkAgainstFresh(other, joined(ids, {1, 2, 3}), StoredType::full);
  }
  parent.run({4});
  checkAgainstFresh(parent, joined(ids, {4}), StoredType::full);
  Sequence child{parent.cache.clone()};
  parent.cache = ModelCache<float>(pagedWeights());
  child.run({5});
  checkAgainstFresh(child, joined(ids, {4, 5}), StoredType::full);
}

TEST_CASE("pages: random trees of clones, truncations and steps are as sequences of their own") {
  for (const StoredType stored : {StoredType::full, StoredType::int8}) {
    CAPTURE(nameOf(stored));
    std::mt19937 random(5);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    std::vector<Sequence> sequences;
    std::vector<std::vector<int>> expected(1);
    sequences.emplace_back(ModelCache<float>(pagedWeights(), stored));
    for (int step = 0; step < 300; ++step) {
      const std::size_t i = below(sequences.size());
      switch (below(4)) {
        case 0:
          if (sequences.size() < 8) {
            sequences.emplace_back(sequences[i].cache.clone());
            expected.push_back(expected[i]);
          } else {
            sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(i));
            expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(i));
          }
          break;
        case 1:
          if (below(3) == 0) {
            expected[i].resize(below(expected[i].size() + 1));
            sequences[i].cache.truncate(static_cast<Index>(expected[i].size()));
          }
          break;
        default:
          std::vector<int> more(1 + below(below(2) == 0 ? 3 : 70));
          for (int& id : more) id = static_cast<int>(below(259));
          if (expected[i].size() + more.size() > 300) break;
          sequences[i].run(more);
          expected[i] = joined(expected[i], more);
      }
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      checkAgainstFresh(sequences[i], expected[i], stored);
      if (expected[i].size() == 300) continue;
      // The logits that follow, too.
      Sequence fresh{ModelCache<float>(pagedWeights(), stored)};
      fresh.run(joined(expected[i], {9}));
      sequences[i].run({9});
      checkSameBits(sequences[i].logits, fresh.logits, "the next step");
    }
  }
}

TEST_CASE("pages: a step that fails gives back what it took") {
  const std::vector<int> ids = someIds(70, 259);
  ModelCache<float> cache(pagedWeights());
  prefill(ids, pagedWeights(), cache);
  const Index bytes = cache.bytes();
  const Observer<float> fails{.part = [](Part part) {
    if (part == Part::attention) throw std::runtime_error("enough");
  }};
  CHECK_THROWS_AS(prefill(someIds(200, 259), pagedWeights(), cache, fails), std::runtime_error);
  CHECK(cache.bytes() == bytes);
  CHECK(cache.length() == 70);
  checkSameIds(cache.ids(), ids, "ids");
}

TEST_CASE("pages: ids follow steps of the whole model, and are unknown where layers were written by themselves") {
  const Weights<float>& weights = pagedWeights();
  ModelCache<float> cache(weights);
  CHECK(cache.ids().empty());
  prefill({5, 6, 7, 8}, weights, cache);
  decodeStep(9, 4, weights, cache);
  checkSameIds(cache.ids(), {5, 6, 7, 8, 9}, "steps");
  cache.truncate(3);
  checkSameIds(cache.ids(), {5, 6, 7}, "truncated");
  const auto writeByLayer = [&](Index rows) {
    for (Index layer = 0; layer < cache.layers(); ++layer)
      attnStep(Matrix<float>::Ones(rows, 20), weights.h[0].attn, cache.layer(layer));
  };
  writeByLayer(2);
  checkSameIds(cache.ids(), {5, 6, 7, -1, -1}, "layers by themselves");
  decodeStep(11, 5, weights, cache);
  checkSameIds(cache.ids(), {5, 6, 7, -1, -1, 11}, "a step after that");
  checkSameIds(cache.clone().ids(), {5, 6, 7, -1, -1, 11}, "a clone");
  // Cut and written again behind the model's back: as long as before, and of other tokens.
  for (Index layer = 0; layer < cache.layers(); ++layer) cache.layer(layer).truncate(2);
  writeByLayer(4);
  checkSameIds(cache.clone().ids(), {5, 6, -1, -1, -1, -1}, "a clone of one that was written");
  checkSameIds(cache.ids(), {5, 6, -1, -1, -1, -1}, "written again");
  for (Index layer = 0; layer < cache.layers(); ++layer) cache.layer(layer).truncate(1);
  prefill({1, 2}, weights, cache);
  checkSameIds(cache.ids(), {5, 1, 2}, "cut layer by layer");
  Workspace<float> workspace{Threads(1)};
  std::vector<ModelCache<float>> two;
  two.emplace_back(weights);
  two.emplace_back(weights);
  prefill({{std::vector<int>{1, 2}, &two[0]}, {std::vector<int>{3}, &two[1]}}, weights, workspace);
  checkSameIds(two[0].ids(), {1, 2}, "first of a batch");
  checkSameIds(two[1].ids(), {3}, "second of a batch");
  cache.reset();
  CHECK(cache.ids().empty());
}

TEST_CASE("threads: clones that go on on threads of their own, while others are made and end, have their own bits") {
  const std::vector<int> ids = someIds(100, 259);
  ModelCache<float> parent(pagedWeights());
  prefill(ids, pagedWeights(), parent);
  constexpr int kThreads = 3, kRounds = 8;
  std::vector<std::vector<RowVector<float>>> logits(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t, own = parent.clone()]() mutable {
      for (int round = 0; round < kRounds; ++round) {
        ModelCache<float> branch = own.clone();
        Workspace<float> workspace{Threads(1)};
        for (int i = 0; i < 30; ++i)
          logits[t].push_back(decodeStep(static_cast<int>(t) + i, branch.length(), pagedWeights(), branch, workspace));
        if (round % 2 == 0) own = std::move(branch);
        own.truncate(100);
      }
    });
  parent.truncate(90);
  prefill({1, 2, 3}, pagedWeights(), parent);  // writes into the page that all of them may still share
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < kThreads; ++t) {
    Sequence fresh{ModelCache<float>(pagedWeights())};
    fresh.run(ids);
    for (std::size_t i = 0; i < 30; ++i) {
      fresh.run({static_cast<int>(t + i)});
      for (std::size_t round = 0; round < kRounds; ++round)
        checkSameBits(logits[t][round * 30 + i], fresh.logits, "thread " + std::to_string(t));
    }
  }
  CHECK(parent.length() == 93);
}
