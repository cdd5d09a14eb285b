#include "driftless/detail/threads/thread_pool.hpp"

#include <benchmark/benchmark.h>

// What a loop over as many empty tasks as threads costs: the fork and the join.

namespace {

void forkAndJoin(benchmark::State& state) {
  driftless::detail::ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state)
    pool.parallelFor(state.range(0), [](Eigen::Index index, int) { benchmark::DoNotOptimize(index); });
}
BENCHMARK(forkAndJoin)->RangeMultiplier(2)->Range(1, 8)->ArgName("threads")->UseRealTime();

}  // namespace
