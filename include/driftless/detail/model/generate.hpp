#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/forward.hpp"
#include "driftless/error.hpp"
#include "driftless/generate.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

template <class Scalar>
bool isFinite(const AlignedBuffer<Scalar>& vector) {
  return Eigen::Map<const RowVector<Scalar>>(vector.data(), vector.size()).allFinite();
}

template <class Scalar>
bool isFinite(const PaddedRows<Scalar>& matrix) {
  return matrix.matrix().allFinite();
}

template <class Scalar>
bool isFinite(const PackedMatrix<Scalar>& matrix) {
  const RowVector<Scalar> zeros = RowVector<Scalar>::Zero(matrix.in());
  RowVector<Scalar> column(matrix.in());
  for (Index i = 0; i < matrix.out(); ++i) {
    matrix.addColumn(i, zeros.data(), column.data());
    if (!column.allFinite()) return false;
  }
  return true;
}

template <class Scalar>
bool isFinite(const Embedding<Scalar>& embedding) {
  return isFinite(embedding.columns);
}

/// Says what is wrong with logits. Looks through the weights, which takes time, once and only if something is.
template <class Scalar>
class LogitsCheck {
 public:
  explicit LogitsCheck(const Weights<Scalar>& weights) : weights_(weights) {}

  /// Why no token can be chosen by the logits at a position, or nothing.
  std::string faultAt(Index position, std::span<const Scalar> logits) {
    const std::string fault = faultOf(logits);
    if (fault.empty()) return {};
    if (cause_.empty()) cause_ = findCause();
    return message({"logits at position ", position, ": ", fault, "; ", cause_});
  }

 private:
  std::string findCause() const {
    std::string tensors;
    forEachTensor(weights_, [&](const std::string& name, const auto& tensor, Index, Index) {
      if (!isFinite(tensor)) tensors += (tensors.empty() ? "" : ", ") + name;
    });
    if (tensors.empty()) return "all weights are finite, but what is computed from them is not";
    return message({"not all numbers are finite in ", printable(tensors)});
  }

  const Weights<Scalar>& weights_;
  std::string cause_;
};

/// Rows of prompts in a step that running sequences wait for. At the 124M shape a step of 16 sequences takes three
/// times as long with them; fewer would not make a row of the prompt any dearer, but add a step's own cost more often.
inline constexpr std::size_t kJoiningRows = 64;

/// One sequence on its way: what it has generated, and the cache it is generated with.
template <class Scalar>
struct Sequence {
  std::size_t prompt;
  std::vector<int> ids;  ///< the prompt and what follows it
  std::mt19937_64 engine;
  ModelCache<Scalar>* cache;
  Generation generation = {};
  bool goes_on = true;

  /// Whether it has yet to get its first token.
  bool isPrompt() const { return generation.output_ids.empty(); }
  /// Ids that are to be run before the next one can be chosen.
  std::span<const int> idsLeft() const { return std::span(ids).subspan(static_cast<std::size_t>(cache->length())); }

  /// Chooses the next id by the logits of the last one.
  void advance(std::span<const Scalar> logits, LogitsCheck<Scalar>& check, const GenerateOptions& options,
               Candidates& candidates, const OnToken& onToken) {
    generation.error = check.faultAt(cache->length() - 1, logits);
    if (!generation.error.empty()) return finish(FinishReason::error);
    const int id = draw(logits, options.sampling, engine, candidates);
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end())
      return finish(FinishReason::stop);
    ids.push_back(id);
    generation.output_ids.push_back(id);
    if (onToken && !onToken(prompt, id)) return finish(FinishReason::callback);
    if (static_cast<Index>(generation.output_ids.size()) == options.max_tokens) return finish(FinishReason::length);
    if (cache->length() == cache->capacity()) return finish(FinishReason::context_full);
    if (!options.use_cache) cache->reset();
  }

  void finish(FinishReason reason) {
    generation.finish_reason = reason;
    goes_on = false;
  }
};

}  // namespace detail

template <FloatingScalar Scalar>
void checkLogits(const std::type_identity_t<Eigen::Ref<const RowVector<Scalar>>>& logits, Index position,
                 const Weights<Scalar>& weights) {
  const std::string fault =
      detail::LogitsCheck<Scalar>(weights).faultAt(position, {logits.data(), logits.data() + logits.size()});
  if (!fault.empty()) detail::raise<ArgumentError>({fault});
}

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       std::vector<ModelCache<Scalar>>& caches, Workspace<Scalar>& workspace,
                                       const OnToken& onToken, const OnFinish& onFinish) {
  checkSampling(options.sampling);
  if (options.max_tokens < 0)
    detail::raise<ArgumentError>({"expected max_tokens of 0 or more, got ", options.max_tokens});
  if (caches.empty()) detail::raise<ArgumentError>({"expected at least one cache, got none"});
  std::vector<ModelCache<Scalar>*> free;
  for (ModelCache<Scalar>& cache : caches) {
    cache.reset();
    free.push_back(&cache);
  }
  for (const std::vector<int>& prompt : prompts) detail::checkChunk(Chunk<Scalar>{prompt, &caches.front()}, weights);

  std::vector<Generation> generations(prompts.size());
  const auto finish = [&](std::size_t prompt, Generation generation) {
    generations[prompt] = std::move(generation);
    if (onFinish) onFinish(prompt, generations[prompt]);
  };
  std::size_t next = 0;
  if (options.max_tokens == 0)
    for (; next < prompts.size(); ++next) finish(next, {});
  detail::LogitsCheck<Scalar> check(weights);
  std::vector<detail::Sequence<Scalar>> running;
  std::vector<Chunk<Scalar>> chunks;
  while (next < prompts.size() || !running.empty()) {
    for (; next < prompts.size() && !free.empty(); ++next) {
      free.back()->reset();
      running.push_back({next, prompts[next], std::mt19937_64(options.sampling.seed), free.back()});
      free.pop_back();
    }
    // Prompts are run in the order in which they joined, so that sequences that get a token come before those that wait
    // for one. If the first is a prompt, nobody has a token yet, and whole prompts are read with the fewest steps.
    constexpr std::size_t kAll = (std::numeric_limits<std::size_t>::max)();
    std::size_t prompt_rows = running.front().isPrompt() ? kAll : detail::kJoiningRows;
    std::size_t complete = 0;
    chunks.clear();
    for (const detail::Sequence<Scalar>& sequence : running) {
      const std::span<const int> left = sequence.idsLeft();
      const std::size_t count = sequence.isPrompt() ? (std::min)(left.size(), prompt_rows) : left.size();
      if (count == 0) break;
      if (sequence.isPrompt()) prompt_rows -= count;
      if (count == left.size()) ++complete;
      chunks.push_back({left.first(count), sequence.cache});
    }
    const MatrixView<Scalar> logits = detail::lastLogits(std::span(std::as_const(chunks)), static_cast<Index>(complete),
                                                         weights, workspace, Observer<Scalar>());
    for (std::size_t row = 0; row < complete; ++row) {
      detail::Sequence<Scalar>& sequence = running[row];
      const Scalar* const numbers = logits.row(static_cast<Index>(row)).data();
      sequence.advance({numbers, static_cast<std::size_t>(logits.cols())}, check, options, workspace.step().candidates,
                       onToken);
      if (sequence.goes_on) continue;
      free.push_back(sequence.cache);
      finish(sequence.prompt, std::move(sequence.generation));
    }
    std::erase_if(running, [](const detail::Sequence<Scalar>& sequence) { return !sequence.goes_on; });
  }
  return generations;
}

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       const OnToken& onToken, const OnFinish& onFinish) {
  constexpr std::size_t kTogether = 16;
  std::vector<ModelCache<Scalar>> caches;
  for (std::size_t i = 0; i < std::clamp(prompts.size(), std::size_t{1}, kTogether); ++i) caches.emplace_back(weights);
  Workspace<Scalar> workspace(weights.threads);
  return generateTokens(prompts, options, weights, caches, workspace, onToken, onFinish);
}

template <FloatingScalar Scalar>
Generation generateTokens(TokenIds promptIds, const GenerateOptions& options, const Weights<Scalar>& weights,
                          const std::function<bool(int id)>& onToken) {
  OnToken onlyToken;
  if (onToken) onlyToken = [&](std::size_t, int id) { return onToken(id); };
  const std::vector<std::vector<int>> prompts = {{promptIds.begin(), promptIds.end()}};
  Generation generation = generateTokens(prompts, options, weights, onlyToken).front();
  if (generation.finish_reason == FinishReason::error) detail::raise<ArgumentError>({generation.error});
  return generation;
}

}}  // namespace driftless::DRIFTLESS_ABI
