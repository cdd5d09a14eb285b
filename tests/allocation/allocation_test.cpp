// A program of its own: it counts every allocation, Eigen's too.

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

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

using namespace driftless;
using namespace driftless::test;

TEST_CASE_TEMPLATE("a decode step allocates nothing after the first one", Stored, float, Eigen::half, std::int8_t) {
  const Weights<float, Stored> weights(livelyParameters(smallConfig(136, 2, 130, 300, 200)), Threads(2));
  ModelCache cache(weights);
  decodeStep(1, 0, weights, cache);
  const long before = allocations;
  Eigen::internal::set_is_malloc_allowed(false);
  for (Index position = 1; position < 200; ++position) decodeStep(2, position, weights, cache);
  Eigen::internal::set_is_malloc_allowed(true);
  CHECK(allocations == before);
}

TEST_CASE("the count sees what is allocated") {
  const long before = allocations;
  const std::vector<int> something(10);
  CHECK(allocations > before);
  Eigen::internal::set_is_malloc_allowed(false);
  CHECK_THROWS_AS(Eigen::VectorXf(100), std::logic_error);
  Eigen::internal::set_is_malloc_allowed(true);
}
