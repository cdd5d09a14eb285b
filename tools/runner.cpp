#include "runner.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "driftless/argmax.hpp"
#include "driftless/generate.hpp"
#include "models.hpp"
#include "stopwatch.hpp"

namespace driftless::cli {
namespace {

/// Assigns the time since the last part of a step, or since the step's start, to the part that has just been done.
class PartClock {
 public:
  explicit PartClock(Parts& parts) : parts_(parts) {}

  void operator()(Part part) {
    const double now = watch_.seconds();
    if (double* seconds = secondsOf(part)) *seconds += now - last_;
    last_ = now;
  }

  /// The time from here on is that of the next part.
  void start() { last_ = watch_.seconds(); }

 private:
  double* secondsOf(Part part) {
    switch (part) {
      case Part::linear:
        return &parts_.linear;
      case Part::attention:
        return &parts_.attention;
      case Part::unembedding:
        return &parts_.unembedding;
      default:
        return nullptr;
    }
  }

  Parts& parts_;
  Stopwatch watch_;
  double last_ = 0;
};

}  // namespace

double prefillOperations(const Config& config, const Workload& workload) {
  const double C = static_cast<double>(config.n_embd), T = static_cast<double>(workload.prompt_tokens);
  const double linear = 2 * T * (4 * C * C + 2 * C * static_cast<double>(config.innerSize()));
  const double attention = 4 * C * T * (T + 1) / 2;
  const double unembedding = 2 * C * static_cast<double>(config.vocab_size);
  return static_cast<double>(workload.batch) *
         (static_cast<double>(config.n_layer) * (linear + attention) + unembedding);
}

Runner::Runner(const Weights<float>& weights, std::vector<ModelCache<float>> caches, const Workload& workload)
    : weights_(weights), caches_(std::move(caches)), workload_(workload), workspace_(weights.threads) {
  const Index positions = weights.config.n_positions, vocab_size = weights.config.vocab_size;
  for (std::size_t sequence = 0; sequence < caches_.size(); ++sequence) {
    std::vector<int>& ids = ids_.emplace_back();
    for (Index i = 0; i < positions; ++i)
      ids.push_back(static_cast<int>((7919 * i + 104729 * static_cast<Index>(sequence)) % vocab_size));
  }
}

Parts Runner::prefill() { return runFromScratch(workload_.prompt_tokens); }

Parts Runner::decode() {
  Parts parts;
  PartClock clock(parts);
  std::vector<int> next(caches_.size(), 0);
  std::vector<Chunk<float>> chunks;
  for (std::size_t sequence = 0; sequence < caches_.size(); ++sequence)
    chunks.push_back({std::span(next).subspan(sequence, 1), &caches_[sequence]});
  const Observer<float> observer{.part = std::ref(clock)};
  const Stopwatch watch;
  for (Index step = 0; step < workload_.max_tokens; ++step) {
    clock.start();
    const MatrixView<float> logits = driftless::prefill(chunks, weights_, workspace_, observer);
    checkAll(logits);  // as generating does
    for (std::size_t sequence = 0; sequence < caches_.size(); ++sequence)
      next[sequence] = argmax(logits.row(static_cast<Index>(sequence)));
  }
  parts.total = watch.seconds();
  return parts;
}

double Runner::recompute(Index tokens) { return runFromScratch(tokens).total; }

std::vector<CostAtPosition> Runner::curve() {
  constexpr Index kIntervals = 8;
  std::vector<CostAtPosition> points;
  for (Index i = 0; i <= kIntervals; ++i) {
    const Index position = i * (weights_.config.n_positions - 1) / kIntervals;
    const double recomputed = medianSeconds(3, 0, position + 1);
    points.push_back({position, medianSeconds(5, position, 1), recomputed});
  }
  return points;
}

Index Runner::stepWeightBytes() const {
  Index bytes = weights_.unembedding().bytes();
  for (const Block<float>& block : weights_.h)
    for (const auto* linear : {&block.attn.c_attn, &block.attn.c_proj, &block.mlp.c_fc, &block.mlp.c_proj})
      bytes += linear->weight.bytes();
  return bytes;
}

double Runner::stepBytes() const {
  const double positions =
      static_cast<double>(workload_.prompt_tokens) + (static_cast<double>(workload_.max_tokens) + 1) / 2;
  return static_cast<double>(stepWeightBytes()) +
         static_cast<double>(caches_.size()) * positions *
             static_cast<double>(caches_.front().layers() * bytesPerPosition(caches_.front().layer(0)));
}

Index Runner::cacheBytes() const {
  Index bytes = 0;
  for (const ModelCache<float>& cache : caches_) bytes += cache.bytes();
  return bytes;
}

Parts Runner::runFromScratch(Index tokens) {
  std::vector<Chunk<float>> chunks;
  for (std::size_t sequence = 0; sequence < caches_.size(); ++sequence) {
    caches_[sequence].reset();
    chunks.push_back({std::span(ids_[sequence]).first(static_cast<std::size_t>(tokens)), &caches_[sequence]});
  }
  Parts parts;
  PartClock clock(parts);
  const Observer<float> observer{.part = std::ref(clock)};
  const Stopwatch watch;
  const MatrixView<float> logits = driftless::prefill(chunks, weights_, workspace_, observer);
  parts.total = watch.seconds();
  checkAll(logits);
  return parts;
}

void Runner::checkAll(const MatrixView<float>& logits) const {
  for (std::size_t sequence = 0; sequence < caches_.size(); ++sequence)
    checkLogits(logits.row(static_cast<Index>(sequence)), caches_[sequence].length() - 1, weights_);
}

/// Of the first sequence's step over `tokens` ids from `position` on, with the cache that it has up to there.
double Runner::medianSeconds(int repeats, Index position, Index tokens) {
  const std::span<const int> ids =
      std::span(ids_.front()).subspan(static_cast<std::size_t>(position), static_cast<std::size_t>(tokens));
  std::vector<double> seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    caches_.front().truncate(position);
    const Stopwatch watch;
    driftless::prefill(ids, weights_, caches_.front(), workspace_);
    seconds.push_back(watch.seconds());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace driftless::cli
