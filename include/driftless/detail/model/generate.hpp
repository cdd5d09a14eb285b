#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/batch.hpp"
#include "driftless/error.hpp"
#include "driftless/generate.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template <FloatingScalar Scalar>
void checkLogits(const std::type_identity_t<Eigen::Ref<const RowVector<Scalar>>>& logits, Index position,
                 const Weights<Scalar>& weights) {
  const std::string fault =
      detail::LogitsCheck<Scalar>(weights).faultAt(position, {logits.data(), logits.data() + logits.size()});
  if (!fault.empty()) detail::raise<ArgumentError>({fault});
}

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(std::span<const Request> requests, const Weights<Scalar>& weights,
                                       Workspace<Scalar>& workspace, const BatchOptions& batch, const OnToken& onToken,
                                       const OnFinish& onFinish) {
  detail::Batch<Scalar> running(weights, workspace, batch);
  for (const Request& request : requests) running.check(request);

  std::vector<Generation> generations;
  std::deque<detail::Job<Scalar>> jobs;
  for (const Request& request : requests) {
    const std::size_t first = generations.size();
    generations.resize(first + static_cast<std::size_t>(request.options.samples));
    detail::Job<Scalar>& job = jobs.emplace_back(request);
    if (onToken) job.on_token = [&onToken, first](std::size_t sample, int id) { return onToken(first + sample, id); };
    job.on_finish = [&, first](std::size_t sample, Generation&& generation) {
      generations[first + sample] = std::move(generation);
      if (onFinish) onFinish(first + sample, generations[first + sample]);
    };
    running.add(job.place);
  }
  while (running.step()) {
  }
  return generations;
}

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       Workspace<Scalar>& workspace, const BatchOptions& batch, const OnToken& onToken,
                                       const OnFinish& onFinish) {
  std::vector<Request> requests;
  for (const std::vector<int>& prompt : prompts) requests.push_back({prompt, options});
  return generateTokens(std::span<const Request>(requests), weights, workspace, batch, onToken, onFinish);
}

template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       const OnToken& onToken, const OnFinish& onFinish) {
  Workspace<Scalar> workspace(weights.threads);
  return generateTokens(prompts, options, weights, workspace, {}, onToken, onFinish);
}

namespace detail {

template <class Scalar>
Generation generateOne(TokenIds ids, const GenerateOptions& options, const Weights<Scalar>& weights,
                       ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                       const std::function<bool(int id)>& onToken) {
  const Request request{{ids.begin(), ids.end()}, options};
  checkOptions(options, weights.config);
  checkChunk(Chunk<Scalar>{request.ids, &cache}, weights);
  checkDrafter(options, cache);
  const std::vector<int>& held = cache.ids();
  const bool must_know_ids = options.rules != LogitsRules() || !options.use_cache;
  if (must_know_ids && std::find(held.begin(), held.end(), -1) != held.end())
    raise<ArgumentError>({"expected a cache that knows the ids of all its positions, for ",
                          options.use_cache ? "rules" : "use_cache = false", ", got some from layers by themselves"});
  if (options.samples != 1)
    raise<ArgumentError>({"expected samples of 1 on a cache that goes on, got ", options.samples});

  Generation result;
  Job<Scalar> job(request);
  if (onToken) job.on_token = [&](std::size_t, int id) { return onToken(id); };
  job.on_finish = [&](std::size_t, Generation&& generation) { result = std::move(generation); };
  Batch<Scalar>(weights, workspace, {}).run(job, cache);
  if (result.finish_reason == FinishReason::error) raise<ArgumentError>({result.error});
  return result;
}

}  // namespace detail

template <FloatingScalar Scalar>
Generation generateTokens(TokenIds ids, const GenerateOptions& options, const Weights<Scalar>& weights,
                          ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                          const std::function<bool(int id)>& onToken) {
  if (options.num_beams > 1)
    detail::raise<ArgumentError>({"expected num_beams of 1 on a cache that goes on, got ", options.num_beams});
  return detail::generateOne(ids, options, weights, cache, workspace, onToken);
}

template <FloatingScalar Scalar>
Generation generateTokens(TokenIds promptIds, const GenerateOptions& options, const Weights<Scalar>& weights,
                          const std::function<bool(int id)>& onToken) {
  ModelCache<Scalar> cache(weights);
  Workspace<Scalar> workspace(weights.threads);
  return detail::generateOne(promptIds, options, weights, cache, workspace, onToken);
}

}}  // namespace driftless::DRIFTLESS_ABI
