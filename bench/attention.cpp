#include "driftless/attention.hpp"

#include <benchmark/benchmark.h>

#include <chrono>

// One layer of GPT-2's attention without its linear layers: `rows` new rows behind `past` positions in the cache.

namespace {

using namespace driftless;
using benchmark::Counter;

constexpr Index kHeads = 12, kHeadSize = 64, kWidth = kHeads * kHeadSize;

detail::PackedMatrix<float> makeMatrix(Index in, Index out) {
  detail::Arena arena(detail::PackedMatrix<float>::bytesFor(in, out));
  detail::PackedMatrix<float> matrix(in, out, arena);
  detail::ThreadPool pool(1);
  detail::packPanels<float>(matrix, pool, [in](Index column, Index width, float* block) {
    for (Index i = 0; i < in * width; ++i) block[i] = static_cast<float>((i + column) % 17 - 8) * 0.01f;
  });
  return matrix;
}

Attention<float, float> makeAttention() {
  return {{makeMatrix(kWidth, 3 * kWidth), RowVector<float>::Zero(3 * kWidth)},
          {makeMatrix(kWidth, kWidth), RowVector<float>::Zero(kWidth)},
          kHeads,
          0.125f};
}

/// Times attention alone, which begins when the linear layer before it is done.
struct AttentionClock {
  using Clock = std::chrono::steady_clock;

  void operator()(Part part) {
    const Clock::time_point now = Clock::now();
    if (part == Part::attention) seconds = std::chrono::duration<double>(now - last).count();
    last = now;
  }

  Clock::time_point last;
  double seconds = 0;
};

template <class CacheStored>
void attend(benchmark::State& state) {
  const Index rows = state.range(0), past = state.range(1);
  const Attention<float, float> attention = makeAttention();
  detail::ThreadPool pool(1);
  LayerCache<float, CacheStored> cache(kHeads, kHeadSize, 1024);
  detail::Workspace<float, CacheStored> workspace;
  AttentionClock clock;
  const auto append = [&](Index count) {
    workspace.segments = {{&cache, 0, count, 0, cache.length(), nullptr}};
    detail::Rows<float> out;
    out.resize(count, kWidth);
    detail::attnStep(detail::rowsOf<float>(Matrix<float>::Constant(count, kWidth, 0.5f)), attention, pool, workspace,
                     detail::writeTo(out), clock);
  };
  if (past > 0) append(past);
  for (auto _ : state) {
    append(rows);
    cache.truncate(past);
    state.SetIterationTime(clock.seconds);
  }
  const double keys = static_cast<double>(rows * past + rows * (rows + 1) / 2);
  state.counters["FLOP/s"] = Counter(4 * kWidth * keys, Counter::kIsIterationInvariantRate);
  state.counters["bytes/s"] = Counter(static_cast<double>(2 * kWidth * (past + rows)) * sizeof(CacheStored),
                                      Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  for (const Index past : {10, 500, 1000}) benchmark->Args({1, past});
  benchmark->Args({512, 0})->Args({1000, 0})->UseManualTime()->ArgNames({"rows", "past"});
}
BENCHMARK(attend<float>)->Apply(shapes);
BENCHMARK(attend<Eigen::half>)->Apply(shapes);
BENCHMARK(attend<Eigen::bfloat16>)->Apply(shapes);

}  // namespace
