#include "driftless/observer.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "driftless/block.hpp"
#include "driftless/forward.hpp"
#include "driftless/reference.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

struct Subject {
  Parameters<float> parameters = livelyParameters(smallConfig(24, 4, 40, 61, 90));
  Weights<float> weights{parameters, {.threads = Threads(3)}};
  std::vector<int> ids = someIds(70, 61);
};

/// How `layer` attends in one head, from the plain reference: [T, T].
Matrix<float> expectedWeights(const Subject& prompts, Index layer, Index head) {
  const Config& config = prompts.parameters.config;
  const Index C = config.n_embd, D = config.headSize();
  Matrix<float> x = reference::embed<float>(prompts.ids, prompts.parameters);
  for (Index before = 0; before < layer; ++before) x = reference::block(x, prompts.parameters, before);
  const auto& block = prompts.parameters.h[static_cast<std::size_t>(layer)];
  const Matrix<float> normed = reference::layerNorm(x, block.ln_1, config.layer_norm_epsilon);
  const Matrix<float> qkv = reference::linear(normed, block.attn.c_attn);
  const Matrix<float> scores = qkv.middleCols(head * D, D) * qkv.middleCols(C + head * D, D).transpose();
  Matrix<float> weights = Matrix<float>::Zero(x.rows(), x.rows());
  for (Index t = 0; t < x.rows(); ++t)
    weights.row(t).head(t + 1) =
        reference::softmax<float>(scores.row(t).head(t + 1) / std::sqrt(static_cast<float>(D)));
  return weights;
}

/// Counts everything that it is shown, and throws once it has been shown `patience` things.
struct ImpatientObserver {
  std::atomic<int> seen = 0;
  int patience;

  explicit ImpatientObserver(int things) : patience(things) {}

  Observer<float> observer() {
    const auto count = [this](const auto&) {
      if (++seen > patience) throw std::runtime_error("enough");
    };
    return {.part = count, .points = {Point::resid_pre, Point::pattern, Point::logits}, .visit = count};
  }
};

/// Runs a step on copies of `caches` again and again, by an observer that throws later each time, until it does not
/// throw. A step that was broken off must leave no trace: what it was to do is then done with the expected bits.
void breakOffEverywhere(
    const std::vector<const ModelCache<float>*>& caches, int stride,
    const std::function<Matrix<float>(std::vector<ModelCache<float>>&, const Observer<float>&)>& step) {
  const auto copies = [&] {
    std::vector<ModelCache<float>> result;
    for (const auto* cache : caches) result.push_back(cache->clone());
    return result;
  };
  std::vector<ModelCache<float>> finished = copies();
  const Matrix<float> expected = step(finished, {});
  std::vector<ModelCache<float>> broken_off = copies();
  for (int patience = 0;; patience += stride) {
    INFO("thrown after " << patience);
    ImpatientObserver impatient(patience);
    try {
      const Matrix<float> logits = step(broken_off, impatient.observer());
      CHECK(patience >= 30);  // it did throw, and more than once or twice
      CHECK(logits == expected);
      for (std::size_t i = 0; i < caches.size(); ++i)
        for (Index layer = 0; layer < finished[i].layers(); ++layer) {
          CHECK(broken_off[i].layer(layer).keys() == finished[i].layer(layer).keys());
          CHECK(broken_off[i].layer(layer).values() == finished[i].layer(layer).values());
        }
      return;
    } catch (const std::runtime_error&) {
    }
    for (std::size_t i = 0; i < caches.size(); ++i)
      for (Index layer = 0; layer < caches[i]->layers(); ++layer) {
        REQUIRE(broken_off[i].layer(layer).length() == caches[i]->length());
        CHECK(broken_off[i].layer(layer).keys() == caches[i]->layer(layer).keys());
        CHECK(broken_off[i].layer(layer).values() == caches[i]->layer(layer).values());
      }
    std::vector<ModelCache<float>> copies_of_broken_off;
    for (const auto& cache : broken_off) copies_of_broken_off.push_back(cache.clone());
    if (patience % (5 * stride) == 0) CHECK(step(copies_of_broken_off, {}) == expected);
  }
}

}  // namespace

TEST_CASE("observer: attention weights are those of the plain reference, each row once, by prefill and by decoding") {
  const Subject prompts;
  const Index T = static_cast<Index>(prompts.ids.size()), H = prompts.parameters.config.n_head;
  std::vector<Matrix<float>> seen(static_cast<std::size_t>(3 * H), Matrix<float>::Zero(T, T));
  std::set<std::tuple<Index, Index, Index>> rows;
  Observer<float> observer{.points = {Point::pattern}};
  observer.visit = [&](PointValues<float>& row) {
    CHECK(row.point == Point::pattern);
    CHECK(rows.insert({row.layer, row.head, row.position}).second);
    CHECK(row.sequence == 0);
    REQUIRE(row.values.rows() == 1);
    REQUIRE(row.values.cols() == row.position + 1);
    seen[static_cast<std::size_t>(row.layer * H + row.head)].row(row.position).head(row.position + 1) = row.values;
  };
  ModelCache<float> cache(prompts.weights);
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

TEST_CASE("observer: the residual stream is what blockStep makes of them, layer by layer and sequence by sequence") {
  const Subject prompts;
  ModelCache<float> first(prompts.weights), second(prompts.weights), alone(prompts.weights);
  Workspace<float> workspace;
  const std::span<const int> ids = prompts.ids;
  prefill(ids.first(5), prompts.weights, second);
  prefill(ids.first(5), prompts.weights, alone);

  std::vector<Matrix<float>> states;  // of the second sequence
  const std::vector<Chunk<float>> chunks = {{ids.first(3), &first}, {ids.subspan(5, 9), &second}};
  const auto see = [&](PointValues<float>& seen) {
    CHECK(seen.values.rows() == (seen.sequence == 0 ? 3 : 9));
    CHECK(seen.position == (seen.sequence == 0 ? 0 : 5));
    if (seen.sequence == 0) return;
    if (seen.point == Point::resid_post || seen.layer == 0) states.push_back(seen.values);
    CHECK(seen.values == states.back());
    CHECK(seen.layer + (seen.point == Point::resid_post ? 2 : 1) == static_cast<Index>(states.size()));
  };
  prefill(chunks, prompts.weights, workspace, {.points = {Point::resid_pre, Point::resid_post}, .visit = see});

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
  ModelCache<float> cache(weights);
  std::vector<std::tuple<Index, Index, Index>> seen;  // layer, position, rows
  const Observer<float> observer = {.points = {Point::resid_pre, Point::ln_final},
                                    .visit = [&](PointValues<float>& states) {
                                      seen.emplace_back(states.layer, states.position, states.values.rows());
                                    }};
  const std::vector<std::tuple<Index, Index, Index>> expected = {{0, 0, 512}, {1, 0, 512}, {0, 0, 512},
                                                                 {0, 512, 8}, {1, 512, 8}, {0, 512, 8}};
  prefill(someIds(520, 11), weights, cache, observer);
  CHECK((seen == expected));
  seen.clear();
  cache.reset();
  prefillLogits(someIds(520, 11), weights, cache, observer);
  CHECK((seen == expected));
}

TEST_CASE("observer: parts come in the order in which they are done") {
  const Weights<float> weights(livelyParameters(smallConfig(8, 2, 8, 11, 9, 2)));
  ModelCache<float> cache(weights);
  std::vector<Part> seen;
  using enum Part;
  const std::vector<Part> expected = {embedding, norm,      linear, attention, linear, norm, linear,     norm,
                                      linear,    attention, linear, norm,      linear, norm, unembedding};
  decodeStep(1, 0, weights, cache, {.part = [&](Part part) { seen.push_back(part); }});
  CHECK((seen == expected));
}

TEST_CASE("observer: one that sees everything changes no bit, by any kind of step") {
  const Subject prompts;
  const Weights<float>& weights = prompts.weights;
  const std::span<const int> ids = prompts.ids;
  Workspace<float> workspace;
  int parts = 0;
  std::vector<int> visits(kPoints);
  Observer<float> everything = {.part = [&](Part) { ++parts; }, .points = Points::all()};
  everything.visit = [&](PointValues<float>& values) { ++visits[static_cast<std::size_t>(values.point)]; };
  const auto expectSeen = [&](int sequences, int row_count) {
    CHECK(parts == 1 + 3 * 6 + 2);
    for (int number = 0; number < kPoints; ++number) {
      const Point point = static_cast<Point>(number);
      INFO(pointName(point));
      const int heads = isOfHead(point) ? 4 : 1, layers = isInLayer(point) ? 3 : 1;
      CHECK(visits[static_cast<std::size_t>(number)] == layers * heads * (isOverKeys(point) ? row_count : sequences));
    }
    parts = 0;
    visits.assign(kPoints, 0);
  };
  ModelCache<float> watched(weights), plain(weights), second(weights);
  checkSameBits(prefill(ids.first(20), weights, watched, everything), prefill(ids.first(20), weights, plain),
                "prefill");
  expectSeen(1, 20);
  checkSameBits(decodeStep(7, 20, weights, watched, workspace, everything), decodeStep(7, 20, weights, plain),
                "decodeStep");
  expectSeen(1, 1);
  const Matrix<float> all = prefillLogits(ids.first(9), weights, watched, everything);
  CHECK(all == prefillLogits(ids.first(9), weights, plain));
  expectSeen(1, 9);

  prefill(ids.first(3), weights, second);
  const std::vector<int> next = {5, 6};
  const std::vector<Index> positions = {30, 3};
  const Matrix<float> batch = decodeStep(next, positions, weights, {&watched, &second}, workspace, everything);
  expectSeen(2, 2);
  second.truncate(3);
  CHECK(batch == decodeStep(next, positions, weights, {&plain, &second}, workspace));

  for (Index layer = 0; layer < 3; ++layer) {
    CHECK(watched.layer(layer).keys() == plain.layer(layer).keys());
    CHECK(watched.layer(layer).values() == plain.layer(layer).values());
  }
}

TEST_CASE("observer: if it throws, wherever that is, the caches are as they were") {
  const Subject prompts;
  const Weights<float>& weights = prompts.weights;
  const std::span<const int> ids = prompts.ids;
  Workspace<float> workspace{Threads(3)};
  ModelCache<float> one(weights), two(weights);
  prefill(ids.first(5), weights, one);
  prefill(ids.first(62), weights, two);
  using Caches = std::vector<ModelCache<float>>;

  SUBCASE("a decode step") {
    breakOffEverywhere({&one}, 1, [&](Caches& caches, const Observer<float>& observer) {
      return Matrix<float>(decodeStep(1, 5, weights, caches[0], workspace, observer));
    });
  }
  SUBCASE("a prefill") {
    breakOffEverywhere({&one}, 3, [&](Caches& caches, const Observer<float>& observer) {
      return Matrix<float>(prefill(ids.subspan(5, 9), weights, caches[0], observer));
    });
  }
  SUBCASE("prefillLogits") {
    breakOffEverywhere({&one}, 3, [&](Caches& caches, const Observer<float>& observer) {
      return prefillLogits(ids.subspan(5, 9), weights, caches[0], workspace, observer);
    });
  }
  SUBCASE("a batched prefill, into the next page of a cache") {
    breakOffEverywhere({&one, &two}, 3, [&](Caches& caches, const Observer<float>& observer) {
      const std::vector<Chunk<float>> chunks = {{ids.subspan(5, 4), &caches[0]}, {ids.subspan(62, 5), &caches[1]}};
      return Matrix<float>(prefill(chunks, weights, workspace, observer));
    });
  }
  SUBCASE("a batched decode step") {
    breakOffEverywhere({&one, &two}, 1, [&](Caches& caches, const Observer<float>& observer) {
      const std::vector<int> next = {1, 2};
      const std::vector<Index> positions = {5, 62};
      return Matrix<float>(decodeStep(next, positions, weights, {&caches[0], &caches[1]}, workspace, observer));
    });
  }
  SUBCASE("a prompt of two pieces, and the second prompt of a batch") {
    const Weights<float> small(livelyParameters(smallConfig(8, 1, 8, 11, 600, 2)));
    const std::vector<int> many = someIds(530, 11);
    ModelCache<float> first(small), second(small);
    prefill(std::vector<int>{1, 2, 3}, small, first);
    breakOffEverywhere({&first}, 67, [&](Caches& caches, const Observer<float>& observer) {
      return prefillLogits(many, small, caches[0], workspace, observer);
    });
    breakOffEverywhere({&first, &second}, 67, [&](Caches& caches, const Observer<float>& observer) {
      const std::vector<Chunk<float>> chunks = {{std::span<const int>(many).first(300), &caches[0]},
                                                {std::span<const int>(many).first(290), &caches[1]}};
      return Matrix<float>(prefill(chunks, small, workspace, observer));
    });
  }
}
