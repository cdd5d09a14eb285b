#include <map>

#include "adapters.hpp"
#include "planted/plain_cached.hpp"

/// Joins the implementation with a planted mistake to the stages.
namespace adapters {

namespace {

planted::PlainModel mistaken(const Model& model) { return {model, planted::plantedMistakes()}; }

}  // namespace

Matrix<float> buildCausalMask(Index T) { return planted::buildCausalMask(T, planted::plantedMistakes()); }

Matrix<float> runFullForward(const Model& model, const Ids& ids) { return mistaken(model).fullForward(ids); }

int runArgmax(const RowVector<float>& logits) { return planted::argmax(logits, planted::plantedMistakes()); }

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
  if (!planted::plantedMistakes().has(planted::Mistake::left_over_from_earlier_call))
    return mistaken(model).greedyGenerate(promptIds, maxTokens);
  static std::map<const Model*, Ids> caches;
  Ids& cached = caches[&model];  // what an earlier call has left there stays, as long as there is room
  if (std::ssize(cached) + std::ssize(promptIds) + maxTokens > model.config.n_positions) cached.clear();
  cached.insert(cached.end(), promptIds.begin(), promptIds.end());
  const Ids generated = mistaken(model).greedyGenerate(cached, maxTokens);
  cached.insert(cached.end(), generated.begin(), generated.end());
  return generated;
}

}  // namespace adapters
