#include "driftless/parameters.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driftless/reference.hpp"
#include "driftless/tensor.hpp"
#include "driftless/weights.hpp"
#include "support/random_models.hpp"

using namespace driftless;
using namespace driftless::test;

TEST_CASE("config: an MLP of no given width is four times as wide as the model") {
  Config config;
  config.n_embd = 20;
  CHECK(config.innerSize() == 80);
  Config explicit_config = config;
  explicit_config.n_inner = 80;
  CHECK(config == explicit_config);
  explicit_config.n_inner = 81;
  CHECK(explicit_config.innerSize() == 81);
  CHECK(!(config == explicit_config));

  config.vocab_size = config.n_positions = 9;
  config.n_head = config.n_layer = 1;
  const Parameters<float> parameters = randomParameters<float>(config, 1);
  CHECK(parameters.h[0].mlp.c_fc.weight.cols() == 80);
  CHECK(Weights<float>(parameters).h[0].mlp.c_proj.weight.in() == 80);
}

TEST_CASE("config: the score scale") {
  Config config = smallConfig(64, 4, 9, 9, 9);
  CHECK(config.scoreScale(0) == 0.25);
  CHECK(config.scoreScale(2) == 0.25);
  config.scale_attn_by_inverse_layer_idx = true;
  CHECK(config.scoreScale(0) == 0.25);
  CHECK(config.scoreScale(1) == 0.125);
  config.scale_attn_weights = false;
  CHECK(config.scoreScale(1) == 0.5);
}

TEST_CASE("parameters: the list of tensors names those of forEachTensor, in its order, with their shapes") {
  for (const bool has_lm_head : {false, true}) {
    const Config config = oddConfig();
    const std::vector<TensorShape> listed = modelTensors(config, has_lm_head);
    CHECK(listed.size() == 2 + 3 * 12 + 2 + (has_lm_head ? 1 : 0));
    std::size_t index = 0;
    const Parameters<double> parameters = randomParameters<double>(config, 1, has_lm_head);
    forEachTensor(parameters, [&](const std::string& name, const auto& tensor, Index rows, Index cols) {
      REQUIRE(index < listed.size());
      const TensorShape& shape = listed[index++];
      CHECK(shape.name == name);
      CHECK(shape.rows == rows);
      CHECK(shape.cols == cols);
      CHECK(shape.rows == tensor.rows());
      CHECK(shape.cols == tensor.cols());
      CHECK(shape.is_vector == bool(tensor.IsVectorAtCompileTime));
    });
    CHECK(index == listed.size());
    CHECK(listed.front().name == "wte.weight");
    CHECK(listed.back().name == (has_lm_head ? "lm_head.weight" : "ln_f.bias"));
  }
}

TEST_CASE("parameters: empty ones have every tensor, without numbers") {
  for (const bool has_lm_head : {false, true}) {
    const Parameters<float> parameters = emptyParameters<float>(oddConfig(), has_lm_head);
    CHECK(parameters.config == oddConfig());
    CHECK(parameters.h.size() == 3);
    CHECK(parameters.lm_head.has_value() == has_lm_head);
    std::size_t count = 0;
    forEachTensor(parameters, [&](const std::string&, const auto& tensor, Index, Index) {
      CHECK(tensor.size() == 0);
      ++count;
    });
    CHECK(count == modelTensors(oddConfig(), has_lm_head).size());
    CHECK_THROWS_AS(checkParameters(parameters), ArgumentError);
  }
}

TEST_CASE("parameters: sizes that cannot describe a model are refused by name, before any are allocated") {
  constexpr Index kHuge = std::numeric_limits<Index>::max();
  const std::pair<const char*, Index Config::*> sizes[] = {{"vocab_size", &Config::vocab_size},
                                                           {"n_positions", &Config::n_positions},
                                                           {"n_embd", &Config::n_embd},
                                                           {"n_layer", &Config::n_layer},
                                                           {"n_head", &Config::n_head}};
  for (const auto& [name, size] : sizes)
    for (const Index bad : {Index{-1}, Index{0}, kHuge / 2, kHuge}) {
      Config config = oddConfig();
      config.*size = bad;
      const doctest::Contains named((std::string(name) + ": expected").c_str());
      CHECK_THROWS_WITH_AS(checkConfig(config), named, ConfigError);
      CHECK_THROWS_WITH_AS(emptyParameters<float>(config, false), named, ConfigError);
      CHECK_THROWS_WITH_AS(randomParameters<float>(config, 1), named, ConfigError);
      CHECK_THROWS_WITH_AS(modelTensors(config, false), named, ConfigError);
    }
  Config config = oddConfig();
  config.n_inner = 0;
  CHECK_THROWS_WITH_AS(checkConfig(config), "n_inner: expected 1 to 4194304, got 0", ConfigError);
}

TEST_CASE("weights: matrices of the wrong shape are refused by name") {
  Parameters<float> parameters = livelyParameters(oddConfig());
  parameters.h[1].attn.c_attn.weight.resize(60, 20);
  CHECK_THROWS_WITH_AS(Weights<float>{parameters},
                       "Parameters: expected h.1.attn.c_attn.weight of shape [20, 60], got [60, 20]", ArgumentError);
  parameters.h.pop_back();
  CHECK_THROWS_WITH_AS(Weights<float>{parameters}, "Parameters: expected 3 blocks in h, got 2", ArgumentError);
}

TEST_CASE("weights: a tensor of the wrong shape from its source is refused by name") {
  const Config config = oddConfig();
  const std::vector<float> numbers(60 * 259, 0.0f);
  const auto padded = [&](const std::string& name) -> TensorView {
    REQUIRE(name == "wte.weight");
    return {DType::F32, 272, 20, reinterpret_cast<const std::byte*>(numbers.data())};
  };
  CHECK_THROWS_WITH_AS((Weights<float>(config, false, padded)), "wte.weight: expected shape [259, 20], got [272, 20]",
                       ArgumentError);
}

TEST_CASE("weights: a tensor without numbers from its source is refused by name") {
  const std::vector<float> numbers(259 * 20, 0.0f);
  const auto* const data = reinterpret_cast<const std::byte*>(numbers.data());
  const auto load = [](DType dtype, const std::byte* from) {
    Weights<float>(oddConfig(), false, [=](const std::string&) -> TensorView { return {dtype, 259, 20, from}; });
  };
  CHECK_THROWS_WITH_AS(load(DType::other, data),
                       "wte.weight: expected numbers of dtype F64, F32, F16 or BF16, got other", ArgumentError);
  CHECK_THROWS_WITH_AS(load(DType::F32, nullptr),
                       "wte.weight: expected numbers of dtype F64, F32, F16 or BF16, got none", ArgumentError);
}

TEST_CASE("tensor: elements that it does not have are refused") {
  constexpr Index kHuge = std::numeric_limits<Index>::max();
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  TensorView tensor{DType::F32, 2, 3, reinterpret_cast<const std::byte*>(numbers.data())};
  float out[3] = {0, 0, 0};
  readElements(tensor, 1, 1, 2, out);
  CHECK(out[0] == 5);
  CHECK(out[1] == 6);
  const auto read = [&](Index row, Index col, Index count) { readElements(tensor, row, col, count, out); };
  CHECK_THROWS_WITH_AS(read(2, 0, 1),
                       "readElements: expected elements of a tensor of shape [2, 3], got 1 in row 2 from column 0 on",
                       ArgumentError);
  for (const Index bad : {Index{-1}, kHuge}) {
    CHECK_THROWS_AS(read(bad, 0, 1), ArgumentError);
    CHECK_THROWS_AS(read(0, bad, 1), ArgumentError);
    CHECK_THROWS_AS(read(0, 1, bad), ArgumentError);
  }
  CHECK_THROWS_AS(read(0, 1, 3), ArgumentError);
  tensor.dtype = DType::other;
  CHECK_THROWS_WITH_AS(read(0, 0, 1), "readElements: expected dtype F64, F32, F16 or BF16, got other", ArgumentError);
}
