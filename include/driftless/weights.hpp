#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/detail/packed_matrix.hpp"
#include "driftless/error.hpp"
#include "driftless/parameters.hpp"
#include "driftless/tensor.hpp"
#include "driftless/threads.hpp"

namespace driftless::inline DRIFTLESS_ABI {

/// A LayerNorm's gain and shift, each [C] and padded with zeros to whole lanes.
template <class Scalar>
struct LayerNorm {
  RowVector<Scalar> weight;  ///< gain
  RowVector<Scalar> bias;    ///< shift
  Index width = 0;           ///< C
  Scalar epsilon = 0;        ///< added to the variance
};

/// y = x * weight + bias; the bias is padded with zeros to whole lanes.
template <class Scalar, class Stored>
struct Linear {
  detail::PackedMatrix<Stored> weight;  ///< [in, out]
  RowVector<Scalar> bias;               ///< [out]
};

/// One layer's attention sublayer.
template <class Scalar, class Stored>
struct Attention {
  Linear<Scalar, Stored> c_attn;  ///< [C, 3C]: Q, K, V
  Linear<Scalar, Stored> c_proj;  ///< [C, C]
  Index n_head = 0;               ///< H
  Scalar score_scale = 1;         ///< what q . k is multiplied by, 1 / sqrt(D) by default
};

/// One layer's feed-forward sublayer.
template <class Scalar, class Stored>
struct Mlp {
  Linear<Scalar, Stored> c_fc;                            ///< [C, n_inner]
  Linear<Scalar, Stored> c_proj;                          ///< [n_inner, C]
  Activation activation_function = Activation::gelu_new;  ///< between the two
};

/// One of the L blocks.
template <class Scalar, class Stored>
struct Block {
  LayerNorm<Scalar> ln_1;          ///< before attn
  Attention<Scalar, Stored> attn;  ///< attention
  LayerNorm<Scalar> ln_2;          ///< before mlp
  Mlp<Scalar, Stored> mlp;         ///< feed-forward
};

/// One vector [C] a token. Token t is column t of a matrix [C, V], so that the same copy can serve as output weights.
template <class Stored>
struct Embedding {
  detail::PackedMatrix<Stored> columns;  ///< [C, V]
};

/// A GPT-2 packed for multiplication, under the checkpoints' names: the model that every step runs on. Not to be
/// changed once it is built, and then safe to share between any number of threads. Arithmetic is done in Scalar,
/// whatever the weights are stored as.
template <class Scalar = float, class Stored = Scalar>
struct Weights {
  /// Where a tensor of the given name is to be read from.
  using TensorSource = std::function<TensorView(const std::string& name)>;

  /// Packs the tensors of a model, which must have the shapes that forEachTensor says. Throws ConfigError for a config
  /// that there can't be, and ArgumentError for numbers that Stored can't hold.
  Weights(const Config& model_config, bool has_head, const TensorSource& source, Threads thread_pool = Threads());

  /// Packs plain matrices. Throws as above and as checkParameters does.
  explicit Weights(const Parameters<Scalar>& parameters, Threads thread_pool = Threads());

  /// The matrix that turns a final hidden state [C] into logits [V].
  const detail::PackedMatrix<Stored>& head() const { return lm_head ? lm_head->columns : wte.columns; }

  Config config;                             ///< the shape that the tensors have
  Threads threads;                           ///< what a ModelCache computes on unless it is given others
  Embedding<Stored> wte;                     ///< token embedding
  Matrix<Scalar> wpe;                        ///< [N, C] position embedding
  std::vector<Block<Scalar, Stored>> h;      ///< L blocks
  LayerNorm<Scalar> ln_f;                    ///< behind the last block
  std::optional<Embedding<Stored>> lm_head;  ///< output weights; absent where they are tied to wte
};

namespace detail {

/// What a tensor [rows, cols] takes up in the arena.
template <class Plain>
Index packedBytes(const Eigen::PlainObjectBase<Plain>&, Index, Index) {
  return 0;
}

template <class Stored>
Index packedBytes(const PackedMatrix<Stored>&, Index rows, Index cols) {
  return PackedMatrix<Stored>::bytesFor(rows, cols);
}

template <class Stored>
Index packedBytes(const Embedding<Stored>&, Index rows, Index cols) {
  return PackedMatrix<Stored>::bytesFor(cols, rows);
}

template <class Scalar>
bool pack(const TensorView& tensor, RowVector<Scalar>& vector, Arena&, ThreadPool&) {
  vector.setZero(roundUpToLanes(tensor.cols));
  readElements(tensor, 0, 0, tensor.cols, vector.data());
  return true;
}

template <class Scalar>
bool pack(const TensorView& tensor, Matrix<Scalar>& matrix, Arena&, ThreadPool&) {
  matrix.resize(tensor.rows, tensor.cols);
  for (Index row = 0; row < tensor.rows; ++row) readElements(tensor, row, 0, tensor.cols, matrix.row(row).data());
  return true;
}

/// The type that numbers pass through on their way into Stored.
template <class Stored>
using PackingScalar = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

template <class Stored>
bool pack(const TensorView& tensor, PackedMatrix<Stored>& matrix, Arena& arena, ThreadPool& pool) {
  using Scalar = PackingScalar<Stored>;
  matrix = PackedMatrix<Stored>(tensor.rows, tensor.cols, arena);
  return packPanels<Scalar>(matrix, pool, [&](Index column, Index width, Scalar* block) {
    const Index count = (std::min)(width, tensor.cols - column);
    for (Index row = 0; row < tensor.rows; ++row) {
      readElements(tensor, row, column, count, block + row * width);
      std::fill_n(block + row * width + count, width - count, Scalar(0));
    }
  });
}

template <class Stored>
bool pack(const TensorView& tensor, Embedding<Stored>& embedding, Arena& arena, ThreadPool& pool) {
  using Scalar = PackingScalar<Stored>;
  embedding.columns = PackedMatrix<Stored>(tensor.cols, tensor.rows, arena);
  return packPanels<Scalar>(embedding.columns, pool, [&](Index token, Index width, Scalar* block) {
    const Index count = (std::min)(width, tensor.rows - token);
    std::fill_n(block, tensor.cols * width, Scalar(0));
    RowVector<Scalar> row(tensor.cols);
    for (Index i = 0; i < count; ++i) {
      readElements(tensor, token + i, 0, tensor.cols, row.data());
      for (Index c = 0; c < tensor.cols; ++c) block[c * width + i] = row[c];
    }
  });
}

/// Views of the parameters' own memory, by name.
template <class Scalar>
std::map<std::string, TensorView> viewsOf(const Parameters<Scalar>& parameters) {
  checkParameters(parameters);
  std::map<std::string, TensorView> views;
  forEachTensor(parameters, [&](const std::string& name, const auto& tensor, Index rows, Index cols) {
    views[name] = {std::is_same_v<Scalar, double> ? DType::F64 : DType::F32, rows, cols,
                   reinterpret_cast<const std::byte*>(tensor.data())};
  });
  return views;
}

}  // namespace detail

template <class Scalar, class Stored>
Weights<Scalar, Stored>::Weights(const Config& model_config, bool has_head, const TensorSource& source,
                                 Threads thread_pool)
    : config(model_config), threads(std::move(thread_pool)) {
  checkConfig(config);
  h.resize(static_cast<std::size_t>(config.n_layer));
  if (has_head) lm_head.emplace();
  Index bytes = 0;
  forEachTensor(*this, [&](const std::string&, const auto& tensor, Index rows, Index cols) {
    bytes += detail::packedBytes(tensor, rows, cols);
  });
  detail::Arena arena(bytes);
  forEachTensor(*this, [&](const std::string& name, auto& tensor, Index rows, Index cols) {
    const TensorView view = source(name);
    if (view.rows != rows || view.cols != cols)
      throw ArgumentError(name + ": expected shape " + shapeText(rows, cols) + ", got " +
                          shapeText(view.rows, view.cols));
    if (!detail::pack(view, tensor, arena, threads.pool()))
      throw ArgumentError(name + ": expected numbers that the stored type of the weights can hold, found larger ones");
  });

  const auto describe = [&](LayerNorm<Scalar>& norm) {
    norm.width = config.n_embd;
    norm.epsilon = static_cast<Scalar>(config.layer_norm_epsilon);
  };
  describe(ln_f);
  for (std::size_t layer = 0; layer < h.size(); ++layer) {
    Block<Scalar, Stored>& block = h[layer];
    describe(block.ln_1);
    describe(block.ln_2);
    double scale = 1;
    if (config.scale_attn_weights) scale /= std::sqrt(static_cast<double>(config.headSize()));
    if (config.scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(layer + 1);
    block.attn.score_scale = static_cast<Scalar>(scale);
    block.attn.n_head = config.n_head;
    block.mlp.activation_function = config.activation_function;
  }
}

template <class Scalar, class Stored>
Weights<Scalar, Stored>::Weights(const Parameters<Scalar>& parameters, Threads thread_pool)
    : Weights(
          parameters.config, parameters.lm_head.has_value(),
          [views = detail::viewsOf(parameters)](const std::string& name) { return views.at(name); },
          std::move(thread_pool)) {}

}  // namespace driftless::inline DRIFTLESS_ABI
