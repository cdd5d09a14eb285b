#include "driftless/detail/kernels/multiply_panel.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <vector>

#include "matrices.hpp"

// x [rows, 768] times a matrix whose panels are streamed from memory (few rows) or stay in the cache (many rows).

namespace {

using namespace driftless::detail;
using benchmark::Counter;
using driftless::Index, driftless::StoredType;

constexpr Index kIn = 768;
constexpr Index kOut = Index{1} << 17;  ///< 56 MB even in int4
constexpr Index kCachedPanels = 48;

void multiplyPanels(benchmark::State& state, StoredType stored) {
  static std::map<StoredType, PackedMatrix<float>> matrices;
  if (!matrices.contains(stored)) matrices.emplace(stored, bench::makeMatrix(kIn, kOut, stored));
  const PackedMatrix<float>& matrix = matrices.at(stored);
  const Index rows = state.range(0);
  const Index panels = rows <= kTileRows ? matrix.panels() : kCachedPanels;
  const std::vector<float> x(static_cast<std::size_t>(rows * kIn), 0.5f);
  alignas(64) float sums[kTileRows * kPanelWidth];
  for (auto _ : state) {
    for (Index panel = 0; panel < panels; ++panel) {
      for (Index row = 0; row < rows; row += kTileRows) {
        std::fill_n(sums, kTileRows * kPanelWidth, 0.0f);
        multiplyPanel(std::min(kTileRows, rows - row), x.data() + row * kIn, kIn, stored, matrix.panel(panel),
                      kPanelWidth, kPanelWidth, kIn, sums, kPanelWidth);
        benchmark::DoNotOptimize(sums);
      }
    }
  }
  const Index columns = panels * kPanelWidth, numbers = columns * kIn;
  const Index bytes = columns * columnBytes<float>(kIn, stored, driftless::ComputeType::full);
  state.counters["bytes/s"] = Counter(static_cast<double>(bytes), Counter::kIsIterationInvariantRate);
  state.counters["FLOP/s"] = Counter(static_cast<double>(2 * numbers * rows), Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(multiplyPanels, full, StoredType::full)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK_CAPTURE(multiplyPanels, f16, StoredType::f16)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK_CAPTURE(multiplyPanels, bf16, StoredType::bf16)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK_CAPTURE(multiplyPanels, int8, StoredType::int8)->Arg(1)->Arg(6)->Arg(512);
BENCHMARK_CAPTURE(multiplyPanels, int4, StoredType::int4)->Arg(1)->Arg(6)->Arg(512);

}  // namespace
