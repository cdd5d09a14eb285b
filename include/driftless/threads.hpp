#pragma once

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/thread_pool.hpp"
#include "driftless/error.hpp"

namespace driftless::inline DRIFTLESS_ABI {

namespace detail {

inline constexpr int kMostThreads = 1024;

/// Cores, not hyper-threads: two threads on one core share its arithmetic units and gain nothing here.
inline int physicalCores() {
  const int logical = (std::max)(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::set<std::string> cores;
  for (int cpu = 0; cpu < kMostThreads; ++cpu) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (std::getline(file, siblings)) cores.insert(siblings);  // one that is offline has none
  }
  return cores.empty() ? logical : (std::min)(logical, static_cast<int>(cores.size()));
}

}  // namespace detail

/// The threads that share out a step's work: the caller's and count - 1 more. Copies are handles to the same threads,
/// so one `Threads` can serve any number of caches; when two callers want it at once, one of them computes alone. How
/// many threads there are changes the time a step takes and nothing else.
class Threads {
 public:
  /// One thread a physical core.
  Threads() : Threads(detail::physicalCores()) {}

  /// Throws ArgumentError unless 1 <= count <= 1024, Error where the system has no more threads to give.
  explicit Threads(int count) {
    if (count < 1 || count > detail::kMostThreads)
      throw ArgumentError("Threads: expected a count from 1 to " + std::to_string(detail::kMostThreads) + ", got " +
                          std::to_string(count));
    try {
      pool_ = std::make_shared<detail::ThreadPool>(count);
    } catch (const std::system_error& error) {
      throw Error("Threads: expected " + std::to_string(count) + " threads, got fewer: " + error.what());
    }
  }

  /// How many, the caller's included.
  int count() const { return pool_->threads(); }
  /// For the library's own steps.
  detail::ThreadPool& pool() const { return *pool_; }

 private:
  std::shared_ptr<detail::ThreadPool> pool_;
};

}  // namespace driftless::inline DRIFTLESS_ABI
