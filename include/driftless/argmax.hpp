#pragma once

#include <cmath>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// The index of the largest logit of a vector, the first of them on ties. NaN never wins. Throws ArgumentError if there
/// is nothing but NaN.
template <class Logits>
requires(Logits::IsVectorAtCompileTime == 1) int argmax(const Eigen::MatrixBase<Logits>& logits) {
  Index best = 0;
  while (best < logits.size() && std::isnan(logits(best))) ++best;
  if (best == logits.size())
    detail::raise<ArgumentError>(
        {"argmax: expected at least one logit that is a number, got ", logits.size(), " logits, all NaN"});
  auto largest = logits(best);
  for (Index i = best + 1; i < logits.size(); ++i) {
    if (!(logits(i) > largest)) continue;
    best = i;
    largest = logits(i);
  }
  return static_cast<int>(best);
}

}}  // namespace driftless::DRIFTLESS_ABI
