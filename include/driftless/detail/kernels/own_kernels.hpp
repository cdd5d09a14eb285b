#pragma once

#include "driftless/detail/kernels/exponentiate.hpp"
#include "driftless/detail/kernels/finish_tile.hpp"
#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/multiply_add_chains.hpp"
#include "driftless/detail/kernels/multiply_panel.hpp"
#include "driftless/detail/kernels/multiply_quantized.hpp"
#include "driftless/detail/kernels/normalize_row.hpp"
#include "driftless/detail/kernels/quantize_row.hpp"
#include "driftless/detail/kernels/scale_row.hpp"
#include "driftless/detail/kernels/softmax.hpp"
#include "driftless/detail/stored/elements.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {
inline namespace DRIFTLESS_VECTORS {

/// The kernels as this translation unit compiles them.
template <class Scalar>
inline constexpr Kernels<Scalar> kOwnKernels = {
    multiplyPanel<Scalar>, widenPanel<Scalar>,   quantizeRow<Scalar>,       multiplyQuantized<Scalar>,
    finishTile<Scalar>,    normalizeRow<Scalar>, softmaxNumerators<Scalar>, exponentiate<Scalar>,
    storePanel<Scalar>,    storeRow<Scalar>,     scaleRow<Scalar>,          multiplyAddChains<Scalar>};

}  // namespace DRIFTLESS_VECTORS

#ifndef DRIFTLESS_COMPILED
template <class Scalar>
const Kernels<Scalar>& kernels() {
  return kOwnKernels<Scalar>;
}
#endif

}}}  // namespace driftless::DRIFTLESS_ABI::detail
