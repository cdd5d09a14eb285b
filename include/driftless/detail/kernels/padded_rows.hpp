#pragma once

#include "driftless/config.hpp"
#include "driftless/detail/kernels/aligned_buffer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A matrix [rows, cols] whose rows are padded to whole lanes. Padding may hold anything and is never read into a
/// result.
template <class Scalar>
class PaddedRows {
 public:
  PaddedRows() = default;
  PaddedRows(Index rows, Index cols) { resize(rows, cols); }
  explicit PaddedRows(const Matrix<Scalar>& other) : PaddedRows(other.rows(), other.cols()) { matrix() = other; }

  /// Allocates only if the new shape needs more room than any before.
  void resize(Index rows, Index cols) {
    rows_ = rows;
    cols_ = cols;
    stride_ = roundUpToLanes(cols);
    data_.makeRoom(rows * stride_);
  }

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index stride() const { return stride_; }
  Index bytes() const { return data_.size() * static_cast<Index>(sizeof(Scalar)); }
  Scalar* row(Index index) { return data_.data() + index * stride_; }
  const Scalar* row(Index index) const { return data_.data() + index * stride_; }

  auto matrix() { return Eigen::Map<Matrix<Scalar>, 0, Eigen::OuterStride<>>(row(0), rows_, cols_, {stride_}); }
  auto matrix() const {
    return Eigen::Map<const Matrix<Scalar>, 0, Eigen::OuterStride<>>(row(0), rows_, cols_, {stride_});
  }

 private:
  Index rows_ = 0;
  Index cols_ = 0;
  Index stride_ = 0;
  AlignedBuffer<Scalar> data_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
