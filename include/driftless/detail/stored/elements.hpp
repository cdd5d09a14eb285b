#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/stored/bf16.hpp"
#include "driftless/detail/stored/f16.hpp"
#include "driftless/detail/stored/int8.hpp"
#include "driftless/error.hpp"
#include "driftless/stored_type.hpp"
#include "driftless/tensor.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// From the stored type, known at run time, to the type of its elements: calls visit(std::type_identity<Element>()).
///
/// A stored type is an enumerator in stored_type.hpp, a line here, and a file in this folder that specialises loadLanes
/// (lanes.hpp) for its elements; and storePanel, if a cast of each number is not all that storing takes.
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

/// Whether elements are whole numbers, to be multiplied by a scale of their column.
constexpr bool isQuantized(StoredType type) { return type == StoredType::int8; }

/// Stores a panel's numbers [in, width]. False if one of them is finite and beyond what an element can hold.
template <class Scalar, class Element>
bool storePanel(const Scalar* values, Index in, Index width, Element* stored, float*) {
  for (Index i = 0; i < in * width; ++i) {
    stored[i] = static_cast<Element>(values[i]);
    if (std::isfinite(values[i]) && !std::isfinite(static_cast<Scalar>(stored[i]))) return false;
  }
  return true;
}

/// Whether a number from a file is in memory what it is in the file, but for rounding.
template <class Scalar>
bool canHold(StoredType stored, double number) {
  if (isQuantized(stored)) return std::isfinite(static_cast<float>(number));
  return withElement<Scalar>(stored, [&]<class Element>(std::type_identity<Element>) {
    const Element element = static_cast<Element>(static_cast<Scalar>(number));
    return !std::isfinite(number) || std::isfinite(static_cast<Scalar>(element));
  });
}

/// The error about a tensor that has a number which cannot be held.
template <class Scalar>
[[noreturn]] void raiseBeyondType(const TensorView& tensor, StoredType stored) {
  const std::string_view type = stored != StoredType::full      ? nameOf(stored)
                                : std::is_same_v<Scalar, float> ? "float"
                                                                : "double";
  for (Index row = 0; row < tensor.rows; ++row)
    for (Index col = 0; col < tensor.cols; ++col) {
      double number = 0;
      readElements(tensor, row, col, 1, &number);
      if (!canHold<Scalar>(stored, number))
        raise<ArgumentError>({tensor.place, ": expected numbers that ", type, " can hold, found ", number, " at ",
                              shapeText({row, col})});
    }
  raise<ArgumentError>({tensor.place, ": changed while it was read"});
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
