#pragma once

#include <cstdint>

#include "driftless/detail/kernels/aligned_buffer.hpp"
#include "driftless/detail/kernels/quantized_tile.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A matrix [rows, cols] rounded to 8 bits: each row is whole numbers times one scale, its largest magnitude over 127.
template <class Scalar>
class QuantizedRows {
 public:
  /// Groups of so many values have sums of their own. Allocates only if there was never so much room.
  void resize(Index rows, Index cols, Index group) {
    group_ = group;
    groups_ = (cols + group - 1) / group;
    stride_ = roundUpToLanes(groups_ * group);
    values_.makeRoom(rows * stride_);
    sums_.makeRoom(rows * groups_);
    scales_.makeRoom(rows);
  }

  Index group() const { return group_; }
  Index stride() const { return stride_; }
  std::int8_t* values(Index row) { return values_.data() + row * stride_; }
  std::int32_t* sums(Index row) { return sums_.data() + row * groups_; }
  Scalar& scale(Index row) { return scales_.data()[row]; }

  QuantizedTile<Scalar> tile(Index row) const {
    return {values_.data() + row * stride_, stride_, sums_.data() + row * groups_, groups_, scales_.data() + row};
  }

  Index bytes() const {
    return values_.size() + sums_.size() * static_cast<Index>(sizeof(std::int32_t)) +
           scales_.size() * static_cast<Index>(sizeof(Scalar));
  }

 private:
  Index group_ = 0;
  Index groups_ = 0;
  Index stride_ = 0;
  AlignedBuffer<std::int8_t> values_;
  AlignedBuffer<std::int32_t> sums_;
  AlignedBuffer<Scalar> scales_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
