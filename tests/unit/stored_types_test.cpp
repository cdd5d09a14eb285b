#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driftless/forward.hpp"
#include "support/fixtures.hpp"
#include "support/log_probabilities.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

template <class WeightStored, class CacheStored>
struct Types {
  using Weight = WeightStored;
  using Cache = CacheStored;
};

/// Perplexity of the held-out tale under a model whose weights and cache are stored in these types.
template <class WeightStored, class CacheStored>
double talePerplexity() {
  const Weights<float, WeightStored> weights(fixtureParameters("tales-gpt2"));
  ModelCache<float, CacheStored> cache(weights);
  const std::vector<int> ids = fixtureJson("tales-gpt2/goldens/perplexity.json").at("ids");
  return std::exp(-logProbabilities(prefillLogits(ids, weights, cache), ids, 1).mean());
}

double goldenPerplexity() { return fixtureJson("tales-gpt2/goldens/perplexity.json").at("perplexity"); }

}  // namespace

TEST_CASE_TEMPLATE("stored types: each keeps the identity contract against itself", T, Types<Eigen::half, float>,
                   Types<Eigen::bfloat16, float>, Types<std::int8_t, float>, Types<float, Eigen::half>,
                   Types<float, Eigen::bfloat16>, Types<std::int8_t, Eigen::half>,
                   Types<Eigen::half, Eigen::bfloat16>) {
  using Cache = ModelCache<float, typename T::Cache>;
  for (const bool has_head : {false, true}) {
    const Config config = smallConfig(136, 2, 130, 300, 131);
    const Weights<float, typename T::Weight> weights(livelyParameters(config, has_head));
    const std::vector<int> ids = someIds(131, 300);
    Cache whole(weights), steps(weights), pieces(weights, Threads(3));
    const Matrix<float> expected = prefillLogits(ids, weights, whole);
    for (std::size_t i = 0; i < ids.size(); ++i)
      checkSameBits(decodeStep(ids[i], static_cast<Index>(i), weights, steps), expected.row(static_cast<Index>(i)),
                    "decode at " + std::to_string(i));
    for (std::size_t begin = 0, size = 1; begin < ids.size(); begin += size, size = size * 2 + 1) {
      size = std::min(size, ids.size() - begin);
      checkSameBits(prefill(std::span(ids).subspan(begin, size), weights, pieces),
                    expected.row(static_cast<Index>(begin + size) - 1), "piece at " + std::to_string(begin));
    }
    CHECK(steps.layer(2).keys() == whole.layer(2).keys());
    CHECK(steps.layer(2).values() == pieces.layer(2).values());
  }
}

TEST_CASE_TEMPLATE("stored types: widening sixteen at a time is the exact conversion of each", Stored, Eigen::half,
                   Eigen::bfloat16, std::int8_t) {
  using Bits = std::conditional_t<sizeof(Stored) == 1, std::uint8_t, std::uint16_t>;
  constexpr int kPatterns = 1 << (8 * sizeof(Stored));
  std::vector<Stored> all;
  for (int bits = 0; bits < kPatterns; ++bits) all.push_back(std::bit_cast<Stored>(static_cast<Bits>(bits)));
  bool same = true;
  // Every alignment is allowed: begin at each of the first sixteen.
  for (std::size_t first = 0; first + detail::kLanes <= all.size(); first += first < 16 ? 1 : 13) {
    float widened[detail::kLanes];
    detail::loadLanes<float>(&all[first]).store(widened);
    for (std::size_t i = 0; i < detail::kLanes; ++i) {
      const float expected = static_cast<float>(all[first + i]);
      same = same && (std::bit_cast<std::uint32_t>(widened[i]) == std::bit_cast<std::uint32_t>(expected) ||
                      (std::isnan(widened[i]) && std::isnan(expected)));
    }
  }
  CHECK(same);
}

TEST_CASE("stored types: int8 is the nearest multiple of a column's largest magnitude over 127") {
  detail::Arena arena(detail::PackedMatrix<std::int8_t>::bytesFor(3, 2));
  detail::PackedMatrix<std::int8_t> matrix(3, 2, arena);
  detail::ThreadPool pool(1);
  const float numbers[3][2] = {{1.0f, 0.0f}, {-254.0f, 0.0f}, {127.0f, 0.0f}};
  REQUIRE(detail::packPanels<float>(matrix, pool, [&](Index column, Index width, float* block) {
    for (Index row = 0; row < 3; ++row)
      for (Index c = 0; c < width; ++c) block[row * width + c] = column + c < 2 ? numbers[row][column + c] : 0;
  }));
  CHECK(matrix.scale()[0] == 2.0f);
  CHECK(matrix.element(0, 0) == 0);  // half of a step, to even
  CHECK(matrix.element(1, 0) == -127);
  CHECK(matrix.element(2, 0) == 64);  // 63.5, to even
  CHECK(matrix.scale()[1] == 0.0f);
  CHECK(matrix.element(1, 1) == 0);
}

TEST_CASE("stored types: numbers that a type cannot hold are refused by the tensor's name") {
  Parameters<float> parameters = livelyParameters(oddConfig());
  parameters.h[1].mlp.c_fc.weight(3, 4) = 1e6f;
  CHECK_THROWS_WITH_AS((Weights<float, Eigen::half>(parameters)),
                       "h.1.mlp.c_fc.weight: expected numbers that the stored type of the weights can hold, found "
                       "larger ones",
                       ArgumentError);
  CHECK_NOTHROW((Weights<float, Eigen::bfloat16>(parameters)));
  parameters.h[1].mlp.c_fc.weight(3, 4) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS((Weights<float, std::int8_t>(parameters)), ArgumentError);
  CHECK_NOTHROW((Weights<float, Eigen::half>(parameters)));
}

TEST_CASE("stored types: what they cost in perplexity on the held-out tale") {
  const double golden = goldenPerplexity();
  CHECK(talePerplexity<float, float>() == doctest::Approx(golden).epsilon(1e-5));
  // The checkpoint is F16: nothing is rounded.
  CHECK(talePerplexity<Eigen::half, float>() == talePerplexity<float, float>());
  CHECK(talePerplexity<Eigen::bfloat16, float>() == doctest::Approx(golden).epsilon(0.005));
  CHECK(talePerplexity<std::int8_t, float>() == doctest::Approx(golden).epsilon(0.02));
  CHECK(talePerplexity<float, Eigen::half>() == doctest::Approx(golden).epsilon(0.001));
  CHECK(talePerplexity<float, Eigen::bfloat16>() == doctest::Approx(golden).epsilon(0.005));
  MESSAGE("perplexity: f32 ", talePerplexity<float, float>(), ", bf16 ", talePerplexity<Eigen::bfloat16, float>(),
          ", int8 ", talePerplexity<std::int8_t, float>(), ", f16 cache ", talePerplexity<float, Eigen::half>(),
          ", bf16 cache ", talePerplexity<float, Eigen::bfloat16>(), ", int8 with f16 cache ",
          talePerplexity<std::int8_t, Eigen::half>());
}
