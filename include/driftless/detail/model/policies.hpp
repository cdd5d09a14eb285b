#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/cache_policy.hpp"
#include "driftless/error.hpp"
#include "driftless/policies.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

inline Index checkedBudget(Index budget) {
  if (budget < 1) raise<ArgumentError>({"expected a budget of at least 1, got ", budget});
  return budget;
}

/// Another argument, whose range ends with the budget.
inline Index checkedPart(const char* name, Index value, Index least, Index most, Index budget) {
  if (value < least || value > most)
    raise<ArgumentError>(
        {"expected ", name, " from ", least, " to ", most, " in a budget of ", budget, ", got ", value});
  return value;
}

/// keepLargest for all but the last `recent`, which stay and count.
inline void keepRecentAndLargest(std::span<const double> scores, Index budget, Index recent, std::span<bool> keep) {
  const std::size_t others = scores.size() - (std::min)(scores.size(), static_cast<std::size_t>(recent));
  keepLargest(scores.first(others), budget - recent, keep.first(others));
}

/// The policies' sums have a fixed order and one rounding for a product and a sum, so that they choose the same with
/// every compiler and processor.
template <class A, class B>
double dotProduct(const A& a, const B& b) {
  double sum = 0;
  for (Index d = 0; d < a.size(); ++d) sum = std::fma(a[d], b[d], sum);
  return sum;
}

/// SplitMix64 (Steele et al. 2014): the number after this one.
inline std::uint64_t splitMix(std::uint64_t state) {
  state += 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

}  // namespace detail

DRIFTLESS_INLINE void KeepAll::choose(CachedHead&, std::span<bool>) const {}

DRIFTLESS_INLINE SlidingWindow::SlidingWindow(Index budget) : budget_(detail::checkedBudget(budget)) {}

DRIFTLESS_INLINE void SlidingWindow::choose(CachedHead&, std::span<bool> keep) const {
  const std::size_t window = (std::min)(keep.size(), static_cast<std::size_t>(budget_));
  std::ranges::fill(keep.first(keep.size() - window), false);
}

DRIFTLESS_INLINE AttentionSinks::AttentionSinks(Index budget, Index sinks)
    : budget_(detail::checkedBudget(budget)), sinks_(detail::checkedPart("sinks", sinks, 0, budget - 1, budget)) {}

DRIFTLESS_INLINE void AttentionSinks::choose(CachedHead& head, std::span<bool> keep) const {
  const std::size_t window = (std::min)(keep.size(), static_cast<std::size_t>(budget_ - sinks_));
  for (std::size_t i = 0; i < keep.size() - window; ++i) keep[i] = head.positions[i] < sinks_;
}

DRIFTLESS_INLINE HeavyHitters::HeavyHitters(Index budget) : HeavyHitters(budget, budget / 2) {}

DRIFTLESS_INLINE HeavyHitters::HeavyHitters(Index budget, Index recent)
    : budget_(detail::checkedBudget(budget)), recent_(detail::checkedPart("recent", recent, 0, budget, budget)) {}

DRIFTLESS_INLINE void HeavyHitters::choose(CachedHead& head, std::span<bool> keep) const {
  std::vector<double> sums;
  for (std::size_t i = 0; i < keep.size(); ++i)
    sums.push_back(head.statistics(static_cast<Index>(i), 0) += head.attention[i]);
  detail::keepRecentAndLargest(sums, budget_, recent_, keep);
}

DRIFTLESS_INLINE Tova::Tova(Index budget) : budget_(detail::checkedBudget(budget)) {}

DRIFTLESS_INLINE void Tova::choose(CachedHead& head, std::span<bool> keep) const {
  keepLargest(head.attention, budget_, keep);
}

DRIFTLESS_INLINE SnapKv::SnapKv(Index budget, Index window, Index pooling)
    : budget_(detail::checkedBudget(budget)),
      window_(detail::checkedPart("window", window, 1, budget, budget)),
      pooling_(pooling) {
  if (pooling < 1 || pooling % 2 == 0)
    detail::raise<ArgumentError>({"expected pooling to be an odd number from 1 on, got ", pooling});
}

DRIFTLESS_INLINE void SnapKv::choose(CachedHead& head, std::span<bool> keep) const {
  // A column for each of the last tokens; this one's takes the place of the oldest.
  const Index n = static_cast<Index>(keep.size()), column = head.positions.back() % window_;
  for (Index i = 0; i < n; ++i) head.statistics(i, column) = head.attention[static_cast<std::size_t>(i)];
  if (n <= budget_) return;

  const Index others = n - window_, reach = (std::min)(pooling_ / 2, others);
  std::vector<double> sums(keep.size(), 0), pooled(keep.size(), 0);
  for (Index i = 0; i < others; ++i)
    for (Index w = 0; w < window_; ++w) sums[static_cast<std::size_t>(i)] += head.statistics(i, w);
  for (Index i = 0; i < others; ++i)
    for (Index j = (std::max)(Index{0}, i - reach); j <= (std::min)(others - 1, i + reach); ++j)
      pooled[static_cast<std::size_t>(i)] +=
          sums[static_cast<std::size_t>(j)];  // the mean's divisor is the same for all
  detail::keepRecentAndLargest(pooled, budget_, window_, keep);
}

DRIFTLESS_INLINE KeyNorm::KeyNorm(Index budget) : budget_(detail::checkedBudget(budget)) {}

DRIFTLESS_INLINE void KeyNorm::choose(CachedHead& head, std::span<bool> keep) const {
  if (static_cast<Index>(keep.size()) <= budget_) return;
  const Matrix<double> keys = head.keys();
  std::vector<double> scores;
  for (const auto& key : keys.rowwise()) scores.push_back(-detail::dotProduct(key, key));
  keepLargest(scores, budget_, keep);
}

DRIFTLESS_INLINE KeyDiff::KeyDiff(Index budget) : budget_(detail::checkedBudget(budget)) {}

DRIFTLESS_INLINE void KeyDiff::choose(CachedHead& head, std::span<bool> keep) const {
  if (static_cast<Index>(keep.size()) <= budget_) return;
  Matrix<double> directions = head.keys();
  RowVector<double> sum = RowVector<double>::Zero(directions.cols());  // as the mean's, but for its length
  for (auto direction : directions.rowwise()) {
    const double length = std::sqrt(detail::dotProduct(direction, direction));
    if (length > 0) direction /= length;
    sum += direction;
  }
  std::vector<double> scores;
  for (const auto& direction : directions.rowwise()) scores.push_back(-detail::dotProduct(direction, sum));
  keepLargest(scores, budget_, keep);
}

DRIFTLESS_INLINE RandomPositions::RandomPositions(Index budget, std::uint64_t seed)
    : budget_(detail::checkedBudget(budget)), seed_(seed) {}

DRIFTLESS_INLINE void RandomPositions::choose(CachedHead& head, std::span<bool> keep) const {
  std::vector<double> scores;
  for (const Index position : head.positions) {
    std::uint64_t number = detail::splitMix(seed_);
    for (const Index part : {head.layer, head.head, position})
      number = detail::splitMix(number ^ static_cast<std::uint64_t>(part));
    scores.push_back(static_cast<double>(number >> 11));  // all that a double holds
  }
  keepLargest(scores, budget_, keep);
}

}}  // namespace driftless::DRIFTLESS_ABI
