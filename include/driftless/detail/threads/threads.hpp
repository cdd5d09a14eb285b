#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/error.hpp"
#include "driftless/threads.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

inline constexpr int kMostThreads = 1024;

/// Cores, not hyper-threads: two threads on one core share its arithmetic units and gain nothing here. Those of a core
/// are counted by the first of them.
inline int physicalCores() {
  const int logical = (std::max)(1, static_cast<int>(std::thread::hardware_concurrency()));
  int cores = 0;
  for (int cpu = 0; cpu < kMostThreads; ++cpu) {
    const std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list";
    std::FILE* const file = std::fopen(path.c_str(), "r");
    if (file == nullptr) continue;  // a core that is offline has none
    int first = -1;
    if (std::fscanf(file, "%d", &first) == 1 && first == cpu) ++cores;
    std::fclose(file);
  }
  return cores == 0 ? logical : (std::min)(logical, cores);
}

}  // namespace detail

DRIFTLESS_INLINE Threads::Threads() : Threads(detail::physicalCores()) {}

DRIFTLESS_INLINE Threads::Threads(int count) {
  if (count < 1 || count > detail::kMostThreads)
    detail::raise<ArgumentError>({"Threads: expected a count from 1 to ", detail::kMostThreads, ", got ", count});
#ifdef DRIFTLESS_NO_EXCEPTIONS
  pool_ = std::make_shared<detail::ThreadPool>(count);
#else
  try {
    pool_ = std::make_shared<detail::ThreadPool>(count);
  } catch (const std::system_error& error) {
    detail::raise<Error>({"Threads: expected ", count, " threads, got fewer: ", error.what()});
  }
#endif
}

DRIFTLESS_INLINE int Threads::count() const { return pool_->threads(); }

}}  // namespace driftless::DRIFTLESS_ABI
