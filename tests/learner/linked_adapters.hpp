#pragma once

#include "learner/implementation.hpp"

/// Lets one compilation of the stages be linked with any number of implementations. Static, because implementation.cpp
/// defines functions of the same names.
namespace adapters {

using Model = driftless::Parameters<float>;

static Matrix<float> buildCausalMask(Index T) { return graded::implementation().buildCausalMask(T); }

static Matrix<float> runFullForward(const Model& model, const Ids& ids) {
  return graded::implementation().runFullForward(model, ids);
}

static Ids runGreedyRecompute(const Model& model, const Ids& promptIds, Index n) {
  return graded::implementation().runGreedyRecompute(model, promptIds, n);
}

static Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  return graded::implementation().runAttnStep(model, layer, x);
}

static Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  return graded::implementation().runPrefill(model, ids, chunkSizes);
}

static Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  return graded::implementation().runStepwise(model, promptIds, nextIds);
}

static RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return graded::implementation().runDecodeStep(model, promptIds, nextId);
}

static int runArgmax(const RowVector<float>& logits) { return graded::implementation().runArgmax(logits); }

static Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  return graded::implementation().runGreedyGenerate(model, promptIds, maxTokens);
}

}  // namespace adapters
