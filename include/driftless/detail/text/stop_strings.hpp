#pragma once

#include <algorithm>
#include <span>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/text/pattern_match.hpp"
#include "driftless/error.hpp"
#include "driftless/stop_strings.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE StopStrings::StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& strings)
    : tokenizer_(tokenizer) {
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty())
      detail::raise<ArgumentError>(
          {"stop_strings: expected strings with at least one byte, got an empty one at index ", i});
    patterns_.push_back({strings[i], {}, 0});
    detail::findBorders(std::span<const char>(strings[i]), patterns_.back().borders);
  }
}

DRIFTLESS_INLINE bool StopStrings::push(int id) {
  if (!tokenizer_.has(id)) {
    pass(id);
    return false;
  }
  add(id);
  const std::string& bytes = tokenizer_.tokenBytes(id);
  std::size_t longest = 0;
  std::size_t stop = ends_.back();  // where the first of the complete ones begins
  for (Pattern& pattern : patterns_) {
    const std::span<const char> string = pattern.string;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      pattern.matched = detail::advanceMatch(string, pattern.borders, pattern.matched, bytes[i]);
      if (pattern.matched == string.size())
        stop = (std::min)(stop, ends_.back() - bytes.size() + i + 1 - string.size());
    }
    longest = (std::max)(longest, pattern.matched);
  }
  is_complete_ = stop < ends_.back();
  setCertain(is_complete_ ? stop : ends_.back() - longest);
  if (is_complete_) {
    const std::size_t begin = certain_ == 0 ? 0 : ends_[certain_ - 1];
    rest_ = tokenizer_.tokenBytes(ids_[certain_]).substr(0, stop - begin);
  }
  return is_complete_;
}

DRIFTLESS_INLINE void StopStrings::pass(int id) {
  add(id);
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  setCertain(ends_.back());
}

DRIFTLESS_INLINE std::vector<int> StopStrings::ids() const {
  if (!is_complete_) return ids_;
  std::vector<int> ids(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(certain_));
  const std::vector<int> rest = tokenizer_.encode(rest_, SpecialTokens::plainText);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

DRIFTLESS_INLINE void StopStrings::add(int id) {
  if (is_complete_) detail::raise<ArgumentError>({"token id ", id, ": expected none after a stop string"});
  const std::size_t size = tokenizer_.has(id) ? tokenizer_.tokenBytes(id).size() : 0;
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + size);
  ids_.push_back(id);
}

/// All ids whose bytes are among the first `bytes` of the text are certain.
DRIFTLESS_INLINE void StopStrings::setCertain(std::size_t bytes) {
  while (certain_ < ends_.size() && ends_[certain_] <= bytes) ++certain_;
}

}}  // namespace driftless::DRIFTLESS_ABI
