#pragma once

#include <type_traits>

#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// One layer's attention over T new rows of one sequence, on the caller's thread: c_attn, the rows' keys and values
/// appended to the layer's cache, causal softmax over it, c_proj. x is ln_1's output [T, C]; returns [T, C], before the
/// residual is added. Throws ArgumentError if shapes don't fit and ContextFull if the cache has no room, leaving the
/// cache as it was.
template <FloatingScalar Scalar>
Matrix<Scalar> attnStep(const std::type_identity_t<Matrix<Scalar>>& x, const Attention<Scalar>& attn,
                        LayerCache<Scalar>& cache);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/attention.hpp"
#endif
