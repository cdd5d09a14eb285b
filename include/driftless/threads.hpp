#pragma once

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "driftless/detail/thread_pool.hpp"
#include "driftless/error.hpp"

namespace driftless {

namespace detail {

/// Cores, not hyper-threads: two threads on one core share its arithmetic units and gain nothing here.
inline int physicalCores() {
  const int logical = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::set<std::string> cores;
  for (int cpu = 0;; ++cpu) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) break;
    cores.insert(siblings);
  }
  return cores.empty() ? logical : std::min(logical, static_cast<int>(cores.size()));
}

}  // namespace detail

/// The threads that share out a step's work: the caller's and count - 1 more. Copies are handles to the same threads,
/// so one `Threads` can serve any number of caches; when two callers want it at once, one of them computes alone. How
/// many threads there are changes the time a step takes and nothing else.
class Threads {
 public:
  /// One thread a physical core.
  Threads() : Threads(detail::physicalCores()) {}

  /// Throws ArgumentError unless 1 <= count <= 1024.
  explicit Threads(int count) {
    if (count < 1 || count > 1024)
      throw ArgumentError("Threads: expected a count from 1 to 1024, got " + std::to_string(count));
    pool_ = std::make_shared<detail::ThreadPool>(count);
  }

  int count() const { return pool_->threads(); }
  detail::ThreadPool& pool() const { return *pool_; }

 private:
  std::shared_ptr<detail::ThreadPool> pool_;
};

}  // namespace driftless
