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
#include <span>
#include <vector>

#include "driftless/forward.hpp"
#include "support/random_models.hpp"

namespace {

std::atomic<long> allocations = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  ++allocations;
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

TEST_CASE("in a workspace, a decode step allocates nothing after the first one") {
  const Parameters<float> parameters = livelyParameters(smallConfig(136, 2, 130, 300, 200));
  for (const StoredType stored : {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8}) {
    CAPTURE(nameOf(stored));
    const Weights<float> weights(parameters, {.stored = stored});
    ModelCache<float> cache(weights, stored);
    Workspace<float> workspace{Threads(2)};
    decodeStep(1, 0, weights, cache, workspace);
    CHECK(allocationsOf([&] {
            for (Index position = 1; position < 200; ++position) decodeStep(2, position, weights, cache, workspace);
          }) == 0);
  }
}

TEST_CASE("in a workspace, a step no larger than one before it allocates nothing, whosever cache it is for") {
  const Weights<float> weights(livelyParameters(smallConfig(136, 2, 130, 300, 200)));
  ModelCache<float> one(weights), two(weights), three(weights);
  Workspace<float> workspace{Threads(2)};
  const std::vector<int> ids = someIds(40, 300);
  const std::vector<Chunk<float>> chunks = {{std::span(ids).first(30), &one}, {std::span(ids).first(10), &two}};
  prefill(chunks, weights, workspace);
  prefill(std::span(ids).first(1), weights, three, workspace);
  CHECK(allocationsOf([&] {
          prefill(chunks, weights, workspace);
          prefill(ids, weights, three, workspace);
          decodeStep(3, 41, weights, three, workspace);
        }) == 0);
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

TEST_CASE("the count sees what is allocated") {
  const long before = allocations;
  const std::vector<int> something(10);
  CHECK(allocations > before);
  Eigen::internal::set_is_malloc_allowed(false);
  CHECK_THROWS_AS(Eigen::VectorXf(100), std::logic_error);
  Eigen::internal::set_is_malloc_allowed(true);
}
