#pragma once

#include <cstddef>
#include <cstring>

#include "driftless/config.hpp"

namespace driftless {

/// The element types that model tensors can have, by their safetensors names; `other` may stand in files, but only for
/// tensors that the model does not need.
enum class DType { F64, F32, F16, BF16, other };

/// A row-major tensor [rows, cols] in somebody else's memory (a mapped file, an Eigen matrix), at any alignment.
/// One-dimensional tensors have one row.
struct TensorView {
  DType dtype = DType::other;
  Index rows = 0;
  Index cols = 0;
  const std::byte* data = nullptr;
};

namespace detail {

template <class Element, class Scalar>
void convertRow(const TensorView& tensor, Index row, Scalar* out) {
  const std::byte* source = tensor.data + row * tensor.cols * static_cast<Index>(sizeof(Element));
  for (Index col = 0; col < tensor.cols; ++col) {
    Element element;
    std::memcpy(&element, source + col * static_cast<Index>(sizeof(Element)), sizeof(Element));
    out[col] = static_cast<Scalar>(element);
  }
}

}  // namespace detail

/// Writes one row of the tensor, `cols` elements converted to Scalar, to `out`. The dtype must not be `other`.
template <class Scalar>
void readRow(const TensorView& tensor, Index row, Scalar* out) {
  switch (tensor.dtype) {
    case DType::F64:
      return detail::convertRow<double>(tensor, row, out);
    case DType::F32:
      return detail::convertRow<float>(tensor, row, out);
    case DType::F16:
      return detail::convertRow<Eigen::half>(tensor, row, out);
    case DType::BF16:
      return detail::convertRow<Eigen::bfloat16>(tensor, row, out);
    case DType::other:
      break;
  }
}

}  // namespace driftless
