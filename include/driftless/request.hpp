#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driftless/cache_policy.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/drafts.hpp"
#include "driftless/log_probabilities.hpp"
#include "driftless/rules.hpp"
#include "driftless/sample.hpp"
#include "driftless/stored_type.hpp"
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

/// How many sequences run together, and in what memory.
struct BatchOptions {
  Index sequences = 16;                 ///< the most that run together; each beam of a search is one
  Index prompt_rows = 64;               ///< rows of prompts in a step for which running sequences wait
  StoredType cache = StoredType::full;  ///< what keys and values are stored as
  /// The most that the caches of running sequences may take, in bytes, each counted as long as it can become.
  Index cache_bytes = (std::numeric_limits<Index>::max)();
  Index prefix_bytes = 0;  ///< what a PrefixIndex over the prompts may hold; 0: there is none
  /// Which positions caches keep; all if there is none. Excludes prefix_bytes and, in requests, a drafter. If it
  /// throws, or keeps all of a prompt that is longer than n_positions, all that runs ends with it.
  std::shared_ptr<const CachePolicy> policy = {};
  bool past_context = false;  ///< whether sequences go on past n_positions: see ModelCache, also for what it needs
};

}}  // namespace driftless::DRIFTLESS_ABI
