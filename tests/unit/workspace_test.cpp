#include "driftless/workspace.hpp"

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "driftless/forward.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

struct SharedWorkspace {
  Weights<float> weights{livelyParameters(smallConfig(40, 4, 90, 100, 140))};
  std::vector<int> ids = someIds(140, 100);
  Workspace<float> workspace{Threads(2)};

  std::span<const int> first(std::size_t count) const { return std::span(ids).first(count); }
};

}  // namespace

TEST_CASE("workspace: logits that are computed in one stay in it until its next step, and are values without one") {
  SharedWorkspace shared;
  auto& [weights, ids, workspace] = shared;
  ModelCache<float> cache(weights), other(weights);
  static_assert(std::is_same_v<decltype(prefill(ids, weights, cache)), RowVector<float>>);
  static_assert(std::is_same_v<decltype(decodeStep(1, 0, weights, cache)), RowVector<float>>);
  static_assert(std::is_same_v<decltype(prefill(ids, weights, cache, workspace)), const WorkspaceVector<float>&>);
  static_assert(std::is_same_v<decltype(decodeStep(1, 0, weights, cache, workspace)), const WorkspaceVector<float>&>);

  const WorkspaceVector<float>& in_workspace = prefill(shared.first(9), weights, cache, workspace);
  const RowVector<float> value = prefill(shared.first(9), weights, other);
  checkSameBits(in_workspace, value, "prefill");
  decodeStep(7, 9, weights, other);
  checkSameBits(in_workspace, value, "a step elsewhere");
  const WorkspaceVector<float>& next = decodeStep(7, 9, weights, cache, workspace);
  CHECK(&next == &in_workspace);
  CHECK(in_workspace != value);
}

TEST_CASE("workspace: one serves caches in turn and in batches, of several models, with the bits of temporary ones") {
  SharedWorkspace shared;
  auto& [weights, ids, workspace] = shared;
  const Weights<float> wider(livelyParameters(smallConfig(66, 3, 20, 31, 150, 2), true));
  const std::vector<int> wider_ids = someIds(150, 31);
  ModelCache<float> one(weights), two(weights), three(wider);
  ModelCache<float> one_alone(weights), two_alone(weights), three_alone(wider);
  std::size_t position = 0;
  for (const std::size_t count : {3u, 1u, 60u, 2u, 17u}) {
    INFO("from " << position << " on, " << count << " rows");
    const std::span<const int> chunk = std::span(ids).subspan(position, count);
    const std::span<const int> wider_chunk = std::span(wider_ids).subspan(position, count);
    checkSameBits(prefill(chunk, weights, one, workspace), prefill(chunk, weights, one_alone), "first cache");
    checkSameBits(prefill(wider_chunk, wider, three, workspace), prefill(wider_chunk, wider, three_alone),
                  "another model's cache");
    const Matrix<float> all = prefillLogits(chunk, weights, two, workspace);
    checkSameBits(all.bottomRows(1).row(0), prefill(chunk, weights, two_alone), "second cache");
    position += count;

    const std::vector<int> next = {ids[position], ids[position]};
    const std::vector<Index> positions = {one.length(), two.length()};
    const MatrixView<float> both = decodeStep(next, positions, weights, {&one, &two}, workspace);
    checkSameBits(both.row(0), decodeStep(next[0], positions[0], weights, one_alone), "first of a batch");
    checkSameBits(both.row(1), decodeStep(next[1], positions[1], weights, two_alone), "second of a batch");
    checkSameBits(decodeStep(wider_ids[position], three.length(), wider, three, workspace),
                  decodeStep(wider_ids[position], three_alone.length(), wider, three_alone), "a decode step");
    ++position;
  }
}

TEST_CASE("workspace: its room grows with the largest step and is kept") {
  SharedWorkspace shared;
  auto& [weights, ids, workspace] = shared;
  CHECK(workspace.bytes() == 0);
  ModelCache<float> cache(weights);
  prefill(shared.first(5), weights, cache, workspace);
  const Index of_five = workspace.bytes();
  CHECK(of_five > 0);
  decodeStep(1, 5, weights, cache, workspace);
  prefill(shared.first(4), weights, cache, workspace);
  CHECK(workspace.bytes() == of_five);
  prefill(shared.first(100), weights, cache, workspace);
  const Index of_hundred = workspace.bytes();
  CHECK(of_hundred > of_five);
  cache.reset();
  for (const std::size_t count : {1u, 5u, 33u, 100u}) prefill(shared.first(count), weights, cache, workspace);
  CHECK(workspace.bytes() == of_hundred);
}

TEST_CASE("workspace: a batch of sixteen takes one of them, and caches hold keys and values alone") {
  SharedWorkspace shared;
  auto& [weights, ids, workspace] = shared;
  const Config& config = weights.config;
  std::vector<ModelCache<float>> caches;
  for (int i = 0; i < 16; ++i) caches.emplace_back(weights);
  for (const auto& cache : caches) CHECK(cache.bytes() == 0);

  std::vector<Chunk<float>> chunks;
  for (std::size_t i = 0; i < 16; ++i) chunks.push_back({std::span(ids).subspan(i, 3 + i), &caches[i]});
  prefill(chunks, weights, workspace);
  const Index of_prefill = workspace.bytes();
  // What 16 * (3 + 18) / 2 rows need, a few times n_embd numbers each, and not sixteen times that.
  CHECK(of_prefill < 168 * 16 * config.n_embd * static_cast<Index>(sizeof(float)));

  for (int step = 0; step < 20; ++step) {
    std::vector<ModelCache<float>*> pointers;
    std::vector<Index> positions;
    for (ModelCache<float>& cache : caches) {
      pointers.push_back(&cache);
      positions.push_back(cache.length());
    }
    decodeStep(std::vector<int>(16, step), positions, weights, pointers, workspace);
  }
  CHECK(workspace.bytes() == of_prefill);
  // A page of 64 positions, and values of whole sixteens: 10 + 16 numbers per head and position.
  const Index bytes = config.n_layer * 64 * config.n_head * (10 + 16) * static_cast<Index>(sizeof(float));
  for (const auto& cache : caches) CHECK(cache.bytes() == bytes);
}

TEST_CASE("workspace: one that was moved goes on with its threads and its room") {
  SharedWorkspace shared;
  auto& [weights, ids, workspace] = shared;
  ModelCache<float> cache(weights), alone(weights);
  prefill(shared.first(50), weights, cache, workspace);
  prefill(shared.first(50), weights, alone);
  const Index bytes = workspace.bytes();
  Workspace<float> moved = std::move(workspace);
  CHECK(moved.bytes() == bytes);
  CHECK(moved.threads().count() == 2);
  checkSameBits(decodeStep(3, 50, weights, cache, moved), decodeStep(3, 50, weights, alone), "moved");
  workspace = Workspace<float>(Threads(1));
  checkSameBits(decodeStep(4, 51, weights, cache, workspace), decodeStep(4, 51, weights, alone), "assigned to");
}
