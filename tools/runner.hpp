#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "driftless/forward.hpp"

namespace driftless::cli {

/// What is timed: sequences that are prefilled together and go on together.
struct Workload {
  Index prompt_tokens = 0;  ///< of each
  Index max_tokens = 0;     ///< decoded after each prompt
  std::size_t batch = 1;    ///< sequences
};

/// Floating-point operations of a prefill: two for each multiply-add of the linear layers, of attention over the keys
/// that each row sees, and of the last rows' logits.
double prefillOperations(const Config& config, const Workload& workload);

/// Seconds of a prefill or of decode steps, and where they go.
struct Parts {
  double total = 0;
  double linear = 0;
  double attention = 0;
  double unembedding = 0;

  double rest() const { return total - linear - attention - unembedding; }
};

/// One point of the curve of cost against position.
struct CostAtPosition {
  Index position;
  double cached_seconds;
  double recomputed_seconds;
};

/// Runs sequences of arbitrary ids through a model, and takes the time.
class Runner {
 public:
  /// One cache for each sequence.
  Runner(const Weights<float>& weights, std::vector<ModelCache<float>> caches, const Workload& workload);

  Parts prefill();

  /// All steps that follow prefill(), by the likeliest tokens, which are chosen within the time.
  Parts decode();

  /// What the next token of each sequence, `tokens` long, costs without a cache.
  double recompute(Index tokens);

  /// One sequence over the whole context.
  std::vector<CostAtPosition> curve();

  /// Bytes of the matrices that every decode step reads.
  Index stepWeightBytes() const;

  /// Bytes that a decode step must read, on average: these matrices once, and each sequence's keys and values up to and
  /// with its own position.
  double stepBytes() const;

  /// Of all sequences.
  Index cacheBytes() const;

  /// Of what has been run so far.
  Index workspaceBytes() const { return workspace_.bytes(); }

 private:
  Parts runFromScratch(Index tokens);
  /// Throws ArgumentError unless the logits of every sequence are numbers.
  void checkAll(const MatrixView<float>& logits) const;
  double medianSeconds(int repeats, Index position, Index tokens);

  const Weights<float>& weights_;
  std::vector<ModelCache<float>> caches_;
  Workload workload_;
  Workspace<float> workspace_;
  std::vector<std::vector<int>> ids_;  ///< of each sequence, as many as the model has positions
};

}  // namespace driftless::cli
