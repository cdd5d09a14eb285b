#pragma once

#include <vector>

#include "driftless/weights.hpp"

namespace bench {

using driftless::Index, driftless::StoredType;

/// A packed matrix of small numbers.
inline driftless::detail::PackedMatrix<float> makeMatrix(Index in, Index out, StoredType stored) {
  constexpr driftless::ComputeType kFull = driftless::ComputeType::full;
  using Packed = driftless::detail::PackedMatrix<float>;
  driftless::detail::Arena arena(Packed::bytesFor(in, out, stored, kFull));
  Packed matrix(in, out, stored, kFull, arena);
  std::vector<float> block(static_cast<std::size_t>(in * driftless::detail::kPanelWidth));
  for (Index panel = 0; panel < matrix.panels(); ++panel) {
    for (Index i = 0; i < in * matrix.panelWidth(panel); ++i)
      block[static_cast<std::size_t>(i)] = static_cast<float>((i + matrix.panelColumn(panel)) % 17 - 8) * 0.01f;
    matrix.setPanel(panel, block.data());
  }
  return matrix;
}

}  // namespace bench
