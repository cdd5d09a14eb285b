#pragma once

#include <algorithm>

#include "driftless/config.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// How many tokens are worth guessing, by how the last guesses did: a step that verifies them costs more, and only
/// what is right pays for it. It changes when a token comes, never which.
class DraftLength {
 public:
  /// For the next step, of at most `most`.
  Index next(Index most) {
    if (pause_ > 0) {
      --pause_;
      return 0;
    }
    return (std::min)(length_, most);
  }

  /// After a step with `guesses`, of which the first `right` were.
  void learn(Index guesses, Index right) {
    if (right == 0) {
      length_ = 1;
      misses_ = (std::min)(misses_ + 1, kMostMisses);
      pause_ = Index{1} << misses_;
      return;
    }
    misses_ = 0;
    length_ = right == guesses ? 2 * length_ : right + 1;
  }

 private:
  static constexpr int kMostMisses = 6;

  Index length_ = 2;
  Index pause_ = 0;  ///< steps without guesses
  int misses_ = 0;   ///< steps in a row whose first guess was wrong
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
