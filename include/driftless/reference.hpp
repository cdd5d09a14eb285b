#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/parameters.hpp"

/// GPT-2 (Radford et al. 2019) without a cache, in plain Eigen expressions over plain parameters: the page to read to
/// learn the model, and the independent check on the fast path, with which it shares no kernel. Everything is computed
/// again at every call. Scalar is float or double.
namespace driftless { inline namespace DRIFTLESS_ABI {

/// The steps of the model, one function each.
namespace reference {

/// (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row: [T, C].
template <class Scalar>
Matrix<Scalar> layerNorm(const Matrix<Scalar>& x, const LayerNormParameters<Scalar>& norm, double epsilon) {
  Matrix<Scalar> y = x.colwise() - x.rowwise().mean();
  for (auto row : y.rowwise()) {
    const Scalar variance = row.squaredNorm() / static_cast<Scalar>(row.size());
    row = (row / std::sqrt(variance + static_cast<Scalar>(epsilon))).cwiseProduct(norm.weight) + norm.bias;
  }
  return y;
}

/// x [T, in] * weight [in, out] + bias: [T, out].
template <class Scalar>
Matrix<Scalar> linear(const Matrix<Scalar>& x, const LinearParameters<Scalar>& layer) {
  return (x * layer.weight).rowwise() + layer.bias;
}

/// The MLP's non-linearity of one number.
template <class Scalar>
Scalar activate(Activation activation, Scalar x) {
  switch (activation) {
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<Scalar>));
    case Activation::gelu_new: {
      const Scalar slope = std::sqrt(2 / std::numbers::pi_v<Scalar>);
      return x / 2 * (1 + std::tanh(slope * (x + Scalar(0.044715) * x * x * x)));
    }
    case Activation::relu:
      return x < 0 ? Scalar(0) : x;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
  }
  return x;
}

/// Each row of scores [T, T] becomes weights that sum to one: [T, T].
template <class Scalar>
Matrix<Scalar> softmax(Matrix<Scalar> scores) {
  for (auto row : scores.rowwise()) {
    row = (row.array() - row.maxCoeff()).exp().matrix().eval();
    row /= row.sum();
  }
  return scores;
}

}  // namespace reference

/// The causal mask for T tokens, to be added to scores [T, T]: 0 where the key's position (column) is not after the
/// query's (row), minus infinity where it is. Throws ArgumentError for T below 0.
template <class Scalar = float>
Matrix<Scalar> buildCausalMask(Index T) {
  if (T < 0) detail::raise<ArgumentError>({"buildCausalMask: expected T of 0 or more, got ", T});
  Matrix<Scalar> mask = Matrix<Scalar>::Zero(T, T);
  mask.template triangularView<Eigen::StrictlyUpper>().setConstant(-std::numeric_limits<Scalar>::infinity());
  return mask;
}

namespace reference {

/// Causal multi-head attention over x [T, C], ln_1's output: [T, C]. `layer` counts from 0.
template <class Scalar>
Matrix<Scalar> attention(const Matrix<Scalar>& x, const AttentionParameters<Scalar>& attn, const Config& config,
                         Index layer) {
  const Index T = x.rows(), C = config.n_embd, D = config.headSize();
  const Scalar scale = static_cast<Scalar>(config.scoreScale(layer));

  const Matrix<Scalar> qkv = linear(x, attn.c_attn);  // [T, 3C]
  const Matrix<Scalar> mask = buildCausalMask<Scalar>(T);
  Matrix<Scalar> mixed(T, C);
  for (Index head = 0; head < config.n_head; ++head) {
    const auto q = qkv.middleCols(head * D, D);
    const auto k = qkv.middleCols(C + head * D, D);
    const auto v = qkv.middleCols(2 * C + head * D, D);
    const Matrix<Scalar> weights = softmax<Scalar>(q * k.transpose() * scale + mask);  // [T, T]
    mixed.middleCols(head * D, D) = weights * v;
  }
  return linear(mixed, attn.c_proj);
}

/// The feed-forward sublayer of x [T, C], ln_2's output: [T, C].
template <class Scalar>
Matrix<Scalar> mlp(const Matrix<Scalar>& x, const MlpParameters<Scalar>& mlp, Activation activation) {
  const Matrix<Scalar> hidden =
      linear(x, mlp.c_fc).unaryExpr([&](Scalar value) { return activate(activation, value); });
  return linear(hidden, mlp.c_proj);
}

/// wte[id] + wpe[position] for the ids at positions 0 to T - 1: [T, C]. Throws as fullForward does.
template <class Scalar>
Matrix<Scalar> embed(std::span<const int> ids, const Parameters<Scalar>& parameters) {
  checkParameters(parameters);
  checkIds(ids, parameters.config);
  const Index T = static_cast<Index>(ids.size());
  if (T > parameters.config.n_positions)
    detail::raise<ContextFull>({"expected at most ", parameters.config.n_positions, " tokens (n_positions), got ", T});
  Matrix<Scalar> x(T, parameters.config.n_embd);
  for (Index t = 0; t < T; ++t) x.row(t) = parameters.wte.row(ids[static_cast<std::size_t>(t)]) + parameters.wpe.row(t);
  return x;
}

/// The residual stream x [T, C] after block `layer`. Throws ArgumentError if there is no such block.
template <class Scalar>
Matrix<Scalar> block(Matrix<Scalar> x, const Parameters<Scalar>& parameters, Index layer) {
  const Config& config = parameters.config;
  if (layer < 0 || layer >= static_cast<Index>(parameters.h.size()))
    detail::raise<ArgumentError>(
        {"block: expected a layer from 0 to ", static_cast<Index>(parameters.h.size()) - 1, ", got ", layer});
  const BlockParameters<Scalar>& h = parameters.h[static_cast<std::size_t>(layer)];
  x += attention(layerNorm(x, h.ln_1, config.layer_norm_epsilon), h.attn, config, layer);
  x += mlp(layerNorm(x, h.ln_2, config.layer_norm_epsilon), h.mlp, config.activation_function);
  return x;
}

/// ln_f's output for every position: [T, C].
template <class Scalar>
Matrix<Scalar> hiddenStates(std::span<const int> ids, const Parameters<Scalar>& parameters) {
  Matrix<Scalar> x = embed(ids, parameters);
  for (Index layer = 0; layer < parameters.config.n_layer; ++layer) x = block(std::move(x), parameters, layer);
  return layerNorm(x, parameters.ln_f, parameters.config.layer_norm_epsilon);
}

/// Logits [T, V] of hidden states [T, C], by lm_head if the model has output weights of its own.
template <class Scalar>
Matrix<Scalar> unembed(const Matrix<Scalar>& hidden, const Parameters<Scalar>& parameters) {
  return hidden * (parameters.lm_head ? *parameters.lm_head : parameters.wte).transpose();
}

}  // namespace reference

/// The logits [T, V] of every token, row t for what follows ids[t]. Throws ArgumentError for no ids or an id that the
/// model does not have, ContextFull for more than n_positions of them.
template <class Scalar>
Matrix<Scalar> fullForward(std::span<const int> ids, const Parameters<Scalar>& parameters) {
  return reference::unembed(reference::hiddenStates(ids, parameters), parameters);
}

/// The logits [V] of the last token alone: fullForward's last row.
template <class Scalar>
RowVector<Scalar> lastLogits(std::span<const int> ids, const Parameters<Scalar>& parameters) {
  const Matrix<Scalar> last = reference::hiddenStates(ids, parameters).bottomRows(1);
  return reference::unembed(last, parameters);
}

/// The prompt, unchanged, followed by n greedy tokens, each from a forward pass over all the tokens before it; the
/// first index wins ties. Throws as fullForward does, before anything is computed if the tokens can't fit.
template <class Scalar>
std::vector<int> greedyDecode(std::span<const int> ids, const Parameters<Scalar>& parameters, Index n) {
  const Index T = static_cast<Index>(ids.size()), N = parameters.config.n_positions;
  if (n < 0) detail::raise<ArgumentError>({"greedyDecode: expected n of 0 or more, got ", n});
  if (n - 1 > N - T)  // the last token needs no position
    detail::raise<ContextFull>({"greedyDecode: expected at most ", (std::max)(Index{0}, N - T + 1), " tokens after ", T,
                                " (n_positions is ", N, "), got ", n});
  std::vector<int> sequence(ids.begin(), ids.end());
  for (Index step = 0; step < n; ++step) sequence.push_back(argmax(lastLogits<Scalar>(sequence, parameters)));
  return sequence;
}

/// The same for every row of a batch of prompts of equal length [B][T]: [B][T + n]. Throws ArgumentError if the
/// lengths differ.
template <class Scalar>
std::vector<std::vector<int>> greedyDecode(const std::vector<std::vector<int>>& batch,
                                           const Parameters<Scalar>& parameters, Index n) {
  for (std::size_t row = 0; row < batch.size(); ++row)
    if (batch[row].size() != batch.front().size())
      detail::raise<ArgumentError>(
          {"greedyDecode: expected rows of ", batch.front().size(), " ids, got ", batch[row].size(), " in row ", row});
  std::vector<std::vector<int>> sequences;
  for (const std::vector<int>& ids : batch)
    sequences.push_back(greedyDecode<Scalar>(std::span<const int>(ids), parameters, n));
  return sequences;
}

}}  // namespace driftless::DRIFTLESS_ABI
