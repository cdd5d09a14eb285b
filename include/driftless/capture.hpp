#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/observer.hpp"
#include "driftless/token_ids.hpp"
#include "driftless/weights.hpp"
#include "driftless/workspace.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// The values of a whole text at some points.
template <class Scalar>
class Captured {
 public:
  /// Those at one point: a row for each of the T tokens, of the width that is said at Point; over keys, [T, T], where a
  /// row has minus infinity (attn_scores) or 0 (pattern) for keys after its own. Throws ArgumentError for a point that
  /// was not captured, or a layer or head that the model does not have.
  const Matrix<Scalar>& at(Point point, Index layer = 0, Index head = 0) const;

 private:
  template <FloatingScalar S>
  friend Captured<S> capture(Points points, TokenIds ids, const Weights<S>& weights, ModelCache<S>& cache,
                             Workspace<S>& workspace, const std::type_identity_t<Observer<S>>& changes);

  /// Room for the points of a text of `tokens`, all numbers as they are where nothing attends.
  Captured(Points points, const Config& config, Index tokens);
  /// Takes over what is at a point.
  void put(const PointValues<Scalar>& values);
  std::size_t place(Point point, Index layer, Index head) const;

  Points points_;
  Index n_layer_;
  Index n_head_;
  std::vector<Matrix<Scalar>> values_;  ///< of every point, layer and head; empty where they were not asked for
};

/// Runs a text through the model, from its first position on, and returns what it computes at some points. `changes`
/// is an observer that writes first. Throws as prefill does.
template <FloatingScalar Scalar>
Captured<Scalar> capture(Points points, TokenIds ids, const Weights<Scalar>& weights,
                         const std::type_identity_t<Observer<Scalar>>& changes = {}) {
  ModelCache<Scalar> cache(weights);
  Workspace<Scalar> workspace(weights.threads);
  return capture(points, ids, weights, cache, workspace, changes);
}

/// The same with a cache, whose contents are forgotten, and in a workspace.
template <FloatingScalar Scalar>
Captured<Scalar> capture(Points points, TokenIds ids, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
                         Workspace<Scalar>& workspace, const std::type_identity_t<Observer<Scalar>>& changes = {});

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/capture.hpp"
#endif
