#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/linear.hpp"
#include "driftless/error.hpp"
#include "driftless/observer.hpp"
#include "driftless/weights.hpp"

namespace driftless::inline DRIFTLESS_ABI {

namespace detail {

/// Turns the scores of one row over `count` keys into weights, in place, and returns their sum, by which the weighted
/// sum of the values is still to be divided. Writes up to the next whole lanes.
template <class Scalar>
Scalar exponentiate(Scalar* scores, Index count) {
  using L = Lanes<Scalar>;
  const Index padded = roundUpToLanes(count);
  std::fill(scores + count, scores + padded, -std::numeric_limits<Scalar>::infinity());
  L largest = L::load(scores);
  for (Index i = kLanes; i < padded; i += kLanes) {
    const L candidate = L::load(scores + i);
    largest = selectLess(largest, candidate, candidate, largest);
  }
  const L offset = L::broadcast(maxOfLanes(largest));
  L sum = L::broadcast(Scalar(0));
  for (Index i = 0; i < padded; i += kLanes) {
    const L weight = exp(L::load(scores + i) - offset);
    weight.store(scores + i);
    sum = sum + weight;
  }
  return sumOfLanes(sum);
}

/// Tells an observer how the last of some positions attends to all of them.
template <class Scalar, class Observer>
void showWeights(Index layer, Index sequence, Index head, std::span<const Scalar> exponentials, Scalar total,
                 Observer& observer) {
  std::vector<Scalar> weights;
  for (const Scalar exponential : exponentials) weights.push_back(exponential / total);
  observer(AttentionWeights<Scalar>{layer, sequence, head, static_cast<Index>(weights.size()) - 1, weights});
}

/// Attention in one head of up to kTileRows consecutive rows, first_row on, of one sequence: from their queries in
/// workspace.qkv to workspace.mixed. The first row attends to `keys` keys, its own included, each later one to one
/// more.
template <class Scalar, class CacheStored, class Observer>
void attendTile(const Segment<Scalar, CacheStored>& segment, Index head, Index keys, Index first_row, Index rows,
                Workspace<Scalar, CacheStored>& workspace, int thread, Observer& observer) {
  const LayerCache<Scalar, CacheStored>& cache = *segment.cache;
  constexpr Index kBlock = LayerCache<Scalar, CacheStored>::kBlock;
  const Index D = cache.headSize();
  const Index width = cache.paddedHeadSize();
  const Index longest = keys + rows - 1;
  const Index stride = workspace.scores.stride();
  Scalar* scores = workspace.scores.row(thread * kTileRows);
  Scalar* sums = scores + stride - width;

  // 1. Scores. Those beyond a row's own position are never looked at.
  for (Index begin = 0; begin < longest; begin += kBlock) {
    const Index columns = (std::min)(kBlock, roundUpToLanes(longest - begin));
    for (Index r = 0; r < rows; ++r) std::fill_n(scores + r * stride + begin, columns, Scalar(0));
    multiplyPanel(rows, workspace.qkv.row(first_row) + head * D, workspace.qkv.stride(),
                  cache.keyBlock(head, begin / kBlock), kBlock, columns, D, scores + begin, stride);
  }

  // 2. Softmax but for its division.
  Scalar total[kTileRows];
  for (Index r = 0; r < rows; ++r) total[r] = exponentiate(scores + r * stride, keys + r);
  if constexpr (kObserves<AttentionWeights<Scalar>, Observer>)
    for (Index r = 0; r < rows; ++r)
      showWeights(workspace.layer, segment.sequence, head,
                  std::span<const Scalar>(scores + r * stride, static_cast<std::size_t>(keys + r)), total[r], observer);

  // 3. Values, weighted and summed in the order of positions: together as far as every row reaches, then the rest.
  const auto addValues = [&](Index row, Index row_count, Index begin, Index end) {
    while (begin < end) {
      const Index stop = (std::min)(end, (begin / kBlock + 1) * kBlock);
      multiplyPanel(row_count, scores + row * stride + begin, stride,
                    cache.valueBlock(head, begin / kBlock) + begin % kBlock * width, width, width, stop - begin,
                    sums + row * stride, stride);
      begin = stop;
    }
  };
  for (Index r = 0; r < rows; ++r) std::fill_n(sums + r * stride, width, Scalar(0));
  addValues(0, rows, 0, keys);
  for (Index r = 1; r < rows; ++r) addValues(r, 1, keys, keys + r);

  // 4. The division.
  for (Index r = 0; r < rows; ++r) {
    Scalar* mixed = workspace.mixed.row(first_row + r) + head * D;
    for (Index d = 0; d < D; ++d) mixed[d] = sums[r * stride + d] / total[r];
  }
}

/// Asks for one head's query, key and value in a row of qkv, which lie C apart. The rows are too far from each other
/// for the processor to see them coming.
template <class Scalar>
void prefetchHead(const Scalar* q, Index C, Index D) {
  for (Index part = 0; part < 3; ++part)
    for (Index d = 0; d < D; d += kLanes) prefetch(q + part * C + d);
}

/// c_proj(attention(c_attn(x [T, C]))), [T, C], as store(row, column, lanes). The rows of workspace.segments become
/// part of their caches.
template <class Scalar, class Stored, class CacheStored, class Store, class Observer>
void attnStep(const Rows<Scalar>& x, const Attention<Scalar, Stored>& attn, ThreadPool& pool,
              Workspace<Scalar, CacheStored>& workspace, Store store, Observer& observer) {
  const auto& segments = workspace.segments;
  const Index C = x.cols();
  const Index H = attn.n_head;
  const Index D = C / H;
  workspace.qkv.resize(x.rows(), 3 * C);
  linear(x, attn.c_attn, pool, writeTo(workspace.qkv));
  tell(observer, Part::linear);

  Index positions = 0;  // of the largest cache, so that the room needed does not grow with the sequence
  for (const auto& segment : segments) positions = (std::max)(positions, segment.cache->capacity());
  positions = (positions + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
  workspace.scores.resize(pool.threads() * kTileRows, positions + roundUpToLanes(D));
  workspace.mixed.resize(x.rows(), C);
  pool.parallelFor(static_cast<Index>(segments.size()) * H, [&](Index task, int thread) {
    const Segment<Scalar, CacheStored>& segment = segments[static_cast<std::size_t>(task / H)];
    const Index head = task % H;
    for (Index r = 0; r < segment.rows; ++r) {
      Scalar* q = workspace.qkv.row(segment.first_row + r) + head * D;
      if (r + kTileRows < segment.rows) prefetchHead(q + kTileRows * workspace.qkv.stride(), C, D);
      for (Index d = 0; d < D; ++d) q[d] *= attn.score_scale;
      segment.cache->write(head, segment.position + r, q + C, q + 2 * C);
    }
    for (Index r = 0; r < segment.rows; r += kTileRows)
      attendTile(segment, head, segment.position + r + 1, segment.first_row + r,
                 (std::min)(kTileRows, segment.rows - r), workspace, thread, observer);
  });
  for (const auto& segment : segments) segment.cache->grow(segment.rows);
  tell(observer, Part::attention);

  linear(workspace.mixed, attn.c_proj, pool, store);
  tell(observer, Part::linear);
}

template <class Scalar>
void checkWidth(const Matrix<Scalar>& x, Index width) {
  if (x.rows() < 1 || x.cols() != width)
    throw ArgumentError("expected x of shape [T >= 1, " + std::to_string(width) + "], got " +
                        shapeText(x.rows(), x.cols()));
}

/// What must hold before rows x [T, C] may be appended to a layer's cache of n_head heads.
template <class Scalar, class CacheStored>
void checkLayerStep(const Matrix<Scalar>& x, Index width, Index n_head, const LayerCache<Scalar, CacheStored>& cache) {
  checkWidth(x, width);
  if (cache.heads() != n_head || cache.headSize() != width / n_head)
    throw ArgumentError("expected a cache of " + std::to_string(n_head) + " heads of " +
                        std::to_string(width / n_head) + ", got " + std::to_string(cache.heads()) + " of " +
                        std::to_string(cache.headSize()));
  if (x.rows() > cache.capacity() - cache.length())
    throw ContextFull("expected at most " + std::to_string(cache.capacity() - cache.length()) +
                      " more rows for this cache, got " + std::to_string(x.rows()));
}

}  // namespace detail

/// One layer's attention over T new rows of one sequence: c_attn, the rows' keys and values appended to the layer's
/// cache, causal softmax over it, c_proj. x is ln_1's output [T, C]; returns [T, C], before the residual is added.
/// Throws ArgumentError where shapes don't fit and ContextFull where the cache has no room, leaving the cache as it
/// was.
template <class Scalar, class Stored, class CacheStored>
Matrix<Scalar> attnStep(const std::type_identity_t<Matrix<Scalar>>& x, const Attention<Scalar, Stored>& attn,
                        LayerCache<Scalar, CacheStored>& cache) {
  detail::checkLayerStep(x, attn.c_proj.weight.out(), attn.n_head, cache);
  detail::ThreadPool pool(1);
  detail::Workspace<Scalar, CacheStored> workspace;
  workspace.segments = {{&cache, 0, x.rows(), 0, cache.length(), nullptr}};
  detail::NoObserver observer;
  return detail::allOrNothing(cache, [&]() -> Matrix<Scalar> {
    detail::Rows<Scalar> out;
    out.resize(x.rows(), x.cols());
    detail::attnStep(detail::rowsOf(x), attn, pool, workspace, detail::writeTo(out), observer);
    return out.matrix();
  });
}

}  // namespace driftless::inline DRIFTLESS_ABI
