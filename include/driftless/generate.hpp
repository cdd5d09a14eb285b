#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/forward.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// How the next token is drawn. The defaults are greedy.
struct Sampling {
  double temperature = 0;  ///< logits are divided by it; 0 takes the largest
  int top_k = 0;           ///< only the k largest logits are in the draw; 0: all
  double top_p = 1;        ///< and of these only the most likely ones, up to a total probability of p (Holtzman 2020)
  std::uint64_t seed = 0;  ///< of the engine that the draws come from
};

/// Throws ArgumentError for a value out of range, by name.
inline void checkSampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    throw ArgumentError("expected a temperature of 0 or more, got " + std::to_string(sampling.temperature));
  if (sampling.top_k < 0) throw ArgumentError("expected a top_k of 0 or more, got " + std::to_string(sampling.top_k));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    throw ArgumentError("expected a top_p above 0 and up to 1, got " + std::to_string(sampling.top_p));
}

namespace detail {

/// e^x of every element, by the library's own series: the standard's differs between platforms.
inline std::vector<double> portableExp(std::vector<double> x) {
  const std::size_t size = x.size();
  x.resize(static_cast<std::size_t>(roundUpToLanes(static_cast<Index>(size))));
  for (std::size_t i = 0; i < x.size(); i += kLanes) exp(Lanes<double>::load(&x[i])).store(&x[i]);
  x.resize(size);
  return x;
}

/// A number in [0, 1) from one draw, the same from every standard library.
inline double uniform(std::mt19937_64& engine) { return static_cast<double>(engine() >> 11) * 0x1p-53; }

}  // namespace detail

/// Draws a token id by temperature, then top_k, then top_p, with one number from the engine; at temperature 0 it is
/// argmax and draws none. The same logits and engine give the same id on every platform. A NaN logit is never drawn.
/// Throws ArgumentError for bad settings and where there is nothing but NaN.
template <class Scalar>
int sample(const RowVector<Scalar>& logits, const Sampling& sampling, std::mt19937_64& engine) {
  checkSampling(sampling);
  const int most_likely = argmax(logits);
  if (sampling.temperature == 0) return most_likely;

  // Distance from the largest logit; equal ones are not subtracted, they may be infinite.
  std::vector<double> distance(static_cast<std::size_t>(logits.size()), -std::numeric_limits<double>::infinity());
  const double largest = static_cast<double>(logits[most_likely]);
  for (std::size_t id = 0; id < distance.size(); ++id) {
    const double logit = static_cast<double>(logits[static_cast<Index>(id)]);
    if (!std::isnan(logit)) distance[id] = logit == largest ? 0 : (logit - largest) / sampling.temperature;
  }
  const std::vector<double> weight = detail::portableExp(distance);

  std::vector<std::size_t> candidates(distance.size());
  std::iota(candidates.begin(), candidates.end(), std::size_t{0});
  const auto totalWeight = [&] {
    double total = 0;
    for (const std::size_t id : candidates) total += weight[id];
    return total;
  };
  if (sampling.top_k > 0 || sampling.top_p < 1) {
    const std::size_t k = sampling.top_k > 0 ? static_cast<std::size_t>(sampling.top_k) : candidates.size();
    const std::size_t kept = (std::min)(k, candidates.size());
    std::partial_sort(
        candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept), candidates.end(),
        [&](std::size_t a, std::size_t b) { return distance[a] != distance[b] ? distance[a] > distance[b] : a < b; });
    candidates.resize(kept);
  }
  if (sampling.top_p < 1) {
    const double enough = sampling.top_p * totalWeight();
    double kept_weight = 0;
    std::size_t kept = 0;
    while (kept < candidates.size() && kept_weight < enough) kept_weight += weight[candidates[kept++]];
    candidates.resize(kept);
  }

  const double target = detail::uniform(engine) * totalWeight();
  double reached = 0;
  for (const std::size_t id : candidates) {
    reached += weight[id];
    if (target < reached) return static_cast<int>(id);
  }
  return most_likely;
}

/// Why a generation ended.
enum class FinishReason {
  length,       ///< max_tokens were generated
  stop,         ///< a stop id came up; it is not part of the output
  callback,     ///< the callback asked for it
  context_full  ///< n_positions are used up: there is no position for the last token, so none can follow it
};

/// How far and in which way to go on.
struct GenerateOptions {
  Index max_tokens = 100;     ///< at most so many for each prompt
  std::vector<int> stop_ids;  ///< none by default, not even <|endoftext|>
  Sampling sampling;          ///< greedy by default
  bool use_cache = true;      ///< false recomputes everything at every step: the same ids, slowly
};

/// What came of one prompt.
struct Generation {
  std::vector<int> output_ids;                        ///< without the prompt
  FinishReason finish_reason = FinishReason::length;  ///< why there are no more
};

/// Called with every id as soon as it is chosen, and the index of its prompt; false stops that sequence behind it. An
/// empty function is not called.
using OnToken = std::function<bool(std::size_t prompt, int id)>;

namespace detail {

/// One sequence on its way: what it has generated, and the cache it is generated with.
template <class Scalar, class CacheStored>
struct Sequence {
  std::size_t prompt;
  std::vector<int> ids;  ///< the prompt and what follows it
  std::mt19937_64 engine;
  ModelCache<Scalar, CacheStored>* cache;
  Generation generation;
  bool goes_on;

  /// Chooses the next id by the logits of the last one. False where that was the end.
  bool advance(const RowVector<Scalar>& logits, const GenerateOptions& options, const OnToken& onToken) {
    const auto finish = [&](FinishReason reason) {
      generation.finish_reason = reason;
      return false;
    };
    const int id = sample(logits, options.sampling, engine);
    if (std::ranges::find(options.stop_ids, id) != options.stop_ids.end()) return finish(FinishReason::stop);
    ids.push_back(id);
    generation.output_ids.push_back(id);
    if (onToken && !onToken(prompt, id)) return finish(FinishReason::callback);
    if (static_cast<Index>(generation.output_ids.size()) == options.max_tokens) return finish(FinishReason::length);
    if (cache->length() == cache->capacity()) return finish(FinishReason::context_full);
    return true;
  }

  /// The ids whose logits are to be computed next.
  Chunk<Scalar, CacheStored> nextChunk(bool use_cache) {
    if (!use_cache) cache->reset();
    return {std::span<const int>(ids).subspan(static_cast<std::size_t>(cache->length())), cache};
  }
};

}  // namespace detail

/// Continues prompts: prefill, then choose a token, emit it, decode it. The first token comes from the prefill's
/// logits, and nothing is decoded after a sequence's last one. As many sequences run together as there are caches,
/// whose contents are forgotten; where one ends, the next prompt takes its place. What a prompt yields, to the bit and
/// in the order of `prompts`, does not depend on its company: each draws from an engine of its own with the same seed.
///
/// Throws ArgumentError for bad options or ids and ContextFull where a prompt alone has more than n_positions tokens,
/// before anything is generated.
template <class Scalar, class Stored, class CacheStored>
std::vector<Generation> generateTokens(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                       const Weights<Scalar, Stored>& weights,
                                       std::vector<ModelCache<Scalar, CacheStored>>& caches,
                                       const OnToken& onToken = {}) {
  checkSampling(options.sampling);
  if (options.max_tokens < 0)
    throw ArgumentError("expected max_tokens of 0 or more, got " + std::to_string(options.max_tokens));
  if (caches.empty()) throw ArgumentError("expected at least one cache, got none");
  std::vector<ModelCache<Scalar, CacheStored>*> free;
  for (ModelCache<Scalar, CacheStored>& cache : caches) {
    cache.reset();
    free.push_back(&cache);
  }
  for (const std::vector<int>& prompt : prompts)
    detail::checkChunk(Chunk<Scalar, CacheStored>{prompt, &caches.front()}, weights);

  std::vector<Generation> generations(prompts.size());
  if (options.max_tokens == 0) return generations;
  std::vector<detail::Sequence<Scalar, CacheStored>> running;
  std::vector<Chunk<Scalar, CacheStored>> chunks;
  std::size_t next = 0;
  while (next < prompts.size() || !running.empty()) {
    for (; next < prompts.size() && !free.empty(); ++next) {
      free.back()->reset();
      running.push_back({next, prompts[next], std::mt19937_64(options.sampling.seed), free.back(), {}, true});
      free.pop_back();
    }
    chunks.clear();
    for (auto& sequence : running) chunks.push_back(sequence.nextChunk(options.use_cache));
    const Matrix<Scalar>& logits = prefill(chunks, weights);
    for (std::size_t row = 0; row < running.size(); ++row) {
      detail::Sequence<Scalar, CacheStored>& sequence = running[row];
      sequence.goes_on = sequence.advance(logits.row(static_cast<Index>(row)), options, onToken);
      if (sequence.goes_on) continue;
      free.push_back(sequence.cache);
      generations[sequence.prompt] = std::move(sequence.generation);
    }
    std::erase_if(running, [](const auto& sequence) { return !sequence.goes_on; });
  }
  return generations;
}

/// The same for a list of prompts, up to sixteen at a time.
template <class Scalar, class Stored>
std::vector<Generation> generateTokens(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                       const Weights<Scalar, Stored>& weights, const OnToken& onToken = {}) {
  constexpr std::size_t kTogether = 16;
  std::vector<ModelCache<Scalar>> caches;
  for (std::size_t i = 0; i < std::clamp(prompts.size(), std::size_t{1}, kTogether); ++i) caches.emplace_back(weights);
  return generateTokens(prompts, options, weights, caches, onToken);
}

/// The same for one prompt.
template <class Scalar, class Stored>
Generation generateTokens(std::span<const int> promptIds, const GenerateOptions& options,
                          const Weights<Scalar, Stored>& weights, const std::function<bool(int id)>& onToken = {}) {
  OnToken onlyToken;
  if (onToken) onlyToken = [&](std::size_t, int id) { return onToken(id); };
  const std::vector<std::vector<int>> prompts = {{promptIds.begin(), promptIds.end()}};
  return generateTokens(prompts, options, weights, onlyToken).front();
}

/// The greedy continuation of a prompt by up to maxTokens ids, fewer where the context is full before. Errors as above.
/// A template so that `{}` means default options.
template <std::integral Count, class Scalar, class Stored>
std::vector<int> generateTokens(std::span<const int> promptIds, Count maxTokens,
                                const Weights<Scalar, Stored>& weights) {
  GenerateOptions options;
  options.max_tokens = static_cast<Index>(maxTokens);
  return generateTokens(promptIds, options, weights).output_ids;
}

}  // namespace driftless::inline DRIFTLESS_ABI
