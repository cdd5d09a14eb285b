#pragma once

#include "planted/plain_cached.hpp"

/// Wires the stages to the implementation with a planted mistake.
namespace adapters {

using Model = planted::PlainModel;

inline Matrix<float> buildCausalMask(Index T) { return planted::buildCausalMask(T, planted::plantedMistake()); }

inline Matrix<float> runFullForward(const driftless::Parameters<float>& parameters, const Ids& ids) {
  return Model(parameters).fullForward(ids);
}

inline Ids runGreedyRecompute(const driftless::Parameters<float>& parameters, const Ids& promptIds, Index n) {
  return Model(parameters).greedyRecompute(promptIds, n);
}

inline Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  return model.attention(layer, x);
}

inline Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  const planted::Prefilled prefilled = model.prefill(ids, chunkSizes);
  return {prefilled.keys, prefilled.values, prefilled.logits};
}

inline Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  return model.stepwise(promptIds, nextIds);
}

inline RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return model.stepwise(promptIds, {nextId}).row(1);
}

inline int runArgmax(const RowVector<float>& logits) { return planted::argmax(logits, planted::plantedMistake()); }

inline Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  return model.greedyGenerate(promptIds, maxTokens);
}

}  // namespace adapters
