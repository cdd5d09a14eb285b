#pragma once

#include <cstddef>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// The element types that model tensors can have, by their safetensors names; `other` may stand in files, but only for
/// tensors that the model does not need.
enum class DType { F64, F32, F16, BF16, other };

/// A row-major tensor [rows, cols] in somebody else's memory (a mapped file, an Eigen matrix), at any alignment.
/// One-dimensional tensors have one row.
struct TensorView {
  DType dtype = DType::other;       ///< of the elements
  Index rows = 0;                   ///< 1 for a vector
  Index cols = 0;                   ///< elements in a row
  const std::byte* data = nullptr;  ///< rows * cols elements, not owned
};

/// Writes `count` elements of one row, from column `col` on and converted to Scalar, to `out`. The dtype must not be
/// `other`.
template <FloatingScalar Scalar>
void readElements(const TensorView& tensor, Index row, Index col, Index count, Scalar* out);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/files/tensor.hpp"
#endif
