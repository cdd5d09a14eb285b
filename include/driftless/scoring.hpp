#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/log_probabilities.hpp"
#include "driftless/token_ids.hpp"
#include "driftless/weights.hpp"
#include "driftless/workspace.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// How texts are scored that are longer than the context, and what is told of each token.
struct ScoreOptions {
  std::optional<Index> max_length = {};  ///< the most tokens that are looked at together; n_positions if absent
  std::optional<Index> stride = {};      ///< how far windows are apart, in tokens; half of max_length if absent
  Index top = 0;                         ///< how many of the likeliest tokens are told at every position
};

/// How likely tokens are to a model.
struct Score {
  std::vector<double> log_probabilities;              ///< log p(id) of each token that was scored, in order
  std::vector<std::vector<TokenLogProbability>> top;  ///< the likeliest in each one's place, if they were asked for
  double total = 0;                                   ///< the sum of log_probabilities

  /// The mean of log_probabilities; NaN if there are none.
  double mean() const;
  /// e^-mean(), the same bits on every platform; NaN if there are no log_probabilities.
  double perplexity() const;
};

/// Called whenever some more tokens have been scored, with how many are so far. An empty function is not called.
using OnScored = std::function<void(std::size_t scored)>;

/// The log-probability of every token but the first, which has nothing before it, given those before it: T - 1 of them.
/// In a text of up to max_length tokens these are all; their bits are those of logProbability by the logits of prefill
/// or decodeStep. A longer text is gone through in windows of max_length tokens that begin stride tokens apart, each of
/// which scores what those before it have not, by the tokens from its own beginning on: the convention of Hugging
/// Face's page on the perplexity of models with a fixed length. A token beyond the first window has at least max_length
/// - stride tokens before it. The less the stride, the better informed and the slower.
///
/// Throws ArgumentError for ids or options out of range, no ids, and logits by which no token can be chosen (see
/// checkLogits).
template <FloatingScalar Scalar>
Score scoreTokens(TokenIds ids, const Weights<Scalar>& weights, const ScoreOptions& options = {},
                  const OnScored& onScored = {}) {
  ModelCache<Scalar> cache(weights);
  Workspace<Scalar> workspace(weights.threads);
  return scoreTokens(ids, weights, cache, workspace, options, onScored);
}

/// The same with a cache, whose contents are forgotten, and in a workspace. Logits are computed for 64 tokens at a
/// time: memory does not grow with the text, apart from the result.
template <FloatingScalar Scalar>
Score scoreTokens(TokenIds ids, const Weights<Scalar>& weights, ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                  const ScoreOptions& options = {}, const OnScored& onScored = {});

/// Of each of several continuations of a prompt, the log-probability of every token given the prompt and those before
/// it: the last of those that scoreTokens has for prompt and continuation together, to the bit. The prompt is run once.
///
/// Throws ArgumentError for ids out of range, no continuations, an empty prompt or continuation, and logits by which no
/// token can be chosen (see checkLogits); ContextFull if prompt and continuation have more than n_positions tokens.
template <FloatingScalar Scalar>
std::vector<Score> scoreContinuations(TokenIds promptIds, Prompts continuations, const Weights<Scalar>& weights) {
  ModelCache<Scalar> cache(weights);
  Workspace<Scalar> workspace(weights.threads);
  return scoreContinuations(promptIds, continuations, weights, cache, workspace);
}

/// The same with a cache, whose contents are forgotten, and in a workspace.
template <FloatingScalar Scalar>
std::vector<Score> scoreContinuations(TokenIds promptIds, Prompts continuations, const Weights<Scalar>& weights,
                                      ModelCache<Scalar>& cache, Workspace<Scalar>& workspace);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/scoring.hpp"
#endif
