#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "driftless/config.hpp"
#include "driftless/detail/kernels/shapes.hpp"
#include "driftless/stored_type.hpp"

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

/// The loops over numbers that are worth a processor's own instructions, on plain memory. All sets of them compute the
/// same bits. What each does is said at the function of its name.
template <class Scalar>
struct Kernels {
  void (*multiplyPanel)(Index rows, const Scalar* x, Index x_stride, StoredType stored, const std::byte* panel,
                        Index panel_stride, Index width, Index in, Scalar* sums, Index sums_stride);
  void (*finishTile)(const Scalar* sums, Index rows, Index width, const float* scales, Index column, Scalar* out,
                     const Destination<Scalar>& to);
  void (*normalizeRow)(const Scalar* x, Index width, Scalar epsilon, const Scalar* weight, const Scalar* bias,
                       Scalar* out);
  Scalar (*softmaxNumerators)(Scalar* scores, Index count);
  void (*exponentiate)(Scalar* numbers, Index count);
  bool (*storePanel)(const Scalar* values, Index in, Index width, StoredType stored, std::byte* panel, float* scales);
  void (*storeRow)(const Scalar* row, Index count, StoredType stored, std::byte* to, Index stride);
  Scalar (*multiplyAddChains)(Scalar factor);
};

/// Those in use: this translation unit's own or, in the compiled library, the best that the processor has.
template <class Scalar>
const Kernels<Scalar>& kernels();

}}}  // namespace driftless::DRIFTLESS_ABI::detail

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/kernels/own_kernels.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

template <class Scalar>
const Kernels<Scalar>& kernels() {
  return kOwnKernels<Scalar>;
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
#endif
