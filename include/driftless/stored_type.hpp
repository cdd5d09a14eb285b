#pragma once

#include <cstddef>
#include <string_view>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// What numbers are stored as in memory. Arithmetic is always done in Scalar; storing weights or keys and values in
/// fewer bits makes them smaller and faster to read, and rounds them once, when they are stored. How each is laid out
/// and widened is in detail/stored/.
enum class StoredType {
  full,  ///< Scalar itself: nothing is rounded
  f16,   ///< IEEE half precision
  bf16,  ///< the upper half of a float
  int8,  ///< whole numbers with one scale per column of a matrix, or per head and position of keys and of values
  int4   ///< whole numbers from -8 to 7 with one f16 scale for every 32 inputs of a column; for weights only
};

/// Their names, in the order of the enumerators.
inline constexpr std::string_view kStoredTypeNames[] = {"full", "f16", "bf16", "int8", "int4"};

/// The enumerator's name.
constexpr std::string_view nameOf(StoredType type) { return kStoredTypeNames[static_cast<std::size_t>(type)]; }

}}  // namespace driftless::DRIFTLESS_ABI
