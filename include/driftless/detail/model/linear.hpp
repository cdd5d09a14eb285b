#pragma once

#include <algorithm>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Rows padded to whole lanes as a destination: their padding may be written.
template <class Scalar>
Destination<Scalar> destinationOf(PaddedRows<Scalar>& rows) {
  return {rows.row(0), rows.stride(), rows.stride()};
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
  const Kernels<Scalar>& use = kernels<Scalar>();
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
        use.multiply_panel(rows, x.row(row), x.stride(), matrix.stored(), matrix.panel(panel), width, width,
                           matrix.in(), sums, kPanelWidth);
        use.finish_tile(sums, rows, width, matrix.scales(), matrix.panelColumn(panel), to.data + row * to.stride, to);
      }
  });
}

/// The same with a layer's bias.
template <class Scalar>
void linear(const PaddedRows<Scalar>& x, const Linear<Scalar>& layer, ThreadPool& pool, Destination<Scalar> to) {
  to.bias = layer.bias.data();
  multiply(x, layer.weight, pool, to);
}

template <class Scalar>
void layerNorm(const PaddedRows<Scalar>& x, const LayerNorm<Scalar>& norm, ThreadPool& pool, PaddedRows<Scalar>& out) {
  constexpr Index kTaskRows = 16;
  const auto normalize = kernels<Scalar>().normalize_row;
  out.resize(x.rows(), x.cols());
  pool.parallelFor((x.rows() + kTaskRows - 1) / kTaskRows, [&](Index task, int) {
    const Index end = (std::min)((task + 1) * kTaskRows, x.rows());
    for (Index row = task * kTaskRows; row < end; ++row)
      normalize(x.row(row), norm.width, norm.epsilon, norm.weight.data(), norm.bias.data(), out.row(row));
  });
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
