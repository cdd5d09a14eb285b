#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "driftless/parameters.hpp"

/// A cached GPT-2 as a learner might write it, with at most one of the usual mistakes in it: the stages must tell it
/// from a right one. It shares nothing with the library but the parameters. Every row is computed by itself, so that
/// without a mistake its bits do not depend on how a sequence is cut either.
namespace planted {

using driftless::Activation, driftless::Config, driftless::Index, driftless::Matrix, driftless::Parameters;
using Row = driftless::RowVector<float>;
using Ids = std::vector<int>;

enum class Mistake {
  none,
  position_restarted,        ///< every step counts its positions from 0
  position_off_by_one,       ///< a step onto a cache starts one position early
  one_cache_for_all_layers,  ///< all layers append to the same rows
  no_final_layer_norm,       ///< ln_f is left out
  no_mask_in_chunk,          ///< the rows of a chunk see its later rows
  erf_gelu,                  ///< gelu where the config asks for gelu_new
  last_index_on_ties,        ///< argmax takes the last of equal logits
  unscaled_scores,           ///< no division by sqrt(D)
  mask_hides_own_position    ///< the mask's diagonal is minus infinity too
};

/// The mistake that environment variable DRIFTLESS_PLANTED names; none where it is not set.
inline Mistake plantedMistake() {
  static const std::map<std::string, Mistake> names = {
      {"none", Mistake::none},
      {"position_restarted", Mistake::position_restarted},
      {"position_off_by_one", Mistake::position_off_by_one},
      {"one_cache_for_all_layers", Mistake::one_cache_for_all_layers},
      {"no_final_layer_norm", Mistake::no_final_layer_norm},
      {"no_mask_in_chunk", Mistake::no_mask_in_chunk},
      {"erf_gelu", Mistake::erf_gelu},
      {"last_index_on_ties", Mistake::last_index_on_ties},
      {"unscaled_scores", Mistake::unscaled_scores},
      {"mask_hides_own_position", Mistake::mask_hides_own_position},
  };
  const char* name = std::getenv("DRIFTLESS_PLANTED");
  return name == nullptr ? Mistake::none : names.at(name);
}

inline bool has(Mistake mistake) {
  static const Mistake planted_mistake = plantedMistake();
  return planted_mistake == mistake;
}

/// One layer's keys and values [C], a row for every position so far.
struct LayerRows {
  std::vector<Row> keys;
  std::vector<Row> values;
};

struct Cache {
  std::vector<LayerRows> layers;
  Index length = 0;

  explicit Cache(const Config& config, bool is_shared = has(Mistake::one_cache_for_all_layers))
      : layers(is_shared ? 1 : static_cast<std::size_t>(config.n_layer)) {}
  LayerRows& layer(Index index) { return layers[static_cast<std::size_t>(index) % layers.size()]; }
};

inline Row layerNorm(const Row& x, const driftless::LayerNormParameters<float>& norm, double epsilon) {
  const Row centred = x.array() - x.mean();
  const float variance = centred.squaredNorm() / static_cast<float>(x.size());
  return (centred / std::sqrt(variance + static_cast<float>(epsilon))).cwiseProduct(norm.weight) + norm.bias;
}

inline Row linear(const Row& x, const driftless::LinearParameters<float>& layer) {
  return x * layer.weight + layer.bias;
}

inline float activate(Activation activation, float x) {
  if (activation == Activation::gelu || has(Mistake::erf_gelu))
    return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<float>));
  if (activation != Activation::gelu_new) throw std::invalid_argument("expected one of the fixtures' activations");
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<float>) * (x + 0.044715f * x * x * x)));
}

/// One row's attention over the first `visible` rows of the cache, heads side by side: [C].
inline Row attend(const Row& query, const LayerRows& cache, Index visible, const Config& config, Index layer) {
  const Index D = config.headSize();
  float scale = has(Mistake::unscaled_scores) ? 1 : 1 / std::sqrt(static_cast<float>(D));
  if (config.scale_attn_by_inverse_layer_idx) scale /= static_cast<float>(layer + 1);
  Row mixed = Row::Zero(query.size());
  Row weights(visible);
  for (Index begin = 0; begin < query.size(); begin += D) {
    for (Index j = 0; j < visible; ++j)
      weights[j] = query.segment(begin, D).dot(cache.keys[static_cast<std::size_t>(j)].segment(begin, D)) * scale;
    weights = (weights.array() - weights.maxCoeff()).exp().matrix().eval();
    weights /= weights.sum();
    for (Index j = 0; j < visible; ++j)
      mixed.segment(begin, D) += weights[j] * cache.values[static_cast<std::size_t>(j)].segment(begin, D);
  }
  return mixed;
}

/// One layer's attention over new rows x, ln_1's outputs, which become part of the cache.
inline std::vector<Row> attnStep(const std::vector<Row>& x, LayerRows& cache, const Parameters<float>& model,
                                 Index layer) {
  const auto& attn = model.h[static_cast<std::size_t>(layer)].attn;
  const Index C = model.config.n_embd;
  const Index past = static_cast<Index>(cache.keys.size());
  std::vector<Row> queries;
  for (const Row& row : x) {
    const Row qkv = linear(row, attn.c_attn);
    queries.push_back(qkv.head(C));
    cache.keys.push_back(qkv.segment(C, C));
    cache.values.push_back(qkv.tail(C));
  }
  std::vector<Row> out;
  for (const Row& query : queries) {
    const Index rows_in_sight = static_cast<Index>(has(Mistake::no_mask_in_chunk) ? x.size() : out.size() + 1);
    out.push_back(linear(attend(query, cache, past + rows_in_sight, model.config, layer), attn.c_proj));
  }
  return out;
}

/// Runs ids onto the cache; returns what the head multiplies, a row for each.
inline std::vector<Row> step(const Ids& ids, const Parameters<float>& model, Cache& cache) {
  const Config& config = model.config;
  const double epsilon = config.layer_norm_epsilon;
  Index position = cache.length;
  if (has(Mistake::position_restarted)) position = 0;
  if (has(Mistake::position_off_by_one)) position = std::max<Index>(0, position - 1);
  std::vector<Row> x;
  for (const int id : ids) x.push_back(model.wte.row(id) + model.wpe.row(position++));

  for (Index layer = 0; layer < config.n_layer; ++layer) {
    const auto& block = model.h[static_cast<std::size_t>(layer)];
    std::vector<Row> normed;
    for (const Row& row : x) normed.push_back(layerNorm(row, block.ln_1, epsilon));
    const std::vector<Row> attended = attnStep(normed, cache.layer(layer), model, layer);
    for (std::size_t t = 0; t < x.size(); ++t) {
      x[t] += attended[t];
      Row hidden = linear(layerNorm(x[t], block.ln_2, epsilon), block.mlp.c_fc);
      hidden = hidden.unaryExpr([&](float value) { return activate(config.activation_function, value); }).eval();
      x[t] += linear(hidden, block.mlp.c_proj);
    }
  }
  cache.length += static_cast<Index>(ids.size());
  if (!has(Mistake::no_final_layer_norm))
    for (Row& row : x) row = layerNorm(row, model.ln_f, epsilon);
  return x;
}

/// Logits [V] of one of step's rows.
inline Row unembed(const Row& x, const Parameters<float>& model) {
  return x * (model.lm_head ? *model.lm_head : model.wte).transpose();
}

/// Runs ids onto the cache; logits [V] of the last one.
inline Row lastLogits(const Ids& ids, const Parameters<float>& model, Cache& cache) {
  return unembed(step(ids, model, cache).back(), model);
}

inline int argmax(const Row& logits) {
  Index best = 0;
  for (Index i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (logits[i] == logits[best] && has(Mistake::last_index_on_ties))) best = i;
  return static_cast<int>(best);
}

}  // namespace planted
