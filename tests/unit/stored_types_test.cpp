#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driftless/attention.hpp"
#include "driftless/forward.hpp"
#include "driftless/stored_type.hpp"
#include "support/fixtures.hpp"
#include "support/log_probabilities.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

struct StoredTypes {
  StoredType weights;
  StoredType cache;
  ComputeType compute = ComputeType::full;
};

/// A model with these types against itself: one prefill, single steps, pieces of growing size on three threads.
template <class Scalar>
void checkIdentity(const StoredTypes& types, bool has_lm_head) {
  INFO("weights " << nameOf(types.weights) << ", computed in " << nameOf(types.compute) << ", cache "
                  << nameOf(types.cache));
  const Config config = smallConfig(136, 2, 130, 300, 131);
  const Weights<Scalar> weights(livelyParameters<Scalar>(config, has_lm_head),
                                {.stored = types.weights, .compute = types.compute});
  CHECK(weights.stored == types.weights);
  CHECK(weights.compute == types.compute);
  const std::vector<int> ids = someIds(131, 300);
  ModelCache<Scalar> whole(weights, types.cache), steps(weights, types.cache), pieces(weights, types.cache);
  Workspace<Scalar> workspace, three_threads(Threads(3));
  const Matrix<Scalar> expected = prefillLogits(ids, weights, whole);
  bool same = true;
  for (std::size_t i = 0; i < ids.size(); ++i)
    same = same &&
           decodeStep(ids[i], static_cast<Index>(i), weights, steps, workspace) == expected.row(static_cast<Index>(i));
  CHECK_MESSAGE(same, "decode steps");
  for (std::size_t begin = 0, size = 1; begin < ids.size(); begin += size, size = size * 2 + 1) {
    size = std::min(size, ids.size() - begin);
    CHECK_MESSAGE(prefill(std::span(ids).subspan(begin, size), weights, pieces, three_threads) ==
                      expected.row(static_cast<Index>(begin + size) - 1),
                  "piece at ", begin);
  }
  CHECK(expected.allFinite());
  CHECK(steps.layer(2).stored() == types.cache);
  CHECK(steps.layer(2).keys() == whole.layer(2).keys());
  CHECK(steps.layer(2).values() == pieces.layer(2).values());
}

/// A row's heads of D numbers each, as whole numbers times the head's largest magnitude over 127, and back.
RowVector<double> quantizedAndBack(const RowVector<double>& row, Index D) {
  RowVector<double> result(row.size());
  for (Index first = 0; first < row.size(); first += D) {
    const Eigen::RowVectorXf head = row.segment(first, D).cast<float>();
    const float scale = head.cwiseAbs().maxCoeff() / 127;
    for (Index d = 0; d < D; ++d) {
      const double whole = scale == 0 ? 0 : std::nearbyint(head[d] / scale);
      CHECK(std::abs(whole) <= 127);
      result[first + d] = whole * static_cast<double>(scale);
    }
  }
  return result;
}

/// Causal attention of the queries of qkv [T, 3C] to these keys and values [T, C], in plain Eigen: [T, C].
Matrix<double> plainAttention(const Matrix<double>& qkv, const Matrix<double>& keys, const Matrix<double>& values,
                              Index D) {
  Matrix<double> mixed = Matrix<double>::Zero(keys.rows(), keys.cols());
  for (Index first = 0; first < keys.cols(); first += D)
    for (Index t = 0; t < keys.rows(); ++t) {
      const RowVector<double> scores =
          qkv.row(t).segment(first, D) * keys.block(0, first, t + 1, D).transpose() / std::sqrt(static_cast<double>(D));
      const RowVector<double> numerators = (scores.array() - scores.maxCoeff()).exp();
      mixed.row(t).segment(first, D) = numerators / numerators.sum() * values.block(0, first, t + 1, D);
    }
  return mixed;
}

/// Perplexity of the held-out tale under a model whose weights and cache are stored in these types.
double talePerplexity(const Parameters<float>& parameters, const StoredTypes& types) {
  const Weights<float> weights(parameters, {.stored = types.weights, .compute = types.compute});
  ModelCache<float> cache(weights, types.cache);
  const std::vector<int> ids = fixtureJson("tales-gpt2/goldens/perplexity.json").at("ids");
  return std::exp(-logProbabilities(prefillLogits(ids, weights, cache), ids, 1).mean());
}

double talePerplexity(const StoredTypes& types) { return talePerplexity(fixtureParameters("tales-gpt2"), types); }

using enum StoredType;
constexpr StoredType kAllStoredTypes[] = {full, f16, bf16, int8, int4};

}  // namespace

TEST_CASE("stored types: each has a name") {
  const std::string_view names[] = {"full", "f16", "bf16", "int8", "int4"};
  CHECK(std::ranges::equal(kStoredTypeNames, names));
  for (std::size_t i = 0; i < std::size(names); ++i) CHECK(nameOf(kAllStoredTypes[i]) == names[i]);
}

TEST_CASE("stored types: each keeps the identity contract against itself") {
  for (const StoredTypes& types : {StoredTypes{f16, full},
                                   {bf16, full},
                                   {int8, full},
                                   {full, f16},
                                   {full, bf16},
                                   {full, int8},
                                   {int8, f16},
                                   {f16, bf16},
                                   {int8, int8},
                                   {int4, full},
                                   {int8, full, ComputeType::int8},
                                   {int4, int8, ComputeType::int8}})
    for (const bool has_lm_head : {false, true}) checkIdentity<float>(types, has_lm_head);
}

TEST_CASE("stored types: each keeps the identity contract in double precision") {
  for (const StoredType type : kAllStoredTypes) {
    checkIdentity<double>({type, full}, false);
    if (type != int4) checkIdentity<double>({full, type}, true);
  }
  for (const StoredType type : {int8, int4}) checkIdentity<double>({type, full, ComputeType::int8}, true);
}

TEST_CASE("stored types: what they take in memory") {
  const Parameters<float> parameters = livelyParameters(smallConfig(64, 4, 128, 256, 128, 1));
  const Index numbers = 256 * 64 + 64 * 192 + 64 * 64 + 2 * 64 * 128;  // of the matrices
  const Index columns = 256 + 192 + 64 + 128 + 64;
  const Index full_bytes = Weights<float>(parameters).bytes();
  const auto saved = [&](StoredType type) { return full_bytes - Weights<float>(parameters, {.stored = type}).bytes(); };
  CHECK(full_bytes > 4 * numbers);
  CHECK(saved(f16) == 2 * numbers);
  CHECK(saved(bf16) == 2 * numbers);
  CHECK(saved(int8) == 3 * numbers - 4 * columns);
  CHECK(saved(int4) == 4 * numbers - numbers / 2 - numbers / 16);

  const auto ofCache = [](StoredType type) { return LayerCache<float>(4, 16, 128, type).bytesFor(128); };
  CHECK(ofCache(full) == 4 * 2 * 64 * 128);
  CHECK(ofCache(f16) == 2 * 2 * 64 * 128);
  CHECK(ofCache(int8) == 2 * 64 * 128 + 4 * 2 * 4 * 128);
}

TEST_CASE_TEMPLATE("stored types: attention to int8 keys and values is plain attention to what they stand for", Scalar,
                   float, double) {
  for (const Config& config :
       {smallConfig(20, 5, 12, 259, 16), smallConfig(136, 2, 130, 300, 131), smallConfig(128, 2, 16, 16, 70)}) {
    const Index C = config.n_embd, D = config.headSize(), T = config.n_positions;
    INFO("C = " << C << ", D = " << D);
    const Parameters<Scalar> parameters = livelyParameters<Scalar>(config);
    const Weights<Scalar> weights(parameters);
    const AttentionParameters<Scalar>& attn = parameters.h[0].attn;
    Matrix<Scalar> x(T, C);
    for (Index t = 0; t < T; ++t) x.row(t) = embedToken(someIds(T, 16)[static_cast<std::size_t>(t)], t, weights);
    LayerCache<Scalar> cache(config.n_head, D, T, int8), exact_cache(config.n_head, D, T, full);
    const Matrix<Scalar> y = attnStep(x, weights.h[0].attn, cache);
    const Matrix<Scalar> exact = attnStep(x, weights.h[0].attn, exact_cache);

    // From the keys and values that the other cache has in full; queries are computed here.
    Matrix<double> qkv = x.template cast<double>() * attn.c_attn.weight.template cast<double>();
    qkv.rowwise() += attn.c_attn.bias.template cast<double>();
    Matrix<double> keys = exact_cache.keys().template cast<double>();
    Matrix<double> values = exact_cache.values().template cast<double>();
    for (Index t = 0; t < T; ++t) {
      keys.row(t) = quantizedAndBack(keys.row(t), D);
      values.row(t) = quantizedAndBack(values.row(t), D);
    }
    CHECK(cache.keys() == Matrix<Scalar>(keys.template cast<Scalar>()));
    CHECK(cache.values() == Matrix<Scalar>(values.template cast<Scalar>()));
    Matrix<double> expected = plainAttention(qkv, keys, values, D) * attn.c_proj.weight.template cast<double>();
    expected.rowwise() += attn.c_proj.bias.template cast<double>();

    const double largest = expected.cwiseAbs().maxCoeff();
    const auto distance = [&](const Matrix<Scalar>& from) {
      return (from.template cast<double>() - expected).cwiseAbs().maxCoeff() / largest;
    };
    CHECK(distance(y) < (sizeof(Scalar) == 8 ? 1e-13 : 1e-4));
    CHECK(distance(exact) > 1e-3);  // what quantising costs is far above the tolerance
  }
}

TEST_CASE("stored types: an int8 key or value that is not finite is NaN as a whole, and so is what sees it") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  const Config config = smallConfig(20, 5, 12, 259, 16, 1);
  const Matrix<float> x = Matrix<float>::Ones(3, 20);
  for (const float bad : {kInfinity, -kInfinity, kNaN})
    for (const Index part : {1, 2}) {
      // The second number of the last head.
      Parameters<float> parameters = livelyParameters(config);
      parameters.h[0].attn.c_attn.bias[part * 20 + 17] = bad;
      const Weights<float> weights(parameters);
      LayerCache<float> cache(5, 4, 16, int8);
      CHECK(attnStep(x, weights.h[0].attn, cache).array().isNaN().all());
      const Matrix<float> spoilt = part == 1 ? cache.keys() : cache.values();
      const Matrix<float> other = part == 1 ? cache.values() : cache.keys();
      CHECK(spoilt.rightCols(4).array().isNaN().all());
      CHECK(spoilt.leftCols(16).allFinite());
      CHECK(other.allFinite());
    }
}

TEST_CASE("stored types: int4 is for weights only") {
  const Weights<float> weights(livelyParameters(oddConfig()));
  CHECK_THROWS_WITH_AS(ModelCache<float>(weights, int4),
                       "LayerCache: expected full, f16, bf16 or int8 for keys and values, got int4", ArgumentError);
  CHECK_THROWS_AS(LayerCache<double>(5, 4, 16, int4), ArgumentError);
}

TEST_CASE("stored types: products in whole numbers are for quantized weights") {
  const Parameters<float> parameters = livelyParameters(oddConfig());
  for (const StoredType type : {full, f16, bf16})
    CHECK_THROWS_WITH_AS(
        Weights<float>(parameters, {.stored = type, .compute = ComputeType::int8}),
        ("to compute in int8, expected weights stored as int8 or int4, got " + std::string(nameOf(type))).c_str(),
        ArgumentError);
  Config wide = oddConfig();
  wide.n_inner = 65537;
  CHECK_THROWS_WITH_AS(Weights<float>::bytesFor(wide, false, int8, ComputeType::int8),
                       "to compute in int8, expected n_inner up to 65536, got 65537", ArgumentError);
  CHECK_NOTHROW(Weights<float>::bytesFor(wide, false, int8));
}

TEST_CASE("stored types: one workspace serves models of any size and type in turn, also many sequences at once") {
  const Config small = smallConfig(20, 5, 12, 259, 60), large = smallConfig(136, 2, 130, 300, 60);
  const LoadOptions kinds[] = {{},
                               {.stored = f16},
                               {.stored = int4},
                               {.stored = int8, .compute = ComputeType::int8},
                               {.stored = int4, .compute = ComputeType::int8}};
  Workspace<float> workspace(Threads(2));
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const LoadOptions& options : kinds)
      for (const Config& config : {large, small}) {
        INFO(nameOf(options.stored) << " computed in " << nameOf(options.compute) << ", C = " << config.n_embd);
        const Weights<float> weights(livelyParameters(config), options);
        const std::vector<int> ids = someIds(60, 250);
        std::vector<ModelCache<float>> caches;
        for (int i = 0; i < 8; ++i) caches.emplace_back(weights, int8);
        std::vector<Chunk<float>> chunks;
        for (std::size_t i = 0; i < caches.size(); ++i)
          chunks.push_back({std::span(ids).subspan(i, 1 + 7 * i), &caches[i]});
        const Matrix<float> logits = prefill(chunks, weights, workspace);
        for (std::size_t i = 0; i < caches.size(); ++i) {
          ModelCache<float> alone(weights, int8);
          CHECK(prefill(chunks[i].ids, weights, alone) == logits.row(static_cast<Index>(i)));
        }
      }
}

TEST_CASE("stored types: an outlier channel costs products in whole numbers next to nothing") {
  // Gains times 50 and the rows that they meet over 50: the same function, in whose rows one number is far larger.
  Parameters<float> parameters = fixtureParameters("tales-gpt2");
  for (auto& block : parameters.h)
    for (const Index channel : {3, 70, 111}) {
      for (auto* norm : {&block.ln_1, &block.ln_2}) norm->weight[channel] *= 50, norm->bias[channel] *= 50;
      block.attn.c_attn.weight.row(channel) /= 50;
      block.mlp.c_fc.weight.row(channel) /= 50;
    }
  const double floats = talePerplexity(parameters, {int8, full});
  const double integers = talePerplexity(parameters, {int8, full, ComputeType::int8});
  MESSAGE("perplexity with outlier channels: " << floats << " in floats, " << integers << " in whole numbers");
  CHECK(integers == doctest::Approx(floats).epsilon(0.02));
}

TEST_CASE("stored types: numbers that a type cannot hold are refused by the tensor's name") {
  Parameters<float> parameters = livelyParameters(oddConfig());
  parameters.h[1].mlp.c_fc.weight(3, 4) = 1e6f;
  const auto load = [&](StoredType type) { return Weights<float>(parameters, {.stored = type}); };
  CHECK_THROWS_WITH_AS(load(f16), "h.1.mlp.c_fc.weight: expected numbers that f16 can hold, found 1e+06 at [3, 4]",
                       ArgumentError);
  CHECK_THROWS_WITH_AS(load(int4), "h.1.mlp.c_fc.weight: expected numbers that int4 can hold, found 1e+06 at [3, 4]",
                       ArgumentError);
  CHECK_NOTHROW(load(bf16));
  CHECK_NOTHROW(load(int8));
  parameters.h[1].mlp.c_fc.weight(3, 4) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(load(int8), "h.1.mlp.c_fc.weight: expected numbers that int8 can hold, found nan at [3, 4]",
                       ArgumentError);
  CHECK_NOTHROW(load(f16));
  parameters.h[1].mlp.c_fc.weight(3, 4) = 0;
  parameters.wte(100, 7) = -std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH_AS(load(int8), "wte.weight: expected numbers that int8 can hold, found -inf at [100, 7]",
                       ArgumentError);
  CHECK_NOTHROW(load(bf16));
}

TEST_CASE("stored types: the size of the weights follows from shapes alone") {
  for (const StoredType type : kAllStoredTypes)
    for (const bool has_lm_head : {false, true}) {
      const Weights<float> weights(livelyParameters(oddConfig(), has_lm_head), {.stored = type});
      CHECK(weights.bytes() == Weights<float>::bytesFor(oddConfig(), has_lm_head, type));
    }
  const LoadOptions in_integers{.stored = int8, .compute = ComputeType::int8};
  CHECK(Weights<float>(livelyParameters(oddConfig()), in_integers).bytes() ==
        Weights<float>::bytesFor(oddConfig(), false, int8, ComputeType::int8));
}

TEST_CASE("stored types: what they cost in perplexity on the held-out tale") {
  const double golden = fixtureJson("tales-gpt2/goldens/perplexity.json").at("perplexity");
  const double unrounded = talePerplexity({full, full});
  CHECK(unrounded == doctest::Approx(golden).epsilon(1e-5));
  // The checkpoint is F16: nothing is rounded.
  CHECK(talePerplexity({f16, full}) == unrounded);
  std::string summary = "perplexity: full " + std::to_string(unrounded);
  const auto check = [&](const StoredTypes& types, double tolerance) {
    const double perplexity = talePerplexity(types);
    CHECK(perplexity == doctest::Approx(golden).epsilon(tolerance));
    summary += ", " + std::string(nameOf(types.weights)) + " in " + std::string(nameOf(types.compute)) + " with " +
               std::string(nameOf(types.cache)) + " cache " + std::to_string(perplexity);
  };
  check({bf16, full}, 0.005);
  check({int8, full}, 0.02);
  check({full, f16}, 0.001);
  check({full, bf16}, 0.005);
  check({full, int8}, 0.005);
  check({int8, f16}, 0.02);
  check({int8, int8}, 0.02);
  check({int8, full, ComputeType::int8}, 0.02);
  check({int4, full}, 0.08);
  check({int4, full, ComputeType::int8}, 0.08);
  check({int4, int8, ComputeType::int8}, 0.08);
  MESSAGE(summary);
}
