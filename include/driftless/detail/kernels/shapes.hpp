#pragma once

#include <cstddef>
#include <cstdint>

#include "driftless/config.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Element-wise arithmetic is done sixteen numbers at a time on every machine, and all padding is to sixteen. How many
/// registers that takes differs (one of AVX-512, four of NEON); the numbers do not.
inline constexpr Index kLanes = 16;

constexpr Index roundUpToLanes(Index count) { return (count + kLanes - 1) / kLanes * kLanes; }

inline constexpr std::ptrdiff_t kCacheLine = 64;

/// Asks for the cache line `bytes` after an address, which will be read. It may lie beyond the memory, where no pointer
/// may be made to point: hence integers.
EIGEN_STRONG_INLINE void prefetch([[maybe_unused]] const void* from, [[maybe_unused]] std::ptrdiff_t bytes) {
#if defined(__GNUC__)
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(bytes)));
#endif
}

/// Columns of a panel, and positions of a page of keys and values: as many as a kernel walks side by side.
inline constexpr Index kPanelWidth = 64;

/// Rows that share one pass over a panel.
inline constexpr Index kTileRows = 6;

/// How many multiply-adds multiplyAddChains does.
inline constexpr Index kChainedMultiplyAdds = (Index{12} << 18) * kLanes;

}}}  // namespace driftless::DRIFTLESS_ABI::detail
