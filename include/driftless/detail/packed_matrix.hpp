#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/aligned_buffer.hpp"
#include "driftless/detail/lanes.hpp"
#include "driftless/detail/thread_pool.hpp"
#include "driftless/detail/widen.hpp"

namespace driftless::inline DRIFTLESS_ABI::detail {

/// Columns that a kernel walks side by side.
inline constexpr Index kPanelWidth = 64;

/// Rows that share one pass over a panel.
inline constexpr Index kTileRows = 6;

/// Whether weights of this type are whole numbers, to be multiplied by a scale of their column.
template <class Stored>
inline constexpr bool kIsQuantized = std::is_integral_v<Stored>;

/// A matrix [in, out] cut into panels of columns, each panel stored row after row, so that multiplying streams through
/// memory once. Panels are kPanelWidth columns wide; what is left over is in panels of kLanes columns, the last of them
/// padded with zeros.
///
/// Stored is a floating-point type, or int8: then a column is its whole numbers times one scale, the column's largest
/// magnitude over 127 (symmetric quantisation, no zero point).
template <class Stored>
class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Uninitialised, in memory cut from an arena.
  PackedMatrix(Index in, Index out, Arena& arena)
      : in_(in), out_(out), data_(in * roundUpToLanes(out), arena), scale_(scales(out), arena) {}

  /// What it takes up in the arena.
  static Index bytesFor(Index in, Index out) {
    return Arena::bytesFor<Stored>(in * roundUpToLanes(out)) + Arena::bytesFor<float>(scales(out));
  }

  Index in() const { return in_; }
  Index out() const { return out_; }
  Index bytes() const {
    return data_.size() * static_cast<Index>(sizeof(Stored)) + scale_.size() * static_cast<Index>(sizeof(float));
  }

  Index panels() const { return widePanels() + (roundUpToLanes(out_) - widePanels() * kPanelWidth) / kLanes; }
  Index panelColumn(Index panel) const {
    return panel < widePanels() ? panel * kPanelWidth : widePanels() * kPanelWidth + (panel - widePanels()) * kLanes;
  }
  Index panelWidth(Index panel) const { return panel < widePanels() ? kPanelWidth : kLanes; }
  const Stored* panel(Index panel) const { return data_.data() + panelColumn(panel) * in_; }

  /// Stores a panel's numbers [in, panelWidth]. False where one of them is beyond what Stored can hold.
  template <class Scalar>
  bool setPanel(Index panel, const Scalar* values) {
    Stored* stored = data_.data() + panelColumn(panel) * in_;
    const Index width = panelWidth(panel);
    if constexpr (kIsQuantized<Stored>) {
      for (Index column = 0; column < width; ++column)
        if (!quantizeColumn(values + column, width, stored + column, scale_.data()[panelColumn(panel) + column]))
          return false;
    } else {
      for (Index i = 0; i < in_ * width; ++i) {
        stored[i] = static_cast<Stored>(values[i]);
        if (std::isfinite(values[i]) && !std::isfinite(static_cast<Scalar>(stored[i]))) return false;
      }
    }
    return true;
  }

  /// The stored number, which is still to be multiplied by its column's scale.
  const Stored& element(Index row, Index column) const {
    const bool wide = column < widePanels() * kPanelWidth;
    const Index width = wide ? kPanelWidth : kLanes;
    const Index first = column / width * width;
    return data_.data()[first * in_ + row * width + (column - first)];
  }

  /// Scales of the columns, padded to whole lanes; only where the type is quantized.
  const float* scale() const { return scale_.data(); }

 private:
  static Index scales(Index out) { return kIsQuantized<Stored> ? roundUpToLanes(out) : Index{0}; }
  Index widePanels() const { return roundUpToLanes(out_) / kPanelWidth; }

  template <class Scalar>
  bool quantizeColumn(const Scalar* values, Index stride, Stored* stored, float& scale) const {
    constexpr float kLargest = (std::numeric_limits<Stored>::max)();
    float largest = 0;
    for (Index row = 0; row < in_; ++row) {
      const float magnitude = std::abs(static_cast<float>(values[row * stride]));
      if (!std::isfinite(magnitude)) return false;
      largest = (std::max)(largest, magnitude);
    }
    scale = largest / kLargest;
    for (Index row = 0; row < in_; ++row) {
      const float whole = scale > 0 ? std::nearbyint(static_cast<float>(values[row * stride]) / scale) : 0.0f;
      stored[row * stride] = static_cast<Stored>(std::clamp(whole, -kLargest, kLargest));
    }
    return true;
  }

  Index in_ = 0;
  Index out_ = 0;
  AlignedBuffer<Stored> data_;
  AlignedBuffer<float> scale_;
};

/// What matrix column `column` and those after it give: addend + sums, or addend + scale * sums.
template <class Scalar, class Stored>
EIGEN_STRONG_INLINE Lanes<Scalar> addScaled(const PackedMatrix<Stored>& matrix, Index column, const Lanes<Scalar>& sums,
                                            const Lanes<Scalar>& addend) {
  if constexpr (kIsQuantized<Stored>)
    return fusedMultiplyAdd(sums, loadLanes<Scalar>(matrix.scale() + column), addend);
  else
    return sums + addend;
}

/// Fills a matrix panel by panel: read(column, width, block) writes the numbers of columns [column, column + width) to
/// block [in, width], zeros for padding. False where a number is beyond what Stored can hold.
template <class Scalar, class Stored, class Read>
bool packPanels(PackedMatrix<Stored>& matrix, ThreadPool& pool, Read read) {
  std::atomic<bool> fits = true;
  pool.parallelFor(matrix.panels(), [&](Index panel, int) {
    const Index width = matrix.panelWidth(panel);
    AlignedBuffer<Scalar> block(matrix.in() * width);
    read(matrix.panelColumn(panel), width, block.data());
    if (!matrix.setPanel(panel, block.data())) fits = false;
  });
  return fits;
}

/// Asks for the cache lines of a row of Width numbers that is to come, four kilobytes on.
template <Index Width, class Stored>
EIGEN_STRONG_INLINE void prefetchRow(const Stored* row) {
  constexpr Index kAhead = 4096 / sizeof(Stored);
  for (Index i = 0; i < Width; i += kCacheLine / static_cast<Index>(sizeof(Stored))) prefetch(row + kAhead + i);
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
    // The processor's own prefetching suffices for one row of wide numbers, which is bound by memory. It falls behind
    // where a row of the panel has few lines, and where the panel comes from the second-level cache.
    if constexpr (Rows > 1 || sizeof(Stored) < sizeof(Scalar)) prefetchRow<Groups * kLanes>(panel + k * panel_stride);
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
/// kLanes, up to kPanelWidth. See multiplyTile.
template <class Scalar, class Stored>
void multiplyPanel(Index rows, const Scalar* x, Index x_stride, const Stored* panel, Index panel_stride, Index width,
                   Index in, Scalar* sums, Index sums_stride) {
  constexpr int kWideGroups = kPanelWidth / kLanes;
  // As many accumulators as fit into the registers: 24 of AVX-512's 32, 12 of AVX2's 16.
  constexpr int kGroups = Lanes<Scalar>::kPackets == 1 ? kWideGroups : 1;
  if (rows == 1 && width == kPanelWidth)
    return multiplyTile<1, kWideGroups>(x, x_stride, panel, panel_stride, in, sums, sums_stride);
  Index column = 0;
  for (; column + kGroups * kLanes <= width; column += kGroups * kLanes)
    multiplyColumns<kGroups>(rows, x, x_stride, panel + column, panel_stride, in, sums + column, sums_stride);
  for (; column < width; column += kLanes)
    multiplyColumns<1>(rows, x, x_stride, panel + column, panel_stride, in, sums + column, sums_stride);
}

}  // namespace driftless::inline DRIFTLESS_ABI::detail
