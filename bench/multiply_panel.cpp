#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "driftless/detail/packed_matrix.hpp"

// x [rows, 768] times a matrix whose panels are streamed from memory (few rows) or stay in the cache (many rows).

namespace {

using namespace driftless::detail;
using benchmark::Counter;
using driftless::Index;

constexpr Index kIn = 768;
constexpr Index kOut = Index{1} << 17;  ///< 100 MB even in int8
constexpr Index kCachedPanels = 48;

template <class Stored>
PackedMatrix<Stored> makeMatrix() {
  Arena arena(PackedMatrix<Stored>::bytesFor(kIn, kOut));
  PackedMatrix<Stored> matrix(kIn, kOut, arena);
  ThreadPool pool(1);
  packPanels<float>(matrix, pool, [](Index column, Index width, float* block) {
    for (Index i = 0; i < kIn * width; ++i) block[i] = static_cast<float>((i + column) % 17 - 8) * 0.01f;
  });
  return matrix;
}

template <class Stored>
void multiplyPanels(benchmark::State& state) {
  static const PackedMatrix<Stored> matrix = makeMatrix<Stored>();
  const Index rows = state.range(0);
  const Index panels = rows <= kTileRows ? matrix.panels() : kCachedPanels;
  const std::vector<float> x(static_cast<std::size_t>(rows * kIn), 0.5f);
  alignas(64) float sums[kTileRows * kPanelWidth];
  for (auto _ : state) {
    for (Index panel = 0; panel < panels; ++panel) {
      for (Index row = 0; row < rows; row += kTileRows) {
        std::fill_n(sums, kTileRows * kPanelWidth, 0.0f);
        multiplyPanel(std::min(kTileRows, rows - row), x.data() + row * kIn, kIn, matrix.panel(panel), kPanelWidth,
                      kPanelWidth, kIn, sums, kPanelWidth);
        benchmark::DoNotOptimize(sums);
      }
    }
  }
  const double columns = static_cast<double>(panels * kPanelWidth * kIn);
  state.counters["bytes/s"] = Counter(columns * sizeof(Stored), Counter::kIsIterationInvariantRate);
  state.counters["FLOP/s"] = Counter(2 * columns * static_cast<double>(rows), Counter::kIsIterationInvariantRate);
}

BENCHMARK(multiplyPanels<float>)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK(multiplyPanels<Eigen::half>)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK(multiplyPanels<Eigen::bfloat16>)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK(multiplyPanels<std::int8_t>)->Arg(1)->Arg(6)->Arg(512);

}  // namespace
