#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "driftless/detail/messages.hpp"
#include "driftless/drafts.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

DRIFTLESS_INLINE Drafter promptLookup(Index ngram) {
  if (ngram < 1) detail::raise<ArgumentError>({"promptLookup: expected an ngram of 1 or more, got ", ngram});
  return [ngram](TokenIds ids, Index most) -> std::vector<int> {
    const auto isSame = [&](std::size_t end, std::size_t back) { return ids[end - back] == ids[ids.size() - back]; };
    std::size_t longest = 0, follows = 0;
    for (std::size_t end = ids.size() - 1; end > 0 && longest < static_cast<std::size_t>(ngram); --end) {
      std::size_t length = 0;
      while (length < (std::min)(end, static_cast<std::size_t>(ngram)) && isSame(end, length + 1)) ++length;
      if (length > longest) longest = length, follows = end;
    }
    if (longest == 0) return {};
    const auto guess = ids.subspan(follows);
    return {guess.begin(), guess.begin() + (std::min)(most, static_cast<Index>(guess.size()))};
  };
}

}}  // namespace driftless::DRIFTLESS_ABI
