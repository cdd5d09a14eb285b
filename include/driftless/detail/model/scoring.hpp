#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/forward.hpp"
#include "driftless/error.hpp"
#include "driftless/generate.hpp"
#include "driftless/scoring.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE double Score::mean() const { return total / static_cast<double>(log_probabilities.size()); }

DRIFTLESS_INLINE double Score::perplexity() const {
  std::array<double, std::size_t{detail::kLanes}> powers = {-mean()};
  detail::kernels<double>().exponentiate(powers.data(), detail::kLanes);
  return powers[0];
}

namespace detail {

/// Adds the log-probability of `target` by the logits [V] at `position`.
template <class Scalar>
void addScore(std::span<const Scalar> logits, Index position, int target, const Weights<Scalar>& weights, Index top,
              Score& score) {
  checkLogits(Eigen::Map<const RowVector<Scalar>>(logits.data(), static_cast<Index>(logits.size())), position, weights);
  const LogSoftmax<Scalar> row(logits);
  score.log_probabilities.push_back(row(target));
  score.total += score.log_probabilities.back();
  if (top > 0) score.top.push_back(row.top(top));
}

/// Runs all ids but the last onto a cache, and scores all but the first.
template <class Scalar>
void scoreOnto(std::span<const int> ids, const Weights<Scalar>& weights, ModelCache<Scalar>& cache,
               Workspace<Scalar>& workspace, Index top, const OnScored& onScored, Score& score) {
  while (ids.size() > 1) {
    const std::size_t count = (std::min)(ids.size() - 1, static_cast<std::size_t>(kScoredRows));
    const Index position = cache.length();
    const Matrix<Scalar> logits = prefillLogits(ids.first(count), weights, cache, workspace);
    for (std::size_t i = 0; i < count; ++i) {
      const Index row = static_cast<Index>(i);
      addScore<Scalar>({logits.row(row).data(), static_cast<std::size_t>(logits.cols())}, position + row, ids[i + 1],
                       weights, top, score);
    }
    if (onScored) onScored(score.log_probabilities.size());
    ids = ids.subspan(count);
  }
}

}  // namespace detail

template <FloatingScalar Scalar>
Score scoreTokens(TokenIds ids, const Weights<Scalar>& weights, ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                  const ScoreOptions& options, const OnScored& onScored) {
  checkIds(ids, weights.config);
  const Index longest = weights.config.n_positions;
  const Index max_length = options.max_length.value_or(longest);
  // A window of a single token has nothing to score it by.
  if (max_length < 2 || max_length > longest)
    detail::raise<ArgumentError>(
        {"expected a max_length from 2 to ", longest, ", which is n_positions, got ", max_length});
  const Index stride = options.stride.value_or(max_length / 2);
  // Windows that do not overlap would leave the first token of each without one before it.
  if (stride < 1 || stride >= max_length)
    detail::raise<ArgumentError>(
        {"expected a stride from 1 to ", max_length - 1, ", one less than max_length, got ", stride});
  if (options.top < 0) detail::raise<ArgumentError>({"expected a top of 0 or more, got ", options.top});

  Score score;
  std::size_t next = 1;  // the first token that is yet to be scored
  for (std::size_t begin = 0; next < ids.size(); begin += static_cast<std::size_t>(stride)) {
    cache.reset();
    const std::size_t end = (std::min)(begin + static_cast<std::size_t>(max_length), ids.size());
    const std::span<const int> context = ids.subspan(begin, next - 1 - begin);
    if (!context.empty()) prefill(TokenIds(context), weights, cache, workspace);
    detail::scoreOnto<Scalar>(ids.subspan(next - 1, end - next + 1), weights, cache, workspace, options.top, onScored,
                              score);
    next = end;
  }
  return score;
}

template <FloatingScalar Scalar>
std::vector<Score> scoreContinuations(TokenIds promptIds, Prompts continuations, const Weights<Scalar>& weights,
                                      ModelCache<Scalar>& cache, Workspace<Scalar>& workspace) {
  checkIds(promptIds, weights.config);
  if (continuations.empty()) detail::raise<ArgumentError>({"expected at least one continuation, got none"});
  const Index prompt = static_cast<Index>(promptIds.size()), longest = weights.config.n_positions;
  for (const std::vector<int>& ids : continuations) {
    checkIds(ids, weights.config);
    if (static_cast<Index>(ids.size()) > longest - prompt)
      detail::raise<ContextFull>({"expected at most ", longest, " tokens (n_positions) of prompt and continuation ",
                                  &ids - continuations.data(), " together, got ", prompt, " and ", ids.size()});
  }

  cache.reset();
  const WorkspaceVector<Scalar>& logits = prefill(promptIds, weights, cache, workspace);
  std::vector<Score> scores(continuations.size());
  for (std::size_t i = 0; i < scores.size(); ++i)  // before another step takes the logits' place
    detail::addScore<Scalar>({logits.data(), static_cast<std::size_t>(logits.size())}, prompt - 1,
                             continuations[i].front(), weights, 0, scores[i]);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    ModelCache<Scalar> own = cache.clone();
    detail::scoreOnto<Scalar>(continuations[i], weights, own, workspace, 0, OnScored(), scores[i]);
  }
  return scores;
}

}}  // namespace driftless::DRIFTLESS_ABI
