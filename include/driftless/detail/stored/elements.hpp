#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "driftless/compute_type.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/stored/bf16.hpp"
#include "driftless/detail/stored/f16.hpp"
#include "driftless/detail/stored/int4.hpp"
#include "driftless/detail/stored/int8.hpp"
#include "driftless/stored_type.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// How the numbers of a panel lie in memory.
enum class Packing {
  elements,    ///< row after row, of the stored type's elements
  int8_quads,  ///< see storeInt8Quads
  int4_groups  ///< see storeInt4
};

constexpr Packing packingOf(StoredType stored, ComputeType compute) {
  if (stored == StoredType::int4) return Packing::int4_groups;
  return compute == ComputeType::int8 ? Packing::int8_quads : Packing::elements;
}

/// From the stored type, known at run time, to the type of its elements: calls visit(std::type_identity<Element>()).
///
/// A stored type is an enumerator in stored_type.hpp, a line here, and a file in this folder that specialises loadLanes
/// (lanes.hpp) for its elements, and storeLanes if a cast of each is slow; and storeElements, if a cast of each number
/// is not all that storing takes. Those that are not elements in rows have a Packing of their own.
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
    case StoredType::int4:  // has no elements
      break;
  }
  return visit(std::type_identity<Scalar>());
}

template <class Scalar>
Index elementSize(StoredType type) {
  return withElement<Scalar>(type, [](auto element) { return Index{sizeof(typename decltype(element)::type)}; });
}

/// What a column of `in` numbers takes in a panel.
template <class Scalar>
Index columnBytes(Index in, StoredType stored, ComputeType compute) {
  switch (packingOf(stored, compute)) {
    case Packing::int8_quads:
      return roundUpToQuads(in);
    case Packing::int4_groups:
      return (in + kInt4Group - 1) / kInt4Group * kInt4GroupBytes;
    case Packing::elements:
      break;
  }
  return in * elementSize<Scalar>(stored);
}

/// Whether numbers are stored as whole ones, to be multiplied by a scale.
constexpr bool isQuantized(StoredType type) { return type == StoredType::int8 || type == StoredType::int4; }

/// Whether that scale is one of each whole column of a matrix.
constexpr bool hasColumnScales(StoredType type) { return type == StoredType::int8; }

/// As storePanel, for elements that are casts of the numbers.
template <class Scalar, class Element>
bool storeElements(const Scalar* values, Index in, Index width, Element* stored, float*) {
  if constexpr (std::is_same_v<Element, Scalar>) {
    std::copy_n(values, in * width, stored);
    return true;
  } else {
    using L = Lanes<Scalar>;
    const L zero = L::broadcast(Scalar(0));
    L faults = zero;  // NaN where a finite number is stored as infinity
    for (Index i = 0; i < in * width; i += kLanes) {
      storeLanes(values + i, stored + i);
      const L number = L::load(values + i), kept = loadLanes<Scalar>(stored + i);
      faults = faults + selectNaN(zeroIfFinite(number), zero, zeroIfFinite(kept));
    }
    return !std::isnan(sumOfLanes(faults));
  }
}

/// Stores a panel's numbers [in, width], and its columns' scales if the type has them. False if one of the numbers is
/// finite and beyond what the type can hold, or not finite where the type knows no such numbers.
template <class Scalar>
bool storePanel(const Scalar* values, Index in, Index width, StoredType stored, ComputeType compute, std::byte* panel,
                float* scales) {
  const Packing packing = packingOf(stored, compute);
  if (packing == Packing::int4_groups) return storeInt4(values, in, width, panel);
  if (packing == Packing::int8_quads) return storeInt8Quads(values, in, width, panel, scales);
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
      *scale = storeInt8Row(row, count, elements, stride);
    else
      for (Index i = 0; i < count; ++i) elements[i * stride] = static_cast<Element>(row[i]);
  });
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
