#include "learner/implementation.hpp"

// Compiled once for every implementation, with DRIFTLESS_ADAPTERS naming it.
const graded::Implementation& graded::implementation() {
  using namespace adapters;
  static constexpr Implementation functions = {buildCausalMask, runFullForward, runGreedyRecompute,
                                               runAttnStep,     runPrefill,     runStepwise,
                                               runDecodeStep,   runArgmax,      runGreedyGenerate};
  return functions;
}
