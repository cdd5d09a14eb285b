#pragma once

#include <cstddef>
#include <string_view>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// What the products with matrices are computed in. Everything else of a step, such as attention, is in Scalar.
enum class ComputeType {
  full,  ///< Scalar
  int8   ///< whole numbers: each row that enters is rounded to 8 bits with one scale, but for its outliers, which are
         ///< those above six times its mean magnitude; for weights of int8 and int4
};

/// Their names, in the order of the enumerators.
inline constexpr std::string_view kComputeTypeNames[] = {"full", "int8"};

/// The enumerator's name.
constexpr std::string_view nameOf(ComputeType type) { return kComputeTypeNames[static_cast<std::size_t>(type)]; }

}}  // namespace driftless::DRIFTLESS_ABI
