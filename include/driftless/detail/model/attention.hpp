#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/detail/model/linear.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/error.hpp"
#include "driftless/observer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Tells an observer how the last of some positions attends to all of them.
template <class Scalar>
void showWeights(const Step<Scalar>& step, Index sequence, Index head, std::span<const Scalar> numerators,
                 Scalar total) {
  std::vector<Scalar> weights;
  for (const Scalar numerator : numerators) weights.push_back(numerator / total);
  step.observer->attention_weights(
      {step.layer, sequence, head, static_cast<Index>(weights.size()) - 1, std::span<const Scalar>(weights)});
}

/// Attention in one head of up to kTileRows consecutive rows of one sequence, first_row on: from their queries in
/// step.qkv to step.mixed. The first row attends to `keys` keys, its own included, each later one to one more.
template <class Scalar>
void attendTile(Step<Scalar>& step, const Segment<Scalar>& segment, Index head, Index keys, Index first_row, Index rows,
                int thread) {
  const Kernels<Scalar>& use = kernels<Scalar>();
  const LayerCache<Scalar>& cache = *segment.cache;
  const Index D = cache.headSize();
  const Index width = CacheAccess::paddedHeadSize(cache);
  const Index longest = keys + rows - 1;
  const Index stride = step.scores.stride();
  Scalar* scores = step.scores.row(thread * kTileRows);
  Scalar* sums = scores + stride - width;

  // 1. Scores. Those beyond a row's own position are never looked at.
  for (Index begin = 0; begin < longest; begin += kPage) {
    const Index columns = (std::min)(kPage, roundUpToLanes(longest - begin));
    for (Index r = 0; r < rows; ++r) std::fill_n(scores + r * stride + begin, columns, Scalar(0));
    use.multiply_panel(rows, step.qkv.row(first_row) + head * D, step.qkv.stride(), cache.stored(),
                       CacheAccess::keys(cache, head, begin), kPage, columns, D, scores + begin, stride);
    if (isQuantized(cache.stored()))
      for (Index r = 0; r < rows; ++r)
        use.scale_row(scores + r * stride + begin, columns, CacheAccess::keyScales(cache, head, begin));
  }

  // 2. Softmax without its division.
  Scalar total[kTileRows];
  for (Index r = 0; r < rows; ++r) total[r] = use.softmax_numerators(scores + r * stride, keys + r);
  if (step.observer != nullptr && step.observer->attention_weights)
    for (Index r = 0; r < rows; ++r)
      showWeights(step, segment.sequence, head,
                  std::span<const Scalar>(scores + r * stride, static_cast<std::size_t>(keys + r)), total[r]);

  // 3. Values, weighted and summed in the order of positions: together as far as every row reaches, then the rest. The
  // scale of a value goes into its weight.
  if (isQuantized(cache.stored()))
    for (Index r = 0; r < rows; ++r)
      for (Index begin = 0; begin < keys + r; begin += kPage)
        use.scale_row(scores + r * stride + begin, (std::min)(kPage, roundUpToLanes(keys + r - begin)),
                      CacheAccess::valueScales(cache, head, begin));
  const auto addValues = [&](Index row, Index row_count, Index begin, Index end) {
    while (begin < end) {
      const Index stop = (std::min)(end, (begin / kPage + 1) * kPage);
      use.multiply_panel(row_count, scores + row * stride + begin, stride, cache.stored(),
                         CacheAccess::values(cache, head, begin), width, width, stop - begin, sums + row * stride,
                         stride);
      begin = stop;
    }
  };
  for (Index r = 0; r < rows; ++r) std::fill_n(sums + r * stride, width, Scalar(0));
  addValues(0, rows, 0, keys);
  for (Index r = 1; r < rows; ++r) addValues(r, 1, keys, keys + r);

  // 4. The division.
  for (Index r = 0; r < rows; ++r) {
    Scalar* mixed = step.mixed.row(first_row + r) + head * D;
    for (Index d = 0; d < D; ++d) mixed[d] = sums[r * stride + d] / total[r];
  }
}

/// Asks for one head's query, key and value in a row of qkv, which lie C apart. The rows are too far from each other
/// for the processor to see them coming.
template <class Scalar>
void prefetchHead(const Scalar* q, Index C, Index D) {
  for (Index part = 0; part < 3; ++part)
    for (Index d = 0; d < D; d += kLanes) prefetch(q, (part * C + d) * static_cast<Index>(sizeof(Scalar)));
}

/// c_proj(attention(c_attn(x [T, C]))), to a destination of T rows. The rows of step.segments are written to their
/// caches, and become part of them when the whole step is done.
template <class Scalar>
void attnStep(Step<Scalar>& step, const PaddedRows<Scalar>& x, const Attention<Scalar>& attn,
              const Destination<Scalar>& to) {
  const Index C = x.cols();
  const Index H = attn.n_head;
  const Index D = C / H;
  step.qkv.resize(x.rows(), 3 * C);
  linear(step, x, attn.c_attn, destinationOf(step.qkv));
  step.tell(Part::linear);

  Index positions = 0;  // of the largest cache, so that the room needed does not grow with the sequence
  for (const auto& segment : step.segments) positions = (std::max)(positions, segment.cache->capacity());
  step.scores.resize(step.pool.threads() * kTileRows, CacheAccess::pages(positions) * kPage + roundUpToLanes(D));
  step.mixed.resize(x.rows(), C);
  step.pool.parallelFor(static_cast<Index>(step.segments.size()) * H, [&](Index task, int thread) {
    const Segment<Scalar>& segment = step.segments[static_cast<std::size_t>(task / H)];
    const Index head = task % H;
    for (Index r = 0; r < segment.rows; ++r) {
      Scalar* q = step.qkv.row(segment.first_row + r) + head * D;
      if (r + kTileRows < segment.rows) prefetchHead(q + kTileRows * step.qkv.stride(), C, D);
      for (Index d = 0; d < D; ++d) q[d] *= attn.score_scale;
      CacheAccess::write(*segment.cache, head, segment.position + r, q + C, q + 2 * C);
    }
    for (Index r = 0; r < segment.rows; r += kTileRows)
      attendTile(step, segment, head, segment.position + r + 1, segment.first_row + r,
                 (std::min)(kTileRows, segment.rows - r), thread);
  });
  step.tell(Part::attention);

  linear(step, step.mixed, attn.c_proj, to);
  step.tell(Part::linear);
}

template <class Scalar>
void checkWidth(const Matrix<Scalar>& x, Index width) {
  if (x.rows() < 1 || x.cols() != width)
    raise<ArgumentError>({"expected x of shape [T >= 1, ", width, "], got ", shapeText({x.rows(), x.cols()})});
}

/// The step of one layer for rows x [T, C] of one sequence, by the caller's thread. Makes room for them in its cache.
/// Throws before anything is written if they cannot be appended to a cache of n_head heads.
template <class Scalar>
Workspace<Scalar> layerStep(const Matrix<Scalar>& x, Index width, Index n_head, LayerCache<Scalar>& cache) {
  checkWidth(x, width);
  if (n_head < 1) raise<ArgumentError>({"expected attention with n_head of 1 or more, got ", n_head});
  if (cache.heads() != n_head || cache.headSize() != width / n_head)
    raise<ArgumentError>({"expected a cache of ", n_head, " heads of ", width / n_head, ", got ", cache.heads(), " of ",
                          cache.headSize()});
  if (x.rows() > cache.capacity() - cache.length())
    raise<ContextFull>(
        {"expected at most ", cache.capacity() - cache.length(), " more rows for this cache, got ", x.rows()});
  Workspace<Scalar> workspace(Threads(1));
  workspace.step().segments = {{&cache, 0, x.rows(), 0, cache.length(), nullptr}};
  CacheAccess::makeRoom(cache, x.rows());
  return workspace;
}

}  // namespace detail

template <FloatingScalar Scalar>
Matrix<Scalar> attnStep(const std::type_identity_t<Matrix<Scalar>>& x, const Attention<Scalar>& attn,
                        LayerCache<Scalar>& cache) {
  Workspace<Scalar> workspace = detail::layerStep(x, attn.c_proj.weight.out(), attn.n_head, cache);
  detail::PaddedRows<Scalar> out(x.rows(), x.cols());
  detail::attnStep(workspace.step(), detail::PaddedRows<Scalar>(x), attn, detail::destinationOf(out));
  Matrix<Scalar> result = out.matrix();
  detail::CacheAccess::grow(cache, x.rows());
  return result;
}

}}  // namespace driftless::DRIFTLESS_ABI
