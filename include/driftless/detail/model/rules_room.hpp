#pragma once

#include <cstddef>
#include <vector>

#include "driftless/config.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Room for the rules of logits: kept, it lets them allocate nothing if some before them had as many logits and n-grams
/// as long.
struct RulesRoom {
  std::vector<int> counts = {};  ///< [V] how often each id occurs; zeros between uses
  std::vector<std::size_t> borders = {};

  Index bytes() const {
    return static_cast<Index>(counts.capacity() * sizeof(int) + borders.capacity() * sizeof(std::size_t));
  }
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
