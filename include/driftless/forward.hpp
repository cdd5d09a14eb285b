#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/observer.hpp"
#include "driftless/weights.hpp"
#include "driftless/workspace.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Runs one or more tokens onto a cache, at the positions from cache.length() on, and returns the logits [V] of the
/// last one: those of the next token.
///
/// Throws ArgumentError for an id that the model does not have, no ids, or a cache of another shape, and ContextFull if
/// the cache has no room for them; it is then as it was. An observer (observer.hpp) can look on.
template <FloatingScalar Scalar>
RowVector<Scalar> prefill(TokenIds promptIds, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                          const std::type_identity_t<Observer<Scalar>>& observer = {}) {
  Workspace<Scalar> workspace(weights.threads);
  return prefill(promptIds, weights, cache, workspace, observer);
}

/// The same, computed in a workspace, in which the logits stay until its next step or its end; `auto` makes a copy.
template <FloatingScalar Scalar>
const WorkspaceVector<Scalar>& prefill(TokenIds promptIds, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                                       Workspace<Scalar>& workspace,
                                       const std::type_identity_t<Observer<Scalar>>& observer = {});

/// Advances a sequence by one token at `position`, which must be the cache's length: positions are absolute and go on
/// counting from the prompt. Returns the logits [V] of the next token, as prefill does. Errors as for prefill, and
/// ArgumentError for any other position.
template <FloatingScalar Scalar>
RowVector<Scalar> decodeStep(int id, Index position, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                             const std::type_identity_t<Observer<Scalar>>& observer = {}) {
  Workspace<Scalar> workspace(weights.threads);
  return decodeStep(id, position, weights, cache, workspace, observer);
}

/// The same, computed in a workspace; see prefill. Allocates nothing after the first step but the memory of the next
/// page of all layers, once every 64 positions and where the last page is shared with a clone; on a cache that does not
/// keep all positions, also what it takes to go back if the step fails.
template <FloatingScalar Scalar>
const WorkspaceVector<Scalar>& decodeStep(int id, Index position, const Weights<Scalar>& weights,
                                          ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                                          const std::type_identity_t<Observer<Scalar>>& observer = {});

/// As prefill, but returns the logits of every token: [T, V], row t for what follows promptIds[t].
template <FloatingScalar Scalar>
Matrix<Scalar> prefillLogits(TokenIds promptIds, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                             const std::type_identity_t<Observer<Scalar>>& observer = {}) {
  Workspace<Scalar> workspace(weights.threads);
  return prefillLogits(promptIds, weights, cache, workspace, observer);
}

/// The same, computed in a workspace.
template <FloatingScalar Scalar>
Matrix<Scalar> prefillLogits(TokenIds promptIds, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                             Workspace<Scalar>& workspace, const std::type_identity_t<Observer<Scalar>>& observer = {});

/// As prefill, for several sequences at once, each with a cache of its own: logits [B, V], row b of chunks[b]'s last
/// id. They stay in the workspace until its next step, and what is returned is a view of them: a `Matrix` makes a copy.
/// Each row's bits are those of a sequence run alone.
template <FloatingScalar Scalar>
MatrixView<Scalar> prefill(const std::vector<Chunk<Scalar>>& chunks, const Weights<Scalar>& weights,
                           Workspace<Scalar>& workspace, const std::type_identity_t<Observer<Scalar>>& observer = {});

/// Advances several sequences by one token each: ids[b] at positions[b] in caches[b]. Returns a view of logits [B, V]
/// likewise; row b's bits are those of sequence b run alone. Allocates nothing after a step of as many sequences but
/// pages of the caches, as above. Errors as above, before any cache is written.
template <FloatingScalar Scalar>
MatrixView<Scalar> decodeStep(TokenIds ids, std::span<const Index> positions, const Weights<Scalar>& weights,
                              const std::vector<ModelCache<Scalar>*>& caches, Workspace<Scalar>& workspace,
                              const std::type_identity_t<Observer<Scalar>>& observer = {});

/// wte[id] + wpe[position], [C]: what enters the first block. Throws ArgumentError for an id or position that the model
/// does not have.
template <FloatingScalar Scalar>
RowVector<Scalar> embedToken(int id, Index position, const Weights<Scalar>& weights);

/// Logits [T, V] of ln_f's output x [T, C]: x * wte^T, or x * lm_head^T if the model has output weights of its own.
/// Runs on the caller's thread.
template <FloatingScalar Scalar>
Matrix<Scalar> unembed(const std::type_identity_t<Matrix<Scalar>>& x, const Weights<Scalar>& weights);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/forward.hpp"
#endif
