#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/forward.hpp"
#include "driftless/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Why a generation ended.
enum class FinishReason {
  length,        ///< max_tokens were generated
  stop,          ///< a stop id came up; it is not part of the output
  callback,      ///< the callback asked for it
  context_full,  ///< n_positions are used up: there is no position for the last token, so none can follow it
  error          ///< no token could be chosen: see checkLogits
};

/// When to stop, and how tokens are chosen.
struct GenerateOptions {
  Index max_tokens = 100;          ///< the most that are generated for each prompt
  std::vector<int> stop_ids = {};  ///< none by default, not even <|endoftext|>
  Sampling sampling = {};          ///< greedy by default
  bool use_cache = true;           ///< false recomputes everything at every step: the same ids, slowly
};

/// The result for one prompt.
struct Generation {
  std::vector<int> output_ids;                        ///< without the prompt
  FinishReason finish_reason = FinishReason::length;  ///< why there are no more
  std::string error;                                  ///< what went wrong, if that is the reason: as of checkLogits
};

/// Called with every id as soon as it is chosen, and the index of its prompt; false ends that sequence after this
/// token. An empty function is not called.
using OnToken = std::function<bool(std::size_t prompt, int id)>;

/// Called with the result of every prompt as soon as it has ended, in whatever order they do. An empty function is not
/// called.
using OnFinish = std::function<void(std::size_t prompt, const Generation& generation)>;

/// Throws ArgumentError if no token can be chosen by logits [V], which are those at `position`: the largest is
/// infinity, or all are NaN or minus infinity. The error names the tensors of the model that hold such numbers.
template <FloatingScalar Scalar>
void checkLogits(const std::type_identity_t<Eigen::Ref<const RowVector<Scalar>>>& logits, Index position,
                 const Weights<Scalar>& weights);

/// Continues prompts: prefill, then choose a token, emit it, decode it. The first token comes from the prefill's
/// logits, and nothing is decoded after a sequence's last one. As many sequences run together as there are caches,
/// whose contents are forgotten; when one ends, the next prompt takes its place. Sequences that are under way wait
/// for no more than 64 rows of prompts in one of their steps, of those that joined first. What a prompt
/// yields, to the bit and in the order of `prompts`, does not depend on its company: each draws from an engine of its
/// own with the same seed. onToken sees the ids of a prompt in their order; whose turn it is when is not promised.
///
/// A prompt for which no token can be chosen (see checkLogits) ends with FinishReason::error, and the others go on.
///
/// Throws ArgumentError for bad options or ids and ContextFull if a prompt alone has more than n_positions tokens,
/// before anything is generated.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       std::vector<ModelCache<Scalar>>& caches, Workspace<Scalar>& workspace,
                                       const OnToken& onToken = {}, const OnFinish& onFinish = {});

/// The same for a list of prompts, up to sixteen at a time.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       const OnToken& onToken = {}, const OnFinish& onFinish = {});

/// The same for one prompt. Throws ArgumentError where the others end with FinishReason::error.
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
