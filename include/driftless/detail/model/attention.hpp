#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/detail/model/linear.hpp"
#include "driftless/detail/model/visit.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/error.hpp"
#include "driftless/observer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// Attention in one head of up to kTileRows consecutive rows of a segment, the last ones whose keys and values are in
/// its cache: from their queries in step.qkv to step.mixed. Each attends to the keys up to its own.
template <class Scalar>
void attendTile(Step<Scalar>& step, const Segment<Scalar>& segment, Index head, Index first, Index rows, int thread) {
  const Kernels<Scalar>& use = kernels<Scalar>();
  LayerCache<Scalar>& cache = *segment.cache;
  const Index first_row = segment.first_row + first;
  const Index first_position = segment.position + first;
  const Index keys = CacheAccess::slots(cache, head, first_position + rows) - rows + 1;  // of the first row
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

  const auto copyOf = [&](Index r) { return std::vector<Scalar>(scores + r * stride, scores + r * stride + keys + r); };
  if (step.visits(Point::attn_scores))
    for (Index r = 0; r < rows; ++r) {
      std::vector<Scalar> shown = copyOf(r);
      if (visitKeys(step, Point::attn_scores, segment, head, first_position + r,
                    -std::numeric_limits<Scalar>::infinity(), shown))
        std::copy(shown.begin(), shown.end(), scores + r * stride);
    }

  // 2. Softmax without its division. Where an observer writes a weight, the row's are as they are shown.
  Scalar total[kTileRows];
  for (Index r = 0; r < rows; ++r) total[r] = use.softmax_numerators(scores + r * stride, keys + r);
  if (step.visits(Point::pattern))
    for (Index r = 0; r < rows; ++r) {
      std::vector<Scalar> shown = copyOf(r);
      for (Scalar& weight : shown) weight /= total[r];
      if (!visitKeys(step, Point::pattern, segment, head, first_position + r, Scalar(0), shown)) continue;
      std::copy(shown.begin(), shown.end(), scores + r * stride);
      total[r] = 1;
    }
  if (CacheAccess::hasPolicy(cache)) {
    std::vector<double> attention;
    for (Index key = 0; key < keys; ++key)
      attention.push_back(static_cast<double>(scores[key]) / static_cast<double>(total[0]));
    CacheAccess::choose(cache, head, attention);
  }

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

/// What each head alone adds to the residual stream. If an observer changes a number, attn_out [T, C] changes by as
/// much.
template <class Scalar>
void visitResults(Step<Scalar>& step, const Attention<Scalar>& attn, PaddedRows<Scalar>& attn_out) {
  if (!step.visits(Point::result)) return;
  const Index T = step.mixed.rows(), C = step.mixed.cols(), D = C / attn.n_head;
  PaddedRows<Scalar> z(T, C), result(T, C);
  for (Index head = 0; head < attn.n_head; ++head) {
    z.matrix().setZero();
    z.matrix().middleCols(head * D, D) = step.mixed.matrix().middleCols(head * D, D);
    multiply(step, z, attn.c_proj.weight, destinationOf(result));
    visitCopy(step, Point::result, head, result, [&](Index row, Index column, Scalar before) {
      attn_out.row(row)[column] += result.row(row)[column] - before;
    });
  }
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
  visitHeads(step, Point::q, step.qkv, 0, H, D);
  visitHeads(step, Point::k, step.qkv, C, H, D);
  visitHeads(step, Point::v, step.qkv, 2 * C, H, D);

  Index positions = 0;  // of the largest cache, so that the room needed does not grow with the sequence
  for (const auto& segment : step.segments) positions = (std::max)(positions, segment.cache->capacity());
  step.scores.resize(step.pool.threads() * kTileRows, CacheAccess::pages(positions) * kPage + roundUpToLanes(D));
  step.mixed.resize(x.rows(), C);
  auto attend = [&](Index task, int thread) {
    const Segment<Scalar>& segment = step.segments[static_cast<std::size_t>(task / H)];
    const Index head = task % H;
    // What a row attends to is for a policy to choose when the row before it has attended.
    const Index tile_rows = CacheAccess::hasPolicy(*segment.cache) ? Index{1} : kTileRows;
    for (Index first = 0; first < segment.rows; first += tile_rows) {
      const Index rows = (std::min)(tile_rows, segment.rows - first);
      for (Index r = first; r < first + rows; ++r) {
        Scalar* q = step.qkv.row(segment.first_row + r) + head * D;
        if (r + kTileRows < segment.rows) prefetchHead(q + kTileRows * step.qkv.stride(), C, D);
        for (Index d = 0; d < D; ++d) q[d] *= attn.score_scale;
        CacheAccess::write(*segment.cache, head, segment.position + r, q + C, q + 2 * C);
      }
      attendTile(step, segment, head, first, rows, thread);
    }
  };
  const Index tasks = static_cast<Index>(step.segments.size()) * H;
  if (step.visits(Point::attn_scores) || step.visits(Point::pattern))
    for (Index task = 0; task < tasks; ++task) attend(task, 0);
  else
    step.pool.parallelFor(tasks, attend);
  step.tell(Part::attention);
  visitHeads(step, Point::z, step.mixed, 0, H, D);

  linearOut(step, step.mixed, attn.c_proj, to, step.visits(Point::result) || step.visits(Point::attn_out),
            [&](PaddedRows<Scalar>& out) {
              visitResults(step, attn, out);
              visit(step, Point::attn_out, out);
            });
  step.tell(Part::linear);
}

template <class Scalar>
void checkWidth(const Matrix<Scalar>& x, Index width) {
  if (x.rows() < 1 || x.cols() != width)
    raise<ArgumentError>({"expected x of shape [T >= 1, ", width, "], got ", shapeText({x.rows(), x.cols()})});
}

/// The step of one layer for rows x [T, C] of one sequence, by the caller's thread. Throws before anything is written
/// if they cannot be appended to a cache of n_head heads.
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
  return workspace;
}

}  // namespace detail

template <FloatingScalar Scalar>
Matrix<Scalar> attnStep(const std::type_identity_t<Matrix<Scalar>>& x, const Attention<Scalar>& attn,
                        LayerCache<Scalar>& cache) {
  Workspace<Scalar> workspace = detail::layerStep(x, attn.c_proj.weight.out(), attn.n_head, cache);
  detail::Growth<Scalar> growth(std::span(&cache, 1), x.rows());
  detail::PaddedRows<Scalar> out(x.rows(), x.cols());
  detail::attnStep(workspace.step(), detail::PaddedRows<Scalar>(x), attn, detail::destinationOf(out));
  Matrix<Scalar> result = out.matrix();
  growth.commit();
  return result;
}

}}  // namespace driftless::DRIFTLESS_ABI
