#include <map>
#include <span>

#include "adapters.hpp"
#include "driftless/argmax.hpp"
#include "driftless/attention.hpp"
#include "driftless/cache.hpp"
#include "driftless/forward.hpp"
#include "driftless/generate.hpp"
#include "driftless/reference.hpp"
#include "driftless/weights.hpp"

/// Joins this library to the stages.
namespace adapters {

namespace {

const driftless::Weights<float>& weightsOf(const Model& model) {
  static std::map<const Model*, driftless::Weights<float>> packed;
  const auto found = packed.find(&model);
  return found != packed.end() ? found->second : packed.emplace(&model, model).first->second;
}

}  // namespace

Matrix<float> buildCausalMask(Index T) { return driftless::buildCausalMask<float>(T); }

Matrix<float> runFullForward(const Model& model, const Ids& ids) { return driftless::fullForward<float>(ids, model); }

int runArgmax(const RowVector<float>& logits) { return driftless::argmax(logits); }

Ids runGreedyRecompute(const Model& model, const Ids& promptIds, Index n) {
  return driftless::greedyDecode<float>(promptIds, model, n);
}

Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  const driftless::Config& config = model.config;
  const auto& attn = weightsOf(model).h[static_cast<std::size_t>(layer)].attn;
  driftless::LayerCache<float> cache(config.n_head, config.headSize(), config.n_positions);
  Matrix<float> out(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) out.row(t) = driftless::attnStep<float>(x.middleRows(t, 1), attn, cache);
  return out;
}

Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  const driftless::Weights<float>& weights = weightsOf(model);
  driftless::ModelCache<float> cache(weights);
  Prefilled result;
  for (const Index size : chunkSizes) {
    const auto rest = std::span(ids).subspan(static_cast<std::size_t>(cache.length()));
    result.logits = driftless::prefill(rest.first(static_cast<std::size_t>(size)), weights, cache);
  }
  for (Index layer = 0; layer < cache.layers(); ++layer) {
    result.keys.push_back(cache.layer(layer).keys());
    result.values.push_back(cache.layer(layer).values());
  }
  return result;
}

Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  const driftless::Weights<float>& weights = weightsOf(model);
  driftless::ModelCache<float> cache(weights);
  Matrix<float> logits(static_cast<Index>(nextIds.size()) + 1, model.config.vocab_size);
  Index row = 0;
  logits.row(row++) = driftless::prefill<float>(promptIds, weights, cache);
  for (const int id : nextIds) logits.row(row++) = driftless::decodeStep(id, cache.length(), weights, cache);
  return logits;
}

RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return runStepwise(model, promptIds, {nextId}).row(1);
}

Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  return driftless::generateTokens(promptIds, maxTokens, weightsOf(model));
}

}  // namespace adapters
