#include "driftless/scheduler.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/random_models.hpp"

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DRIFTLESS_COUNTS_RESIDENT_BYTES
#endif
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)  // they keep what has been freed
#undef DRIFTLESS_COUNTS_RESIDENT_BYTES
#endif
#endif
#ifdef DRIFTLESS_COUNTS_RESIDENT_BYTES
#include <malloc.h>

#include <fstream>
#endif

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr int kScheduledVocabulary = 60;

const Weights<float>& scheduledWeights() {
  static const Weights<float> made(livelyParameters(smallConfig(24, 2, 20, kScheduledVocabulary, 131, 2)),
                                   {.threads = Threads(2)});
  return made;
}

Request scheduledRequest(int number) {
  Request request{someIds(1 + number * 7 % 90, kScheduledVocabulary)};
  for (int& id : request.ids) id = (id + number % 5) % kScheduledVocabulary;
  request.options.max_tokens = number % 17;
  request.options.samples = 1 + number % 3;
  request.options.sampling = {.temperature = number % 2 * 0.9, .seed = static_cast<std::uint64_t>(number)};
  if (number % 4 == 0) request.options.drafter = promptLookup();
  return request;
}

std::vector<std::vector<int>> idsOfScheduledAlone(const Request& request) {
  std::vector<std::vector<int>> ids;
  Request one = request;
  one.options.samples = 1;
  for (Index sample = 0; sample < request.options.samples; ++sample, ++one.options.sampling.seed)
    ids.push_back(generateTokens(one.ids, one.options, scheduledWeights()).output_ids);
  return ids;
}

#ifdef DRIFTLESS_COUNTS_RESIDENT_BYTES
/// Bytes of this process that are in memory.
std::size_t residentBytes() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}
#endif

}  // namespace

TEST_CASE("threads: a scheduler yields for every request what it yields alone, whoever adds it and when") {
  constexpr int kRequests = 60;
  std::vector<std::vector<std::vector<int>>> expected;
  for (int i = 0; i < kRequests; ++i) expected.push_back(idsOfScheduledAlone(scheduledRequest(i)));
  for (const BatchOptions& batch :
       {BatchOptions{}, BatchOptions{.sequences = 3, .prompt_rows = 5}, BatchOptions{.prefix_bytes = 1 << 20},
        BatchOptions{.sequences = 40, .cache_bytes = 200000}}) {
    std::vector<std::vector<Generation>> results(kRequests);
    std::vector<std::vector<std::vector<int>>> told(kRequests);
    {
      Scheduler<float> scheduler(scheduledWeights(), batch);
      std::vector<std::thread> users;
      for (int user = 0; user < 3; ++user)
        users.emplace_back([&, user] {
          for (int i = user; i < kRequests; i += 3) {
            const std::size_t index = static_cast<std::size_t>(i);
            told[index].resize(expected[index].size());
            scheduler.add(
                scheduledRequest(i),
                [&results, index](Scheduler<float>::Id, std::vector<Generation> generations) {
                  results[index] = std::move(generations);
                },
                [&told, index](Scheduler<float>::Id, std::size_t sample, int id) {
                  told[index][sample].push_back(id);
                  return true;
                });
            if (i % 5 == 0) std::this_thread::yield();
          }
        });
      for (std::thread& user : users) user.join();
      scheduler.wait();
    }
    for (std::size_t i = 0; i < kRequests; ++i) {
      CAPTURE(i);
      REQUIRE(results[i].size() == expected[i].size());
      for (std::size_t sample = 0; sample < expected[i].size(); ++sample) {
        CHECK(results[i][sample].output_ids == expected[i][sample]);
        CHECK(told[i][sample] == expected[i][sample]);
      }
    }
  }
}

TEST_CASE("threads: a cancelled request ends with what it has, and the others don't notice") {
  Request endless{{1, 2, 3}};
  endless.options = {.max_tokens = 100, .sampling = {.temperature = 1}, .samples = 3};
  const std::vector<std::vector<int>> whole = idsOfScheduledAlone(endless);
  const std::vector<std::vector<int>> other = idsOfScheduledAlone(scheduledRequest(16));

  Scheduler<float> scheduler(scheduledWeights(), {.sequences = 4});
  std::mutex mutex;
  std::map<Scheduler<float>::Id, std::vector<Generation>> results;
  const auto keep = [&](Scheduler<float>::Id id, std::vector<Generation> generations) {
    const std::lock_guard lock(mutex);
    results[id] = std::move(generations);
  };
  std::atomic<int> tokens = 0;
  const auto first = scheduler.add(endless, keep, [&](Scheduler<float>::Id id, std::size_t, int) {
    if (++tokens == 20) CHECK(scheduler.cancel(id));  // callbacks may
    return true;
  });
  const auto waiting = scheduler.add(endless, keep);
  const auto stays = scheduler.add(scheduledRequest(16), keep);
  CHECK(scheduler.cancel(waiting));
  CHECK_FALSE(scheduler.cancel(stays + 1));
  scheduler.wait();
  CHECK_FALSE(scheduler.cancel(first));
  REQUIRE(results.size() == 3);
  std::size_t got = 0;
  for (std::size_t sample = 0; sample < 3; ++sample) {
    for (const auto id : {first, waiting}) {
      REQUIRE(results[id].size() == 3);
      CHECK(results[id][sample].finish_reason == FinishReason::cancelled);
      const std::vector<int>& ids = results[id][sample].output_ids;
      REQUIRE(ids.size() < 100);
      CHECK(std::equal(ids.begin(), ids.end(), whole[sample].begin()));
    }
    got += results[first][sample].output_ids.size();
  }
  CHECK(got >= 20);
  CHECK(got < 60);
  for (std::size_t sample = 0; sample < other.size(); ++sample)
    CHECK(results[stays][sample].output_ids == other[sample]);
}

TEST_CASE("threads: a scheduler that ends cancels what is left, and tells of all of it") {
  std::atomic<int> told = 0, cancelled = 0;
  {
    Scheduler<float> scheduler(scheduledWeights(), {.sequences = 2});
    for (int i = 0; i < 30; ++i)
      scheduler.add({{1}, {.max_tokens = 120}}, [&](Scheduler<float>::Id, const std::vector<Generation>& generations) {
        ++told;
        if (generations[0].finish_reason == FinishReason::cancelled) ++cancelled;
      });
  }
  CHECK(told == 30);
  CHECK(cancelled > 0);
}

TEST_CASE("threads: what a callback adds while the scheduler ends is told too") {
  std::atomic<int> added = 0, told = 0;
  {
    std::function<void(Scheduler<float>::Id, std::vector<Generation>)> again;  // outlives the scheduler
    Scheduler<float> scheduler(scheduledWeights(), {.sequences = 2});
    again = [&](Scheduler<float>::Id id, const std::vector<Generation>&) {
      ++told;
      CHECK_FALSE(scheduler.cancel(id));  // it has ended
      if (added >= 20) return;
      ++added;
      scheduler.add({{2}, {.max_tokens = 120}}, again);
    };
    ++added;
    scheduler.add({{1}, {.max_tokens = 120}}, again);
  }
  CHECK(added == 20);
  CHECK(told == 20);
}

TEST_CASE("threads: a scheduler refuses what cannot be run, and goes on") {
  Scheduler<float> scheduler(scheduledWeights(), {.cache_bytes = 100000});
  std::atomic<int> told = 0;
  const auto count = [&](Scheduler<float>::Id, const std::vector<Generation>&) { ++told; };
  CHECK_THROWS_AS(scheduler.add({{}, {}}, count), ArgumentError);
  CHECK_THROWS_AS(scheduler.add({{kScheduledVocabulary}, {}}, count), ArgumentError);
  CHECK_THROWS_AS(scheduler.add({std::vector<int>(132, 1), {}}, count), ContextFull);
  CHECK_THROWS_AS(scheduler.add({{1}, {.max_tokens = -1}}, count), ArgumentError);
  CHECK_THROWS_AS(Scheduler<float>(scheduledWeights(), {.sequences = 0}), ArgumentError);
  scheduler.add({{1}, {.max_tokens = 3}}, count);
  scheduler.wait();
  CHECK(told == 1);
}

TEST_CASE("threads: ten thousand short requests that come and are cancelled at random leave no memory behind") {
  std::mt19937 random(11);
  std::atomic<int> told = 0;
  Scheduler<float> scheduler(scheduledWeights(), {.cache_bytes = 1 << 20, .prefix_bytes = 1 << 20});
  const auto run = [&](int requests) {
    std::vector<Scheduler<float>::Id> ids;
    for (int i = 0; i < requests; ++i) {
      Request request{someIds(1 + static_cast<Index>(random() % 20), kScheduledVocabulary)};
      request.ids[0] = static_cast<int>(random() % kScheduledVocabulary);
      request.options.max_tokens = static_cast<Index>(random() % 6);
      request.options.samples = 1 + static_cast<Index>(random() % 2);
      ids.push_back(
          scheduler.add(std::move(request), [&](Scheduler<float>::Id, const std::vector<Generation>&) { ++told; }));
      if (random() % 3 == 0) scheduler.cancel(ids[random() % ids.size()]);
      if (random() % 500 == 0) scheduler.wait();
    }
    scheduler.wait();
  };
  run(2000);
#ifdef DRIFTLESS_COUNTS_RESIDENT_BYTES
  const std::size_t before = residentBytes();
#endif
  run(8000);
  CHECK(told == 10000);
#ifdef DRIFTLESS_COUNTS_RESIDENT_BYTES
  CHECK(residentBytes() < before + (std::size_t{8} << 20));
#endif
}
