#pragma once

#include "adapters.hpp"

/// Joins the functions of cached.cpp, which includes this at its end, to the stages; tests/adapters.hpp says what each
/// of these must return. Nothing is to be done here as long as your functions keep their signatures.
namespace adapters {

Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  learner::LayerCache cache;
  Matrix<float> out(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    position = t;
    out.row(t) = learner::attnStep(x.middleRows(t, 1), cache, model, layer);
  }
  return out;
}

Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  learner::ModelCache cache(model.config);
  Prefilled result;
  auto next = ids.begin();
  for (const Index size : chunkSizes) {
    result.logits = learner::prefill(Ids(next, next + size), model, cache);
    next += size;
  }
  for (Index layer = 0; layer < model.config.n_layer; ++layer) {
    result.keys.push_back(cache.layer(layer).keys());
    result.values.push_back(cache.layer(layer).values());
  }
  return result;
}

Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  learner::ModelCache cache(model.config);
  Matrix<float> logits(static_cast<Index>(nextIds.size()) + 1, model.config.vocab_size);
  Index row = 0;
  logits.row(row++) = learner::prefill(promptIds, model, cache);
  for (const int id : nextIds) logits.row(row++) = learner::decodeStep(id, cache.length(), model, cache);
  return logits;
}

RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return runStepwise(model, promptIds, {nextId}).row(1);
}

Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  return learner::generateTokens(promptIds, maxTokens, model);
}

}  // namespace adapters
