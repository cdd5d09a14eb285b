#pragma once

#include <algorithm>
#include <random>
#include <utility>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/forward.hpp"
#include "driftless/error.hpp"
#include "driftless/generate.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// One sequence on its way: what it has generated, and the cache it is generated with.
template <class Scalar>
struct Sequence {
  std::size_t prompt;
  std::vector<int> ids;  ///< the prompt and what follows it
  std::mt19937_64 engine;
  ModelCache<Scalar>* cache;
  Generation generation = {};
  bool goes_on = true;

  /// Chooses the next id by the logits of the last one.
  template <class Logits>
  void advance(const Logits& logits, const GenerateOptions& options, const OnToken& onToken) {
    const int id = driftless::sample(logits, options.sampling, engine);
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end())
      return finish(FinishReason::stop);
    ids.push_back(id);
    generation.output_ids.push_back(id);
    if (onToken && !onToken(prompt, id)) return finish(FinishReason::callback);
    if (static_cast<Index>(generation.output_ids.size()) == options.max_tokens) return finish(FinishReason::length);
    if (cache->length() == cache->capacity()) return finish(FinishReason::context_full);
  }

  void finish(FinishReason reason) {
    generation.finish_reason = reason;
    goes_on = false;
  }

  /// The ids whose logits are to be computed next.
  Chunk<Scalar> nextChunk(bool use_cache) {
    if (!use_cache) cache->reset();
    return {std::span<const int>(ids).subspan(static_cast<std::size_t>(cache->length())), cache};
  }
};

}  // namespace detail

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                       const Weights<Scalar>& weights, std::vector<ModelCache<Scalar>>& caches,
                                       Workspace<Scalar>& workspace, const OnToken& onToken) {
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
  if (options.max_tokens == 0) return generations;
  std::vector<detail::Sequence<Scalar>> running;
  std::vector<Chunk<Scalar>> chunks;
  std::size_t next = 0;
  while (next < prompts.size() || !running.empty()) {
    for (; next < prompts.size() && !free.empty(); ++next) {
      free.back()->reset();
      running.push_back({next, prompts[next], std::mt19937_64(options.sampling.seed), free.back()});
      free.pop_back();
    }
    chunks.clear();
    for (detail::Sequence<Scalar>& sequence : running) chunks.push_back(sequence.nextChunk(options.use_cache));
    const MatrixView<Scalar> logits = prefill(chunks, weights, workspace);
    for (std::size_t row = 0; row < running.size(); ++row) {
      detail::Sequence<Scalar>& sequence = running[row];
      sequence.advance(logits.row(static_cast<Index>(row)), options, onToken);
      if (sequence.goes_on) continue;
      free.push_back(sequence.cache);
      generations[sequence.prompt] = std::move(sequence.generation);
    }
    std::erase_if(running, [](const detail::Sequence<Scalar>& sequence) { return !sequence.goes_on; });
  }
  return generations;
}

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                       const Weights<Scalar>& weights, const OnToken& onToken) {
  constexpr std::size_t kTogether = 16;
  std::vector<ModelCache<Scalar>> caches;
  for (std::size_t i = 0; i < std::clamp(prompts.size(), std::size_t{1}, kTogether); ++i) caches.emplace_back(weights);
  Workspace<Scalar> workspace(weights.threads);
  return generateTokens(prompts, options, weights, caches, workspace, onToken);
}

template <FloatingScalar Scalar>
Generation generateTokens(std::span<const int> promptIds, const GenerateOptions& options,
                          const Weights<Scalar>& weights, const std::function<bool(int id)>& onToken) {
  OnToken onlyToken;
  if (onToken) onlyToken = [&](std::size_t, int id) { return onToken(id); };
  const std::vector<std::vector<int>> prompts = {{promptIds.begin(), promptIds.end()}};
  return generateTokens(prompts, options, weights, onlyToken).front();
}

}}  // namespace driftless::DRIFTLESS_ABI
