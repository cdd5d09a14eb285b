#pragma once

#include <Eigen/Core>

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

}  // namespace driftless
