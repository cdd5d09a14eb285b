#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <span>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Numbers that a policy notes of positions, at first zeros.
class PolicyStatistics {
 public:
  /// Those of `numbers` [n, per_position], row by row.
  PolicyStatistics(std::span<double> numbers, Index per_position) : numbers_(numbers), per_position_(per_position) {}

  /// One of those of the i-th position that is kept. Throws ArgumentError if there is none, as with a policy whose
  /// statistics() does not count it.
  double& operator()(Index i, Index number) const {
    if (number < 0 || number >= per_position_)
      detail::raise<ArgumentError>({"policy: expected one of the numbers that statistics() counts, which says ",
                                    per_position_, ", got number ", number});
    if (i < 0 || i >= std::ssize(numbers_) / per_position_)
      detail::raise<ArgumentError>({"policy: expected statistics of a position from 0 to ",
                                    std::ssize(numbers_) / per_position_ - 1, ", got ", i});
    return numbers_[static_cast<std::size_t>(i * per_position_ + number)];
  }

 private:
  std::span<double> numbers_;
  Index per_position_;
};

/// What the cache of one head in one layer holds, as a policy sees it when a token has attended there. D = head size.
struct CachedHead {
  Index layer;                             ///< counted from 0
  Index head;                              ///< counted from 0
  std::span<const Index> positions;        ///< [n] that are kept, in order; the last is the token's own
  std::span<const double> attention;       ///< [n] the token's weights over them; their sum is 1 if nobody writes them
  PolicyStatistics statistics;             ///< [n, policy.statistics()] what the policy has noted of each
  std::function<Matrix<double>()> keys;    ///< makes [n, D], as they are stored
  std::function<Matrix<double>()> values;  ///< likewise
};

/// Which positions a cache keeps. In every layer and head, each token is stored and attends to what is kept there; then
/// the policy chooses what the next token will find. So a sequence has the same bits whether it is read at once, in
/// chunks or token by token, alone or in company.
///
/// Shared by the threads of a step, which call it for different heads at once, and by all caches that are given it: it
/// has no state of its own but what it is made with, and notes what it needs to know later in the statistics.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  /// How many numbers the cache keeps for it with every position of every head: 0 or more. Asked when a cache is made.
  virtual Index statistics() const { return 0; }

  /// Called when a token has attended in a head. `keep` [n] is true for all positions; those that it sets to false are
  /// dropped. It can write to head.statistics, which goes along with the positions that are kept.
  virtual void choose(CachedHead& head, std::span<bool> keep) const = 0;
};

/// Sets `keep` to false for all but the `budget` largest scores [n]; of equal ones the later positions stay. NaN counts
/// as the least. What a policy's choose() ends with, as a rule.
void keepLargest(std::span<const double> scores, Index budget, std::span<bool> keep);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/cache_policy.hpp"
#endif
