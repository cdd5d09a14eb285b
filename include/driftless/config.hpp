#pragma once

#include <Eigen/Core>
#include <cmath>
#include <string>
#include <utility>

#include "driftless/error.hpp"

/// Shapes are written with the same letters everywhere:
///   T rows (tokens of a step), N = n_positions, C = n_embd, H = n_head, D = C / H, V = vocab_size, L = n_layer.
namespace driftless {

using Index = Eigen::Index;

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class Scalar>
using RowVector = Eigen::Matrix<Scalar, 1, Eigen::Dynamic>;

/// The MLP's non-linearity, by the name of Hugging Face's `activation_function`. `gelu` is the exact one (erf);
/// `gelu_new` the tanh approximation of the GPT-2 paper's code, also known as gelu_fast and gelu_pytorch_tanh;
/// `silu` is also known as swish.
enum class Activation { gelu, gelu_new, relu, silu, tanh };

/// The shape of a GPT-2 and the switches that change its mathematics, under the names of config.json.
/// The defaults are those of Hugging Face's GPT2Config: the 124M model.
struct Config {
  Index vocab_size = 50257;
  Index n_positions = 1024;
  Index n_embd = 768;
  Index n_layer = 12;
  Index n_head = 12;
  Index n_inner = 4 * 768;
  Activation activation_function = Activation::gelu_new;
  double layer_norm_epsilon = 1e-5;
  bool scale_attn_weights = true;                ///< scores are divided by sqrt(D)
  bool scale_attn_by_inverse_layer_idx = false;  ///< and by the layer's number, counted from 1

  /// D, the width of one head.
  Index headSize() const { return n_embd / n_head; }

  friend bool operator==(const Config&, const Config&) = default;
};

/// Throws ConfigError, by name, for a model that there can't be.
inline void checkConfig(const Config& config) {
  const std::pair<const char*, Index> sizes[] = {{"vocab_size", config.vocab_size}, {"n_positions", config.n_positions},
                                                 {"n_embd", config.n_embd},         {"n_layer", config.n_layer},
                                                 {"n_head", config.n_head},         {"n_inner", config.n_inner}};
  for (const auto& [name, size] : sizes)
    if (size < 1) throw ConfigError(std::string(name) + ": expected 1 or more, got " + std::to_string(size));
  if (config.n_embd % config.n_head != 0)
    throw ConfigError("n_head: expected a divisor of n_embd, " + std::to_string(config.n_embd) + ", got " +
                      std::to_string(config.n_head));
  if (!(config.layer_norm_epsilon > 0) || std::isinf(config.layer_norm_epsilon))
    throw ConfigError("layer_norm_epsilon: expected a positive, finite number, got " +
                      std::to_string(config.layer_norm_epsilon));
}

}  // namespace driftless
