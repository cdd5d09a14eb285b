#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/drafts.hpp"
#include "driftless/forward.hpp"
#include "driftless/log_probabilities.hpp"
#include "driftless/rules.hpp"
#include "driftless/sample.hpp"
#include "driftless/stop_strings.hpp"
#include "driftless/tokenizer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Why a generation ended.
enum class FinishReason {
  length,        ///< max_tokens were generated
  stop,          ///< a stop id or a stop string came up; it is not part of the output
  callback,      ///< the callback asked for it
  context_full,  ///< n_positions are used up: there is no position for the last token, so none can follow it
  cancelled,     ///< Scheduler::cancel
  error          ///< no token could be chosen, as checkLogits says, or memory was not to be had
};

/// How one prompt is continued: when to stop, and how tokens are chosen. The defaults are greedy.
///
/// A token is chosen in this order: the logits; `rules`, in the order that rules.hpp says; the stop ids, where
/// min_tokens rules them out; then `sampling`.
struct GenerateOptions {
  /// The most that are generated. If a stop string begins within the last, output_ids can have more: see StopStrings.
  Index max_tokens = 100;
  Index min_tokens = 0;            ///< no stop id is chosen and no stop string is looked for before so many
  std::vector<int> stop_ids = {};  ///< of the model's; none by default, not even <|endoftext|>
  /// The text ends before the first of these, wherever in its tokens that is: see StopStrings. They need `tokenizer`.
  std::vector<std::string> stop_strings = {};
  const Tokenizer* tokenizer = nullptr;  ///< whose bytes stop_strings are looked for in; must outlive the generation
  Sampling sampling = {};                ///< greedy by default
  LogitsRules rules = {};                ///< none by default
  Index samples = 1;                     ///< continuations of the prompt; the i-th draws from an engine of seed + i
  /// How many of the likeliest tokens are reported at each step, besides the chosen one; absent: nothing is reported.
  std::optional<Index> log_probabilities = {};
  bool prompt_log_probabilities = false;  ///< whether the prompt's tokens are reported likewise
  Drafter drafter = {};     ///< guesses tokens, which are then verified together: the same ids, often sooner
  Index draft_tokens = 10;  ///< the most that are guessed at a time
  bool use_cache = true;    ///< false recomputes everything at every step: the same ids, slowly

  /// More than 1: a search for the likeliest continuations, as transformers' `generate` does it, with so many beams at
  /// a time, each with a cache of its own. `samples`, at most num_beams, is then how many of the best are returned.
  /// `rules` change log-probabilities instead of logits. Excludes a temperature, stop strings, a drafter and
  /// use_cache = false. As no id is certain before the search ends, callbacks see all of them then.
  Index num_beams = 1;
  /// From -10 to 10: continuations are compared by their sum of log-probabilities divided by their length, with the
  /// stop id, to this power: above 0 long ones gain, below 0 short ones.
  double length_penalty = 1;
  /// Whether the search ends as soon as num_beams continuations have; otherwise, it ends when the best beam is no
  /// better than the worst of them by the length that it has then.
  bool early_stopping = false;
};

/// A prompt, and how it is continued.
struct Request {
  std::vector<int> ids;          ///< of the prompt, at least one
  GenerateOptions options = {};  ///< of this prompt alone
};

/// A token's probability where it stands, and the likeliest tokens there.
struct TokenScore {
  double log_probability;                ///< of the token, as logProbability has it
  std::vector<TokenLogProbability> top;  ///< as topLogProbabilities has them
};

/// What came of a prompt, or of one of its samples.
struct Generation {
  std::vector<int> output_ids = {};                   ///< without the prompt
  FinishReason finish_reason = FinishReason::length;  ///< why there are no more
  std::string error = {};                             ///< what went wrong, if that is the reason
  /// Of each token that was chosen, by the model's logits as they are before rules and sampling. If a stop string
  /// begins within a token, the ids that output_ids has in its place were not chosen, and have none.
  std::vector<TokenScore> scores = {};
  std::vector<TokenScore> prompt_scores = {};  ///< of the prompt's tokens from its second on, likewise
  double beam_score = 0;  ///< by which beam search compared it with others, see length_penalty; otherwise 0
};

/// Called with every id as soon as it is sure to be part of the output, and with the number of its sequence; false ends
/// that sequence after this token. Sequences are numbered from 0: the samples of the first prompt, then those of the
/// second. An empty function is not called.
using OnToken = std::function<bool(std::size_t sequence, int id)>;

/// Called with the result of every sequence as soon as it has ended, in whatever order they do. An empty function is
/// not called.
using OnFinish = std::function<void(std::size_t sequence, const Generation& generation)>;

/// How many sequences run together, and in what memory.
struct BatchOptions {
  Index sequences = 16;                 ///< the most that run together; each beam of a search is one
  Index prompt_rows = 64;               ///< rows of prompts in a step for which running sequences wait
  StoredType cache = StoredType::full;  ///< what keys and values are stored as
  /// The most that the caches of running sequences may take, in bytes, each counted as long as it can become.
  Index cache_bytes = (std::numeric_limits<Index>::max)();
  Index prefix_bytes = 0;  ///< what a PrefixIndex over the prompts may hold; 0: there is none
};

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
/// Throws ArgumentError for bad options or ids and ContextFull if a prompt alone has more than n_positions tokens,
/// before anything is generated.
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
