#pragma once

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "driftless/detail/abi.hpp"

#ifdef __linux__
#include <sched.h>
#endif

// How many processors there are for a process, of which Linux tells more than the standard library passes on.

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

inline constexpr int kMostThreads = 1024;

/// What a small text file holds, up to 64 KiB; nothing if it cannot be read.
inline std::string smallFile(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return {};
  std::string text(std::size_t{1} << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

/// One more than the last number of a list such as `0-3,8-11`, up to kMostThreads; 0 if that is not how it ends.
inline int endOfList(std::string_view list) {
  const std::size_t end = list.find_last_not_of('\n') + 1, begin = list.find_last_of("-,", end) + 1;
  int last = 0;
  const auto read = std::from_chars(list.data() + begin, list.data() + end, last);
  if (read.ec != std::errc() || read.ptr != list.data() + end || last < 0) return 0;
  return (std::min)(last, kMostThreads - 1) + 1;
}

/// Cores, not hyper-threads: two threads on one core share its arithmetic units and gain nothing here. Those of a core
/// are counted by the first of them.
inline int physicalCores() {
  const int logical = (std::max)(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int end = endOfList(smallFile("/sys/devices/system/cpu/present"));
  int cores = 0;
  for (int cpu = 0; cpu < end; ++cpu) {
    const std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list";
    std::FILE* const file = std::fopen(path.c_str(), "r");
    if (file == nullptr) continue;  // a core that is offline has none
    int first = -1;
    if (std::fscanf(file, "%d", &first) == 1 && first == cpu) ++cores;
    std::fclose(file);
  }
  return cores == 0 ? logical : (std::min)(logical, cores);
}

/// How many processors this process may run on.
inline int allowedProcessors() {
#ifdef __linux__
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return (std::max)(1, CPU_COUNT(&allowed));
#endif
  return kMostThreads;
}

/// How many processors `QUOTA PERIOD` amounts to, rounded up: that much time in every period. kMostThreads if it sets
/// no limit, as the quotas `max` and -1 do, or is something else.
inline int processorsOf(std::string_view quota_and_period) {
  const char* const end = quota_and_period.data() + quota_and_period.size();
  long long quota = 0, period = 0;
  const auto first = std::from_chars(quota_and_period.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return kMostThreads;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc() || (second.ptr != end && *second.ptr != '\n')) return kMostThreads;
  if (quota <= 0 || period <= 0) return kMostThreads;
  return static_cast<int>(
      (std::min)(quota / period + (quota % period != 0 ? 1 : 0), static_cast<long long>(kMostThreads)));
}

/// How many processors a Linux control group leaves to this process, by its own quota or that of a group around it, in
/// version 2 or 1 of the files; kMostThreads if there is no limit. `root` is where /proc and /sys are.
inline int grantedProcessors(const std::string& root) {
  int granted = kMostThreads;
  // A line is ID:CONTROLLERS:GROUP; version 2 names no controllers.
  const std::string groups = smallFile(root + "/proc/self/cgroup");
  for (std::size_t begin = 0, end; (end = groups.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = groups.substr(begin, end - begin);
    const std::size_t colon = line.find(':'), second_colon = line.find(':', colon + 1);
    if (colon == std::string::npos || second_colon == std::string::npos) continue;
    const std::string controllers = line.substr(colon, second_colon - colon).replace(0, 1, ",").append(",");
    const bool is_version_2 = controllers == ",,";
    if (!is_version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    // In a container the group can be a name that only the host knows: then the root is what there is.
    std::string group = line.substr(second_colon + 1);
    if (group.find("..") != std::string::npos) group.clear();
    for (;; group.erase(group.rfind('/'))) {
      std::string folder = root;
      folder.append(is_version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu").append(group);
      if (is_version_2) {
        granted = (std::min)(granted, processorsOf(smallFile(folder + "/cpu.max")));
      } else {
        std::string quota = smallFile(folder + "/cpu.cfs_quota_us");
        quota.resize((std::min)(quota.size(), quota.find('\n')));
        quota.append(" ").append(smallFile(folder + "/cpu.cfs_period_us"));
        granted = (std::min)(granted, processorsOf(quota));
      }
      if (group.find('/') == std::string::npos) break;
    }
  }
  return granted;
}

/// How many threads serve this process best.
inline int usefulThreads() { return (std::min)({physicalCores(), allowedProcessors(), grantedProcessors("")}); }

}}}  // namespace driftless::DRIFTLESS_ABI::detail
