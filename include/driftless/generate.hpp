#pragma once

#include <concepts>
#include <functional>
#include <span>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/forward.hpp"
#include "driftless/sample.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Why a generation ended.
enum class FinishReason {
  length,       ///< max_tokens were generated
  stop,         ///< a stop id came up; it is not part of the output
  callback,     ///< the callback asked for it
  context_full  ///< n_positions are used up: there is no position for the last token, so none can follow it
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
};

/// Called with every id as soon as it is chosen, and the index of its prompt; false ends that sequence after this
/// token. An empty function is not called.
using OnToken = std::function<bool(std::size_t prompt, int id)>;

/// Continues prompts: prefill, then choose a token, emit it, decode it. The first token comes from the prefill's
/// logits, and nothing is decoded after a sequence's last one. As many sequences run together as there are caches,
/// whose contents are forgotten; when one ends, the next prompt takes its place. What a prompt yields, to the bit and
/// in the order of `prompts`, does not depend on its company: each draws from an engine of its own with the same seed.
///
/// Throws ArgumentError for bad options or ids and ContextFull if a prompt alone has more than n_positions tokens,
/// before anything is generated.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       std::vector<ModelCache<Scalar>>& caches, Workspace<Scalar>& workspace,
                                       const OnToken& onToken = {});

/// The same for a list of prompts, up to sixteen at a time.
template <FloatingScalar Scalar>
std::vector<Generation> generateTokens(Prompts prompts, const GenerateOptions& options, const Weights<Scalar>& weights,
                                       const OnToken& onToken = {});

/// The same for one prompt.
template <FloatingScalar Scalar>
Generation generateTokens(TokenIds promptIds, const GenerateOptions& options, const Weights<Scalar>& weights,
                          const std::function<bool(int id)>& onToken = {});

/// The greedy continuation of a prompt by up to maxTokens ids, fewer if the context fills up first. Errors as above.
/// A template so that `{}` means default options.
template <std::integral Count, FloatingScalar Scalar>
std::vector<int> generateTokens(TokenIds promptIds, Count maxTokens, const Weights<Scalar>& weights) {
  GenerateOptions options;
  options.max_tokens = static_cast<Index>(maxTokens);
  return generateTokens(promptIds, options, weights).output_ids;
}

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/generate.hpp"
#endif
