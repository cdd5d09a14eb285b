#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "driftless/cache_policy.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE void keepLargest(std::span<const double> scores, Index budget, std::span<bool> keep) {
  if (scores.size() != keep.size())
    detail::raise<ArgumentError>(
        {"keepLargest: expected as many scores as positions, ", keep.size(), ", got ", scores.size()});
  if (budget < 0) detail::raise<ArgumentError>({"keepLargest: expected a budget of 0 or more, got ", budget});
  if (scores.size() <= static_cast<std::size_t>(budget)) return;
  const auto score = [&](std::size_t i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<double>::infinity() : scores[i];
  };
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto kept = order.begin() + budget;
  std::nth_element(order.begin(), kept, order.end(),
                   [&](std::size_t a, std::size_t b) { return score(a) != score(b) ? score(a) > score(b) : a > b; });
  std::for_each(kept, order.end(), [&](std::size_t i) { keep[i] = false; });
}

}}  // namespace driftless::DRIFTLESS_ABI
