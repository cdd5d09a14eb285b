#pragma once

#include <cstddef>
#include <cstdint>

#include "driftless/compute_type.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/kernels/destination.hpp"
#include "driftless/detail/kernels/quantized_tile.hpp"
#include "driftless/stored_type.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// The loops over numbers that are worth a processor's own instructions, on plain memory. All sets of them compute the
/// same bits. What each does is said at the function of its name: finish_tile at finishTile.
template <class Scalar>
struct Kernels {
  void (*multiply_panel)(Index rows, const Scalar* x, Index x_stride, StoredType stored, const std::byte* panel,
                         Index panel_stride, Index width, Index in, Scalar* sums, Index sums_stride);
  void (*widen_panel)(StoredType stored, const std::byte* panel, Index width, Index in, Scalar* numbers);
  Scalar (*quantize_row)(const Scalar* x, Index width, Index group, Index padded, std::int8_t* values,
                         std::int32_t* sums, std::int32_t* outliers);
  void (*multiply_quantized)(Index rows, const QuantizedTile<Scalar>& x, StoredType stored, const std::byte* panel,
                             Index width, Index in, Scalar* sums, Index sums_stride);
  void (*finish_tile)(const Scalar* sums, Index rows, Index width, const float* scales, Index column, Scalar* out,
                      const Destination<Scalar>& to);
  void (*normalize_row)(const Scalar* x, Index width, Scalar epsilon, const Scalar* weight, const Scalar* bias,
                        Scalar* out);
  Scalar (*softmax_numerators)(Scalar* scores, Index count);
  void (*exponentiate)(Scalar* numbers, Index count);
  bool (*store_panel)(const Scalar* values, Index in, Index width, StoredType stored, ComputeType compute,
                      std::byte* panel, float* scales);
  void (*store_row)(const Scalar* row, Index count, StoredType stored, std::byte* to, Index stride, float* scale);
  void (*scale_row)(Scalar* row, Index count, const float* scales);
  Scalar (*multiply_add_chains)(Scalar factor);
};

/// Those in use: this translation unit's own or, in the compiled library, the best that the processor has.
template <class Scalar>
const Kernels<Scalar>& kernels();

}}}  // namespace driftless::DRIFTLESS_ABI::detail

#ifdef DRIFTLESS_COMPILED
namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

template <>
const Kernels<float>& kernels<float>();
template <>
const Kernels<double>& kernels<double>();

}}}  // namespace driftless::DRIFTLESS_ABI::detail
#endif

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/kernels/own_kernels.hpp"
#endif
