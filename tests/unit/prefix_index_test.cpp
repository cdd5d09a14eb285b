#include "driftless/prefix_index.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/forward.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr Index kUnbounded = Index{1} << 40;

const Weights<float>& indexedWeights() {
  static const Weights<float> weights(livelyParameters(smallConfig(8, 2, 6, 259, 400, 2)), {.threads = Threads(1)});
  return weights;
}

ModelCache<float> filled(const std::vector<int>& ids, StoredType stored = StoredType::full) {
  ModelCache<float> cache(indexedWeights(), stored);
  prefill(ids, indexedWeights(), cache);
  return cache;
}

std::vector<int> firstIds(const std::vector<int>& ids, Index count) { return {ids.begin(), ids.begin() + count}; }

Index commonLength(const std::vector<int>& a, const std::vector<int>& b) {
  Index length = 0;
  while (length < std::ssize(a) && length < std::ssize(b) &&
         a[static_cast<std::size_t>(length)] == b[static_cast<std::size_t>(length)])
    ++length;
  return length;
}

/// 64 times each number, and one more id, which no page holds.
std::vector<int> pagesOf(const std::vector<int>& numbers) {
  std::vector<int> ids;
  for (const int number : numbers) ids.insert(ids.end(), 64, number);
  ids.push_back(258);
  return ids;
}

}  // namespace

TEST_CASE("prefix index: it finds the longest beginning of random prompts that any has had, with its bits") {
  for (const StoredType stored : {StoredType::full, StoredType::int8}) {
    std::mt19937 random(3);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    PrefixIndex<float> index(indexedWeights(), stored, kUnbounded);
    std::vector<std::vector<int>> known;  // whole pages of what was inserted
    std::vector<std::vector<int>> prompts;
    Index hits = 0, parts = 0;
    for (int round = 0; round < 150; ++round) {
      CAPTURE(round);
      // A prompt is one of those before up to some position, and goes on otherwise.
      std::vector<int> ids;
      if (!prompts.empty()) {
        ids = prompts[below(prompts.size())];
        ids.resize(below(ids.size() + 1));
      }
      const std::size_t more = below(200);
      while (ids.size() < 399 && ids.size() < more + 1) ids.push_back(static_cast<int>(below(3)));
      ids.push_back(static_cast<int>(below(3)));
      prompts.push_back(ids);

      Index expected = 0;
      for (const std::vector<int>& other : known) expected = std::max(expected, commonLength(ids, other));
      expected = std::min(expected, std::ssize(ids) - 1);
      ModelCache<float> cache = index.find(ids);
      REQUIRE(cache.length() == expected);
      REQUIRE(cache.ids() == firstIds(ids, expected));
      hits += expected > 0;
      parts += expected % 64 != 0;
      const RowVector<float> logits =
          prefill(std::span(ids).subspan(static_cast<std::size_t>(expected)), indexedWeights(), cache);
      ModelCache<float> fresh(indexedWeights(), stored);
      checkSameBits(logits, prefill(ids, indexedWeights(), fresh), "after a hit");
      CHECK(cache.layer(1).keys() == fresh.layer(1).keys());
      CHECK(cache.layer(1).values() == fresh.layer(1).values());
      if (below(3) != 0) continue;
      index.insert(cache);
      known.push_back(firstIds(ids, std::ssize(ids) / 64 * 64));
    }
    CHECK(hits > 50);
    CHECK(parts > 20);
  }
}

TEST_CASE("prefix index: one step is left to compute, and of nothing, nothing is known") {
  PrefixIndex<float> index(indexedWeights(), StoredType::full, kUnbounded);
  const std::vector<int> ids = someIds(200, 259);
  CHECK(index.find(ids).length() == 0);
  index.insert(filled(firstIds(ids, 63)));
  CHECK(index.bytes() == 0);
  CHECK(index.find(ids).length() == 0);
  index.insert(filled(ids));
  CHECK(index.find({}).length() == 0);
  for (const Index size : {1, 2, 63, 64, 65, 66, 128, 129, 192, 193, 200})
    CHECK(index.find(firstIds(ids, size)).length() == std::min(size - 1, Index{192}));
}

TEST_CASE("prefix index: a cache that was found shares its pages, and may outlive the index") {
  const std::vector<int> ids = someIds(150, 259);
  std::optional<PrefixIndex<float>> index(std::in_place, indexedWeights(), StoredType::full, kUnbounded);
  const ModelCache<float> cache = filled(ids);
  index->insert(cache);
  ModelCache<float> found = index->find(firstIds(ids, 100));
  for (const Index position : {0, 64})
    CHECK(detail::CacheAccess::page(found.layer(1), position) == detail::CacheAccess::page(cache.layer(1), position));
  index.reset();
  ModelCache<float> fresh = filled(firstIds(ids, 99));
  checkSameBits(decodeStep(7, 99, indexedWeights(), found), decodeStep(7, 99, indexedWeights(), fresh), "without it");
  CHECK(cache.layer(0).keys() == filled(ids).layer(0).keys());
}

TEST_CASE("prefix index: what was used least recently goes first, and never more memory is held than allowed") {
  const Index node_bytes = filled({1}).bytes();
  for (const Index most : {0, 1, 2, 5, 9}) {
    CAPTURE(most);
    PrefixIndex<float> index(indexedWeights(), StoredType::full, most * node_bytes + node_bytes / 2);
    std::map<std::vector<int>, int> last_use;  // by the numbers of its pages
    std::mt19937 random(11);
    for (int round = 0; round < 400; ++round) {
      CAPTURE(round);
      std::vector<int> numbers(1 + random() % 4);
      for (int& number : numbers) number = static_cast<int>(random() % 3);
      const auto use = [&](std::size_t count) {
        for (std::size_t i = 1; i <= count; ++i)
          last_use[{numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(i)}] = round;
      };
      if (random() % 2 == 0) {
        std::size_t expected = 0;
        while (expected < numbers.size() &&
               last_use.contains({numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(expected + 1)}))
          ++expected;
        use(expected);
        REQUIRE(index.find(pagesOf(numbers)).length() == static_cast<Index>(64 * expected));
      } else {
        index.insert(filled(pagesOf(numbers)));
        use(numbers.size());
        while (std::ssize(last_use) > most) {
          auto oldest = last_use.end();
          for (auto node = last_use.begin(); node != last_use.end(); ++node) {
            // What goes on from it comes right after it.
            const auto next = std::next(node);
            const bool is_leaf = next == last_use.end() || next->first.size() <= node->first.size() ||
                                 !std::equal(node->first.begin(), node->first.end(), next->first.begin());
            if (is_leaf && (oldest == last_use.end() || node->second < oldest->second)) oldest = node;
          }
          last_use.erase(oldest);
        }
      }
      REQUIRE(index.bytes() == std::ssize(last_use) * node_bytes);
    }
  }
}

TEST_CASE("prefix index: what it cannot take is refused by name, and unknown ids are left out") {
  CHECK_THROWS_WITH_AS(PrefixIndex<float>(indexedWeights(), StoredType::full, -1),
                       "PrefixIndex: expected max_bytes of 0 or more, got -1", ArgumentError);
  CHECK_THROWS_AS(PrefixIndex<float>(indexedWeights(), StoredType::int4, 1), ArgumentError);
  PrefixIndex<float> index(indexedWeights(), StoredType::full, kUnbounded);
  CHECK_THROWS_WITH_AS(index.insert(filled({1}, StoredType::f16)),
                       "PrefixIndex: expected a cache stored as full, got f16 in layer 0", ArgumentError);
  ModelCache<float> mixed(indexedWeights());
  mixed.layer(1) = LayerCache<float>(2, 4, 400, StoredType::int8);
  prefill(someIds(70, 259), indexedWeights(), mixed);
  CHECK_THROWS_WITH_AS(index.insert(mixed), "PrefixIndex: expected a cache stored as full, got int8 in layer 1",
                       ArgumentError);
  const Weights<float> deeper(livelyParameters(smallConfig(8, 2, 6, 259, 400, 3)));
  CHECK_THROWS_WITH_AS(index.insert(ModelCache<float>(deeper)),
                       "expected a cache made for these weights, of n_layer 2, got 3", ArgumentError);
  const std::vector<int> ids = someIds(70, 259);
  ModelCache<float> cache = filled(ids);
  attnStep(Matrix<float>::Ones(60, 8), indexedWeights().h[0].attn, cache.layer(0));
  CHECK_THROWS_AS(index.insert(cache), ArgumentError);
  attnStep(Matrix<float>::Ones(60, 8), indexedWeights().h[1].attn, cache.layer(1));
  index.insert(cache);
  CHECK(index.find(someIds(200, 259)).length() == 64);
}
