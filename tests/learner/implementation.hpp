#pragma once

#include <vector>

#include "adapters.hpp"
#include "driftless/parameters.hpp"

namespace graded {

using adapters::Ids, adapters::Index, adapters::Matrix, adapters::Prefilled, adapters::RowVector;
using Parameters = driftless::Parameters<float>;

/// The functions of tests/adapters.hpp, for an implementation whose Model is Parameters<float>.
struct Implementation {
  Matrix<float> (*buildCausalMask)(Index);
  Matrix<float> (*runFullForward)(const Parameters&, const Ids&);
  Ids (*runGreedyRecompute)(const Parameters&, const Ids&, Index);
  Matrix<float> (*runAttnStep)(const Parameters&, Index, const Matrix<float>&);
  Prefilled (*runPrefill)(const Parameters&, const Ids&, const std::vector<Index>&);
  Matrix<float> (*runStepwise)(const Parameters&, const Ids&, const Ids&);
  RowVector<float> (*runDecodeStep)(const Parameters&, const Ids&, int);
  int (*runArgmax)(const RowVector<float>&);
  Ids (*runGreedyGenerate)(const Parameters&, const Ids&, Index);
};

/// The one that this program was linked with.
const Implementation& implementation();

}  // namespace graded
