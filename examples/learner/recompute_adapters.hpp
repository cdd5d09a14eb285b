#pragma once

#include "adapters.hpp"

/// Joins the functions of recompute.cpp, which includes this at its end, to the stages; tests/adapters.hpp says what
/// each of these must return. Nothing is to be done here as long as your functions keep their signatures.
namespace adapters {

Matrix<float> buildCausalMask(Index T) { return learner::buildCausalMask(T); }

Matrix<float> runFullForward(const Model& model, const Ids& ids) { return learner::fullForward(ids, model); }

int runArgmax(const RowVector<float>& logits) { return learner::argmax(logits); }

Ids runGreedyRecompute(const Model& model, const Ids& promptIds, Index n) {
  return learner::greedyDecode(promptIds, model, n);
}

}  // namespace adapters
