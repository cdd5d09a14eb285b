#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// A LayerNorm's gain and shift.
template <FloatingScalar Scalar>
struct LayerNormParameters {
  RowVector<Scalar> weight;  ///< [C]
  RowVector<Scalar> bias;    ///< [C]
};

/// y = x * weight + bias. The weight is [in, out], as GPT-2's checkpoints store it (Conv1D), not [out, in] (nn.Linear).
template <FloatingScalar Scalar>
struct LinearParameters {
  Matrix<Scalar> weight;   ///< [in, out]
  RowVector<Scalar> bias;  ///< [out]
};

/// The attention sublayer.
template <FloatingScalar Scalar>
struct AttentionParameters {
  LinearParameters<Scalar> c_attn;  ///< [C, 3C]: the columns of Q, then K, then V, each with its heads side by side
  LinearParameters<Scalar> c_proj;  ///< [C, C]
};

/// The feed-forward sublayer.
template <FloatingScalar Scalar>
struct MlpParameters {
  LinearParameters<Scalar> c_fc;    ///< [C, innerSize()]
  LinearParameters<Scalar> c_proj;  ///< [innerSize(), C]
};

/// One of the L blocks.
template <FloatingScalar Scalar>
struct BlockParameters {
  LayerNormParameters<Scalar> ln_1;  ///< before attn
  AttentionParameters<Scalar> attn;  ///< attention
  LayerNormParameters<Scalar> ln_2;  ///< before mlp
  MlpParameters<Scalar> mlp;         ///< feed-forward
};

/// A GPT-2 as plain Eigen matrices under their checkpoint names: what `reference.hpp` computes with, and what `Weights`
/// can be built from without a file.
template <FloatingScalar Scalar>
struct Parameters {
  Config config;                           ///< the shape that the tensors have
  Matrix<Scalar> wte;                      ///< [V, C] token embedding
  Matrix<Scalar> wpe;                      ///< [N, C] position embedding
  std::vector<BlockParameters<Scalar>> h;  ///< L blocks
  LayerNormParameters<Scalar> ln_f;        ///< after the last block
  std::optional<Matrix<Scalar>> lm_head;   ///< [V, C] output weights; absent if they are tied to wte
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
    linear(prefix + ".mlp.c_fc", block.mlp.c_fc, C, config.innerSize());
    linear(prefix + ".mlp.c_proj", block.mlp.c_proj, config.innerSize(), C);
  }
  layerNorm("ln_f", parameters.ln_f);
  if (parameters.lm_head) visit("lm_head.weight", *parameters.lm_head, config.vocab_size, C);
}

/// Parameters with every tensor that the config asks for, all of them still empty: `forEachTensor` says what sizes they
/// are to have.
template <FloatingScalar Scalar>
Parameters<Scalar> emptyParameters(const Config& config, bool has_lm_head);

/// A model with random weights, to try shapes without a checkpoint: uniform numbers of about the standard deviation of
/// GPT-2's initialisation, 0.02; LayerNorm gains around 1. The same seed gives the same bits on every platform.
template <FloatingScalar Scalar = float>
Parameters<Scalar> randomParameters(const Config& config, std::uint64_t seed, bool has_lm_head = false);

/// Throws ConfigError if the config cannot describe a model, and ArgumentError, naming the tensor and both shapes, if
/// one does not fit the config.
template <FloatingScalar Scalar>
void checkParameters(const Parameters<Scalar>& parameters);

/// What a model's tensor is called in a checkpoint, without `transformer.`, and how large it is.
struct TensorShape {
  std::string name;        ///< such as `h.0.ln_1.bias`
  Index rows = 1;          ///< 1 for a vector
  Index cols = 0;          ///< elements in a row
  bool is_vector = false;  ///< has one dimension only
};

/// The tensors of a model, in the order of `forEachTensor`.
std::vector<TensorShape> modelTensors(const Config& config, bool has_lm_head);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/parameters.hpp"
#endif
