#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/forward.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// What a step is to run, and of how many ids of each chunk, its last ones, the logits are wanted.
template <class Scalar>
struct StepPlan {
  std::vector<Chunk<Scalar>> chunks = {};
  std::vector<Index> wanted = {};
};

/// One of the rows that were wanted.
template <class Scalar>
std::span<const Scalar> rowOf(const MatrixView<Scalar>& logits, Index row) {
  return {logits.row(row).data(), static_cast<std::size_t>(logits.cols())};
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
