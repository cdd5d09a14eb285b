#include "driftless/detail/model/attention.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "matrices.hpp"

// One layer's attention in GPT-2 without its linear layers: `rows` new rows after `past` positions in the cache.

namespace {

using namespace driftless;
using benchmark::Counter;

constexpr Index kHeads = 12, kHeadSize = 64, kWidth = kHeads * kHeadSize;

Linear<float> makeLinear(Index out) {
  Linear<float> linear{bench::makeMatrix(kWidth, out, StoredType::full), detail::AlignedBuffer<float>(out)};
  std::fill_n(linear.bias.data(), out, 0.0f);
  return linear;
}

Attention<float> makeAttention() { return {makeLinear(3 * kWidth), makeLinear(kWidth), kHeads, 0.125f}; }

/// Times attention alone, which begins when the linear layer before it is done.
struct AttentionClock {
  using Clock = std::chrono::steady_clock;

  void take(Part part) {
    const Clock::time_point now = Clock::now();
    if (part == Part::attention) seconds = std::chrono::duration<double>(now - last).count();
    last = now;
  }

  Clock::time_point last;
  double seconds = 0;
};

void attend(benchmark::State& state, StoredType stored) {
  const Index rows = state.range(0), past = state.range(1);
  const Attention<float> attention = makeAttention();
  LayerCache<float> cache(kHeads, kHeadSize, 1024, stored);
  Workspace<float> workspace(Threads(1));
  AttentionClock clock;
  const Observer<float> observer = {.part = [&](Part part) { clock.take(part); }};
  detail::Step<float>& step = workspace.step();
  step.observer = &observer;
  const auto append = [&](Index count) {
    step.segments = {{&cache, 0, count, 0, cache.length(), nullptr}};
    detail::CacheAccess::makeRoom(std::span(&cache, 1), count);
    detail::PaddedRows<float> out(count, kWidth);
    detail::attnStep(step, detail::PaddedRows<float>(Matrix<float>::Constant(count, kWidth, 0.5f)), attention,
                     detail::destinationOf(out));
    detail::CacheAccess::grow(cache, count);
  };
  if (past > 0) append(past);
  for (auto _ : state) {
    append(rows);
    cache.truncate(past);
    state.SetIterationTime(clock.seconds);
  }
  const double keys = static_cast<double>(rows * past + rows * (rows + 1) / 2);
  const Index bytes = cache.bytesFor(cache.capacity()) / cache.capacity() * (past + rows);
  state.counters["FLOP/s"] = Counter(4 * kWidth * keys, Counter::kIsIterationInvariantRate);
  state.counters["bytes/s"] = Counter(static_cast<double>(bytes), Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  for (const Index past : {10, 500, 1000}) benchmark->Args({1, past});
  benchmark->Args({512, 0})->Args({1000, 0})->UseManualTime()->ArgNames({"rows", "past"});
}
BENCHMARK_CAPTURE(attend, full, StoredType::full)->Apply(shapes);
BENCHMARK_CAPTURE(attend, f16, StoredType::f16)->Apply(shapes);
BENCHMARK_CAPTURE(attend, bf16, StoredType::bf16)->Apply(shapes);
BENCHMARK_CAPTURE(attend, int8, StoredType::int8)->Apply(shapes);

}  // namespace
