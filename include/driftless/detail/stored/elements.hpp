#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/stored/bf16.hpp"
#include "driftless/detail/stored/f16.hpp"
#include "driftless/detail/stored/int8.hpp"
#include "driftless/stored_type.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// From the stored type, known at run time, to the type of its elements: calls visit(std::type_identity<Element>()).
///
/// A stored type is an enumerator in stored_type.hpp, a line here, and a file in this folder that specialises loadLanes
/// (lanes.hpp) for its elements; and storeElements, if a cast of each number is not all that storing takes.
template <class Scalar, class Visit>
auto withElement(StoredType type, Visit visit) {
  switch (type) {
    case StoredType::f16:
      return visit(std::type_identity<Eigen::half>());
    case StoredType::bf16:
      return visit(std::type_identity<Eigen::bfloat16>());
    case StoredType::int8:
      return visit(std::type_identity<std::int8_t>());
    case StoredType::full:
      break;
  }
  return visit(std::type_identity<Scalar>());
}

template <class Scalar>
Index elementSize(StoredType type) {
  return withElement<Scalar>(type, [](auto element) { return Index{sizeof(typename decltype(element)::type)}; });
}

/// Whether elements are whole numbers, to be multiplied by a scale: one of each column of a matrix, one of each head's
/// key and of its value at each position of a cache.
constexpr bool isQuantized(StoredType type) { return type == StoredType::int8; }

/// As storePanel, for elements that are casts of the numbers.
template <class Scalar, class Element>
bool storeElements(const Scalar* values, Index in, Index width, Element* stored, float*) {
  for (Index i = 0; i < in * width; ++i) {
    stored[i] = static_cast<Element>(values[i]);
    if (std::isfinite(values[i]) && !std::isfinite(static_cast<Scalar>(stored[i]))) return false;
  }
  return true;
}

/// Stores a panel's numbers [in, width], and its columns' scales if the type has them. False if one of the numbers is
/// finite and beyond what the type can hold, or not finite where the type knows no such numbers.
template <class Scalar>
bool storePanel(const Scalar* values, Index in, Index width, StoredType stored, std::byte* panel, float* scales) {
  return withElement<Scalar>(stored, [&]<class Element>(std::type_identity<Element>) {
    return storeElements(values, in, width, reinterpret_cast<Element*>(panel), scales);
  });
}

/// Stores numbers `stride` elements apart, and their scale if the type has one: NaN if one of them is not finite.
template <class Scalar>
void storeRow(const Scalar* row, Index count, StoredType stored, std::byte* to, Index stride, float* scale) {
  withElement<Scalar>(stored, [&]<class Element>(std::type_identity<Element>) {
    Element* const elements = reinterpret_cast<Element*>(to);
    if constexpr (std::is_same_v<Element, std::int8_t>)
      *scale = quantize(row, 1, count, elements, stride);
    else
      for (Index i = 0; i < count; ++i) elements[i * stride] = static_cast<Element>(row[i]);
  });
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
