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
  Matrix<Scalar> y = layer.bias.replicate(x.rows(), 1);
  // A few rows and columns at a time, which stay in the processor's cache. Eigen's own product would need up to a
  // quarter of a megabyte of stack, which not every thread has.
  constexpr Index kRows = 16, kCols = 256;
  for (Index row = 0; row < y.rows(); row += kRows)
    for (Index col = 0; col < y.cols(); col += kCols) {
      auto tile = y.block(row, col, (std::min)(kRows, y.rows() - row), (std::min)(kCols, y.cols() - col));
      for (Index k = 0; k < x.cols(); ++k)
        for (Index r = 0; r < tile.rows(); ++r)
          tile.row(r) += x(row + r, k) * layer.weight.row(k).segment(col, tile.cols());
    }
  return y;
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

/// Scores become weights that sum to one.
template <class Scalar>
RowVector<Scalar> softmax(const RowVector<Scalar>& scores) {
  const RowVector<Scalar> numerators = (scores.array() - scores.maxCoeff()).exp();
  return numerators / numerators.sum();
}

}  // namespace reference

/// The causal mask for T tokens, to be added to scores [T, T]: 0 where the key's position (column) is not after the
/// query's (row), minus infinity where it is. Throws ArgumentError for T below 0. `reference::attention` leaves out
/// what it would mask, which is the same unless a score or value is infinite or NaN.
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
  Matrix<Scalar> mixed = Matrix<Scalar>::Zero(T, C);
  for (Index head = 0; head < config.n_head; ++head) {
    const auto q = qkv.middleCols(head * D, D);
    const auto k = qkv.middleCols(C + head * D, D);
    const auto v = qkv.middleCols(2 * C + head * D, D);
    for (Index t = 0; t < T; ++t) {
      RowVector<Scalar> scores(t + 1);  // causal: later keys are absent
      for (Index key = 0; key <= t; ++key) scores[key] = q.row(t).dot(k.row(key)) * scale;
      const RowVector<Scalar> weights = softmax(scores);
      for (Index key = 0; key <= t; ++key) mixed.row(t).segment(head * D, D) += weights[key] * v.row(key);
    }
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

/// Throws as fullForward does.
template <class Scalar>
void checkTokens(TokenIds ids, const Parameters<Scalar>& parameters) {
  checkParameters(parameters);
  checkIds(ids, parameters.config);
  if (static_cast<Index>(ids.size()) > parameters.config.n_positions)
    detail::raise<ContextFull>(
        {"expected at most ", parameters.config.n_positions, " tokens (n_positions), got ", ids.size()});
}

/// wte[id] + wpe[position] for the ids at positions 0 to T - 1: [T, C]. Throws as fullForward does.
template <class Scalar>
Matrix<Scalar> embed(TokenIds ids, const Parameters<Scalar>& parameters) {
  checkTokens(ids, parameters);
  const Index T = static_cast<Index>(ids.size());
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
Matrix<Scalar> hiddenStates(TokenIds ids, const Parameters<Scalar>& parameters) {
  Matrix<Scalar> x = embed(ids, parameters);
  for (Index layer = 0; layer < parameters.config.n_layer; ++layer) x = block(std::move(x), parameters, layer);
  return layerNorm(x, parameters.ln_f, parameters.config.layer_norm_epsilon);
}

/// Logits [T, V] of hidden states [T, C], by lm_head if the model has output weights of its own.
template <class Scalar>
Matrix<Scalar> unembed(const Matrix<Scalar>& hidden, const Parameters<Scalar>& parameters) {
  const Matrix<Scalar>& weight = parameters.lm_head ? *parameters.lm_head : parameters.wte;  // [V, C]
  Matrix<Scalar> logits(hidden.rows(), weight.rows());
  for (Index id = 0; id < weight.rows(); ++id)
    for (Index t = 0; t < hidden.rows(); ++t) logits(t, id) = hidden.row(t).dot(weight.row(id));
  return logits;
}

}  // namespace reference

/// The logits [T, V] of every token, row t for what follows ids[t]. Throws ArgumentError for no ids or an id that the
/// model does not have, ContextFull for more than n_positions of them.
template <class Scalar>
Matrix<Scalar> fullForward(TokenIds ids, const Parameters<Scalar>& parameters) {
  return reference::unembed(reference::hiddenStates(ids, parameters), parameters);
}

/// The logits [V] of the last token alone: fullForward's last row.
template <class Scalar>
RowVector<Scalar> lastLogits(TokenIds ids, const Parameters<Scalar>& parameters) {
  const Matrix<Scalar> last = reference::hiddenStates(ids, parameters).bottomRows(1);
  return reference::unembed(last, parameters);
}

namespace reference {

/// Throws as fullForward does for the ids, ArgumentError for a negative n, and ContextFull if n tokens after them need
/// more than n_positions; there is no position for the last one, nor is one needed.
template <class Scalar>
void checkGreedy(TokenIds ids, const Parameters<Scalar>& parameters, Index n) {
  checkTokens(ids, parameters);
  const Index most = parameters.config.n_positions - static_cast<Index>(ids.size()) + 1;
  if (n < 0) detail::raise<ArgumentError>({"greedyDecode: expected n of 0 or more, got ", n});
  if (n > most)
    detail::raise<ContextFull>({"greedyDecode: expected at most ", most, " tokens after a prompt of ", ids.size(),
                                " (n_positions is ", parameters.config.n_positions, "), got ", n});
}

}  // namespace reference

/// The prompt, unchanged, followed by n greedy tokens, each from a forward pass over all the tokens before it; the
/// first index wins ties. Throws as fullForward does, ArgumentError for a negative n, and ContextFull if the tokens
/// can't fit, before anything is computed.
template <class Scalar>
std::vector<int> greedyDecode(TokenIds ids, const Parameters<Scalar>& parameters, Index n) {
  reference::checkGreedy(ids, parameters, n);
  std::vector<int> sequence(ids.begin(), ids.end());
  for (Index step = 0; step < n; ++step) sequence.push_back(argmax(lastLogits<Scalar>(sequence, parameters)));
  return sequence;
}

/// The same for every row of a batch of prompts of equal length [B][T]: [B][T + n]. Throws ArgumentError if the
/// lengths differ.
template <class Scalar>
std::vector<std::vector<int>> greedyDecode(Prompts batch, const Parameters<Scalar>& parameters, Index n) {
  for (std::size_t row = 0; row < batch.size(); ++row) {
    if (batch[row].size() != batch.front().size())
      detail::raise<ArgumentError>(
          {"greedyDecode: expected rows of ", batch.front().size(), " ids, got ", batch[row].size(), " in row ", row});
    reference::checkGreedy<Scalar>(batch[row], parameters, n);
  }
  std::vector<std::vector<int>> sequences;
  for (const std::vector<int>& ids : batch) sequences.push_back(greedyDecode<Scalar>(TokenIds(ids), parameters, n));
  return sequences;
}

}}  // namespace driftless::DRIFTLESS_ABI
