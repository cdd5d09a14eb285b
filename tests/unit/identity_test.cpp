#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/block.hpp"
#include "driftless/forward.hpp"
#include "driftless/reference.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

/// The logits after every prefix of ids, from a cache that saw one token at a time.
template <class Scalar>
std::vector<RowVector<Scalar>> decodedLogits(const std::vector<int>& ids, const Weights<Scalar>& weights,
                                             StoredType stored = StoredType::full) {
  ModelCache<Scalar> cache(weights, stored);
  Workspace<Scalar> workspace;
  std::vector<RowVector<Scalar>> logits;
  for (std::size_t i = 0; i < ids.size(); ++i)
    logits.push_back(decodeStep(ids[i], static_cast<Index>(i), weights, cache, workspace));
  return logits;
}

void checkSameRows(const ModelCache<float>& actual, const ModelCache<float>& expected, const std::string& what) {
  INFO(what);
  REQUIRE(actual.length() == expected.length());
  for (Index layer = 0; layer < expected.layers(); ++layer) {
    const Matrix<float> keys = actual.layer(layer).keys(), expected_keys = expected.layer(layer).keys();
    const Matrix<float> values = actual.layer(layer).values(), expected_values = expected.layer(layer).values();
    CHECK(std::memcmp(keys.data(), expected_keys.data(), static_cast<std::size_t>(keys.size()) * sizeof(float)) == 0);
    CHECK(std::memcmp(values.data(), expected_values.data(), static_cast<std::size_t>(values.size()) * sizeof(float)) ==
          0);
  }
}

/// Shapes on both sides of every border: lanes, panels, tiles of rows, pages of positions.
const std::vector<Config> kShapes = {
    oddConfig(),
    smallConfig(16, 1, 16, 16, 7),
    smallConfig(64, 4, 256, 64, 65),
    smallConfig(65, 5, 63, 65, 63),
    smallConfig(136, 2, 130, 129, 131),
    smallConfig(1, 1, 1, 2, 9),
    smallConfig(33, 11, 15, 80, 70),
};

std::string shapeName(const Config& config) {
  return "C = " + std::to_string(config.n_embd) + ", H = " + std::to_string(config.n_head) +
         ", n_inner = " + std::to_string(config.innerSize()) + ", V = " + std::to_string(config.vocab_size) +
         ", N = " + std::to_string(config.n_positions);
}

}  // namespace

TEST_CASE("identity: every chunking of a prompt of 12 tokens leaves the same logits, keys and values") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  const std::vector<int> ids = someIds(12, weights.config.vocab_size);
  ModelCache<float> whole(weights);
  const RowVector<float> expected = prefill(std::span<const int>(ids), weights, whole);
  for (unsigned cuts = 0; cuts < 1u << 11; ++cuts) {
    ModelCache<float> cache(weights);
    RowVector<float> logits;
    std::size_t begin = 0;
    for (std::size_t end = 1; end <= ids.size(); ++end)
      if (end == ids.size() || (cuts >> (end - 1) & 1) != 0) {
        logits = prefill(std::span(ids).subspan(begin, end - begin), weights, cache);
        begin = end;
      }
    checkSameBits(logits, expected, "cuts " + std::to_string(cuts));
    if (cuts % 100 == 0) checkSameRows(cache, whole, "cuts " + std::to_string(cuts));
  }
}

TEST_CASE("identity: prefill, its every row, and single steps agree in bits for shapes around every border") {
  for (const Config& shape : kShapes)
    for (const Activation activation :
         {Activation::gelu_new, Activation::gelu, Activation::relu, Activation::silu, Activation::tanh}) {
      Config config = shape;
      config.activation_function = activation;
      const Weights<float> weights(livelyParameters(config, activation == Activation::gelu));
      const std::vector<int> ids = someIds(config.n_positions, config.vocab_size);
      const auto decoded = decodedLogits(ids, weights);
      ModelCache<float> cache(weights);
      const Matrix<float> all = prefillLogits(std::span<const int>(ids), weights, cache);
      for (std::size_t i = 0; i < ids.size(); ++i)
        checkSameBits(all.row(static_cast<Index>(i)), decoded[i], shapeName(config) + ", row " + std::to_string(i));
    }
}

TEST_CASE("identity: a prompt longer than one piece of a step") {
  const Weights<float> weights(livelyParameters(smallConfig(12, 2, 9, 31, 1100, 2)));
  const std::vector<int> ids = someIds(1100, 31);
  ModelCache<float> cache(weights);
  const Matrix<float> all = prefillLogits(std::span<const int>(ids), weights, cache);
  const auto decoded = decodedLogits(ids, weights);
  for (const Index row : {0, 511, 512, 513, 1023, 1024, 1099})
    checkSameBits(all.row(row), decoded[static_cast<std::size_t>(row)], "row " + std::to_string(row));
}

TEST_CASE("identity: the number of threads changes no bit") {
  const Parameters<float> parameters = livelyParameters(smallConfig(136, 2, 130, 300, 131));
  const std::vector<int> ids = someIds(131, 300);
  const Weights<float> alone(parameters, {.threads = Threads(1)});
  ModelCache<float> expected_cache(alone);
  const Matrix<float> expected = prefillLogits(std::span<const int>(ids), alone, expected_cache);
  for (const int threads : {2, 3, 5}) {
    ModelCache<float> cache(alone);
    Workspace<float> workspace{Threads(threads)};
    const Matrix<float> logits = prefillLogits(std::span<const int>(ids).first(100), alone, cache, workspace);
    for (Index row = 0; row < 100; ++row) checkSameBits(logits.row(row), expected.row(row), "threads");
    for (Index position = 100; position < 131; ++position)
      checkSameBits(decodeStep(ids[static_cast<std::size_t>(position)], position, alone, cache, workspace),
                    expected.row(position), std::to_string(threads) + " threads, position " + std::to_string(position));
    checkSameRows(cache, expected_cache, std::to_string(threads) + " threads");
  }
}

TEST_CASE("identity: sequences that take turns do not see each other") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  const std::vector<int> one = {1, 5, 9, 200, 7}, two = {3, 3, 3, 3, 3};
  const auto one_alone = decodedLogits(one, weights), two_alone = decodedLogits(two, weights);
  ModelCache<float> one_cache(weights), two_cache(weights);
  for (std::size_t i = 0; i < one.size(); ++i) {
    const Index position = static_cast<Index>(i);
    checkSameBits(decodeStep(one[i], position, weights, one_cache), one_alone[i], "first sequence");
    checkSameBits(decodeStep(two[i], position, weights, two_cache), two_alone[i], "second sequence");
  }
}

TEST_CASE("identity: a cache that was cloned, truncated and refilled, or reset goes on with the same bits") {
  // Id 89, which is not among the others, leaves keys, values and scales of NaN.
  Parameters<float> parameters = livelyParameters(smallConfig(24, 3, 50, 90, 140), true);
  parameters.wte.row(89).setConstant(std::numeric_limits<float>::quiet_NaN());
  const Weights<float> weights(parameters);
  const std::vector<int> ids = someIds(130, 89);
  StoredType stored{};
  SUBCASE("full") { stored = StoredType::full; }
  SUBCASE("bf16") { stored = StoredType::bf16; }
  SUBCASE("int8") { stored = StoredType::int8; }
  const auto expected = decodedLogits(ids, weights, stored);
  const auto rest = [&](ModelCache<float>& cache) -> RowVector<float> {
    return prefill(std::span<const int>(ids).subspan(static_cast<std::size_t>(cache.length())), weights, cache);
  };
  ModelCache<float> cache(weights, stored);
  prefill(std::span<const int>(ids).first(70), weights, cache);
  ModelCache branch = cache.clone();
  prefill(std::span<const int>(std::vector<int>(60, 5)), weights, cache);
  checkSameBits(rest(branch), expected.back(), "clone");
  CHECK(expected.back().allFinite());
  for (const Index length : {128, 127, 65, 64, 63, 16, 1, 0})
    for (const int id : {8, 89}) {
      branch.truncate(length);
      const std::vector<int> other(static_cast<std::size_t>(130 - length), id);
      CHECK(prefill(std::span<const int>(other), weights, branch).hasNaN() == (id == 89));
      branch.truncate(length);
      for (Index position = length; position < 130; ++position)
        checkSameBits(decodeStep(ids[static_cast<std::size_t>(position)], position, weights, branch),
                      expected[static_cast<std::size_t>(position)],
                      "truncated to " + std::to_string(length) + ", position " + std::to_string(position));
      branch.truncate(length);
      checkSameBits(rest(branch), expected.back(), "truncated to " + std::to_string(length));
    }
  cache.reset();
  checkSameBits(rest(cache), expected.back(), "reset");
}

TEST_CASE("identity: the functions of single layers, put together by hand, are the forward path") {
  for (const bool has_lm_head : {false, true}) {
    const Weights<float> weights(livelyParameters(oddConfig(), has_lm_head));
    const std::vector<int> ids = someIds(11, 259);
    ModelCache<float> expected_cache(weights), cache(weights), sublayer_cache(weights);
    const Matrix<float> expected = prefillLogits(std::span<const int>(ids), weights, expected_cache);

    Matrix<float> x(11, 20);
    for (Index t = 0; t < 11; ++t) x.row(t) = embedToken(ids[static_cast<std::size_t>(t)], t, weights);
    Matrix<float> y = x;
    for (Index layer = 0; layer < 3; ++layer) {
      const auto& block = weights.h[static_cast<std::size_t>(layer)];
      x = blockStep(x, block, cache.layer(layer));
      y += attnStep(layerNorm(y, block.ln_1), block.attn, sublayer_cache.layer(layer));
      y += mlp(layerNorm(y, block.ln_2), block.mlp);
    }
    const Matrix<float> logits = unembed(layerNorm(x, weights.ln_f), weights);
    const Matrix<float> sublayer_logits = unembed(layerNorm(y, weights.ln_f), weights);
    for (Index row = 0; row < 11; ++row) {
      checkSameBits(logits.row(row), expected.row(row), "blockStep, row " + std::to_string(row));
      checkSameBits(sublayer_logits.row(row), expected.row(row), "attnStep and mlp, row " + std::to_string(row));
    }
    checkSameRows(cache, expected_cache, "blockStep");
    checkSameRows(sublayer_cache, expected_cache, "attnStep");
  }
}

TEST_CASE("identity: NaN and infinity in a weight reach only the tokens that they concern, by every route") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<int> ids = someIds(16, 259);
  for (const float poison : {kNaN, -kNaN, kInfinity, -kInfinity}) {
    Parameters<float> parameters = livelyParameters(oddConfig());
    const Weights<float> healthy(parameters);
    parameters.wpe(9, 3) = poison;
    const Weights<float> weights(parameters);
    const auto expected = decodedLogits(ids, healthy);
    const auto decoded = decodedLogits(ids, weights);
    ModelCache<float> cache(weights);
    const Matrix<float> all = prefillLogits(std::span<const int>(ids), weights, cache);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      checkSameBits(all.row(static_cast<Index>(i)), decoded[i], "poisoned, row " + std::to_string(i));
      if (i < 9) checkSameBits(decoded[i], expected[i], "before the poison, row " + std::to_string(i));
      if (i >= 9) CHECK(decoded[i].hasNaN());
    }
  }
  // A poisoned token that is never fed spoils its own logit alone.
  Parameters<float> parameters = livelyParameters(oddConfig());
  const auto expected = decodedLogits(ids, Weights<float>(parameters));
  const Index unused = 100;
  REQUIRE(std::ranges::find(ids, static_cast<int>(unused)) == ids.end());
  parameters.wte.row(unused).setConstant(kNaN);
  auto decoded = decodedLogits(ids, Weights<float>(parameters));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(std::isnan(decoded[i][unused]));
    decoded[i][unused] = expected[i][unused];
    checkSameBits(decoded[i], expected[i], "all other logits");
  }
}

TEST_CASE("identity: double precision keeps the contract and agrees with the reference to twelve digits") {
  for (const Config& shape : kShapes) {
    Config config = shape;
    config.activation_function = shape.n_embd % 2 == 0 ? Activation::gelu_new : Activation::gelu;
    config.scale_attn_by_inverse_layer_idx = true;
    const Parameters<double> parameters = livelyParameters<double>(config);
    const Weights<double> weights(parameters);
    const std::vector<int> ids = someIds(config.n_positions, config.vocab_size);
    const auto decoded = decodedLogits(ids, weights);
    ModelCache<double> cache(weights);
    const Matrix<double> all = prefillLogits(std::span<const int>(ids), weights, cache);
    const Matrix<double> reference = fullForward(std::span<const int>(ids), parameters);
    INFO(shapeName(config));
    for (std::size_t i = 0; i < ids.size(); ++i) CHECK(all.row(static_cast<Index>(i)) == decoded[i]);
    CHECK((all - reference).cwiseAbs().maxCoeff() <= 1e-12 * reference.cwiseAbs().maxCoeff());
  }
}

TEST_CASE("identity: the full 124M shape, with random weights, in chunks and steps, and near the reference") {
  const Parameters<float> parameters = randomParameters<float>(Config(), 124);
  const Weights<float> weights(parameters);
  const std::vector<int> ids = someIds(70, weights.config.vocab_size);
  ModelCache<float> whole(weights), pieces(weights);
  const Matrix<float> all = prefillLogits(std::span<const int>(ids), weights, whole);
  prefill(std::span<const int>(ids).first(13), weights, pieces);
  checkSameBits(prefill(std::span<const int>(ids).subspan(13, 50), weights, pieces), all.row(62), "second chunk");
  for (Index position = 63; position < 70; ++position)
    checkSameBits(decodeStep(ids[static_cast<std::size_t>(position)], position, weights, pieces), all.row(position),
                  "position " + std::to_string(position));
  checkSameRows(pieces, whole, "124M");
  checkClose(all.row(69), lastLogits(std::span<const int>(ids), parameters), "reference");
}
