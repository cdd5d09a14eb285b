#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/forward.hpp"
#include "driftless/request.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Called with every id as soon as it is sure to be part of the output, and with the number of its sequence; false ends
/// that sequence after this token. Sequences are numbered from 0: the samples of the first prompt, then those of the
/// second. An empty function is not called.
using OnToken = std::function<bool(std::size_t sequence, int id)>;

/// Called with the result of every sequence as soon as it has ended, in whatever order they do. An empty function is
/// not called.
using OnFinish = std::function<void(std::size_t sequence, const Generation& generation)>;

/// Throws ArgumentError if no token can be chosen by logits [V], which are those at `position`: the largest is
/// infinity, or all are NaN or minus infinity. The error names the tensors of the model that hold such numbers.
template <FloatingScalar Scalar>
void checkLogits(const std::type_identity_t<Eigen::Ref<const RowVector<Scalar>>>& logits, Index position,
                 const Weights<Scalar>& weights);

/// Continues prompts: prefill, then choose a token, emit it, decode it. The first token comes from the prefill's
/// logits, and nothing is decoded after a sequence's last one. As many sequences run together as `batch` says; when one
/// ends, the next takes its place. Sequences that are under way wait for no more than batch.prompt_rows rows of prompts
/// in one of their steps, of those that joined first. The samples of a prompt share what its prefill has computed.
///
/// Returns a Generation for each sequence: those of the first prompt's samples, then those of the second's; of a beam
/// search, the best first, and FinishReason::error for those that it has not found, where rules leave too few. What a
/// sequence yields, to the bit, depends on its request alone: not on its company, on batch, or on the drafter. onToken
/// sees the ids of a sequence in their order; whose turn it is when is not promised.
///
/// A sequence for which no token can be chosen (see checkLogits) ends with FinishReason::error, and the others go on.
///
/// Throws ArgumentError for bad options or ids and ContextFull if a prompt alone has more tokens than a cache has
/// positions, before anything is generated.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(std::span<const Request> requests, const Weights<Scalar>& weights,
                                       Workspace<Scalar>& workspace, const BatchOptions& batch = {},
                                       const OnToken& onToken = {}, const OnFinish& onFinish = {});

/// The same for prompts that are all continued in the same way.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       Workspace<Scalar>& workspace, const BatchOptions& batch = {},
                                       const OnToken& onToken = {}, const OnFinish& onFinish = {});

/// The same in a workspace of its own.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       const OnToken& onToken = {}, const OnFinish& onFinish = {});

/// Goes on from what a cache holds, at the positions from cache.length() on: `ids`, at least one, and what follows
/// them. Rules see the ids that the cache holds too. Afterwards the cache holds all but the last token, which is to
/// be the first of the next call's ids. Throws as above, also if options.samples or options.num_beams is not 1, and
/// where other calls end with FinishReason::error.
template <FloatingScalar Scalar>
Generation generateTokens(TokenIds ids, const GenerateOptions& options, const Weights<Scalar>& weights,
                          ModelCache<Scalar>& cache, Workspace<Scalar>& workspace,
                          const std::function<bool(int id)>& onToken = {});

/// The same for one prompt on a cache of its own, with any num_beams.
template <FloatingScalar Scalar>
Generation generateTokens(TokenIds promptIds, const GenerateOptions& options, const Weights<Scalar>& weights,
                          const std::function<bool(int id)>& onToken = {});

/// The greedy continuation of a prompt by up to maxTokens ids, fewer if the context fills up first. Errors as above.
/// A template so that `{}` means default options, and so that the largest number of any type is a large one.
template <std::integral Count, FloatingScalar Scalar>
std::vector<int> generateTokens(TokenIds promptIds, Count maxTokens, const Weights<Scalar>& weights) {
  GenerateOptions options;
  options.max_tokens =
      std::in_range<Index>(maxTokens) ? static_cast<Index>(maxTokens) : (std::numeric_limits<Index>::max)();
  return generateTokens(promptIds, options, weights).output_ids;
}

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/generate.hpp"
#endif
