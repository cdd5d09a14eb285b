#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// A LayerNorm's gain and shift.
template <class Scalar>
struct LayerNormParameters {
  RowVector<Scalar> weight;  ///< [C]
  RowVector<Scalar> bias;    ///< [C]
};

/// y = x * weight + bias. The weight is [in, out], as GPT-2's checkpoints store it (Conv1D), not [out, in] (nn.Linear).
template <class Scalar>
struct LinearParameters {
  Matrix<Scalar> weight;   ///< [in, out]
  RowVector<Scalar> bias;  ///< [out]
};

/// The attention sublayer.
template <class Scalar>
struct AttentionParameters {
  LinearParameters<Scalar> c_attn;  ///< [C, 3C]: the columns of Q, then K, then V, each with its heads side by side
  LinearParameters<Scalar> c_proj;  ///< [C, C]
};

/// The feed-forward sublayer.
template <class Scalar>
struct MlpParameters {
  LinearParameters<Scalar> c_fc;    ///< [C, n_inner]
  LinearParameters<Scalar> c_proj;  ///< [n_inner, C]
};

/// One of the L blocks.
template <class Scalar>
struct BlockParameters {
  LayerNormParameters<Scalar> ln_1;  ///< before attn
  AttentionParameters<Scalar> attn;  ///< attention
  LayerNormParameters<Scalar> ln_2;  ///< before mlp
  MlpParameters<Scalar> mlp;         ///< feed-forward
};

/// A GPT-2 as plain Eigen matrices under their checkpoint names: what `reference.hpp` computes with, and what `Weights`
/// can be built from without a file.
template <class Scalar>
struct Parameters {
  Config config;                           ///< the shape that the tensors have
  Matrix<Scalar> wte;                      ///< [V, C] token embedding
  Matrix<Scalar> wpe;                      ///< [N, C] position embedding
  std::vector<BlockParameters<Scalar>> h;  ///< L blocks
  LayerNormParameters<Scalar> ln_f;        ///< behind the last block
  std::optional<Matrix<Scalar>> lm_head;   ///< [V, C] output weights; absent where they are tied to wte
};

/// The one list of a GPT-2's tensors. Calls visit(name, tensor, rows, cols) for each, with the checkpoint's name
/// (without `transformer.`), the Eigen object, and the shape that the config asks for (vectors have one row).
/// `parameters.h` must hold n_layer blocks already.
template <class AnyParameters, class Visit>
void forEachTensor(AnyParameters& parameters, Visit visit) {
  const Config& config = parameters.config;
  const Index C = config.n_embd;
  const auto layerNorm = [&](const std::string& name, auto& tensors) {
    visit(name + ".weight", tensors.weight, Index{1}, C);
    visit(name + ".bias", tensors.bias, Index{1}, C);
  };
  const auto linear = [&](const std::string& name, auto& tensors, Index in, Index out) {
    visit(name + ".weight", tensors.weight, in, out);
    visit(name + ".bias", tensors.bias, Index{1}, out);
  };
  visit("wte.weight", parameters.wte, config.vocab_size, C);
  visit("wpe.weight", parameters.wpe, config.n_positions, C);
  for (std::size_t layer = 0; layer < parameters.h.size(); ++layer) {
    auto& block = parameters.h[layer];
    const std::string prefix = "h." + std::to_string(layer);
    layerNorm(prefix + ".ln_1", block.ln_1);
    linear(prefix + ".attn.c_attn", block.attn.c_attn, C, 3 * C);
    linear(prefix + ".attn.c_proj", block.attn.c_proj, C, C);
    layerNorm(prefix + ".ln_2", block.ln_2);
    linear(prefix + ".mlp.c_fc", block.mlp.c_fc, C, config.n_inner);
    linear(prefix + ".mlp.c_proj", block.mlp.c_proj, config.n_inner, C);
  }
  layerNorm("ln_f", parameters.ln_f);
  if (parameters.lm_head) visit("lm_head.weight", *parameters.lm_head, config.vocab_size, C);
}

/// `[rows, cols]`, for messages.
inline std::string shapeText(Index rows, Index cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

/// Throws ConfigError for a config that there can't be, and ArgumentError, naming the tensor and both shapes, where one
/// does not fit the config.
template <class Scalar>
void checkParameters(const Parameters<Scalar>& parameters) {
  checkConfig(parameters.config);
  if (static_cast<Index>(parameters.h.size()) != parameters.config.n_layer)
    throw ArgumentError("Parameters: expected " + std::to_string(parameters.config.n_layer) + " blocks in h, got " +
                        std::to_string(parameters.h.size()));
  forEachTensor(parameters, [](const std::string& name, const auto& tensor, Index rows, Index cols) {
    if (tensor.rows() != rows || tensor.cols() != cols)
      throw ArgumentError("Parameters: expected " + name + " of shape " + shapeText(rows, cols) + ", got " +
                          shapeText(tensor.rows(), tensor.cols()));
  });
}

/// A model with random weights, to try shapes without a checkpoint: uniform numbers of about the standard deviation of
/// GPT-2's initialisation, 0.02; LayerNorm gains around 1. The same seed gives the same bits on every platform.
template <class Scalar = float>
Parameters<Scalar> randomParameters(const Config& config, std::uint64_t seed, bool has_head = false) {
  Parameters<Scalar> parameters;
  parameters.config = config;
  parameters.h.resize(static_cast<std::size_t>(config.n_layer));
  if (has_head) parameters.lm_head.emplace();
  std::mt19937_64 engine(seed);
  forEachTensor(parameters, [&](const std::string& name, auto& tensor, Index rows, Index cols) {
    const Scalar mean = name.find("ln_") != std::string::npos && name.ends_with(".weight") ? Scalar(1) : Scalar(0);
    tensor.resize(rows, cols);
    for (Index i = 0; i < rows * cols; ++i) {
      // Both products are by powers of two and exact, so that it does not matter whether they are fused with the sums.
      const Scalar unit = static_cast<Scalar>(engine() >> 40) * Scalar(0x1p-24) - Scalar(0.5);
      tensor.data()[i] = mean + unit * Scalar(0x1p-4);
    }
  });
  return parameters;
}

}  // namespace driftless::inline DRIFTLESS_ABI
