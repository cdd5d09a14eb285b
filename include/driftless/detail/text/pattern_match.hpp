#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "driftless/detail/abi.hpp"

// The search of Knuth, Morris and Pratt (1977), which looks at no symbol of the text twice: symbols are bytes for stop
// strings, token ids for n-grams.

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// How many of the pattern's first symbols are the text's last ones once `next` has come, if `matched` were before it.
/// `borders` are those of the pattern, at least of its first `matched` symbols.
template <class Symbol>
std::size_t advanceMatch(std::span<const Symbol> pattern, const std::vector<std::size_t>& borders, std::size_t matched,
                         Symbol next) {
  while (matched > 0 && (matched == pattern.size() || pattern[matched] != next)) matched = borders[matched - 1];
  return matched < pattern.size() && pattern[matched] == next ? matched + 1 : 0;
}

/// For every beginning of the pattern the length of the longest text that it both begins and ends with, other than all
/// of it.
template <class Symbol>
void findBorders(std::span<const Symbol> pattern, std::vector<std::size_t>& borders) {
  borders.assign(pattern.size(), 0);
  for (std::size_t i = 1; i < pattern.size(); ++i)
    borders[i] = advanceMatch(pattern, borders, borders[i - 1], pattern[i]);
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
