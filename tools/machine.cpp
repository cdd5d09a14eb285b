#include "machine.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "stopwatch.hpp"

namespace driftless::cli {
namespace {

using Lanes = detail::Lanes<float>;
using detail::kLanes;

/// A measurement goes on for at least as long.
constexpr double kSeconds = 0.2;

/// Independent sums, so that none has to wait for the one before.
constexpr Index kSums = 8;

float sum(const float* from, Index count) {
  Lanes sums[kSums];
  for (Lanes& lanes : sums) lanes = Lanes::broadcast(0.0f);
  for (Index i = 0; i < count; i += kSums * kLanes)
#pragma GCC unroll 8
    for (Index s = 0; s < kSums; ++s) sums[s] = sums[s] + Lanes::load(from + i + s * kLanes);
  for (Index s = 1; s < kSums; ++s) sums[0] = sums[0] + sums[s];
  return detail::sumOfLanes(sums[0]);
}

/// How often per second all threads get through run(thread), whose result must be made use of for it to be computed.
template <class Run>
double runsPerSecond(const Threads& threads, Run run) {
  std::vector<float> results(static_cast<std::size_t>(threads.count()));
  const Stopwatch watch;
  for (double runs = 1;; ++runs) {
    threads.pool().parallelFor(threads.count(), [&](Index part, int) {
      volatile float& result = results[static_cast<std::size_t>(part)];
      result = run(part);
    });
    const double seconds = watch.seconds();
    if (seconds >= kSeconds) return runs / seconds;
  }
}

}  // namespace

Machine::Machine(Index bytes, Threads threads) : threads_(std::move(threads)) {
  constexpr Index kStep = kSums * kLanes;
  const Index step_bytes = kStep * threads_.count() * static_cast<Index>(sizeof(float));
  part_ = (bytes + step_bytes - 1) / step_bytes * kStep;
  buffer_ = detail::AlignedBuffer<float>(part_ * threads_.count());
  threads_.pool().parallelFor(threads_.count(),
                              [&](Index part, int) { std::fill_n(buffer_.data() + part * part_, part_, 1.0f); });
}

double Machine::readBandwidth() const {
  const double bytes = static_cast<double>(buffer_.size()) * sizeof(float);
  return bytes * runsPerSecond(threads_, [&](Index part) { return sum(buffer_.data() + part * part_, part_); });
}

double Machine::fmaPeak() const {
  const double operations = 2.0 * detail::kChainedMultiplyAdds * threads_.count();
  return operations * runsPerSecond(threads_, [](Index) { return detail::kernels<float>().multiply_add_chains(0.5f); });
}

}  // namespace driftless::cli
