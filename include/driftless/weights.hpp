#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "driftless/compute_type.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/kernels/packed_matrix.hpp"
#include "driftless/detail/kernels/padded_rows.hpp"
#include "driftless/parameters.hpp"
#include "driftless/stored_type.hpp"
#include "driftless/tensor.hpp"
#include "driftless/threads.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// A LayerNorm's gain and shift, each [C] and padded with zeros to whole lanes.
template <class Scalar>
struct LayerNorm {
  detail::AlignedBuffer<Scalar> weight;  ///< gain
  detail::AlignedBuffer<Scalar> bias;    ///< shift
  Index width = 0;                       ///< C
  Scalar epsilon = 0;                    ///< added to the variance
};

/// y = x * weight + bias; the bias is padded with zeros to whole lanes.
template <class Scalar>
struct Linear {
  detail::PackedMatrix<Scalar> weight;  ///< [in, out]
  detail::AlignedBuffer<Scalar> bias;   ///< [out]
};

/// One layer's attention sublayer.
template <class Scalar>
struct Attention {
  Linear<Scalar> c_attn;   ///< [C, 3C]: Q, K, V
  Linear<Scalar> c_proj;   ///< [C, C]
  Index n_head = 0;        ///< H
  Scalar score_scale = 1;  ///< what q . k is multiplied by: Config::scoreScale of the layer
};

/// One layer's feed-forward sublayer.
template <class Scalar>
struct Mlp {
  Linear<Scalar> c_fc;                                    ///< [C, n_inner]
  Linear<Scalar> c_proj;                                  ///< [n_inner, C]
  Activation activation_function = Activation::gelu_new;  ///< between the two
};

/// One of the L layers.
template <class Scalar>
struct Block {
  LayerNorm<Scalar> ln_1;  ///< before attn
  Attention<Scalar> attn;  ///< attention
  LayerNorm<Scalar> ln_2;  ///< before mlp
  Mlp<Scalar> mlp;         ///< feed-forward
};

/// One vector [C] per token. Token t is column t of a matrix [C, V], so that the same copy can serve as output weights.
template <class Scalar>
struct Embedding {
  detail::PackedMatrix<Scalar> columns;  ///< [C, V]
};

/// How a checkpoint's files are read.
struct CheckpointOptions {
  /// Whether tensor files are mapped into memory: fast, and in need of little memory. But where somebody shortens a
  /// file while it is mapped, the operating system ends the program (SIGBUS); false reads files as a whole first, and a
  /// file that is cut short then is an error like others.
  bool maps_files = true;
  /// Whether tensors that the model does not have, such as those of a further head, are left out instead of refused.
  bool ignores_extra = false;
};

/// How a model is brought into memory.
struct LoadOptions {
  StoredType stored = StoredType::full;     ///< what the matrices are stored as; vectors and wpe are always full
  ComputeType compute = ComputeType::full;  ///< what products with them are computed in
  Threads threads = Threads();              ///< they pack the matrices, and run steps that are given no workspace
  CheckpointOptions checkpoint = {};        ///< how its files are read
};

/// A GPT-2 packed for multiplication, under the checkpoints' names: the model that every step runs on. Not to be
/// changed once it is built, and then safe to share between any number of threads. Arithmetic is done in Scalar,
/// whatever the weights are stored as.
template <FloatingScalar Scalar = float>
struct Weights {
  /// Where a tensor of the given name is to be read from. What it returns must stay readable until the next call.
  using TensorSource = std::function<TensorView(const std::string& name)>;

  /// Packs the tensors of a model, which must have the shapes that forEachTensor says. Throws ConfigError if the sizes
  /// cannot describe a model, and ArgumentError for a number that is finite and beyond what it is to be held in, or not
  /// finite where the stored type knows no infinity and NaN. `place` names the tensor in errors, or `name` if empty.
  /// ArgumentError also if products with the stored type cannot be computed in options.compute.
  Weights(const Config& model_config, bool has_lm_head, const TensorSource& source, LoadOptions options = {});

  /// Packs plain matrices. Throws as above and as checkParameters does.
  explicit Weights(const Parameters<Scalar>& parameters, LoadOptions options = {});

  /// The matrix [C, V] that turns a final hidden state into logits; a part of these weights.
  const detail::PackedMatrix<Scalar>& unembedding() const { return lm_head ? lm_head->columns : wte.columns; }

  /// The memory that the weights take, padding included.
  Index bytes() const { return bytesFor(config, lm_head.has_value(), stored, compute); }

  /// What the weights of a model would take; nothing is allocated or read.
  static Index bytesFor(const Config& config, bool has_lm_head, StoredType stored = StoredType::full,
                        ComputeType compute = ComputeType::full);

  Config config;                             ///< the shape that the tensors have
  StoredType stored;                         ///< what the matrices are stored as
  ComputeType compute;                       ///< what products with them are computed in
  Threads threads;                           ///< they run steps that are given no workspace
  Embedding<Scalar> wte;                     ///< token embedding
  detail::PaddedRows<Scalar> wpe;            ///< [N, C] position embedding
  std::vector<Block<Scalar>> h;              ///< L blocks
  LayerNorm<Scalar> ln_f;                    ///< after the last block
  std::optional<Embedding<Scalar>> lm_head;  ///< output weights; absent if they are tied to wte

 private:
  /// Everything in place and empty.
  Weights(const Config& model_config, bool has_lm_head, LoadOptions options);
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/weights.hpp"
#endif
