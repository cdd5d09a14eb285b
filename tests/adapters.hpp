#pragma once

#include <vector>

#include "driftless/config.hpp"

/// The seam for grading: all that the stages in tests/stages know of the implementation they grade. To have another
/// one graded, write a header that defines `Model` and the functions below, and compile with
/// -DDRIFTLESS_ADAPTERS="\"path/of/that/header.hpp\"".
///
/// Everything is in float. Shapes are those of config.hpp; T is the number of ids or rows passed in. Every call starts
/// from an empty cache.
namespace adapters {

using driftless::Index, driftless::Matrix, driftless::RowVector;
using Ids = std::vector<int>;

/// What a prefill leaves behind.
struct Prefilled {
  std::vector<Matrix<float>> keys;    ///< for every layer [T, C]: row t is position t's, heads side by side
  std::vector<Matrix<float>> values;  ///< likewise
  RowVector<float> logits;            ///< [V] of the last token
};

}  // namespace adapters

#ifdef DRIFTLESS_ADAPTERS
#include DRIFTLESS_ADAPTERS
#else

#include "driftless/driftless.hpp"

namespace adapters {

/// What the cached path computes with: constructed from Parameters<float>, once a model.
using Model = driftless::Weights<float>;

/// Stage causal-mask. [T, T], row = query, column = key: 0 where the query sees the key, else minus infinity.
inline Matrix<float> buildCausalMask(Index T) { return driftless::buildCausalMask<float>(T); }

/// Stage full-forward. Logits [T, V] without a cache.
inline Matrix<float> runFullForward(const driftless::Parameters<float>& parameters, const Ids& ids) {
  return driftless::fullForward<float>(ids, parameters);
}

/// Stage greedy-recompute. promptIds followed by n greedy ids, all recomputed at every step.
inline Ids runGreedyRecompute(const driftless::Parameters<float>& parameters, const Ids& promptIds, Index n) {
  return driftless::greedyDecode<float>(promptIds, parameters, n);
}

/// Stage attn-step. Feeds the rows of x [T, C], ln_1's outputs, one by one to one layer's attention: its outputs
/// [T, C], behind c_proj and before the residual.
inline Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  const auto& attn = model.h[static_cast<std::size_t>(layer)].attn;
  driftless::LayerCache<float> cache(model.config.n_head, model.config.headSize(), model.config.n_positions);
  Matrix<float> out(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) out.row(t) = driftless::attnStep<float>(x.middleRows(t, 1), attn, cache);
  return out;
}

/// Stage prefill. Runs ids onto one cache in chunks of the given sizes, which add up to T.
inline Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  driftless::ModelCache cache(model);
  Prefilled result;
  for (const Index size : chunkSizes)
    result.logits = driftless::prefill(
        std::span(ids).subspan(static_cast<std::size_t>(cache.length()), static_cast<std::size_t>(size)), model, cache);
  for (Index layer = 0; layer < cache.layers(); ++layer) {
    result.keys.push_back(cache.layer(layer).keys());
    result.values.push_back(cache.layer(layer).values());
  }
  return result;
}

/// Stage per-step-identity. A prefill of promptIds, then one decode step for each of nextIds: logits
/// [1 + nextIds.size(), V], row 0 the prefill's.
inline Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  driftless::ModelCache cache(model);
  Matrix<float> logits(static_cast<Index>(nextIds.size()) + 1, model.config.vocab_size);
  Index row = 0;
  logits.row(row++) = driftless::prefill<float>(promptIds, model, cache);
  for (const int id : nextIds) logits.row(row++) = driftless::decodeStep(id, cache.length(), model, cache);
  return logits;
}

/// Stage full-decode-step. A prefill of promptIds, then nextId at position promptIds.size(): its logits [V].
inline RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return runStepwise(model, promptIds, {nextId}).row(1);
}

/// Stage greedy-decode. The id to choose by logits [V].
inline int runArgmax(const RowVector<float>& logits) { return driftless::argmax(logits); }

/// Stage greedy-decode. Up to maxTokens greedy ids, without the prompt; fewer where the context is full before.
inline Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  return driftless::generateTokens(promptIds, maxTokens, model);
}

}  // namespace adapters

#endif
