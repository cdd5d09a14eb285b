#pragma once

#include <cmath>
#include <string_view>
#include <type_traits>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/error.hpp"
#include "driftless/tensor.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Whether a number from a file is in memory what it is in the file, but for rounding.
template <class Scalar>
bool canHold(StoredType stored, double number) {
  if (stored == StoredType::int8) return std::isfinite(static_cast<float>(number));
  if (stored == StoredType::int4) return std::abs(number) <= kInt4Largest;
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
