#pragma once

#include <type_traits>

#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

// The parts of a layer besides attention (attention.hpp). They run on the caller's thread.

/// LayerNorm (Ba et al. 2016) of every row of x [T, C], with the biased variance: [T, C].
template <FloatingScalar Scalar>
Matrix<Scalar> layerNorm(const std::type_identity_t<Matrix<Scalar>>& x, const LayerNorm<Scalar>& norm);

/// The feed-forward sublayer of ln_2's output x [T, C]: [T, C], before the residual is added.
template <FloatingScalar Scalar>
Matrix<Scalar> mlp(const std::type_identity_t<Matrix<Scalar>>& x, const Mlp<Scalar>& mlp);

/// One block over T new rows of one sequence: x + attnStep(ln_1(x)), then that + mlp(ln_2(that)). x is the residual
/// stream [T, C], and so is what is returned. Errors as for attnStep.
template <FloatingScalar Scalar>
Matrix<Scalar> blockStep(const std::type_identity_t<Matrix<Scalar>>& x, const Block<Scalar>& block,
                         LayerCache<Scalar>& cache);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/block.hpp"
#endif
