#include "driftless/detail/kernels/lanes.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "driftless/detail/kernels/activation.hpp"

// Element-wise functions over numbers in the first-level cache.

namespace {

using namespace driftless;
using Lanes = detail::Lanes<float>;

template <class F>
void eachLanes(benchmark::State& state, F f) {
  constexpr std::size_t kCount = 2048, kLanes = detail::kLanes;
  std::vector<float> x(kCount), y(kCount);
  for (std::size_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 97) * 0.1f - 5;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kCount; i += kLanes) f(Lanes::load(&x[i])).store(&y[i]);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<Index>(kCount));
}

template <Activation activation>
Lanes activate(const Lanes& x) {
  return detail::activate(activation, x);
}

BENCHMARK_CAPTURE(eachLanes, exp, [](const Lanes& x) { return detail::exp(x); });
BENCHMARK_CAPTURE(eachLanes, gelu_new, activate<Activation::gelu_new>);
BENCHMARK_CAPTURE(eachLanes, gelu, activate<Activation::gelu>);

}  // namespace
