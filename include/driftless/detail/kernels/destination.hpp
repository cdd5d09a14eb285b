#pragma once

#include <optional>

#include "driftless/config.hpp"

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
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
