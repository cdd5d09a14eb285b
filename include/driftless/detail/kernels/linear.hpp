#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "driftless/detail/kernels/activation.hpp"
#include "driftless/detail/kernels/multiply_panel.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Where the rows of a product go, and what happens to them on the way.
template <class Scalar>
struct Destination {
  Scalar* data;                               ///< [rows, columns]
  Index columns;                              ///< nothing is written beyond them
  Index stride;                               ///< numbers from one row to the next
  const Scalar* bias = nullptr;               ///< [columns, padded to whole lanes], added first
  std::optional<Activation> activation = {};  ///< applied next
  bool adds = false;                          ///< to what the destination, which is then padded, holds
  bool has_one_nan = false;                   ///< which of its many a processor returns depends on the instruction

  /// Rows padded to whole lanes, whose padding may be written.
  static Destination rows(PaddedRows<Scalar>& out) { return {out.row(0), out.stride(), out.stride()}; }
};

/// The last steps of an output: the column's scale, the bias, the activation, the residual.
template <class Scalar>
void finishTile(const Scalar* sums, Index rows, Index width, const float* scales, Index column, Scalar* out,
                const Destination<Scalar>& to) {
  using L = Lanes<Scalar>;
  const L nan = L::broadcast(std::numeric_limits<Scalar>::quiet_NaN());
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < width; c += kLanes) {
      L value = L::load(sums + r * kPanelWidth + c);
      const L addend = to.bias != nullptr ? L::load(to.bias + column + c) : L::broadcast(Scalar(0));
      value =
          scales != nullptr ? fusedMultiplyAdd(value, loadLanes<Scalar>(scales + column + c), addend) : value + addend;
      if (to.activation) value = activate(*to.activation, value);
      Scalar* const target = out + r * to.stride + column + c;
      if (to.adds) value = L::load(target) + value;
      if (to.has_one_nan) value = selectNaN(value, nan, value);
      if (column + c + kLanes <= to.columns) {
        value.store(target);
      } else {
        Scalar padded[kLanes];
        value.store(padded);
        std::copy_n(padded, to.columns - column - c, target);
      }
    }
}

/// x [T, in] * matrix [in, out], to a destination of T rows.
template <class Scalar>
void multiply(const PaddedRows<Scalar>& x, const PackedMatrix<Scalar>& matrix, ThreadPool& pool,
              const Destination<Scalar>& to) {
  constexpr Index kTaskRows = 16 * kTileRows;  // enough work for a task, and tasks for many threads
  const Index row_tasks = (x.rows() + kTaskRows - 1) / kTaskRows;
  // Many rows find a panel in the cache, which one row task after the other multiplies by it. A few rows wait for
  // memory, which is faster if a thread reads several consecutive panels.
  constexpr Index kMaxTaskPanels = 6;
  const Index task_panels =
      row_tasks > 1 ? Index{1} : std::clamp(matrix.panels() / (2 * pool.threads()), Index{1}, kMaxTaskPanels);
  const Index panel_tasks = (matrix.panels() + task_panels - 1) / task_panels;
  pool.parallelFor(panel_tasks * row_tasks, [&](Index task, int) {
    const Index first_panel = task / row_tasks * task_panels;
    const Index first_row = task % row_tasks * kTaskRows;
    const Index end_panel = (std::min)(first_panel + task_panels, matrix.panels());
    const Index end_row = (std::min)(first_row + kTaskRows, x.rows());
    for (Index panel = first_panel; panel < end_panel; ++panel)
      for (Index row = first_row; row < end_row; row += kTileRows) {
        const Index rows = (std::min)(kTileRows, end_row - row), width = matrix.panelWidth(panel);
        alignas(64) Scalar sums[kTileRows * kPanelWidth];
        std::fill_n(sums, rows * kPanelWidth, Scalar(0));
        multiplyPanel(rows, x.row(row), x.stride(), matrix.stored(), matrix.panel(panel), width, width, matrix.in(),
                      sums, kPanelWidth);
        finishTile(sums, rows, width, matrix.scales(), matrix.panelColumn(panel), to.data + row * to.stride, to);
      }
  });
}

/// The same with a layer's bias.
template <class Scalar>
void linear(const PaddedRows<Scalar>& x, const Linear<Scalar>& layer, ThreadPool& pool, Destination<Scalar> to) {
  to.bias = layer.bias.data();
  multiply(x, layer.weight, pool, to);
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
