#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/error.hpp"
#include "driftless/token_ids.hpp"

/// Shapes are written with the same letters everywhere:
///   T rows (tokens of a step), N = n_positions, C = n_embd, H = n_head, D = C / H, V = vocab_size, L = n_layer.
namespace driftless { inline namespace DRIFTLESS_ABI {

/// Counts, sizes and positions: signed, as Eigen's are.
using Index = Eigen::Index;
static_assert(std::is_same_v<Index, std::ptrdiff_t>, "driftless needs Eigen's own EIGEN_DEFAULT_DENSE_INDEX_TYPE");

/// The types that a model can compute in.
template <class T>
concept FloatingScalar = std::is_same_v<T, float> || std::is_same_v<T, double>;

/// [rows, cols], row-major: a row is one token's vector, contiguous.
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A Matrix in memory of somebody else's.
template <class Scalar>
using MatrixView = Eigen::Map<const Matrix<Scalar>>;

/// [cols]: one token's vector.
template <class Scalar>
using RowVector = Eigen::Matrix<Scalar, 1, Eigen::Dynamic>;

/// [cols]: a RowVector in a workspace, where its memory must not depend on compiler flags, which DontAlign sees to.
template <class Scalar>
using WorkspaceVector = Eigen::Matrix<Scalar, 1, Eigen::Dynamic, Eigen::RowMajor | Eigen::DontAlign>;

/// The MLP's non-linearity, by the name of Hugging Face's `activation_function`. `gelu` is the exact one (erf);
/// `gelu_new` the tanh approximation of the GPT-2 paper's code, also known as gelu_fast, gelu_accurate,
/// gelu_pytorch_tanh and gelu_python_tanh; `silu` is also known as swish.
enum class Activation { gelu, gelu_new, relu, silu, tanh };

/// Its name in config.json.
std::string_view nameOf(Activation activation);

/// The shape of a GPT-2 and the switches that change its mathematics, under the names of config.json.
/// The defaults are those of Hugging Face's GPT2Config: the 124M model.
struct Config {
  Index vocab_size = 50257;                               ///< V
  Index n_positions = 1024;                               ///< N, the longest context
  Index n_embd = 768;                                     ///< C
  Index n_layer = 12;                                     ///< L
  Index n_head = 12;                                      ///< H, a divisor of C
  std::optional<Index> n_inner = {};                      ///< width of the MLP's hidden layer; 4 C if absent
  Activation activation_function = Activation::gelu_new;  ///< the MLP's
  double layer_norm_epsilon = 1e-5;                       ///< added to the variance by every LayerNorm
  bool scale_attn_weights = true;                         ///< scores are divided by sqrt(D)
  bool scale_attn_by_inverse_layer_idx = false;           ///< and by the layer's number, counted from 1

  /// D, the width of one head.
  Index headSize() const { return n_embd / n_head; }

  /// The width of the MLP's hidden layer.
  Index innerSize() const { return n_inner.value_or(4 * n_embd); }

  /// What q . k is multiplied by in a layer, counted from 0.
  double scoreScale(Index layer) const {
    const double scale = scale_attn_weights ? 1 / std::sqrt(static_cast<double>(headSize())) : 1;
    return scale_attn_by_inverse_layer_idx ? scale / static_cast<double>(layer + 1) : scale;
  }

  /// Whether both describe the same model: an absent n_inner equals 4 C.
  friend bool operator==(const Config& left, const Config& right) {
    return left.vocab_size == right.vocab_size && left.n_positions == right.n_positions &&
           left.n_embd == right.n_embd && left.n_layer == right.n_layer && left.n_head == right.n_head &&
           left.innerSize() == right.innerSize() && left.activation_function == right.activation_function &&
           left.layer_norm_epsilon == right.layer_norm_epsilon && left.scale_attn_weights == right.scale_attn_weights &&
           left.scale_attn_by_inverse_layer_idx == right.scale_attn_by_inverse_layer_idx;
  }
};

namespace detail {

/// Bounds on a model's sizes: generous, and such that neither its weights nor its cache (2 L N C scalars) have more
/// bytes than a 64-bit Index can count.
inline constexpr Index kMostVocabulary = Index{1} << 24;
inline constexpr Index kMostPositions = Index{1} << 20;
inline constexpr Index kMostWidth = Index{1} << 20;
inline constexpr Index kMostLayers = Index{1} << 12;

}  // namespace detail

/// Throws ConfigError, naming the key, if the sizes cannot describe a model.
void checkConfig(const Config& config);

/// Throws ArgumentError if there are no ids, or for one that is not in the model's vocabulary.
void checkIds(TokenIds ids, const Config& config);

/// Reads a Hugging Face config.json. Every key that changes the mathematics is honoured, or refused by name.
/// `tie_word_embeddings` is not part of the result: what it means depends on the tensors (see Checkpoint).
/// Throws FileError for a file that cannot be read or is not JSON, ConfigError for a model that driftless cannot
/// compute.
Config readConfig(const std::filesystem::path& path);

/// The ids after which a model's text has ended, for `GenerateOptions::stop_ids`: `eos_token_id`, one id or a list, of
/// generation_config.json or, if that is absent or does not say, of config.json; empty if neither does. `model` is as
/// for Checkpoint. Throws FileError for a file that cannot be read or is not JSON, ConfigError for what is
/// not an id of the model's vocabulary.
std::vector<int> readEosIds(const std::filesystem::path& model);

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/files/config_json.hpp"
#endif
