#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/observer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Rows of one sequence that an observer may write, the first of a token at `position`.
template <class Scalar>
void visit(const Step<Scalar>& step, Point point, Index sequence, Index position, Index head,
           const Eigen::Map<Matrix<Scalar>, 0, Eigen::OuterStride<>>& rows) {
  PointValues<Scalar> values{point, isInLayer(point) ? step.layer : 0, head, sequence, position, rows};
  step.observer->visit(values);
}

/// One head's part of a segment's rows, from a column on; or all of it.
template <class Scalar>
void visit(const Step<Scalar>& step, Point point, const Segment<Scalar>& segment, Index head, PaddedRows<Scalar>& rows,
           Index column, Index width) {
  visit(step, point, segment.sequence, segment.position, head,
        {rows.row(segment.first_row) + column, segment.rows, width, Eigen::OuterStride<>(rows.stride())});
}

/// The rows of all segments, if an observer is to see them.
template <class Scalar>
void visit(const Step<Scalar>& step, Point point, PaddedRows<Scalar>& rows) {
  if (!step.visits(point)) return;
  for (const Segment<Scalar>& segment : step.segments) visit(step, point, segment, 0, rows, 0, rows.cols());
}

/// The same of heads that lie side by side, from a column on.
template <class Scalar>
void visitHeads(const Step<Scalar>& step, Point point, PaddedRows<Scalar>& rows, Index column, Index heads, Index D) {
  if (!step.visits(point)) return;
  for (const Segment<Scalar>& segment : step.segments)
    for (Index head = 0; head < heads; ++head) visit(step, point, segment, head, rows, column + head * D, D);
}

template <class Scalar>
bool hasSameBits(Scalar a, Scalar b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// The rows of all segments that a step does not compute by themselves, or not with these bits: what is written is for
/// changed(row, column, its value before) to carry over.
template <class Scalar, class Changed>
void visitCopy(const Step<Scalar>& step, Point point, Index head, PaddedRows<Scalar>& rows, Changed changed) {
  if (!step.visits(point)) return;
  PaddedRows<Scalar> before(rows.rows(), rows.cols());
  before.matrix() = rows.matrix();
  for (const Segment<Scalar>& segment : step.segments) visit(step, point, segment, head, rows, 0, rows.cols());
  for (Index row = 0; row < before.rows(); ++row)
    for (Index column = 0; column < before.cols(); ++column)
      if (!hasSameBits(before.row(row)[column], rows.row(row)[column])) changed(row, column, before.row(row)[column]);
}

/// One head's row over the keys that it keeps, `numbers` [keys], shown as one over all positions, with `absent` where
/// it keeps none. Whether something was written, which is in `numbers` then.
template <class Scalar>
bool visitKeys(const Step<Scalar>& step, Point point, const Segment<Scalar>& segment, Index head, Index position,
               Scalar absent, std::vector<Scalar>& numbers) {
  std::vector<Scalar> shown(static_cast<std::size_t>(position) + 1, absent);
  const auto place = [&](std::size_t key) -> Scalar& {
    return shown[static_cast<std::size_t>(CacheAccess::positionAt(*segment.cache, head, static_cast<Index>(key)))];
  };
  for (std::size_t key = 0; key < numbers.size(); ++key) place(key) = numbers[key];
  visit(step, point, segment.sequence, position, head,
        {shown.data(), 1, position + 1, Eigen::OuterStride<>(position + 1)});
  bool is_written = false;
  for (std::size_t key = 0; key < numbers.size(); ++key) {
    is_written = is_written || !hasSameBits(numbers[key], place(key));
    numbers[key] = place(key);
  }
  return is_written;
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
