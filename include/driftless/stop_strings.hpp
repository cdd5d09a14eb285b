#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/tokenizer.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Follows the text of one generation and finds where it ends: before the first of some strings, wherever the borders
/// between tokens are. Strings are bytes, and may be part of a UTF-8 character. The prompt's text is not looked at. An
/// id without a token has no bytes, and no stop string goes on across it.
///
/// A token takes time in proportion to its bytes and the longest string, times the number of strings, whatever came
/// before.
class StopStrings {
 public:
  /// Throws ArgumentError for an empty string.
  StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& strings);

  /// Adds a token, and says whether a stop string has come up in the text, which then ends before it; before the one
  /// that begins first, if the token completes several. Throws ArgumentError if one has come up already.
  bool push(int id);

  /// Adds a token and looks at nothing up to its end, as if it were the prompt's: a generation that has to have some
  /// number of tokens keeps them. Throws as push does.
  void pass(int id);

  /// How many of the ids will be part of the text whatever comes: no stop string that may still come up, or has, begins
  /// in them or before. It never falls.
  std::size_t certain() const { return certain_; }

  /// The ids of the text: all, or those up to the stop string. If that begins inside a token, what of the token is
  /// before it is encoded anew, as plain text, so that their bytes are exactly the text's.
  std::vector<int> ids() const;

 private:
  struct Pattern {
    std::string string;
    std::vector<std::size_t> borders;
    std::size_t matched;  ///< so many of its first bytes are the text's last ones
  };

  void add(int id);
  void setCertain(std::size_t bytes);

  Tokenizer tokenizer_;
  std::vector<Pattern> patterns_;
  std::vector<int> ids_;
  std::vector<std::size_t> ends_;  ///< of the ids, in bytes of the text
  std::size_t certain_ = 0;
  bool is_complete_ = false;
  std::string rest_;  ///< what of a token is before the stop string
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/text/stop_strings.hpp"
#endif
