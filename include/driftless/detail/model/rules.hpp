#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/rules_room.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/detail/text/pattern_match.hpp"
#include "driftless/error.hpp"
#include "driftless/rules.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

inline void checkRuleId(const char* where, int id, Index vocab_size) {
  if (id < 0 || id >= vocab_size)
    raise<ArgumentError>({where, ": expected token ids from 0 to ", vocab_size - 1, ", got ", id});
}

/// Logits may be floats: beyond their range a number would be infinite.
inline void checkRuleNumber(const char* name, double number) {
  if (!(std::abs(number) <= static_cast<double>((std::numeric_limits<float>::max)())))
    raise<ArgumentError>({"expected a ", name, " that is finite as a float, got ", number});
}

inline void checkRules(const LogitsRules& rules, Index vocab_size) {
  for (const LogitBias& bias : rules.logit_bias) {
    checkRuleId("logit_bias", bias.id, vocab_size);
    checkRuleNumber("logit_bias", bias.bias);
  }
  checkRuleNumber("repetition_penalty", rules.repetition_penalty);
  if (!(rules.repetition_penalty >= static_cast<double>((std::numeric_limits<float>::min)())))
    raise<ArgumentError>({"expected a repetition_penalty above 0, as a float too, got ", rules.repetition_penalty});
  checkRuleNumber("presence_penalty", rules.presence_penalty);
  checkRuleNumber("frequency_penalty", rules.frequency_penalty);
  if (rules.no_repeat_ngram_size < 0)
    raise<ArgumentError>({"expected a no_repeat_ngram_size of 0 or more, got ", rules.no_repeat_ngram_size});
  for (const int id : rules.suppress_tokens) checkRuleId("suppress_tokens", id, vocab_size);
}

template <class Scalar>
void suppressTokens(std::span<Scalar> logits, std::span<const int> ids) {
  for (const int id : ids) logits[static_cast<std::size_t>(id)] = -std::numeric_limits<Scalar>::infinity();
}

/// Calls with every id that occurs, once, and with how often it does. `counts` are zeros before and after.
template <class Function>
void forEachDistinct(std::span<const int> ids, std::vector<int>& counts, const Function& function) {
  for (const int id : ids) ++counts[static_cast<std::size_t>(id)];
  for (const int id : ids)
    if (const int count = std::exchange(counts[static_cast<std::size_t>(id)], 0); count > 0)
      function(static_cast<std::size_t>(id), count);
}

/// Suppresses what would complete a run of `size` ids that has been there before.
template <class Scalar>
void suppressRepeated(std::span<Scalar> logits, Index size, std::span<const int> ids,
                      std::vector<std::size_t>& borders) {
  const std::size_t before = static_cast<std::size_t>(size) - 1;
  if (ids.size() < before) return;
  const std::span<const int> begun = ids.last(before);
  findBorders(begun, borders);
  std::size_t matched = 0;
  for (const int& id : ids) {
    if (matched == before) suppressTokens(logits, std::span(&id, 1));
    matched = advanceMatch(begun, borders, matched, id);
  }
}

template <class Scalar>
void applyRules(std::span<Scalar> logits, const LogitsRules& rules, std::span<const int> ids, std::size_t prompt_tokens,
                RulesRoom& room) {
  if (room.counts.size() < logits.size()) room.counts.resize(logits.size());

  for (const LogitBias& bias : rules.logit_bias)
    logits[static_cast<std::size_t>(bias.id)] += static_cast<Scalar>(bias.bias);

  if (rules.repetition_penalty != 1) {
    const Scalar penalty = static_cast<Scalar>(rules.repetition_penalty);
    forEachDistinct(ids, room.counts, [&](std::size_t id, int) {
      logits[id] = logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty;
    });
  }
  if (rules.presence_penalty != 0 || rules.frequency_penalty != 0) {
    const Scalar presence = static_cast<Scalar>(rules.presence_penalty);
    const Scalar frequency = static_cast<Scalar>(rules.frequency_penalty);
    // std::fma, for some compilers would fuse the product with the difference, and others not.
    forEachDistinct(ids.subspan(prompt_tokens), room.counts, [&](std::size_t id, int count) {
      logits[id] = std::fma(-frequency, static_cast<Scalar>(count), logits[id]) - presence;
    });
  }
  if (rules.no_repeat_ngram_size > 0) suppressRepeated(logits, rules.no_repeat_ngram_size, ids, room.borders);
  suppressTokens(logits, std::span<const int>(rules.suppress_tokens));
}

}  // namespace detail

DRIFTLESS_INLINE void checkRules(const LogitsRules& rules, const Config& config) {
  detail::checkRules(rules, config.vocab_size);
}

template <FloatingScalar Scalar>
void applyRules(std::type_identity_t<Eigen::Ref<RowVector<Scalar>>> logits, const LogitsRules& rules, TokenIds ids,
                std::size_t prompt_tokens, Workspace<Scalar>& workspace) {
  detail::checkRules(rules, logits.size());
  for (const int id : ids) detail::checkRuleId("ids", id, logits.size());
  if (prompt_tokens > ids.size())
    detail::raise<ArgumentError>(
        {"expected prompt_tokens of at most ", ids.size(), ", as many as ids, got ", prompt_tokens});
  detail::applyRules(std::span<Scalar>(logits.data(), static_cast<std::size_t>(logits.size())), rules, ids,
                     prompt_tokens, workspace.step().rules);
}

}}  // namespace driftless::DRIFTLESS_ABI
