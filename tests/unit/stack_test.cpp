#include <doctest/doctest.h>
#include <pthread.h>

#include <functional>
#include <vector>

#include "driftless/driftless.hpp"
#include "support/fixtures.hpp"
#include "support/random_models.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStack = 1 << 20;  // what a sanitizer puts into it is larger than what it watches
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr std::size_t kStack = 1 << 20;
#else
constexpr std::size_t kStack = 64 << 10;
#endif
#else
constexpr std::size_t kStack = 64 << 10;
#endif

/// Runs it on a thread with a small stack.
void runOnSmallStack(std::function<void()> run) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, kStack) == 0);
  pthread_t thread;
  const auto call = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, call, &run) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("stack: 64 KB are enough for the reference, whatever the shape") {
  for (const Config& config : {oddConfig(), smallConfig(96, 6, 384, 300, 80, 1), smallConfig(192, 3, 100, 2000, 200, 1),
                               smallConfig(512, 8, 2048, 500, 128, 1)}) {
    const Parameters<float> parameters = livelyParameters(config);
    const std::vector<int> ids = someIds(config.n_positions, config.vocab_size);
    Matrix<float> logits;
    runOnSmallStack([&] { logits = fullForward<float>(ids, parameters); });
    CHECK(logits.rows() == config.n_positions);
  }
}

TEST_CASE("stack: 64 KB are enough to load a model and to generate") {
  const auto model = fixturePath("tales-gpt2");
  std::vector<int> ids;
  runOnSmallStack([&] {
    const Weights<float> weights = loadWeights(model, {.threads = Threads(1)});
    ids = generateTokens(Tokenizer::load(model).encode("Once upon a time"), 4, weights);
  });
  CHECK(ids.size() == 4);
}
