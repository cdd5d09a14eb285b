#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/token_ids.hpp"
#include "driftless/workspace.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// What is added to the logit of one token.
struct LogitBias {
  int id;       ///< of the model's vocabulary
  double bias;  ///< finite, as a float too

  /// Whether both are the same.
  bool operator==(const LogitBias&) const = default;
};

/// Rules that change logits before a token is chosen by them. The defaults change nothing. They apply in the order of
/// Hugging Face's transformers (`_get_logits_processor`), and compute in the logits' own type as it does:
///
/// 1. logit_bias;
/// 2. repetition_penalty;
/// 3. frequency_penalty and presence_penalty, which transformers lacks;
/// 4. no_repeat_ngram_size;
/// 5. suppress_tokens, and with them the stop ids of a generation that must not end yet;
/// 6. what Sampling says: temperature, top_k, top_p, min_p, typical_p.
struct LogitsRules {
  /// Added to the logits, one after the other: several of one id add up.
  std::vector<LogitBias> logit_bias = {};
  /// Divides what is 0 or more and multiplies what is less, once for every token that occurs in the prompt or in the
  /// output (Keskar 2019): above 1 they become less likely. Positive; 1 changes nothing.
  double repetition_penalty = 1;
  /// Subtracted from the logit of every token that occurs in the output, by OpenAI's formula: the prompt doesn't count.
  double presence_penalty = 0;
  /// Subtracted as often as the token occurs in the output.
  double frequency_penalty = 0;
  /// No run of so many tokens comes up a second time, wherever in prompt and output the first is; 0: any may.
  Index no_repeat_ngram_size = 0;
  /// Never chosen.
  std::vector<int> suppress_tokens = {};

  /// Whether all rules are the same.
  bool operator==(const LogitsRules&) const = default;
};

/// Throws ArgumentError for an id that is not in the model's vocabulary, a penalty or bias that is not a number or out
/// of float's range, a repetition_penalty that is not positive and an n-gram of negative size, naming it.
void checkRules(const LogitsRules& rules, const Config& config);

namespace detail {
struct RulesRoom;

/// The token gets the logit that is never chosen: minus infinity.
template <class Scalar>
void suppressTokens(std::span<Scalar> logits, std::span<const int> ids);

/// As below, for rules and ids that have been checked.
template <class Scalar>
void applyRules(std::span<Scalar> logits, const LogitsRules& rules, std::span<const int> ids, std::size_t prompt_tokens,
                RulesRoom& room);
}  // namespace detail

/// Changes logits [V], by which the token after `ids` is to be chosen, by all rules. `ids` are the prompt, of
/// `prompt_tokens` ids, and the output after it. Time is linear in `ids` and in the rules' lists; nothing is allocated
/// if a call before had as many logits, and n-grams as long. If nothing but minus infinity is left, no token can be
/// chosen: see sample. Throws ArgumentError as checkRules does, for an id outside the vocabulary, and for a prompt that
/// is longer than `ids`.
template <FloatingScalar Scalar>
void applyRules(std::type_identity_t<Eigen::Ref<RowVector<Scalar>>> logits, const LogitsRules& rules, TokenIds ids,
                std::size_t prompt_tokens, Workspace<Scalar>& workspace);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/rules.hpp"
#endif
