#pragma once

#include <utility>

#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/kernels/tiles.hpp"
#include "driftless/detail/stored/elements.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// Asks for the cache lines of a row of Width numbers that is to come, four kilobytes on.
template <Index Width, class Element>
EIGEN_STRONG_INLINE void prefetchRow(const Element* row) {
  constexpr Index kBytes = Width * static_cast<Index>(sizeof(Element));
  for (Index i = 0; i < kBytes; i += kCacheLine) prefetch(row, 4096 + i);
}

/// Sums that are in registers while they are added to.
template <int Rows, int Groups, class Scalar>
struct Tile {
  Lanes<Scalar> sum[std::size_t{Rows}][std::size_t{Groups}];

  EIGEN_STRONG_INLINE Tile(const Scalar* sums, Index stride) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g) sum[r][g] = Lanes<Scalar>::load(sums + r * stride + g * kLanes);
  }

  /// One row of a panel, multiplied by one number of each row of x.
  EIGEN_STRONG_INLINE void add(const Scalar* x, Index x_stride, const Lanes<Scalar> (&weight)[std::size_t{Groups}]) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Lanes<Scalar> factor = Lanes<Scalar>::broadcast(x[r * x_stride]);
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g) sum[r][g] = fusedMultiplyAdd(factor, weight[g], sum[r][g]);
    }
  }

  EIGEN_STRONG_INLINE void store(Scalar* sums, Index stride) const {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g) sum[r][g].store(sums + r * stride + g * kLanes);
  }
};

/// sums[r][c] += x[r][0] * panel[0][c] + x[r][1] * panel[1][c] + ..., for Rows rows and Groups * kLanes columns.
/// However many rows and columns a call covers, an element is one accumulator that takes its terms in ascending order,
/// one fused multiply-add each: its bits don't depend on the company it is computed in.
template <int Rows, int Groups, class Scalar, class Element>
EIGEN_STRONG_INLINE void multiplyTile(const Scalar* x, Index x_stride, const Element* panel, Index panel_stride,
                                      Index in, Scalar* sums, Index sums_stride) {
  Tile<Rows, Groups, Scalar> tile(sums, sums_stride);
  for (Index k = 0; k < in; ++k) {
    // The processor's own prefetching suffices for one row of wide numbers, which is bound by memory. It falls behind
    // if a row of the panel has few lines, and if the panel comes from the second-level cache.
    if constexpr (Rows > 1 || sizeof(Element) < sizeof(Scalar)) prefetchRow<Groups * kLanes>(panel + k * panel_stride);
    Lanes<Scalar> weight[std::size_t{Groups}];
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) weight[g] = loadLanes<Scalar>(panel + k * panel_stride + g * kLanes);
    tile.add(x + k, x_stride, weight);
  }
  tile.store(sums, sums_stride);
}

/// The same for a panel of StoredType::int4, from one of its columns on. What is multiplied is a number times its
/// scale, which is exact.
template <int Rows, int Groups, class Scalar>
EIGEN_STRONG_INLINE void multiplyInt4Tile(const Scalar* x, Index x_stride, const std::byte* panel, Index width,
                                          Index column, Index in, Scalar* sums, Index sums_stride) {
  Tile<Rows, Groups, Scalar> tile(sums, sums_stride);
  for (Index first = 0; first < in; first += kInt4Octet) {
    const Int4Octet octet(panel, width, first, column);
    prefetchRow<Groups * kLanes * 4>(octet.nibbles);
    Lanes<Scalar> scale[std::size_t{Groups}];
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) scale[g] = loadLanes<Scalar>(octet.scales + g * kLanes);
#pragma GCC unroll 8
    for (int row = 0; row < kInt4Octet; ++row) {
      if (first + row == in) break;
      Lanes<Scalar> weight[std::size_t{Groups}];
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g)
        weight[g] = product(loadNibbles<Scalar>(octet.nibbles + g * kLanes * 4, row), scale[g]);
      tile.add(x + first + row, x_stride, weight);
    }
  }
  tile.store(sums, sums_stride);
}

/// sums [rows, width] += x [rows, in] * panel [in, width], for 1 to kTileRows rows and a width that is a multiple of
/// kLanes, up to kPanelWidth. Strides are in numbers; int4's panels have no other than their width. See multiplyTile.
template <class Scalar>
void multiplyPanel(Index rows, const Scalar* x, Index x_stride, StoredType stored, const std::byte* panel,
                   Index panel_stride, Index width, Index in, Scalar* sums, Index sums_stride) {
  constexpr int kWideGroups = kPanelWidth / kLanes;
  // As many accumulators as fit into the registers: 24 of AVX-512's 32, 12 of AVX2's 16.
  constexpr int kGroups = Lanes<Scalar>::kPackets == 1 ? kWideGroups : 1;
  constexpr int kMostRows = static_cast<int>(kTileRows);
  if (stored == StoredType::int4)
    return forEachTile<kMostRows, kGroups>(rows, width, [=]<int Rows, int Groups>(Index, Index column) {
      multiplyInt4Tile<Rows, Groups>(x, x_stride, panel, width, column, in, sums + column, sums_stride);
    });
  withElement<Scalar>(stored, [=]<class Element>(std::type_identity<Element>) {
    const Element* const elements = reinterpret_cast<const Element*>(panel);
    if (rows == 1 && width == kPanelWidth)
      return multiplyTile<1, kWideGroups>(x, x_stride, elements, panel_stride, in, sums, sums_stride);
    forEachTile<kMostRows, kGroups>(rows, width, [=]<int Rows, int Groups>(Index, Index column) {
      multiplyTile<Rows, Groups>(x, x_stride, elements + column, panel_stride, in, sums + column, sums_stride);
    });
  });
}

/// Writes the numbers of a panel [in, width] that is not packed for products in whole numbers alone as they are
/// multiplied, but for the scales of whole columns.
template <class Scalar>
void widenPanel(StoredType stored, const std::byte* panel, Index width, Index in, Scalar* numbers) {
  if (stored == StoredType::int4) {
    for (Index row = 0; row < in; ++row)
      for (Index column = 0; column < width; column += kLanes)
        loadInt4<Scalar>(panel, width, row, column).store(numbers + row * width + column);
    return;
  }
  withElement<Scalar>(stored, [=]<class Element>(std::type_identity<Element>) {
    const Element* const elements = reinterpret_cast<const Element*>(panel);
    for (Index i = 0; i < in * width; i += kLanes) loadLanes<Scalar>(elements + i).store(numbers + i);
  });
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
