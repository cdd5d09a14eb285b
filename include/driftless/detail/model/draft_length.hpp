#pragma once

#include <algorithm>

#include "driftless/config.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// How many tokens are worth guessing, by how the last guesses did. Where a step waits for memory, as at the 124M
/// shape, verifying four of them makes it 8 % longer, and ten of them twice as long: so few are tried until they prove
/// right. Where a step computes, every guess costs as much as a token: so there are pauses while the first proves wrong
/// again and again.
class DraftLength {
 public:
  /// For the next step, of at most `most`.
  Index next(Index most) {
    if (pause_ == 0) return (std::min)(length_, most);
    --pause_;
    return 0;
  }

  /// After a step with `guesses`, of which the first `right` were.
  void learn(Index guesses, Index right) {
    length_ = right < guesses ? right + 1 : (std::min)(4 * length_, kLongest);
    misses_ = right > 0 ? 0 : (std::min)(misses_ + 1, kMostMisses);
    pause_ = (std::max)(0, (1 << misses_) / 2 - 1);
  }

 private:
  static constexpr Index kLongest = 1024;
  static constexpr int kMostMisses = 3;

  Index length_ = 2;
  int misses_ = 0;  ///< steps in a row whose first guess was wrong
  int pause_ = 0;   ///< steps without guesses that are left
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
