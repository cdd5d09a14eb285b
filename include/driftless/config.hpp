#pragma once

#include <Eigen/Core>
#include <cmath>
#include <string>
#include <utility>

#include "driftless/detail/abi.hpp"
#include "driftless/error.hpp"

/// Shapes are written with the same letters everywhere:
///   T rows (tokens of a step), N = n_positions, C = n_embd, H = n_head, D = C / H, V = vocab_size, L = n_layer.
namespace driftless::inline DRIFTLESS_ABI {

/// Counts, sizes and positions: signed, as Eigen's are.
using Index = Eigen::Index;

/// [rows, cols], row-major: a row is one token's vector, contiguous.
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// [cols]: one token's vector.
template <class Scalar>
using RowVector = Eigen::Matrix<Scalar, 1, Eigen::Dynamic>;

/// The MLP's non-linearity, by the name of Hugging Face's `activation_function`. `gelu` is the exact one (erf);
/// `gelu_new` the tanh approximation of the GPT-2 paper's code, also known as gelu_fast and gelu_pytorch_tanh;
/// `silu` is also known as swish.
enum class Activation { gelu, gelu_new, relu, silu, tanh };

/// The shape of a GPT-2 and the switches that change its mathematics, under the names of config.json.
/// The defaults are those of Hugging Face's GPT2Config: the 124M model.
struct Config {
  Index vocab_size = 50257;                               ///< V
  Index n_positions = 1024;                               ///< N, the longest context
  Index n_embd = 768;                                     ///< C
  Index n_layer = 12;                                     ///< L
  Index n_head = 12;                                      ///< H, a divisor of C
  Index n_inner = 4 * 768;                                ///< width of the MLP's inside
  Activation activation_function = Activation::gelu_new;  ///< the MLP's
  double layer_norm_epsilon = 1e-5;                       ///< added to the variance by every LayerNorm
  bool scale_attn_weights = true;                         ///< scores are divided by sqrt(D)
  bool scale_attn_by_inverse_layer_idx = false;           ///< and by the layer's number, counted from 1

  /// D, the width of one head.
  Index headSize() const { return n_embd / n_head; }

  /// Whether all keys are equal.
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

}  // namespace driftless::inline DRIFTLESS_ABI
