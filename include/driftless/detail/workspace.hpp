#pragma once

#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/aligned_buffer.hpp"
#include "driftless/detail/lanes.hpp"

namespace driftless::inline DRIFTLESS_ABI {
template <class Scalar, class Stored>
class LayerCache;
}

namespace driftless::inline DRIFTLESS_ABI::detail {

/// A matrix [rows, cols] whose rows are padded to whole lanes. Padding may hold anything and is never read into a
/// result.
template <class Scalar>
class Rows {
 public:
  /// Allocates only where the new shape needs more room than any before.
  void resize(Index rows, Index cols) {
    rows_ = rows;
    cols_ = cols;
    stride_ = roundUpToLanes(cols);
    if (rows * stride_ > data_.size()) data_ = AlignedBuffer<Scalar>(rows * stride_);
  }

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index stride() const { return stride_; }
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

template <class Scalar>
Rows<Scalar> rowsOf(const Matrix<Scalar>& matrix) {
  Rows<Scalar> rows;
  rows.resize(matrix.rows(), matrix.cols());
  rows.matrix() = matrix;
  return rows;
}

/// Consecutive new rows of one sequence among the rows of a step, and the layer's cache that they go on from.
template <class Scalar, class CacheStored>
struct Segment {
  LayerCache<Scalar, CacheStored>* cache;
  Index first_row;
  Index rows;
  Index sequence;  ///< which of the step's chunks
  Index position;  ///< of the first row
  const int* ids;  ///< of the rows, where a step begins with tokens
};

/// Room for the intermediate results of a step, kept between steps so that they need not allocate.
template <class Scalar, class CacheStored>
struct Workspace {
  std::vector<Segment<Scalar, CacheStored>> segments;
  Index layer = 0;             ///< which one the step is in
  std::vector<Index> lengths;  ///< of the caches before the step
  Rows<Scalar> x;              ///< [T, C] residual stream
  Rows<Scalar> normed;         ///< [T, C] LayerNorm's output
  Rows<Scalar> qkv;            ///< [T, 3C]
  Rows<Scalar> mixed;          ///< [T, C] values mixed by attention, heads side by side
  Rows<Scalar> hidden;         ///< [T, n_inner] the MLP's inside
  Rows<Scalar> scores;         ///< [threads * kTileRows, positions + D padded] attention of one tile a thread
  Rows<Scalar> last;           ///< [B, C] normed of each sequence's last row
};

}  // namespace driftless::inline DRIFTLESS_ABI::detail
