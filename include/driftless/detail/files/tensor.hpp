#pragma once

#include <cstring>

#include "driftless/tensor.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

template <class Element, class Scalar>
void convertElements(const TensorView& tensor, Index row, Index col, Index count, Scalar* out) {
  const std::byte* source = tensor.data + (row * tensor.cols + col) * static_cast<Index>(sizeof(Element));
  for (Index i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, source + i * static_cast<Index>(sizeof(Element)), sizeof(Element));
    out[i] = static_cast<Scalar>(element);
  }
}

}  // namespace detail

template <FloatingScalar Scalar>
void readElements(const TensorView& tensor, Index row, Index col, Index count, Scalar* out) {
  switch (tensor.dtype) {
    case DType::F64:
      return detail::convertElements<double>(tensor, row, col, count, out);
    case DType::F32:
      return detail::convertElements<float>(tensor, row, col, count, out);
    case DType::F16:
      return detail::convertElements<Eigen::half>(tensor, row, col, count, out);
    case DType::BF16:
      return detail::convertElements<Eigen::bfloat16>(tensor, row, col, count, out);
    case DType::other:
      break;
  }
}

}}  // namespace driftless::DRIFTLESS_ABI
