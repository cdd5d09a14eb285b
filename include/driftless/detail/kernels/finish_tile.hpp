#pragma once

#include <algorithm>
#include <limits>

#include "driftless/detail/kernels/activation.hpp"
#include "driftless/detail/kernels/destination.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail { inline namespace DRIFTLESS_VECTORS {

/// The last steps of an output: the column's scale, the bias, the activation, the residual.
template <class Scalar>
void finishTile(const Scalar* sums, Index rows, Index width, const float* scales, Index column, Scalar* out,
                const Destination<Scalar>& to) {
  using L = Lanes<Scalar>;
  const L nan = L::broadcast(std::numeric_limits<Scalar>::quiet_NaN());
  // Copied, for what is stored could be a part of `to` for all that the compiler knows.
  const auto [data, columns, stride, bias, activation, adds, has_one_nan] = to;
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < width; c += kLanes) {
      L value = L::load(sums + r * kPanelWidth + c);
      const L addend = bias != nullptr ? L::load(bias + column + c) : L::broadcast(Scalar(0));
      value =
          scales != nullptr ? fusedMultiplyAdd(value, loadLanes<Scalar>(scales + column + c), addend) : value + addend;
      if (activation) value = activate(*activation, value);
      Scalar* const target = out + r * stride + column + c;
      if (adds) value = L::load(target) + value;
      if (has_one_nan) value = selectNaN(value, nan, value);
      if (column + c + kLanes <= columns) {
        value.store(target);
      } else {
        Scalar padded[kLanes];
        value.store(padded);
        std::copy_n(padded, columns - column - c, target);
      }
    }
}

}}}}  // namespace driftless::DRIFTLESS_ABI::detail::DRIFTLESS_VECTORS
