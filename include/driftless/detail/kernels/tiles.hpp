#pragma once

#include "driftless/detail/kernels/shapes.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Calls tile<Rows>() for 1 to MostRows rows.
template <int MostRows, class Tile>
EIGEN_STRONG_INLINE void withRows(Index rows, const Tile& tile) {
  if (rows == MostRows)
    tile.template operator()<MostRows>();
  else if constexpr (MostRows > 1)
    withRows<MostRows - 1>(rows, tile);
}

/// Covers rows and columns, a multiple of kLanes, with tiles of up to MostRows rows and Groups * kLanes columns: calls
/// tile<Rows, Groups>(row, column).
template <int MostRows, int Groups, class Tile>
EIGEN_STRONG_INLINE void forEachTile(Index rows, Index columns, const Tile& tile) {
  for (Index row = 0; row < rows; row += MostRows)
    withRows<MostRows>((rows - row < MostRows ? rows - row : MostRows), [&]<int Rows>() {
      Index column = 0;
      for (; column + Groups * kLanes <= columns; column += Groups * kLanes)
        tile.template operator()<Rows, Groups>(row, column);
      if constexpr (Groups > 1)
        for (; column < columns; column += kLanes) tile.template operator()<Rows, 1>(row, column);
    });
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
