#include "driftless/threads.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "driftless/detail/threads/processors.hpp"
#include "support/temporary_directory.hpp"

#ifdef __linux__
#include <sched.h>
#endif

using namespace driftless;
using namespace driftless::test;

namespace {

/// A folder that stands for the file system's root.
struct FakeSystem {
  TemporaryDirectory root;

  void write(const std::string& path, std::string_view text) const {
    const std::filesystem::path file = root.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  int granted() const { return detail::grantedProcessors(root.path().string()); }
};

constexpr int kNoLimit = detail::kMostThreads;

}  // namespace

TEST_CASE("threads: a quota of a control group is rounded up to whole processors") {
  CHECK(detail::processorsOf("200000 100000\n") == 2);
  CHECK(detail::processorsOf("200001 100000\n") == 3);
  CHECK(detail::processorsOf("1000 100000") == 1);
  CHECK(detail::processorsOf("9223372036854775807 1\n") == kNoLimit);
  CHECK(detail::processorsOf("1 9223372036854775807\n") == 1);
}

TEST_CASE("threads: a list of processors ends with the last of them") {
  CHECK(detail::endOfList("0\n") == 1);
  CHECK(detail::endOfList("0-1\n") == 2);
  CHECK(detail::endOfList("0-3,8-11") == 12);
  CHECK(detail::endOfList("0-3,8\n") == 9);
  CHECK(detail::endOfList("0-99999\n") == kNoLimit);
  for (const std::string_view none : {"", "\n", "-", "0-", "x", "0-x", "3x\n", "0-3 \n", "99999999999"}) {
    CAPTURE(none);
    CHECK(detail::endOfList(none) == 0);
  }
}

TEST_CASE("threads: what sets no limit, or is no quota, leaves all processors") {
  for (const std::string_view text :
       {"max 100000\n", "-1 100000\n", "0 100000\n", "100000 0\n", "100000 -5\n", "", "\n", " ", "100000", "100000\n",
        "100000 ", "100000 x", "100000 100000x", "100000  100000", "1e5 100000", "0x10 1",
        "99999999999999999999 100000", "100000 99999999999999999999"}) {
    CAPTURE(text);
    CHECK(detail::processorsOf(text) == kNoLimit);
  }
  CHECK(detail::processorsOf(std::string_view("1\0000 1", 7)) == kNoLimit);
}

TEST_CASE("threads: the smallest quota of the process's control group and those around it counts") {
  const FakeSystem two;
  CHECK(two.granted() == kNoLimit);
  two.write("proc/self/cgroup", "0::/a/b\n");
  CHECK(two.granted() == kNoLimit);
  two.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  two.write("sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  CHECK(two.granted() == 4);
  two.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(two.granted() == 2);
  two.write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  CHECK(two.granted() == 1);

  const FakeSystem one;
  one.write("proc/self/cgroup", "12:pids:/x\n4:cpuset:/c\n3:cpu,cpuacct:/a\n1:name=systemd:/a:b\n0::/\n");
  one.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  one.write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(one.granted() == kNoLimit);
  one.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n");
  CHECK(one.granted() == 2);
}

TEST_CASE("threads: in a container whose group only the host knows, the quota stands in the root") {
  for (const char* group : {"/docker/0123", "/", "", "/../outside"}) {
    CAPTURE(group);
    const FakeSystem system;
    system.write("proc/self/cgroup", "0::" + std::string(group) + "\n");
    system.write("sys/fs/cgroup/cpu.max", "300000 100000\n");
    CHECK(system.granted() == 3);
  }
}

TEST_CASE("threads: damaged lists of control groups are no reason to fail") {
  for (const std::string& text :
       {std::string(), std::string("\n\n:\n::\n0:\n0:cpu\n0::/a"), std::string(100, ':') + "\n",
        std::string(200000, 'x'), std::string("0::\0/a\n", 7)}) {
    const FakeSystem system;
    system.write("proc/self/cgroup", text);
    system.write("sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    CHECK(system.granted() == kNoLimit);
  }
}

#ifdef __linux__
TEST_CASE("threads: there are no more than processors that the process may run on") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(Threads().count() == 1);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}
#endif
