#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/generate.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
template <class Scalar>
class SchedulerThread;
}

/// Runs requests as they come, together, on a thread of its own (and the threads of `weights`, which its steps are
/// shared out among). What a request yields is what generateTokens yields for it, to the bit: its company, and when it
/// came, change nothing.
///
/// Callbacks are called on the scheduler's thread, which goes on when they return: they must not throw, and must not
/// wait for other requests. They may add and cancel.
template <FloatingScalar Scalar = float>
class Scheduler {
 public:
  /// The number of a request, given in the order in which they were added.
  using Id = std::uint64_t;
  /// Called once for every request, with a result for each of its samples.
  using OnResult = std::function<void(Id request, std::vector<Generation> generations)>;
  /// Called with every id of a sample as soon as it is sure to be part of the output; false ends that sample after it.
  using OnSampleToken = std::function<bool(Id request, std::size_t sample, int id)>;

  /// `weights` must outlive the scheduler. Throws ArgumentError for bad options.
  explicit Scheduler(const Weights<Scalar>& weights, const BatchOptions& batch = {});
  /// Cancels what has not ended, and waits for it; what callbacks add meanwhile is cancelled too.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Adds a request, from any thread. Throws for one that cannot be run, as generateTokens does, and ArgumentError if
  /// its caches alone could take more than batch.cache_bytes.
  Id add(Request request, OnResult onResult, OnSampleToken onToken = {});

  /// Ends a request, from any thread: soon, its result comes with what its samples have yielded so far, and with
  /// FinishReason::cancelled for those that have not ended. False if there is no such request, or its result has been
  /// told.
  bool cancel(Id request);

  /// Waits until all requests that have been added by now have ended. Not to be called by a callback.
  void wait();

 private:
  std::unique_ptr<detail::SchedulerThread<Scalar>> thread_;
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/scheduler.hpp"
#endif
