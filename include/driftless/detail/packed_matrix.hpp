#pragma once

#include <algorithm>

#include "driftless/config.hpp"
#include "driftless/detail/aligned_buffer.hpp"
#include "driftless/detail/lanes.hpp"

namespace driftless::detail {

/// Columns that a kernel walks side by side.
inline constexpr Index kPanelWidth = 64;

/// Rows that share one pass over a panel.
inline constexpr Index kTileRows = 6;

/// A matrix [in, out] cut into panels of columns, each panel stored row after row, so that multiplying streams through
/// memory once. Panels are kPanelWidth columns wide; what is left over is in panels of kLanes columns, the last of them
/// padded with zeros.
template <class Stored>
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(Index in, Index out) : in_(in), out_(out), data_(in * roundUpToLanes(out)) {
    const Index padding = roundUpToLanes(out) - out;
    if (padding > 0)
      for (Index row = 0; row < in; ++row) std::fill_n(&element(row, out), padding, Stored(0));
  }

  Index in() const { return in_; }
  Index out() const { return out_; }
  Index bytes() const { return data_.size() * static_cast<Index>(sizeof(Stored)); }

  Index panels() const { return widePanels() + (roundUpToLanes(out_) - widePanels() * kPanelWidth) / kLanes; }
  Index panelColumn(Index panel) const {
    return panel < widePanels() ? panel * kPanelWidth : widePanels() * kPanelWidth + (panel - widePanels()) * kLanes;
  }
  Index panelWidth(Index panel) const { return panel < widePanels() ? kPanelWidth : kLanes; }
  const Stored* panel(Index panel) const { return data_.data() + panelColumn(panel) * in_; }

  Stored& element(Index row, Index column) { return data_.data()[offset(row, column)]; }
  const Stored& element(Index row, Index column) const { return data_.data()[offset(row, column)]; }

 private:
  Index widePanels() const { return roundUpToLanes(out_) / kPanelWidth; }
  Index offset(Index row, Index column) const {
    const bool wide = column < widePanels() * kPanelWidth;
    const Index width = wide ? kPanelWidth : kLanes;
    const Index first = column / width * width;
    return first * in_ + row * width + (column - first);
  }

  Index in_ = 0;
  Index out_ = 0;
  AlignedBuffer<Stored> data_;
};

/// Sixteen stored numbers, widened to the type of arithmetic.
template <class Scalar>
EIGEN_STRONG_INLINE Lanes<Scalar> loadLanes(const Scalar* from) {
  return Lanes<Scalar>::load(from);
}

/// sums[r][c] += x[r][0] * panel[0][c] + x[r][1] * panel[1][c] + ..., for Rows rows and Groups * kLanes columns.
/// However many rows and columns a call covers, an element is one accumulator that takes its terms in ascending order,
/// one fused multiply-add each: its bits don't depend on the company it is computed in.
template <int Rows, int Groups, class Scalar, class Stored>
EIGEN_STRONG_INLINE void multiplyTile(const Scalar* x, Index x_stride, const Stored* panel, Index panel_stride,
                                      Index in, Scalar* sums, Index sums_stride) {
  Lanes<Scalar> sum[Rows][Groups];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) sum[r][g] = Lanes<Scalar>::load(sums + r * sums_stride + g * kLanes);
  for (Index k = 0; k < in; ++k) {
    Lanes<Scalar> weight[Groups];
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) weight[g] = loadLanes<Scalar>(panel + k * panel_stride + g * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Lanes<Scalar> factor = Lanes<Scalar>::broadcast(x[r * x_stride + k]);
#pragma GCC unroll 8
      for (int g = 0; g < Groups; ++g) sum[r][g] = fusedMultiplyAdd(factor, weight[g], sum[r][g]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) sum[r][g].store(sums + r * sums_stride + g * kLanes);
}

template <int Groups, class Scalar, class Stored>
void multiplyColumns(Index rows, const Scalar* x, Index x_stride, const Stored* panel, Index panel_stride, Index in,
                     Scalar* sums, Index sums_stride) {
  const auto tile = [&]<int Rows>() {
    multiplyTile<Rows, Groups>(x, x_stride, panel, panel_stride, in, sums, sums_stride);
  };
  switch (rows) {
    case 1:
      return tile.template operator()<1>();
    case 2:
      return tile.template operator()<2>();
    case 3:
      return tile.template operator()<3>();
    case 4:
      return tile.template operator()<4>();
    case 5:
      return tile.template operator()<5>();
    case 6:
      return tile.template operator()<6>();
  }
}

/// sums [rows, width] += x [rows, in] * panel [in, width], for 1 to kTileRows rows and a width that is a multiple of
/// kLanes. See multiplyTile.
template <class Scalar, class Stored>
void multiplyPanel(Index rows, const Scalar* x, Index x_stride, const Stored* panel, Index width, Index in,
                   Scalar* sums, Index sums_stride) {
  constexpr int kWideGroups = kPanelWidth / kLanes;
  // As many accumulators as fit into the registers: 24 of AVX-512's 32, 12 of AVX2's 16.
  constexpr int kGroups = Lanes<Scalar>::kPackets == 1 ? kWideGroups : 1;
  if (rows == 1 && width == kPanelWidth)
    return multiplyTile<1, kWideGroups>(x, x_stride, panel, width, in, sums, sums_stride);
  Index column = 0;
  for (; column + kGroups * kLanes <= width; column += kGroups * kLanes)
    multiplyColumns<kGroups>(rows, x, x_stride, panel + column, width, in, sums + column, sums_stride);
  for (; column < width; column += kLanes)
    multiplyColumns<1>(rows, x, x_stride, panel + column, width, in, sums + column, sums_stride);
}

}  // namespace driftless::detail
