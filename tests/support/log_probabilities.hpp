#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "driftless/config.hpp"

namespace driftless::test {

/// log p of every id, by logits [V].
template <class Logits>
RowVector<double> logSoftmax(const Logits& logits) {
  const RowVector<double> row = logits.template cast<double>();
  const double largest = row.maxCoeff();
  return row.array() - (largest + std::log((row.array() - largest).exp().sum()));
}

/// log p(ids[t] | ids before it) for t from `given` on, by the logits [T, V] or more of all tokens but the last.
inline RowVector<double> logProbabilities(const Matrix<float>& logits, const std::vector<int>& ids, std::size_t given) {
  RowVector<double> result(static_cast<Index>(ids.size() - given));
  for (std::size_t t = given; t < ids.size(); ++t)
    result[static_cast<Index>(t - given)] = logSoftmax(logits.row(static_cast<Index>(t) - 1))[ids[t]];
  return result;
}

}  // namespace driftless::test
