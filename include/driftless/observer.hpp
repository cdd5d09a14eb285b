#pragma once

#include <functional>
#include <span>

#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// The parts of a step, in the order in which they are done.
enum class Part {
  embedding,    ///< rows of wte and wpe looked up and added
  norm,         ///< a LayerNorm
  linear,       ///< products with c_attn, attn.c_proj, or the whole MLP
  attention,    ///< keys and values stored, scores, softmax, weighted sum of the values
  unembedding,  ///< logits
};

/// The residual stream between blocks: hidden_states of Hugging Face's models, except for the last, to which they apply
/// ln_f.
template <class Scalar>
struct HiddenStates {
  Index layer;  ///< of the block that x is about to enter; n_layer after the last
  Eigen::Map<const Matrix<Scalar>, 0, Eigen::OuterStride<>> x;  ///< [T, C], one sequence's rows; for this call only
  Index sequence;  ///< which of the chunks they belong to, 0 for a single one
  Index position;  ///< of the first row
};

/// How one token attends in one head.
template <class Scalar>
struct AttentionWeights {
  Index layer;                      ///< counted from 0
  Index sequence;                   ///< which of the chunks, 0 for a single one
  Index head;                       ///< counted from 0
  Index position;                   ///< of the token
  std::span<const Scalar> weights;  ///< [position + 1], over positions 0 to its own; their sum is 1; for this call only
};

/// What a step is to show. Only functions that are set are called, and nothing is computed for the others. They can
/// look but not touch: logits and caches are the same bits with an observer and without. What a call is shown lives
/// until it returns. If one throws, the caches are as before the step.
///
/// A step of more than 512 rows, of one sequence or of several, is computed in pieces of 512: an observer sees every
/// layer for the rows of the first piece, then every layer for those of the next.
template <FloatingScalar Scalar = float>
struct Observer {
  std::function<void(Part)> part = {};  ///< after each part of a step

  std::function<void(const HiddenStates<Scalar>&)> hidden_states = {};  ///< before each block and after the last

  /// For every layer, head and row. Called from several threads at once, in any order, unless the workspace has one.
  std::function<void(const AttentionWeights<Scalar>&)> attention_weights = {};
};

}}  // namespace driftless::DRIFTLESS_ABI
