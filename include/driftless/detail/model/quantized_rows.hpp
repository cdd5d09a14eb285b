#pragma once

#include <algorithm>
#include <cstdint>

#include "driftless/detail/kernels/aligned_buffer.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/threads/thread_pool.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A matrix [rows, cols] rounded to 8 bits: each row is whole numbers times one scale, but for its outliers. See
/// quantizeRow.
template <class Scalar>
class QuantizedRows {
 public:
  /// Rounds x; groups of so many values have sums of their own. Allocates only if there was never so much room. The
  /// rows refer to x.
  void assign(const PaddedRows<Scalar>& x, Index group, ThreadPool& pool) {
    const Index groups = (x.cols() + group - 1) / group;
    const Index stride = roundUpToLanes(groups * group);
    // No more numbers can be above that many times their mean, also if it has lost some digits; and one ends the list.
    const Index outlier_stride = x.cols() / (kOutlierRatio - 1) + 1;
    values_.makeRoom(x.rows() * stride);
    sums_.makeRoom(x.rows() * groups);
    scales_.makeRoom(x.rows());
    outliers_.makeRoom(x.rows() * outlier_stride);
    rows_ = {values_.data(),   stride,         sums_.data(), groups,    scales_.data(),
             outliers_.data(), outlier_stride, x.row(0),     x.stride()};
    constexpr Index kTaskRows = 16;
    const auto quantize_row = kernels<Scalar>().quantize_row;
    pool.parallelFor((x.rows() + kTaskRows - 1) / kTaskRows, [&](Index task, int) {
      const Index end = (std::min)((task + 1) * kTaskRows, x.rows());
      for (Index row = task * kTaskRows; row < end; ++row)
        scales_.data()[row] = quantize_row(x.row(row), x.cols(), group, stride, values_.data() + row * stride,
                                           sums_.data() + row * groups, outliers_.data() + row * outlier_stride);
    });
  }

  QuantizedTile<Scalar> from(Index row) const { return rows_.from(row); }

  Index bytes() const {
    return values_.size() + (sums_.size() + outliers_.size()) * static_cast<Index>(sizeof(std::int32_t)) +
           scales_.size() * static_cast<Index>(sizeof(Scalar));
  }

 private:
  QuantizedTile<Scalar> rows_ = {};
  AlignedBuffer<std::int8_t> values_;
  AlignedBuffer<std::int32_t> sums_;
  AlignedBuffer<Scalar> scales_;
  AlignedBuffer<std::int32_t> outliers_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
