#include "adapters.hpp"
#include "planted/plain_cached.hpp"

/// Joins the implementation with a planted mistake to the stages.
namespace adapters {

namespace {

planted::PlainModel mistaken(const Model& model) { return {model, planted::plantedMistake()}; }

}  // namespace

Matrix<float> buildCausalMask(Index T) { return planted::buildCausalMask(T, planted::plantedMistake()); }

Matrix<float> runFullForward(const Model& model, const Ids& ids) { return mistaken(model).fullForward(ids); }

int runArgmax(const RowVector<float>& logits) { return planted::argmax(logits, planted::plantedMistake()); }

Ids runGreedyRecompute(const Model& model, const Ids& promptIds, Index n) {
  return mistaken(model).greedyRecompute(promptIds, n);
}

Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  return mistaken(model).attention(layer, x);
}

Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  return mistaken(model).prefill(ids, chunkSizes);
}

Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  return mistaken(model).stepwise(promptIds, nextIds);
}

RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return mistaken(model).stepwise(promptIds, {nextId}).row(1);
}

Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  return mistaken(model).greedyGenerate(promptIds, maxTokens);
}

}  // namespace adapters
