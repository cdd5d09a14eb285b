#pragma once

#include <algorithm>

#include "driftless/detail/packed_matrix.hpp"
#include "driftless/detail/thread_pool.hpp"
#include "driftless/detail/workspace.hpp"
#include "driftless/weights.hpp"

namespace driftless::detail {

/// x [T, in] * matrix [in, out], as store(row, column, sums) with the lanes of sums that begin at `column`, once for
/// each row and each kLanes columns, from any of the pool's threads.
template <class Scalar, class Stored, class Store>
void multiply(const Rows<Scalar>& x, const PackedMatrix<Stored>& matrix, ThreadPool& pool, Store store) {
  constexpr Index kTaskRows = 16 * kTileRows;  // enough work for a task, and tasks for many threads
  const Index row_tasks = (x.rows() + kTaskRows - 1) / kTaskRows;
  pool.parallelFor(matrix.panels() * row_tasks, [&](Index task, int) {
    const Index panel = task / row_tasks;
    const Index width = matrix.panelWidth(panel);
    const Index first = task % row_tasks * kTaskRows;
    const Index end = std::min(first + kTaskRows, x.rows());
    for (Index row = first; row < end; row += kTileRows) {
      const Index rows = std::min(kTileRows, end - row);
      alignas(64) Scalar sums[kTileRows * kPanelWidth];
      std::fill_n(sums, rows * kPanelWidth, Scalar(0));
      multiplyPanel(rows, x.row(row), x.stride(), matrix.panel(panel), width, matrix.in(), sums, kPanelWidth);
      for (Index r = 0; r < rows; ++r)
        for (Index column = 0; column < width; column += kLanes)
          store(row + r, matrix.panelColumn(panel) + column, Lanes<Scalar>::load(sums + r * kPanelWidth + column));
    }
  });
}

/// out [T, out] = activation(x [T, in] * weight + bias), the activation taking and giving Lanes.
template <class Scalar, class Stored, class Activate>
void linear(const Rows<Scalar>& x, const Linear<Scalar, Stored>& layer, ThreadPool& pool, Rows<Scalar>& out,
            Activate activate) {
  out.resize(x.rows(), layer.weight.out());
  multiply(x, layer.weight, pool, [&](Index row, Index column, const Lanes<Scalar>& sums) {
    const Lanes<Scalar> bias = Lanes<Scalar>::load(layer.bias.data() + column);
    activate(addScaled(layer.weight, column, sums, bias)).store(out.row(row) + column);
  });
}

template <class Scalar, class Stored>
void linear(const Rows<Scalar>& x, const Linear<Scalar, Stored>& layer, ThreadPool& pool, Rows<Scalar>& out) {
  linear(x, layer, pool, out, [](const Lanes<Scalar>& value) { return value; });
}

}  // namespace driftless::detail
