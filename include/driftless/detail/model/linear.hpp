#pragma once

#include <algorithm>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/detail/stored/int4.hpp"
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
void multiply(Step<Scalar>& step, const PaddedRows<Scalar>& x, const PackedMatrix<Scalar>& matrix,
              const Destination<Scalar>& to) {
  constexpr Index kTaskRows = 16 * kTileRows;  // enough work for a task, and tasks for many threads
  const Index row_tasks = (x.rows() + kTaskRows - 1) / kTaskRows;
  // Many rows find a panel in the cache, which one row task after the other multiplies by it. A few rows wait for
  // memory, which is faster if a thread reads several consecutive panels.
  constexpr Index kMaxTaskPanels = 6;
  const Index task_panels =
      row_tasks > 1 ? Index{1} : std::clamp(matrix.panels() / (2 * step.pool.threads()), Index{1}, kMaxTaskPanels);
  const Index panel_tasks = (matrix.panels() + task_panels - 1) / task_panels;
  const Index in = matrix.in();
  const Kernels<Scalar>& use = kernels<Scalar>();
  const bool in_integers = matrix.compute() == ComputeType::int8;
  if (in_integers) step.quantized.assign(x, matrix.stored() == StoredType::int4 ? kInt4Group : in, step.pool);
  // What several tiles of a task multiply by is widened once.
  const bool widens = !in_integers && matrix.stored() != StoredType::full && x.rows() > kTileRows;
  if (widens) step.widened.resize(step.pool.threads(), in * kPanelWidth);

  step.pool.parallelFor(panel_tasks * row_tasks, [&](Index task, int thread) {
    const Index first_panel = task / row_tasks * task_panels;
    const Index first_row = task % row_tasks * kTaskRows;
    const Index end_panel = (std::min)(first_panel + task_panels, matrix.panels());
    const Index end_row = (std::min)(first_row + kTaskRows, x.rows());
    for (Index panel = first_panel; panel < end_panel; ++panel) {
      const Index width = matrix.panelWidth(panel);
      StoredType stored = matrix.stored();
      const std::byte* numbers = matrix.panel(panel);
      if (widens) {
        Scalar* const widened = step.widened.row(thread);
        use.widen_panel(stored, numbers, width, in, widened);
        stored = StoredType::full;
        numbers = reinterpret_cast<const std::byte*>(widened);
      }
      for (Index row = first_row; row < end_row; row += kTileRows) {
        const Index rows = (std::min)(kTileRows, end_row - row);
        alignas(64) Scalar sums[kTileRows * kPanelWidth];
        if (in_integers) {
          use.multiply_quantized(rows, step.quantized.from(row), stored, numbers, width, in, sums, kPanelWidth);
        } else {
          std::fill_n(sums, rows * kPanelWidth, Scalar(0));
          use.multiply_panel(rows, x.row(row), x.stride(), stored, numbers, width, width, in, sums, kPanelWidth);
        }
        use.finish_tile(sums, rows, width, matrix.scales(), matrix.panelColumn(panel), to.data + row * to.stride, to);
      }
    }
  });
}

/// The same with a layer's bias.
template <class Scalar>
void linear(Step<Scalar>& step, const PaddedRows<Scalar>& x, const Linear<Scalar>& layer, Destination<Scalar> to) {
  to.bias = layer.bias.data();
  multiply(step, x, layer.weight, to);
}

/// The same, which the destination adds to. If it is to be seen by itself before that, see(out [T, out]) sees it.
template <class Scalar, class See>
void linearOut(Step<Scalar>& step, const PaddedRows<Scalar>& x, const Linear<Scalar>& layer,
               const Destination<Scalar>& to, bool is_seen, const See& see) {
  if (!is_seen) return linear(step, x, layer, to);
  PaddedRows<Scalar> out(x.rows(), layer.weight.out());
  linear(step, x, layer, destinationOf(out));
  see(out);
  for (Index row = 0; row < out.rows(); ++row)
    for (Index column = 0; column < out.cols(); ++column) to.data[row * to.stride + column] += out.row(row)[column];
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
