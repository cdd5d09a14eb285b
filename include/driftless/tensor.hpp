#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// The element types that model tensors can have, by their safetensors names; `other` may stand in files, but only for
/// tensors that the model does not need.
enum class DType { F64, F32, F16, BF16, other };

/// A row-major tensor [rows, cols] in somebody else's memory (a mapped file, an Eigen matrix), at any alignment.
/// One-dimensional tensors have one row.
struct TensorView {
  DType dtype = DType::other;                    ///< of the elements
  Index rows = 0;                                ///< 1 for a vector
  Index cols = 0;                                ///< elements in a row
  const std::byte* data = nullptr;               ///< rows * cols elements, not owned
  std::string place = {};                        ///< what error messages call it, such as its file and its name there
  std::endian byte_order = std::endian::native;  ///< of the elements; safetensors files are little-endian
};

namespace detail {

template <class Element, class Scalar>
bool convertElements(const TensorView& tensor, Index row, Index col, Index count, Scalar* out) {
  const std::byte* source = tensor.data + (row * tensor.cols + col) * static_cast<Index>(sizeof(Element));
  if constexpr (std::is_same_v<Element, Scalar>) {
    if (tensor.byte_order == std::endian::native) {
      std::memcpy(out, source, static_cast<std::size_t>(count) * sizeof(Element));
      return true;
    }
  }
  bool fits = true;
  for (Index i = 0; i < count; ++i) {
    std::byte bytes[sizeof(Element)];
    std::memcpy(bytes, source + i * static_cast<Index>(sizeof(Element)), sizeof(Element));
    if (tensor.byte_order != std::endian::native) std::reverse(bytes, bytes + sizeof(Element));
    Element element;
    std::memcpy(&element, bytes, sizeof(Element));
    out[i] = static_cast<Scalar>(element);
    if constexpr (sizeof(Element) > sizeof(Scalar)) fits = fits && (std::isfinite(out[i]) || !std::isfinite(element));
  }
  return fits;
}

}  // namespace detail

/// Writes `count` elements of one row, from column `col` on and converted to Scalar, to `out`. False if one of them is
/// finite and beyond Scalar's range. Throws ArgumentError for elements that the tensor does not have, or whose dtype is
/// `other`.
template <FloatingScalar Scalar>
bool readElements(const TensorView& tensor, Index row, Index col, Index count, Scalar* out) {
  if (row < 0 || row >= tensor.rows || col < 0 || count < 0 || count > tensor.cols - col || tensor.data == nullptr)
    detail::raise<ArgumentError>({"readElements: expected elements of a tensor of shape ",
                                  detail::shapeText({tensor.rows, tensor.cols}), ", got ", count, " in row ", row,
                                  " from column ", col, " on"});
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
      detail::raise<ArgumentError>({"readElements: expected dtype F64, F32, F16 or BF16, got other"});
  }
  return false;
}

}}  // namespace driftless::DRIFTLESS_ABI
