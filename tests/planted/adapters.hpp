#pragma once

#include <limits>

#include "planted/plain_cached.hpp"

/// Wires the stages to the implementation with a planted mistake. The recompute stages run it too, with a new cache at
/// every call, so that a mistake in the model itself shows there as well, and one in the use of a cache does not.
namespace adapters {

using Model = driftless::Parameters<float>;

inline Matrix<float> buildCausalMask(Index T) {
  Matrix<float> mask = Matrix<float>::Zero(T, T);
  for (Index i = 0; i < T; ++i)
    for (Index j = planted::has(planted::Mistake::mask_hides_own_position) ? i : i + 1; j < T; ++j)
      mask(i, j) = -std::numeric_limits<float>::infinity();
  return mask;
}

inline Matrix<float> runFullForward(const Model& model, const Ids& ids) {
  planted::Cache unused(model.config, false);
  const std::vector<planted::Row> rows = planted::step(ids, model, unused);
  Matrix<float> logits(static_cast<Index>(ids.size()), model.config.vocab_size);
  for (Index t = 0; t < logits.rows(); ++t) logits.row(t) = planted::unembed(rows[static_cast<std::size_t>(t)], model);
  return logits;
}

inline Ids runGreedyRecompute(const Model& model, Ids ids, Index n) {
  for (Index i = 0; i < n; ++i) {
    planted::Cache unused(model.config, false);
    ids.push_back(planted::argmax(planted::lastLogits(ids, model, unused)));
  }
  return ids;
}

inline Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x) {
  planted::LayerRows cache;
  Matrix<float> out(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) out.row(t) = planted::attnStep({x.row(t)}, cache, model, layer).front();
  return out;
}

inline Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes) {
  planted::Cache cache(model.config);
  Prefilled result;
  auto next = ids.begin();
  for (const Index size : chunkSizes) {
    result.logits = planted::lastLogits(Ids(next, next + size), model, cache);
    next += size;
  }
  const auto joined = [](const std::vector<planted::Row>& rows) {
    Matrix<float> matrix(static_cast<Index>(rows.size()), rows.front().size());
    for (Index t = 0; t < matrix.rows(); ++t) matrix.row(t) = rows[static_cast<std::size_t>(t)];
    return matrix;
  };
  for (Index layer = 0; layer < model.config.n_layer; ++layer) {
    result.keys.push_back(joined(cache.layer(layer).keys));
    result.values.push_back(joined(cache.layer(layer).values));
  }
  return result;
}

inline Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds) {
  planted::Cache cache(model.config);
  Matrix<float> logits(static_cast<Index>(nextIds.size()) + 1, model.config.vocab_size);
  Index row = 0;
  logits.row(row++) = planted::lastLogits(promptIds, model, cache);
  for (const int id : nextIds) logits.row(row++) = planted::lastLogits({id}, model, cache);
  return logits;
}

inline RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId) {
  return runStepwise(model, promptIds, {nextId}).row(1);
}

inline int runArgmax(const RowVector<float>& logits) { return planted::argmax(logits); }

inline Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens) {
  Ids generated;
  if (maxTokens == 0) return generated;
  planted::Cache cache(model.config);
  planted::Row logits = planted::lastLogits(promptIds, model, cache);
  for (;;) {
    generated.push_back(planted::argmax(logits));
    if (static_cast<Index>(generated.size()) == maxTokens || cache.length == model.config.n_positions) return generated;
    logits = planted::lastLogits({generated.back()}, model, cache);
  }
}

}  // namespace adapters
