#pragma once

#include <string_view>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Whose vector instructions are in use, such as avx512_vnni, avx2, sse2 or neon; the bits of all results are the same
/// with each. From the headers alone: the one that this translation unit is compiled for. Of the compiled library: the
/// best that it has kernels for and that the processor supports, unless the environment variable DRIFTLESS_KERNELS
/// names another; throws ArgumentError if there is none of that name.
std::string_view instructionSet();

#ifndef DRIFTLESS_COMPILED
inline std::string_view instructionSet() { return DRIFTLESS_TEXT(DRIFTLESS_VECTORS); }
#endif

}}  // namespace driftless::DRIFTLESS_ABI
