#pragma once

#include <cmath>
#include <string>

#include "driftless/config.hpp"
#include "driftless/error.hpp"

namespace driftless {

/// The index of the largest logit, the first of them on ties. NaN never wins. Throws ArgumentError where there is
/// nothing but NaN.
template <class Logits>
int argmax(const Eigen::MatrixBase<Logits>& logits) {
  Index best = -1;
  for (Index i = 0; i < logits.size(); ++i)
    if (!std::isnan(logits(i)) && (best < 0 || logits(i) > logits(best))) best = i;
  if (best < 0)
    throw ArgumentError("argmax: expected at least one logit that is a number, got " + std::to_string(logits.size()) +
                        " logits, all NaN");
  return static_cast<int>(best);
}

}  // namespace driftless
