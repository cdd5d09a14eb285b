#pragma once

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "driftless/parameters.hpp"

/// What is given: the model's weights and the parts of it that a cache does not change. Shapes are written with the
/// letters of driftless/config.hpp: T rows, N positions, C = n_embd, H heads, D = C / H, V vocabulary, L layers.
///
/// Every function computes row by row, because a matrix library may add the same numbers in another order where there
/// are more rows, and stage per-step-identity compares bits.
namespace learner {

using driftless::Activation, driftless::Config, driftless::Index;
using Matrix = driftless::Matrix<float>;  ///< Eigen, row by row in memory
using Row = driftless::RowVector<float>;
using Ids = std::vector<int>;

/// The weights under their checkpoint names: model.config, model.wte [V, C], model.wpe [N, C], model.h[layer] with
/// ln_1, attn.c_attn [C, 3C], attn.c_proj [C, C], ln_2 and mlp, model.ln_f.
using Parameters = driftless::Parameters<float>;
using AttentionParameters = driftless::AttentionParameters<float>;

/// Stands where something is to be written, and says what. Its text is what a stage shows.
[[noreturn]] inline void todo(const std::string& what) { throw std::logic_error("to do: " + what); }

/// The embeddings of ids, the first of which stands at first_position, counted from 0: [T, C].
inline Matrix embed(const Ids& ids, Index first_position, const Parameters& model) {
  Matrix x(static_cast<Index>(ids.size()), model.config.n_embd);
  for (Index t = 0; t < x.rows(); ++t)
    x.row(t) = model.wte.row(ids[static_cast<std::size_t>(t)]) + model.wpe.row(first_position + t);
  return x;
}

/// LayerNorm of every row: [T, C].
inline Matrix layerNorm(const Matrix& x, const driftless::LayerNormParameters<float>& norm, const Config& config) {
  Matrix y(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    Row row = x.row(t);
    row.array() -= row.mean();
    const float variance = row.squaredNorm() / static_cast<float>(row.size());
    row /= std::sqrt(variance + static_cast<float>(config.layer_norm_epsilon));
    y.row(t) = row.cwiseProduct(norm.weight) + norm.bias;
  }
  return y;
}

/// x [T, in] * weight [in, out] + bias: [T, out].
inline Matrix linear(const Matrix& x, const driftless::LinearParameters<float>& layer) {
  Matrix y(x.rows(), layer.weight.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    const Row row = x.row(t);
    const Row product = row * layer.weight;
    y.row(t) = product + layer.bias;
  }
  return y;
}

inline float activate(float x, Activation activation) {
  if (activation == Activation::gelu) return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<float>));
  if (activation != Activation::gelu_new) throw std::invalid_argument("expected a model with gelu or gelu_new");
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<float>) * (x + 0.044715f * x * x * x)));
}

/// The feed-forward sublayer of ln_2's output x [T, C]: [T, C], before the residual is added.
inline Matrix mlp(const Matrix& x, const driftless::MlpParameters<float>& mlp, const Config& config) {
  Matrix hidden = linear(x, mlp.c_fc);
  for (float& value : hidden.reshaped()) value = activate(value, config.activation_function);
  return linear(hidden, mlp.c_proj);
}

/// What q . k is multiplied by in a layer, counted from 0: 1 / sqrt(D), unless the config asks for something else.
inline float scoreScale(const Config& config, Index layer) {
  const float root = config.scale_attn_weights ? std::sqrt(static_cast<float>(config.headSize())) : 1.0f;
  return 1 / (config.scale_attn_by_inverse_layer_idx ? root * static_cast<float>(layer + 1) : root);
}

/// Softmax of one row of scores. The standard's exp makes 0 of minus infinity; Eigen's does not quite.
inline Row softmax(Row scores) {
  const float largest = scores.maxCoeff();
  for (float& score : scores) score = std::exp(score - largest);
  return scores / scores.sum();
}

/// Logits [T, V] of ln_f's output x [T, C].
inline Matrix unembed(const Matrix& x, const Parameters& model) {
  const Matrix& head = model.lm_head ? *model.lm_head : model.wte;
  Matrix logits(x.rows(), head.rows());
  for (Index t = 0; t < x.rows(); ++t) {
    const Row row = x.row(t);
    const Row product = row * head.transpose();
    logits.row(t) = product;
  }
  return logits;
}

}  // namespace learner
