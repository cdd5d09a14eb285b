#pragma once

#include <algorithm>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/packed_matrix.hpp"
#include "driftless/detail/thread_pool.hpp"
#include "driftless/detail/workspace.hpp"
#include "driftless/weights.hpp"

namespace driftless::inline DRIFTLESS_ABI::detail {

/// One tile of rows times one panel; see multiply.
template <class Scalar, class Stored, class Store>
void multiplyTileRows(const Rows<Scalar>& x, Index first, Index rows, const PackedMatrix<Stored>& matrix, Index panel,
                      Store& store) {
  const Index width = matrix.panelWidth(panel);
  alignas(64) Scalar sums[kTileRows * kPanelWidth];
  std::fill_n(sums, rows * kPanelWidth, Scalar(0));
  multiplyPanel(rows, x.row(first), x.stride(), matrix.panel(panel), width, width, matrix.in(), sums, kPanelWidth);
  for (Index r = 0; r < rows; ++r)
    for (Index column = 0; column < width; column += kLanes)
      store(first + r, matrix.panelColumn(panel) + column, Lanes<Scalar>::load(sums + r * kPanelWidth + column));
}

/// x [T, in] * matrix [in, out], as store(row, column, sums) with the lanes of sums that begin at `column`, once for
/// each row and each kLanes columns, from any of the pool's threads.
template <class Scalar, class Stored, class Store>
void multiply(const Rows<Scalar>& x, const PackedMatrix<Stored>& matrix, ThreadPool& pool, Store store) {
  constexpr Index kTaskRows = 16 * kTileRows;  // enough work for a task, and tasks for many threads
  const Index row_tasks = (x.rows() + kTaskRows - 1) / kTaskRows;
  // Many rows find a panel in the cache, which one row task after the other multiplies by it. A few rows wait for
  // memory, which is faster where a thread reads several panels on end.
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
      for (Index row = first_row; row < end_row; row += kTileRows)
        multiplyTileRows(x, row, (std::min)(kTileRows, end_row - row), matrix, panel, store);
  });
}

/// x [T, in] * weight + bias, as store(row, column, lanes), likewise.
template <class Scalar, class Stored, class Store>
void linear(const Rows<Scalar>& x, const Linear<Scalar, Stored>& layer, ThreadPool& pool, Store store) {
  multiply(x, layer.weight, pool, [&](Index row, Index column, const Lanes<Scalar>& sums) {
    const Lanes<Scalar> bias = Lanes<Scalar>::load(layer.bias.data() + column);
    store(row, column, addScaled(layer.weight, column, sums, bias));
  });
}

/// For `store`: writes rows of results.
template <class Scalar>
auto writeTo(Rows<Scalar>& out) {
  return [&](Index row, Index column, const Lanes<Scalar>& value) { value.store(out.row(row) + column); };
}

/// For `store`: adds results to rows.
template <class Scalar>
auto addTo(Rows<Scalar>& out) {
  return [&](Index row, Index column, const Lanes<Scalar>& value) {
    (Lanes<Scalar>::load(out.row(row) + column) + value).store(out.row(row) + column);
  };
}

}  // namespace driftless::inline DRIFTLESS_ABI::detail
