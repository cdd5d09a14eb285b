#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "driftless/block.hpp"
#include "driftless/cache_file.hpp"
#include "driftless/cache_policy.hpp"
#include "driftless/forward.hpp"
#include "driftless/generate.hpp"
#include "driftless/prefix_index.hpp"
#include "driftless/reference.hpp"
#include "driftless/scoring.hpp"
#include "support/random_models.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

class EveryPosition final : public CachePolicy {
 public:
  void choose(CachedHead&, std::span<bool>) const override {}
};

/// Drops positions in every head by another rule, and notes how much attention each has got.
class Checkered final : public CachePolicy {
 public:
  Index statistics() const override { return 2; }
  void choose(CachedHead& head, std::span<bool> keep) const override {
    for (std::size_t i = 0; i < keep.size(); ++i) {
      const Index row = static_cast<Index>(i);
      head.statistics(row, 0) += head.attention[i];
      head.statistics(row, 1) = static_cast<double>(head.positions[i]);
      keep[i] = (head.positions[i] + head.layer + head.positions.back()) % (head.head + 2) != 0 ||
                head.statistics(row, 0) > 0.5;
    }
  }
};

class LastPositions final : public CachePolicy {
 public:
  explicit LastPositions(std::size_t budget) : budget_(budget) {}
  void choose(CachedHead&, std::span<bool> keep) const override {
    for (std::size_t i = 0; i + budget_ < keep.size(); ++i) keep[i] = false;
  }

 private:
  std::size_t budget_;
};

/// What it is shown is as it says.
class Suspicious final : public CachePolicy {
 public:
  Index statistics() const override { return 1; }
  void choose(CachedHead& head, std::span<bool> keep) const override {
    const auto n = static_cast<Index>(keep.size());
    const Matrix<double> keys = head.keys(), values = head.values();
    const bool fits = n == static_cast<Index>(head.positions.size()) &&
                      n == static_cast<Index>(head.attention.size()) && n == keys.rows() && n == values.rows() &&
                      keys.cols() == 6 && head.statistics(n - 1, 0) == 0 &&
                      std::is_sorted(head.positions.begin(), head.positions.end()) &&
                      std::abs(std::accumulate(head.attention.begin(), head.attention.end(), -1.0)) < 1e-5;
    if (!fits) throw std::runtime_error("a head is not as it is said to be");
    // The key of a position stays the same, wherever it lies.
    for (Index i = 0; i + 1 < n; ++i)
      if (head.statistics(i, 0) != keys(i, 0) + 3 * values(i, 5)) throw std::runtime_error("a key has changed");
    head.statistics(n - 1, 0) = keys(n - 1, 0) + 3 * values(n - 1, 5);
    for (Index i = 0; i < n; ++i)
      keep[static_cast<std::size_t>(i)] = (head.positions[static_cast<std::size_t>(i)] * 7 + n) % 5 != 0;
  }
};

struct KeptSubject {
  Parameters<float> parameters = livelyParameters(smallConfig(24, 4, 40, 61, 160));
  Weights<float> weights{parameters, {.threads = Threads(3)}};
  std::vector<int> ids = someIds(150, 61);

  ModelCache<float> cache(std::shared_ptr<const CachePolicy> policy, StoredType stored = StoredType::full) const {
    return ModelCache<float>(weights, stored, std::move(policy));
  }
};

/// The logits of every position, read in chunks of so many.
Matrix<float> read(std::span<const int> ids, std::size_t chunk, const Weights<float>& weights, ModelCache<float>& cache,
                   Threads threads = Threads(3)) {
  Workspace<float> workspace(threads);
  Matrix<float> logits(static_cast<Index>(ids.size()), weights.config.vocab_size);
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const auto some = ids.subspan(begin, (std::min)(chunk, ids.size() - begin));
    logits.middleRows(static_cast<Index>(begin), static_cast<Index>(some.size())) =
        prefillLogits(some, weights, cache, workspace);
  }
  return logits;
}

void checkSameCaches(const ModelCache<float>& a, const ModelCache<float>& b) {
  REQUIRE(a.length() == b.length());
  CHECK(a.ids() == b.ids());
  for (Index layer = 0; layer < a.layers(); ++layer) {
    CHECK(a.layer(layer).keys() == b.layer(layer).keys());
    CHECK(a.layer(layer).values() == b.layer(layer).values());
    for (Index head = 0; head < a.layer(layer).heads(); ++head)
      CHECK(a.layer(layer).positions(head) == b.layer(layer).positions(head));
  }
}

}  // namespace

TEST_CASE("kept positions: a policy that keeps all has the bits of none") {
  const KeptSubject subject;
  for (const StoredType stored : {StoredType::full, StoredType::f16, StoredType::int8}) {
    ModelCache<float> with = subject.cache(std::make_shared<EveryPosition>(), stored);
    ModelCache<float> without = subject.cache(nullptr, stored);
    CHECK(read(subject.ids, 150, subject.weights, with) == read(subject.ids, 150, subject.weights, without));
    checkSameCaches(with, without);
    CHECK(decodeStep(3, 150, subject.weights, with) == decodeStep(3, 150, subject.weights, without));
  }
}

TEST_CASE("kept positions: bits depend neither on chunks nor on threads nor on company") {
  const KeptSubject subject;
  const std::span<const int> ids = subject.ids;
  for (const StoredType stored : {StoredType::full, StoredType::bf16, StoredType::int8}) {
    for (const std::shared_ptr<const CachePolicy>& policy : std::initializer_list<std::shared_ptr<const CachePolicy>>{
             std::make_shared<Checkered>(), std::make_shared<LastPositions>(70)}) {
      ModelCache<float> whole = subject.cache(policy, stored);
      const Matrix<float> expected = read(ids, 150, subject.weights, whole);
      for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, std::size_t{7}, std::size_t{64}}) {
        ModelCache<float> cache = subject.cache(policy, stored);
        CHECK(read(ids, chunk, subject.weights, cache, Threads(chunk == 7 ? 1 : 3)) == expected);
        checkSameCaches(cache, whole);
      }
      ModelCache<float> in_company = subject.cache(policy, stored), other = subject.cache(nullptr);
      Workspace<float> workspace;
      const std::vector<Chunk<float>> chunks = {{ids.subspan(3, 20), &other}, {ids, &in_company}};
      CHECK(Matrix<float>(prefill(chunks, subject.weights, workspace)).row(1) == expected.row(149));
      checkSameCaches(in_company, whole);
    }
  }
}

TEST_CASE("kept positions: a policy is shown what it is said to be shown") {
  const KeptSubject subject;
  for (const StoredType stored : {StoredType::full, StoredType::int8}) {
    ModelCache<float> cache = subject.cache(std::make_shared<Suspicious>(), stored);
    CHECK_NOTHROW(read(subject.ids, 11, subject.weights, cache));
    CHECK(cache.layer(1).positions(2).size() < 150);
  }
}

TEST_CASE("kept positions: what a later token sees is what is kept, and nothing else") {
  const KeptSubject subject;
  const std::span<const int> ids = subject.ids;
  ModelCache<float> cache = subject.cache(nullptr);
  prefill(ids.first(100), subject.weights, cache);
  const Matrix<float> keys = cache.layer(1).keys();
  // Heads of the same layer keep different numbers of positions.
  const std::vector<Index> kept = {0, 2, 3, 64, 65, 99};
  cache.keep(1, 2, kept);
  CHECK(cache.layer(1).positions(2) == kept);
  CHECK(cache.layer(1).positions(1).size() == 100);
  CHECK(cache.layer(0).positions(2).size() == 100);
  CHECK(cache.length() == 100);
  CHECK(cache.ids() == std::vector<int>(ids.begin(), ids.begin() + 100));
  for (Index position = 0; position < 100; ++position) {
    const bool is_kept = std::find(kept.begin(), kept.end(), position) != kept.end();
    CHECK(cache.layer(1).keys().row(position).segment(12, 6) ==
          (is_kept ? Matrix<float>(keys.row(position).segment(12, 6)) : Matrix<float>::Zero(1, 6)));
    CHECK(cache.layer(1).keys().row(position).segment(6, 6) == keys.row(position).segment(6, 6));
  }
  // How the next token attends: an observer sees all positions, those that are dropped with a weight of zero.
  Matrix<float> pattern;
  Matrix<float> scores;
  Observer<float> observer{.points = {Point::pattern, Point::attn_scores}};
  observer.visit = [&](PointValues<float>& values) {
    if (values.layer != 1 || values.head != 2) return;
    (values.point == Point::pattern ? pattern : scores) = values.values;
  };
  decodeStep(5, 100, subject.weights, cache, observer);
  REQUIRE(pattern.cols() == 101);
  CHECK(pattern.sum() == doctest::Approx(1));
  const RowVector<float> expected = reference::softmax<float>(RowVector<float>(scores.row(0)));
  for (Index position = 0; position <= 100; ++position) {
    const bool is_kept = position == 100 || std::find(kept.begin(), kept.end(), position) != kept.end();
    CHECK((pattern(0, position) > 0) == is_kept);
    CHECK(std::isinf(scores(0, position)) == !is_kept);
    CHECK(pattern(0, position) == doctest::Approx(static_cast<double>(expected[position])));
  }
}

TEST_CASE("kept positions: bits depend on what is kept, not on how it came about") {
  const KeptSubject subject;
  const std::span<const int> ids = subject.ids;
  ModelCache<float> at_once = subject.cache(nullptr);
  prefill(ids.first(140), subject.weights, at_once);
  ModelCache<float> by_and_by = at_once.clone();
  std::vector<Index> kept(140);
  std::iota(kept.begin(), kept.end(), Index{0});
  for (const std::size_t next : {std::size_t{5}, std::size_t{0}, std::size_t{70}, std::size_t{68}, std::size_t{135}}) {
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(next));
    by_and_by.keep(2, 1, kept);
  }
  at_once.keep(2, 1, kept);
  checkSameCaches(at_once, by_and_by);
  CHECK(prefill(ids.subspan(140), subject.weights, at_once) == prefill(ids.subspan(140), subject.weights, by_and_by));
}

TEST_CASE("kept positions: memory is given back, clones go their own way, and what is cut off is gone") {
  const KeptSubject subject;
  const std::span<const int> ids = subject.ids;
  ModelCache<float> cache = subject.cache(nullptr);
  prefill(ids.first(140), subject.weights, cache);
  const ModelCache<float> whole = cache.clone();
  const Index full = cache.bytes();
  const std::vector<Index> kept = {1, 70, 139};
  for (Index layer = 0; layer < 3; ++layer)
    for (Index head = 0; head < 4; ++head) cache.keep(layer, head, kept);
  CHECK(cache.bytes() < full / 2);
  CHECK(whole.bytes() == full);
  CHECK(whole.layer(0).positions(0).size() == 140);

  ModelCache<float> clone = cache.clone();
  checkSameCaches(cache, clone);
  prefill(ids.first(4), subject.weights, clone);
  CHECK(cache.layer(2).positions(3) == kept);
  CHECK(clone.layer(2).positions(3) == std::vector<Index>{1, 70, 139, 140, 141, 142, 143});
  clone.truncate(140);
  checkSameCaches(cache, clone);
  clone.truncate(71);
  CHECK(clone.layer(2).positions(3) == std::vector<Index>{1, 70});
  CHECK(clone.length() == 71);
  clone.reset();
  CHECK(clone.layer(0).positions(0).empty());
  CHECK(prefill(ids, subject.weights, clone) == prefill(ids, subject.weights, cache = subject.cache(nullptr)));
}

TEST_CASE("kept positions: a window's cache does not grow") {
  const KeptSubject subject;
  ModelCache<float> cache = subject.cache(std::make_shared<LastPositions>(20));
  read(subject.ids, 1, subject.weights, cache);
  const ModelCache<float> one_page = [&] {
    ModelCache<float> other = subject.cache(nullptr);
    prefill(std::span(subject.ids).first(20), subject.weights, other);
    return other;
  }();
  CHECK(cache.bytes() == one_page.bytes() + 3 * 4 * 20 * Index{sizeof(Index)});
  CHECK(cache.layer(0).positions(0).front() == 130);
  CHECK(cache.layer(0).positions(0).back() == 149);
}

TEST_CASE("kept positions: if an observer or a policy throws, the cache is as it was") {
  const KeptSubject subject;
  const std::span<const int> ids = subject.ids;
  class Impatient final : public CachePolicy {
   public:
    void choose(CachedHead& head, std::span<bool> keep) const override {
      if (head.positions.back() == 75 && head.layer == 2 && head.head == 1) throw std::runtime_error("enough");
      keep[0] = head.positions.size() < 40;
    }
  };
  const auto impatient = std::make_shared<Impatient>();
  for (const Index rows : {1, 2, 30}) {
    for (const std::shared_ptr<const CachePolicy>& policy :
         std::initializer_list<std::shared_ptr<const CachePolicy>>{std::make_shared<Checkered>(), impatient}) {
      ModelCache<float> cache = subject.cache(policy);
      const Index before = policy == impatient ? 76 - rows : 70;
      prefill(ids.first(static_cast<std::size_t>(before)), subject.weights, cache);
      const ModelCache<float> as_it_was = cache.clone();
      Observer<float> observer{.points = {Point::mlp_post}};
      if (policy != impatient)
        observer.visit = [](PointValues<float>& values) {
          if (values.layer == 2) throw std::runtime_error("enough");
        };
      const auto next = ids.subspan(static_cast<std::size_t>(before), static_cast<std::size_t>(rows));
      CHECK_THROWS_AS(prefill(next, subject.weights, cache, observer), std::runtime_error);
      checkSameCaches(cache, as_it_was);
      CHECK(cache.bytes() == as_it_was.bytes());
      if (policy == impatient) continue;
      ModelCache<float> other = as_it_was.clone();
      CHECK(prefill(next, subject.weights, cache) == prefill(next, subject.weights, other));
    }
  }
}

TEST_CASE(
    "kept positions: by hand, layer by layer, is the way of the whole model, also for a policy that looks at layers") {
  const KeptSubject subject;
  class ByLayer final : public CachePolicy {
   public:
    void choose(CachedHead& head, std::span<bool> keep) const override {
      keep[0] = static_cast<Index>(keep.size()) <= 3 + 5 * head.layer;
    }
  };
  ModelCache<float> whole = subject.cache(std::make_shared<ByLayer>()), by_hand = whole.clone();
  const Matrix<float> expected = read(subject.ids, 50, subject.weights, whole);
  for (Index position = 0; position < 150; ++position) {
    Matrix<float> x = embedToken(subject.ids[static_cast<std::size_t>(position)], position, subject.weights);
    for (Index layer = 0; layer < 3; ++layer)
      x = blockStep(x, subject.weights.h[static_cast<std::size_t>(layer)], by_hand.layer(layer));
    CHECK(unembed(layerNorm(x, subject.weights.ln_f), subject.weights) == expected.row(position));
  }
  for (Index layer = 0; layer < 3; ++layer) {
    CHECK(static_cast<Index>(by_hand.layer(layer).positions(1).size()) == 3 + 5 * layer);
    CHECK(by_hand.layer(layer).keys() == whole.layer(layer).keys());
  }
}

TEST_CASE("kept positions: layers by themselves go on from what they keep") {
  const KeptSubject subject;
  ModelCache<float> cache = subject.cache(std::make_shared<Checkered>());
  ModelCache<float> by_layers = cache.clone();
  const std::span<const int> ids = subject.ids;
  std::vector<Matrix<float>> states;
  Observer<float> observer{.points = {Point::resid_pre, Point::resid_post}};
  observer.visit = [&](PointValues<float>& values) {
    if (values.point == Point::resid_post || values.layer == 0) states.push_back(values.values);
  };
  prefill(ids.first(40), subject.weights, cache, observer);
  CHECK(blockStep(states[0], subject.weights.h[0], by_layers.layer(0)) == states[1]);
  for (Index head = 0; head < 4; ++head) CHECK(by_layers.layer(0).positions(head) == cache.layer(0).positions(head));
}

TEST_CASE("kept positions: generation goes by the batch's policy, also in samples, beams and without a cache") {
  const KeptSubject subject;
  BatchOptions batch{.sequences = 3, .policy = std::make_shared<Checkered>()};
  Workspace<float> workspace;
  GenerateOptions options;
  options.max_tokens = 30;
  const std::vector<std::vector<int>> prompts = {{1, 2, 3, 4, 5, 6, 7}, {9, 8, 7}, {5, 5, 5, 5, 5, 1, 1, 2}};
  const std::vector<Generation> together = generateTokens(prompts, options, subject.weights, workspace, batch);
  bool differs = false;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ModelCache<float> cache = subject.cache(batch.policy);
    CHECK(generateTokens(prompts[i], options, subject.weights, cache, workspace).output_ids == together[i].output_ids);
    differs = differs || generateTokens(prompts[i], options, subject.weights).output_ids != together[i].output_ids;
  }
  CHECK(differs);
  options.use_cache = false;
  const std::vector<Generation> recomputed = generateTokens(prompts, options, subject.weights, workspace, batch);
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(recomputed[i].output_ids == together[i].output_ids);

  options = {};
  options.max_tokens = 12;
  options.samples = 3;
  options.sampling.temperature = 1;
  const std::vector<Generation> samples =
      generateTokens(std::vector<std::vector<int>>{prompts[0]}, options, subject.weights, workspace, batch);
  for (std::size_t i = 0; i < 3; ++i) {
    GenerateOptions one = options;
    one.samples = 1;
    one.sampling.seed += i;
    ModelCache<float> cache = subject.cache(batch.policy);
    CHECK(generateTokens(prompts[0], one, subject.weights, cache, workspace).output_ids == samples[i].output_ids);
  }
  options = {};
  options.max_tokens = 8;
  options.num_beams = 3;
  CHECK(generateTokens(prompts, options, subject.weights, workspace, batch).size() == 3);
}

TEST_CASE("kept positions: scores go by the cache's policy") {
  const KeptSubject subject;
  Workspace<float> workspace;
  const std::span<const int> ids = subject.ids;
  ModelCache<float> cache = subject.cache(std::make_shared<Checkered>());
  const std::vector<std::vector<int>> continuations = {{1, 2, 3}, {4, 5}};
  const std::vector<Score> scores = scoreContinuations(ids.first(30), continuations, subject.weights, cache, workspace);
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<int> all(ids.begin(), ids.begin() + 30);
    all.insert(all.end(), continuations[i].begin(), continuations[i].end());
    const std::vector<double> whole = scoreTokens(all, subject.weights, cache, workspace).log_probabilities;
    CHECK(scores[i].log_probabilities == std::vector<double>(whole.end() - std::ssize(continuations[i]), whole.end()));
  }
}

TEST_CASE("kept positions: past the context, positions go on, and a window's bits do not depend on chunks") {
  const KeptSubject subject;
  const std::vector<int> ids = someIds(500, 61);
  const auto window = std::make_shared<LastPositions>(50);
  ModelCache<float> whole(subject.weights, StoredType::full, window, true);
  const Matrix<float> expected = read(ids, 500, subject.weights, whole);
  CHECK(whole.length() == 500);
  CHECK(whole.layer(1).positions(1).back() == 499);
  CHECK(whole.ids() == ids);
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{90}}) {
    ModelCache<float> cache(subject.weights, StoredType::full, window, true);
    CHECK(read(ids, chunk, subject.weights, cache) == expected);
    checkSameCaches(cache, whole);
  }
  // Up to the end of the context nothing is different.
  ModelCache<float> within = subject.cache(window);
  CHECK(read(std::span(ids).first(160), 160, subject.weights, within) == expected.topRows(160));
  CHECK_THROWS_AS(decodeStep(1, 160, subject.weights, within), ContextFull);

  GenerateOptions options;
  options.max_tokens = 300;
  Workspace<float> workspace;
  const BatchOptions batch{.policy = window, .past_context = true};
  const std::vector<Generation> generations =
      generateTokens(std::vector<std::vector<int>>{{1, 2, 3}}, options, subject.weights, workspace, batch);
  CHECK(generations[0].output_ids.size() == 300);
  CHECK(generations[0].finish_reason == FinishReason::length);

  // One that keeps as many positions as there is room for ends there, and nobody else does.
  const BatchOptions too_large{.policy = std::make_shared<LastPositions>(160), .past_context = true};
  const std::vector<Generation> full =
      generateTokens(std::vector<std::vector<int>>{{1, 2, 3}, std::vector<int>(150, 5)}, options, subject.weights,
                     workspace, too_large);
  for (const std::size_t prompt : {std::size_t{0}, std::size_t{1}}) {
    CHECK(full[prompt].finish_reason == FinishReason::context_full);
    CHECK(full[prompt].output_ids.size() == (prompt == 0 ? 158 : 11));
  }
}

TEST_CASE("kept positions: a layer that was put in place of another and keeps all is full like any other") {
  const KeptSubject subject;
  ModelCache<float> cache(subject.weights, StoredType::full, std::make_shared<LastPositions>(50), true);
  cache.layer(0) = LayerCache<float>(4, 6, 160);
  CHECK_THROWS_AS(prefill(someIds(200, 61), subject.weights, cache), ContextFull);
  CHECK(cache.length() == 0);
  CHECK_NOTHROW(prefill(someIds(160, 61), subject.weights, cache));
  CHECK_THROWS_AS(decodeStep(1, 160, subject.weights, cache), ContextFull);
}

TEST_CASE("kept positions: after reset, a cache whose positions were dropped is as good as new") {
  const KeptSubject subject;
  ModelCache<float> cache = subject.cache(nullptr);
  prefill(std::span(subject.ids).first(5), subject.weights, cache);
  cache.keep(1, 1, std::vector<Index>{2});
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(saveCache(cache, directory.path() / "cache", subject.weights), ArgumentError);
  cache.reset();
  prefill(std::span(subject.ids).first(5), subject.weights, cache);
  CHECK_NOTHROW(saveCache(cache, directory.path() / "cache", subject.weights));
}

TEST_CASE("kept positions: what a policy notes counts as memory, and what it has not asked for is refused") {
  const KeptSubject subject;
  class Forgetful final : public CachePolicy {
   public:
    explicit Forgetful(Index count) : count_(count) {}
    Index statistics() const override { return count_; }
    void choose(CachedHead& head, std::span<bool>) const override { head.statistics(0, 1) = 1; }

   private:
    Index count_;
  };
  ModelCache<float> cache = subject.cache(std::make_shared<Forgetful>(1));
  CHECK_THROWS_WITH_AS(prefill(subject.ids, subject.weights, cache),
                       "policy: expected one of the numbers that statistics() counts, which says 1, got number 1",
                       ArgumentError);
  CHECK(cache.length() == 0);
  CHECK_THROWS_WITH_AS(subject.cache(std::make_shared<Forgetful>(-1)),
                       "policy: expected statistics() of 0 or more, got -1", ArgumentError);

  ModelCache<float> noted = subject.cache(std::make_shared<Forgetful>(2));
  prefill(subject.ids, subject.weights, noted);
  CHECK(noted.layer(0).bytes() == noted.layer(0).bytesFor(150));
  CHECK(noted.layer(0).bytes() > subject.cache(nullptr).layer(0).bytesFor(150));
  Workspace<float> workspace;
  GenerateOptions options;
  options.max_tokens = 150;
  CHECK_THROWS_AS(generateTokens(std::vector<std::vector<int>>{{1}}, options, subject.weights, workspace,
                                 {.cache_bytes = 3 * subject.cache(nullptr).layer(0).bytesFor(151),
                                  .policy = std::make_shared<Forgetful>(2)}),
                  ArgumentError);
}

TEST_CASE("kept positions: what cannot be is refused by name") {
  const KeptSubject subject;
  ModelCache<float> cache = subject.cache(nullptr);
  prefill(std::span(subject.ids).first(5), subject.weights, cache);
  const std::vector<Index> none, twice = {1, 1}, back = {3, 2}, beyond = {5};
  CHECK_THROWS_WITH_AS(cache.keep(3, 0, none), "expected a layer from 0 to 2, got 3", ArgumentError);
  CHECK_THROWS_WITH_AS(cache.keep(0, 4, none), "expected a head from 0 to 3, got 4", ArgumentError);
  CHECK_THROWS_WITH_AS(cache.layer(0).positions(-1), "expected a head from 0 to 3, got -1", ArgumentError);
  for (const auto& wrong : {twice, back, beyond}) CHECK_THROWS_AS(cache.keep(0, 0, wrong), ArgumentError);
  CHECK(cache.layer(0).positions(0).size() == 5);
  CHECK_THROWS_WITH_AS(ModelCache<float>(subject.weights, StoredType::full, nullptr, true),
                       "past_context: expected a policy that drops positions, got none", ArgumentError);

  ModelCache<float> with_policy = subject.cache(std::make_shared<EveryPosition>());
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(saveCache(with_policy, directory.path() / "cache", subject.weights), ArgumentError);
  PrefixIndex<float> index(subject.weights, StoredType::full, 1 << 20);
  CHECK_THROWS_AS(index.insert(with_policy), ArgumentError);
  Workspace<float> workspace;
  GenerateOptions options;
  options.drafter = promptLookup();
  CHECK_THROWS_AS(generateTokens(std::vector<int>{1}, options, subject.weights, with_policy, workspace), ArgumentError);
  CHECK_THROWS_AS(generateTokens(std::vector<std::vector<int>>{{1}}, options, subject.weights, workspace,
                                 {.policy = std::make_shared<EveryPosition>()}),
                  ArgumentError);
  CHECK_THROWS_AS(generateTokens(std::vector<std::vector<int>>{{1}}, {}, subject.weights, workspace,
                                 {.prefix_bytes = 1, .policy = std::make_shared<EveryPosition>()}),
                  ArgumentError);

  // One that keeps more than the context has positions, past which it was to go on.
  ModelCache<float> endless(subject.weights, StoredType::full, std::make_shared<EveryPosition>(), true);
  prefill(subject.ids, subject.weights, endless);
  const ModelCache<float> as_it_was = endless.clone();
  CHECK_THROWS_AS(prefill(std::span(subject.ids).first(20), subject.weights, endless), ContextFull);
  checkSameCaches(endless, as_it_was);
}
