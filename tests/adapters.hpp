#pragma once

#include <vector>

#include "driftless/config.hpp"
#include "driftless/parameters.hpp"

/// The seam for grading: all that the stages in tests/stages know of the implementation that they grade. The stages are
/// compiled once; an implementation defines the functions below in source files of its own and is linked with them.
/// scripts/grade.sh does both. A function that nothing defines fails only the stages that call it.
///
/// Everything is in float. Shapes are those of config.hpp; T is the number of ids or rows passed in. Every call starts
/// from an empty cache. A model is always the same object, so an implementation may keep what it computes from one.
namespace adapters {

using driftless::Index, driftless::Matrix, driftless::RowVector;
using Ids = std::vector<int>;
using Model = driftless::Parameters<float>;

/// Where an implementation is, for what is said if it throws or crashes: the position of the first row that it
/// computes. It may set this at every step, or leave it alone.
inline Index position = -1;

/// What a prefill leaves in the cache, and its logits.
struct Prefilled {
  std::vector<Matrix<float>> keys;    ///< for every layer [T, C]: row t is position t's, heads side by side
  std::vector<Matrix<float>> values;  ///< likewise
  RowVector<float> logits;            ///< [V] of the last token
};

/// Stage causal-mask. [T, T], row = query, column = key: 0 if the query sees the key, minus infinity if not.
Matrix<float> buildCausalMask(Index T);

/// Stage full-forward. Logits [T, V] without a cache.
Matrix<float> runFullForward(const Model& model, const Ids& ids);

/// Stage greedy-decode. The id to choose by logits [V].
int runArgmax(const RowVector<float>& logits);

/// Stage greedy-recompute. promptIds followed by n greedy ids, with everything recomputed at every step.
Ids runGreedyRecompute(const Model& model, const Ids& promptIds, Index n);

/// Stage attn-step. Feeds the rows of x [T, C], ln_1's outputs, one by one to one layer's attention: its outputs
/// [T, C], after c_proj and before the residual is added.
Matrix<float> runAttnStep(const Model& model, Index layer, const Matrix<float>& x);

/// Stage prefill. Runs ids onto one cache in chunks of the given sizes, which add up to T.
Prefilled runPrefill(const Model& model, const Ids& ids, const std::vector<Index>& chunkSizes);

/// Stage per-step-identity. A prefill of promptIds, then one decode step for each of nextIds: logits
/// [1 + nextIds.size(), V]; row 0 is the prefill's.
Matrix<float> runStepwise(const Model& model, const Ids& promptIds, const Ids& nextIds);

/// Stage full-decode-step. A prefill of promptIds, then nextId at position promptIds.size(): its logits [V].
RowVector<float> runDecodeStep(const Model& model, const Ids& promptIds, int nextId);

/// Stage greedy-decode. Up to maxTokens greedy ids, without the prompt; fewer if the context is full before that.
Ids runGreedyGenerate(const Model& model, const Ids& promptIds, Index maxTokens);

}  // namespace adapters
