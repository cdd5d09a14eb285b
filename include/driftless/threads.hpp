#pragma once

#include <memory>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {
class ThreadPool;
}

/// The threads that share out a step's work: the caller's and count - 1 more. Copies are handles to the same threads,
/// so one `Threads` can serve any number of workspaces; when two callers want it at once, one of them computes alone.
/// How many threads there are changes the time that a step takes and nothing else.
class Threads {
 public:
  /// One thread per physical core; on Linux fewer if the process may run on fewer processors, or if its control group
  /// grants less processor time. Throws as below.
  Threads();

  /// Throws ArgumentError unless 1 <= count <= 1024, Error if the system has no more threads to give.
  explicit Threads(int count);

  /// How many, the caller's included.
  int count() const;

  /// For the library's own steps.
  detail::ThreadPool& pool() const { return *pool_; }

 private:
  std::shared_ptr<detail::ThreadPool> pool_;
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/threads/threads.hpp"
#endif
