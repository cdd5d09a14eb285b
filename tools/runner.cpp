#include "runner.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include "driftless/argmax.hpp"
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
  const double linear = 2 * T * (4 * C * C + 2 * C * static_cast<double>(config.n_inner));
  const double attention = 4 * C * T * (T + 1) / 2;
  const double unembedding = 2 * C * static_cast<double>(config.vocab_size);
  return static_cast<double>(workload.batch) *
         (static_cast<double>(config.n_layer) * (linear + attention) + unembedding);
}

double bytesPerDecodeStep(const Model::Sizes& sizes, const Workload& workload) {
  const double positions =
      static_cast<double>(workload.prompt_tokens) + (static_cast<double>(workload.max_tokens) + 1) / 2;
  return static_cast<double>(sizes.step_weights) +
         static_cast<double>(workload.batch) * positions * static_cast<double>(sizes.cache_position);
}

Runner::Runner(Model& model, const Workload& workload) : model_(model), workload_(workload) {
  const Index positions = model.config().n_positions, vocab_size = model.config().vocab_size;
  for (std::size_t sequence = 0; sequence < workload.batch; ++sequence) {
    std::vector<int>& ids = ids_.emplace_back();
    for (Index i = 0; i < positions; ++i)
      ids.push_back(static_cast<int>((7919 * i + 104729 * static_cast<Index>(sequence)) % vocab_size));
  }
  model.setSequences(workload.batch);
}

Parts Runner::prefill() { return runFromScratch(workload_.prompt_tokens); }

Parts Runner::decode() {
  Parts parts;
  PartClock clock(parts);
  std::vector<int> next(workload_.batch, 0);
  std::vector<Model::Input> inputs;
  for (std::size_t sequence = 0; sequence < workload_.batch; ++sequence)
    inputs.push_back({sequence, std::span(next).subspan(sequence, 1)});
  const Stopwatch watch;
  for (Index step = 0; step < workload_.max_tokens; ++step) {
    clock.start();
    const Matrix<float>& logits = model_.step(inputs, std::ref(clock));
    for (std::size_t sequence = 0; sequence < workload_.batch; ++sequence)
      next[sequence] = argmax(logits.row(static_cast<Index>(sequence)));
  }
  parts.total = watch.seconds();
  return parts;
}

double Runner::recompute(Index tokens) { return runFromScratch(tokens).total; }

std::vector<Sample> Runner::curve() {
  constexpr Index kIntervals = 8;
  std::vector<Sample> samples;
  for (Index i = 0; i <= kIntervals; ++i) {
    const Index position = i * (model_.config().n_positions - 1) / kIntervals;
    const double recomputed = medianSeconds(3, 0, position + 1);
    samples.push_back({position, medianSeconds(5, position, 1), recomputed});
  }
  return samples;
}

Parts Runner::runFromScratch(Index tokens) {
  std::vector<Model::Input> inputs;
  for (std::size_t sequence = 0; sequence < workload_.batch; ++sequence) {
    model_.truncate(sequence, 0);
    inputs.push_back({sequence, std::span(ids_[sequence]).first(static_cast<std::size_t>(tokens))});
  }
  Parts parts;
  PartClock clock(parts);
  const Stopwatch watch;
  model_.step(inputs, std::ref(clock));
  parts.total = watch.seconds();
  return parts;
}

/// Of the first sequence's step over `tokens` ids from `position` on, with the cache that it has up to there.
double Runner::medianSeconds(int repeats, Index position, Index tokens) {
  const std::span<const int> ids =
      std::span(ids_.front()).subspan(static_cast<std::size_t>(position), static_cast<std::size_t>(tokens));
  std::vector<double> seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    model_.truncate(0, position);
    const Stopwatch watch;
    model_.step({{0, ids}});
    seconds.push_back(watch.seconds());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace driftless::cli
