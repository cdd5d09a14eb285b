// A program of its own: it counts every allocation, Eigen's too. For these, it compiles the library's bodies itself.
#undef DRIFTLESS_COMPILED

#include <cstdlib>
#include <new>
#include <stdexcept>

#define EIGEN_RUNTIME_NO_MALLOC
#define eigen_assert(condition)                           \
  do {                                                    \
    if (!(condition)) throw std::logic_error(#condition); \
  } while (false)

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "driftless/forward.hpp"
#include "driftless/generate.hpp"
#include "driftless/rules.hpp"
#include "driftless/sample.hpp"
#include "driftless/scheduler.hpp"
#include "support/random_models.hpp"

namespace {

std::atomic<long> allocations = 0;
std::atomic<long> most_allocations = (std::numeric_limits<long>::max)();  ///< there is no memory for more

thread_local bool is_test_thread = false;
std::atomic<long> others_until_failure = -1;  ///< allocations of other threads before one fails; below 0: none does

void* allocate(std::size_t size, std::size_t alignment) {
  if (!is_test_thread && others_until_failure >= 0 && others_until_failure-- == 0) throw std::bad_alloc();
  if (++allocations > most_allocations) throw std::bad_alloc();
  if (void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)) return memory;
  throw std::bad_alloc();
}

// Not inlined, or g++ complains that what operator new returned is given to free.
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

using namespace driftless;
using namespace driftless::test;

namespace {

/// How many allocations `run` does; Eigen's throw.
template <class Run>
long allocationsOf(Run run) {
  const long before = allocations;
  Eigen::internal::set_is_malloc_allowed(false);
  run();
  Eigen::internal::set_is_malloc_allowed(true);
  return allocations - before;
}

}  // namespace

TEST_CASE("in a workspace, a decode step allocates nothing after the first one but the next page") {
  const Parameters<float> parameters = livelyParameters(smallConfig(136, 2, 130, 300, 200));
  for (const LoadOptions& options : {LoadOptions{},
                                     {.stored = StoredType::f16},
                                     {.stored = StoredType::bf16},
                                     {.stored = StoredType::int8},
                                     {.stored = StoredType::int8, .compute = ComputeType::int8},
                                     {.stored = StoredType::int4},
                                     {.stored = StoredType::int4, .compute = ComputeType::int8}}) {
    INFO(nameOf(options.stored) << " computed in " << nameOf(options.compute));
    const Weights<float> weights(parameters, options);
    ModelCache<float> cache(weights, options.stored == StoredType::int4 ? StoredType::int8 : options.stored);
    Workspace<float> workspace{Threads(2)};
    decodeStep(1, 0, weights, cache, workspace);
    for (Index position = 1; position < 200; ++position) {
      CAPTURE(position);
      const long pages = position % 64 == 0 ? 2 : 0;  // and what counts their owners
      CHECK(allocationsOf([&] { decodeStep(2, position, weights, cache, workspace); }) == pages);
    }
    // Two clones take turns: the first to write has to copy the last page, the second is then its only owner.
    ModelCache<float> copy = cache.clone();
    cache.truncate(150);
    copy.truncate(150);
    CHECK(allocationsOf([&] { decodeStep(2, 150, weights, copy, workspace); }) == 2);
    CHECK(allocationsOf([&] { decodeStep(2, 150, weights, cache, workspace); }) == 0);
  }
}

TEST_CASE("in a workspace, a step no larger than one before it allocates nothing, whosever cache it is for") {
  const Parameters<float> parameters = livelyParameters(smallConfig(136, 2, 130, 300, 200));
  for (const LoadOptions& options : {LoadOptions{}, LoadOptions{.stored = StoredType::int4},
                                     LoadOptions{.stored = StoredType::int8, .compute = ComputeType::int8}}) {
    const Weights<float> weights(parameters, options);
    ModelCache<float> one(weights), two(weights), three(weights);
    Workspace<float> workspace{Threads(2)};
    const std::vector<int> ids = someIds(40, 300);
    const std::vector<Chunk<float>> chunks = {{std::span(ids).first(30), &one}, {std::span(ids).first(10), &two}};
    prefill(chunks, weights, workspace);
    prefill(std::span(ids).first(1), weights, three, workspace);  // from here on, all caches have their first page
    CHECK(allocationsOf([&] {
            prefill(chunks, weights, workspace);
            prefill(ids, weights, three, workspace);
            decodeStep(3, 41, weights, three, workspace);
          }) == 0);
  }
}

TEST_CASE("in a workspace, a decode step of several sequences allocates nothing after one of as many") {
  const Weights<float> weights(livelyParameters(smallConfig(136, 2, 130, 300, 200)));
  std::vector<ModelCache<float>> caches;
  for (int i = 0; i < 4; ++i) caches.emplace_back(weights);
  std::vector<ModelCache<float>*> running;
  std::vector<int> ids;
  std::vector<Index> positions;
  const auto run = [&](std::size_t count) {
    running.resize(count);
    ids.assign(count, 7);
    positions.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      running[i] = &caches[i];
      positions[i] = caches[i].length();
    }
  };
  Workspace<float> workspace{Threads(2)};
  run(4);
  decodeStep(ids, positions, weights, running, workspace);
  CHECK(allocationsOf([&] {
          for (const std::size_t count : {4u, 3u, 1u, 2u, 4u, 4u}) {
            run(count);
            decodeStep(ids, positions, weights, running, workspace);
          }
        }) == 0);
}

TEST_CASE("a step that there is too little memory for leaves its caches as they were") {
  const Weights<float> weights(livelyParameters(smallConfig(136, 2, 130, 300, 200)));
  const std::vector<int> ids = someIds(150, 300);
  const std::span<const int> all(ids);
  ModelCache<float> parent(weights);
  prefill(all.first(70), weights, parent);
  int failures = 0;
  for (long most = 0;; ++most) {
    CAPTURE(most);
    ModelCache<float> one = parent.clone(), two(weights);  // one's last page is shared, two has none
    const std::vector<Chunk<float>> chunks = {{all.subspan(70), &one}, {all, &two}};
    Workspace<float> workspace{Threads(1)};
    bool is_done = false;
    most_allocations = allocations + most;
    try {
      prefill(chunks, weights, workspace);
      is_done = true;
    } catch (const std::bad_alloc&) {
    }
    most_allocations = (std::numeric_limits<long>::max)();
    if (is_done) {
      CHECK(one.layer(2).keys() == two.layer(2).keys());
      break;
    }
    ++failures;
    CHECK(one.length() == 70);
    CHECK(one.ids() == parent.ids());
    CHECK(one.bytes() == parent.bytes());
    CHECK(one.layer(2).keys() == parent.layer(2).keys());
    CHECK(two.length() == 0);
    CHECK(two.bytes() == 0);
  }
  CHECK(failures >= 2 * (3 + 3));  // one copy, two new pages; three new ones
}

TEST_CASE("in a workspace, a draw allocates nothing after the first one, whatever the settings and the logits") {
  RowVector<float> logits = RowVector<float>::LinSpaced(5000, -9, 9);
  Workspace<float> workspace{Threads(1)};
  std::mt19937_64 engine(1);
  sample(logits, Sampling{.temperature = 1}, engine, workspace);
  CHECK(allocationsOf([&] {
          for (const int top_k : {0, 1, 40, 2000, 9000})
            for (const double top_p : {0.1, 0.95, 0.999999, 1.0})
              for (const double min_p : {0.0, 0.1})
                for (const double typical_p : {0.1, 0.95, 1.0}) {
                  const Sampling sampling{1, top_k, top_p, min_p, typical_p};
                  sample(logits, sampling, engine, workspace);
                  sample(logits.head(3000), sampling, engine, workspace);
                  logits.reverseInPlace();
                }
        }) == 0);
}

TEST_CASE("in a workspace, rules allocate nothing after the first time, whatever the ids") {
  RowVector<float> logits = RowVector<float>::LinSpaced(5000, -9, 9);
  const LogitsRules rules{.logit_bias = {{7, 1}},
                          .repetition_penalty = 1.1,
                          .presence_penalty = 0.5,
                          .frequency_penalty = 0.1,
                          .no_repeat_ngram_size = 3,
                          .suppress_tokens = {1, 2}};
  const std::vector<int> ids = someIds(500, 5000);
  Workspace<float> workspace{Threads(1)};
  applyRules(logits, rules, std::span(ids).first(2), 1, workspace);
  CHECK(allocationsOf([&] {
          for (const std::size_t count : {3u, 500u, 100u}) {
            applyRules(logits, rules, std::span(ids).first(count), count / 2, workspace);
            applyRules(logits.head(4000), {}, {1, 2}, 0, workspace);
          }
        }) == 0);
}

TEST_CASE("generating allocates as often with draws as without, but for the room of the first one") {
  const Weights<float> weights(livelyParameters(smallConfig(136, 2, 130, 3000, 200)), {.threads = Threads(1)});
  const std::vector<std::vector<int>> prompts = {someIds(5, 300)};
  const auto allocationsFor = [&](const Sampling& sampling) {
    Workspace<float> workspace{Threads(1)};
    const GenerateOptions options{.max_tokens = 100, .sampling = sampling};
    return allocationsOf([&] { generateTokens(prompts, options, weights, workspace); });
  };
  const long greedy = allocationsFor({});
  for (const Sampling& sampling :
       {Sampling{1, 0, 1}, Sampling{1, 40, 1}, Sampling{1, 0, 0.95}, Sampling{1, 40, 0.95}}) {
    CAPTURE(sampling.top_k);
    CAPTURE(sampling.top_p);
    CHECK(allocationsFor(sampling) - greedy <= 6);
  }
}

TEST_CASE(
    "whichever allocation of a scheduler's thread fails, every request is told of once, and the next ones are right") {
  is_test_thread = true;
  const Weights<float> weights(livelyParameters(smallConfig(24, 2, 20, 60, 131, 2)), {.threads = Threads(1)});
  const std::vector<Request> requests = {
      {{1, 2, 3}, {.max_tokens = 70, .samples = 2, .prompt_log_probabilities = true}},
      {{4}, {.max_tokens = 9, .samples = 2, .log_probabilities = 2, .num_beams = 3}},
      {{5, 6}, {.max_tokens = 20, .drafter = promptLookup()}}};
  std::vector<std::vector<Generation>> expected;
  for (const Request& request : requests) {
    Workspace<float> workspace{Threads(1)};
    expected.push_back(generateTokens(std::span(&request, 1), weights, workspace));
  }
  int failures = 0;
  for (long until = 0, has_failed = 1; has_failed != 0; ++until) {
    CAPTURE(until);
    Scheduler<float> scheduler(weights, {.prefix_bytes = 100000});
    std::vector<std::vector<Generation>> results(3);
    std::vector<int> told(3, 0);
    const auto run = [&] {
      for (std::size_t i = 0; i < 3; ++i)
        scheduler.add(requests[i], [&results, &told, i](Scheduler<float>::Id, std::vector<Generation> generations) {
          results[i] = std::move(generations);
          ++told[i];
        });
      scheduler.wait();
    };
    others_until_failure = until;
    run();
    has_failed = others_until_failure < 0 ? 1 : 0;
    others_until_failure = -1;
    CHECK(told == std::vector<int>{1, 1, 1});
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(results[i].size() == expected[i].size());
      for (std::size_t sample = 0; sample < results[i].size(); ++sample) {
        const Generation& generation = results[i][sample];
        if (generation.finish_reason != FinishReason::error)
          CHECK(generation.output_ids == expected[i][sample].output_ids);
        else
          ++failures;
      }
    }
    run();
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t sample = 0; sample < results[i].size(); ++sample)
        CHECK(results[i][sample].output_ids == expected[i][sample].output_ids);
  }
  CHECK(failures > 50);
}

TEST_CASE("the count sees what is allocated") {
  const long before = allocations;
  const std::vector<int> something(10);
  CHECK(allocations > before);
  Eigen::internal::set_is_malloc_allowed(false);
  CHECK_THROWS_AS(Eigen::VectorXf(100), std::logic_error);
  Eigen::internal::set_is_malloc_allowed(true);
}
