#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "driftless/parameters.hpp"

/// A cached GPT-2 as a learner might write it, with at most one of the usual mistakes in it: the stages must tell it
/// from a right one, and Diagnosis compares wrong results with it. It shares nothing with the library but the
/// parameters. Every row is computed by itself, so that without a mistake its bits do not depend on how a sequence is
/// cut either.
namespace planted {

using driftless::Activation, driftless::Config, driftless::Index, driftless::Matrix, driftless::Parameters;
using Row = driftless::RowVector<float>;
using Ids = std::vector<int>;

enum class Mistake {
  none,
  mask_hides_own_position,
  no_mask,
  mask_not_offset,
  position_restarted,
  position_one_early,
  position_one_late,
  one_cache_for_all_layers,
  interleaved_heads,
  qkv_split_by_head,
  keys_and_values_swapped,
  unscaled_scores,
  no_attention_residual,
  no_mlp_residual,
  erf_gelu,
  sample_variance,
  no_final_layer_norm,
  untransposed_head,
  ignored_lm_head,
  argmax_of_all_rows,
  last_index_on_ties,
  decode_before_first_argmax,
  prompt_fed_again,
  unknown  ///< not a known one: every logit is a tenth too large
};

struct KnownMistake {
  Mistake mistake;
  const char* name;
  const char* explanation;  ///< continues "these are the results that come out when"
};

inline constexpr KnownMistake kKnownMistakes[] = {
    {Mistake::mask_hides_own_position, "mask_hides_own_position",
     "the mask hides a token from itself: its diagonal is minus infinity too"},
    {Mistake::no_mask, "no_mask", "nothing is masked: a token sees the later tokens that are fed together with it"},
    {Mistake::mask_not_offset, "mask_not_offset",
     "the mask is not offset by the cached length: row t of a step sees the keys 0 to t, not 0 to length + t"},
    {Mistake::position_restarted, "position_restarted",
     "the position of a decoded token is counted from 0 instead of from the cache's length"},
    {Mistake::position_one_early, "position_one_early",
     "a step onto a cache starts one position too early; its first token stands at the cache's length, counted from 0"},
    {Mistake::position_one_late, "position_one_late",
     "a step onto a cache starts one position too late; its first token stands at the cache's length, counted from 0"},
    {Mistake::one_cache_for_all_layers, "one_cache_for_all_layers",
     "all layers append to one cache instead of each to its own"},
    {Mistake::interleaved_heads, "interleaved_heads",
     "head h takes the columns h, h + H, h + 2H and so on instead of the D neighbouring ones from h * D"},
    {Mistake::qkv_split_by_head, "qkv_split_by_head",
     "c_attn's columns are split into heads first and then into Q, K and V, instead of the other way round"},
    {Mistake::keys_and_values_swapped, "keys_and_values_swapped",
     "keys and values are swapped; c_attn's columns are Q, K and V, in this order"},
    {Mistake::unscaled_scores, "unscaled_scores", "the attention's scores are not divided by sqrt(D)"},
    {Mistake::no_attention_residual, "no_attention_residual",
     "the attention's output replaces the residual stream instead of being added to it"},
    {Mistake::no_mlp_residual, "no_mlp_residual",
     "the MLP's output replaces the residual stream instead of being added to it"},
    {Mistake::erf_gelu, "erf_gelu", "GELU is computed by erf where the config asks for gelu_new, the tanh form"},
    {Mistake::sample_variance, "sample_variance", "LayerNorm divides the sum of squares by C - 1 instead of by C"},
    {Mistake::no_final_layer_norm, "no_final_layer_norm", "the final LayerNorm, ln_f, is left out"},
    {Mistake::untransposed_head, "untransposed_head",
     "the unembedding reads the numbers of its [V, C] matrix as if it were [C, V], instead of transposing it"},
    {Mistake::ignored_lm_head, "ignored_lm_head",
     "the unembedding multiplies by wte although the checkpoint has an lm_head of its own"},
    {Mistake::argmax_of_all_rows, "argmax_of_all_rows",
     "the largest logit of all rows, flattened, is chosen instead of the last row's largest"},
    {Mistake::last_index_on_ties, "last_index_on_ties", "the last of equal logits is chosen instead of the first"},
    {Mistake::decode_before_first_argmax, "decode_before_first_argmax",
     "the prompt's last token is decoded once more before the first id is chosen, instead of choosing it from the "
     "prefill's logits"},
    {Mistake::prompt_fed_again, "prompt_fed_again",
     "the whole prompt is fed again, behind the prefill, before the first id is chosen"},
};

/// The mistake that environment variable DRIFTLESS_PLANTED names; none where it is not set.
inline Mistake plantedMistake() {
  const char* variable = std::getenv("DRIFTLESS_PLANTED");
  const std::string name = variable == nullptr ? "none" : variable;
  if (name == "none") return Mistake::none;
  if (name == "unknown") return Mistake::unknown;
  for (const KnownMistake& known : kKnownMistakes)
    if (known.name == name) return known.mistake;
  throw std::invalid_argument("DRIFTLESS_PLANTED: no mistake is called " + name);
}

/// One layer's keys and values [C], a row for every position so far.
struct LayerRows {
  std::vector<Row> keys;
  std::vector<Row> values;
};

struct Cache {
  std::vector<LayerRows> layers;
  Index length = 0;

  LayerRows& layer(Index index) { return layers[static_cast<std::size_t>(index) % layers.size()]; }
};

struct Prefilled {
  std::vector<Matrix<float>> keys;
  std::vector<Matrix<float>> values;
  Row logits;
};

inline Matrix<float> joined(const std::vector<Row>& rows) {
  Matrix<float> matrix(static_cast<Index>(rows.size()), rows.front().size());
  for (Index t = 0; t < matrix.rows(); ++t) matrix.row(t) = rows[static_cast<std::size_t>(t)];
  return matrix;
}

inline Matrix<float> buildCausalMask(Index T, Mistake mistake) {
  Matrix<float> mask = Matrix<float>::Zero(T, T);
  if (mistake == Mistake::no_mask) return mask;
  for (Index i = 0; i < T; ++i)
    for (Index j = mistake == Mistake::mask_hides_own_position ? i : i + 1; j < T; ++j)
      mask(i, j) = -std::numeric_limits<float>::infinity();
  return mask;
}

inline int argmax(const Row& logits, Mistake mistake) {
  Index best = 0;
  for (Index i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (logits[i] == logits[best] && mistake == Mistake::last_index_on_ties)) best = i;
  return static_cast<int>(best);
}

/// Refers to the parameters, which must outlive it. The public functions are what the stages ask of an implementation,
/// see adapters.hpp.
class PlainModel {
 public:
  explicit PlainModel(const Parameters<float>& parameters, Mistake mistake = plantedMistake())
      : parameters_(parameters), config_(parameters.config), mistake_(mistake) {}

  Matrix<float> fullForward(const Ids& ids) const {
    Cache unused = newCache(false);
    std::vector<Row> logits;
    for (const Row& x : step(ids, unused)) logits.push_back(unembed(x));
    return joined(logits);
  }

  /// With a new cache at every call: a mistake in the model itself shows here, one in the use of a cache does not.
  Ids greedyRecompute(Ids ids, Index n) const {
    for (Index i = 0; i < n; ++i) {
      Cache unused = newCache(false);
      ids.push_back(nextId(step(ids, unused)));
    }
    return ids;
  }

  Matrix<float> attention(Index layer, const Matrix<float>& x) const {
    LayerRows cache;
    std::vector<Row> out;
    for (Index t = 0; t < x.rows(); ++t) out.push_back(attnStep({x.row(t)}, cache, layer).front());
    return joined(out);
  }

  Prefilled prefill(const Ids& ids, const std::vector<Index>& chunk_sizes) const {
    Cache cache = newCache();
    Prefilled result;
    auto next = ids.begin();
    for (const Index size : chunk_sizes) {
      result.logits = unembed(step({next, next + size}, cache).back());
      next += size;
    }
    for (Index layer = 0; layer < config_.n_layer; ++layer) {
      result.keys.push_back(joined(cache.layer(layer).keys));
      result.values.push_back(joined(cache.layer(layer).values));
    }
    return result;
  }

  Matrix<float> stepwise(const Ids& prompt_ids, const Ids& next_ids) const {
    Cache cache = newCache();
    std::vector<Row> logits = {unembed(step(prompt_ids, cache).back())};
    for (const int id : next_ids) logits.push_back(unembed(step({id}, cache).back()));
    return joined(logits);
  }

  Ids greedyGenerate(const Ids& prompt_ids, Index max_tokens) const {
    Ids generated;
    if (max_tokens == 0) return generated;
    Cache cache = newCache();
    std::vector<Row> x = step(prompt_ids, cache);
    if (has(Mistake::decode_before_first_argmax)) x = step({prompt_ids.back()}, cache);
    if (has(Mistake::prompt_fed_again)) x = step(prompt_ids, cache);
    for (;;) {
      generated.push_back(nextId(x));
      if (static_cast<Index>(generated.size()) == max_tokens || cache.length >= config_.n_positions) return generated;
      x = step({generated.back()}, cache);
    }
  }

 private:
  bool has(Mistake mistake) const { return mistake_ == mistake; }

  Cache newCache(bool may_be_shared = true) const {
    const bool is_shared = may_be_shared && has(Mistake::one_cache_for_all_layers);
    return {std::vector<LayerRows>(is_shared ? 1 : static_cast<std::size_t>(config_.n_layer))};
  }

  Row layerNorm(const Row& x, const driftless::LayerNormParameters<float>& norm) const {
    const Row centred = x.array() - x.mean();
    const Index count = has(Mistake::sample_variance) ? x.size() - 1 : x.size();
    const float variance = centred.squaredNorm() / static_cast<float>(count);
    const float epsilon = static_cast<float>(config_.layer_norm_epsilon);
    return (centred / std::sqrt(variance + epsilon)).cwiseProduct(norm.weight) + norm.bias;
  }

  static Row linear(const Row& x, const driftless::LinearParameters<float>& layer) {
    return x * layer.weight + layer.bias;
  }

  float activate(float x) const {
    if (config_.activation_function == Activation::gelu || has(Mistake::erf_gelu))
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<float>));
    if (config_.activation_function != Activation::gelu_new)
      throw std::invalid_argument("expected one of the fixtures' activations");
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<float>) * (x + 0.044715f * x * x * x)));
  }

  /// Part 0, 1 or 2 (Q, K or V) of c_attn's output [3C], heads side by side: [C].
  Row partOf(const Row& qkv, Index part) const {
    const Index C = config_.n_embd, D = config_.headSize();
    if (has(Mistake::keys_and_values_swapped) && part > 0) part = 3 - part;
    if (!has(Mistake::qkv_split_by_head)) return qkv.segment(part * C, C);
    Row heads(C);
    for (Index head = 0; head < config_.n_head; ++head)
      heads.segment(head * D, D) = qkv.segment((3 * head + part) * D, D);
    return heads;
  }

  /// One row's attention over rows of keys and values, heads side by side: [C].
  Row attend(const Row& query, std::span<const Row> keys, std::span<const Row> values, Index layer) const {
    const Index D = config_.headSize(), H = config_.n_head;
    float scale = has(Mistake::unscaled_scores) ? 1 : 1 / std::sqrt(static_cast<float>(D));
    if (config_.scale_attn_by_inverse_layer_idx) scale /= static_cast<float>(layer + 1);
    Row mixed = Row::Zero(query.size());
    Row weights(static_cast<Index>(keys.size()));
    for (Index head = 0; head < H; ++head) {
      const auto columns =
          has(Mistake::interleaved_heads) ? Eigen::seqN(head, D, H) : Eigen::seqN(head * D, D, Index{1});
      for (std::size_t j = 0; j < keys.size(); ++j)
        weights[static_cast<Index>(j)] = query(columns).dot(keys[j](columns)) * scale;
      weights = (weights.array() - weights.maxCoeff()).exp().matrix().eval();
      weights /= weights.sum();
      for (std::size_t j = 0; j < values.size(); ++j)
        mixed(columns) += weights[static_cast<Index>(j)] * values[j](columns);
    }
    return mixed;
  }

  /// How many rows of the cache row t of a step sees, which added `rows` to the `past` that were there before.
  std::size_t rowsInSight(std::size_t past, std::size_t rows, std::size_t t) const {
    if (has(Mistake::no_mask)) return past + rows;
    return has(Mistake::mask_not_offset) ? t + 1 : past + t + 1;
  }

  /// One layer's attention over new rows x, ln_1's outputs, which become part of the cache.
  std::vector<Row> attnStep(const std::vector<Row>& x, LayerRows& cache, Index layer) const {
    const auto& attn = parameters_.h[static_cast<std::size_t>(layer)].attn;
    const std::size_t past = cache.keys.size();
    std::vector<Row> queries;
    for (const Row& row : x) {
      const Row qkv = linear(row, attn.c_attn);
      queries.push_back(partOf(qkv, 0));
      cache.keys.push_back(partOf(qkv, 1));
      cache.values.push_back(partOf(qkv, 2));
    }
    std::vector<Row> out;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const std::size_t visible = rowsInSight(past, x.size(), t);
      const Row mixed =
          attend(queries[t], std::span(cache.keys).first(visible), std::span(cache.values).first(visible), layer);
      out.push_back(linear(mixed, attn.c_proj));
    }
    return out;
  }

  Row mlp(const Row& x, const driftless::MlpParameters<float>& mlp) const {
    const Row hidden = linear(x, mlp.c_fc).unaryExpr([&](float value) { return activate(value); });
    return linear(hidden, mlp.c_proj);
  }

  Index firstPosition(const Cache& cache) const {
    if (has(Mistake::position_restarted) || cache.length == 0) return 0;
    if (has(Mistake::position_one_early)) return cache.length - 1;
    return has(Mistake::position_one_late) ? cache.length + 1 : cache.length;
  }

  /// Some mistakes run out of positions.
  Row embed(int id, Index position) const {
    return parameters_.wte.row(id) + parameters_.wpe.row(std::min(position, config_.n_positions - 1));
  }

  /// Runs ids onto the cache; returns what the head multiplies, a row for each.
  std::vector<Row> step(const Ids& ids, Cache& cache) const {
    std::vector<Row> x;
    Index position = firstPosition(cache);
    for (const int id : ids) x.push_back(embed(id, position++));
    for (Index layer = 0; layer < config_.n_layer; ++layer) {
      const auto& block = parameters_.h[static_cast<std::size_t>(layer)];
      std::vector<Row> normed;
      for (const Row& row : x) normed.push_back(layerNorm(row, block.ln_1));
      const std::vector<Row> attended = attnStep(normed, cache.layer(layer), layer);
      for (std::size_t t = 0; t < x.size(); ++t) {
        if (has(Mistake::no_attention_residual)) x[t].setZero();
        x[t] += attended[t];
        const Row fed = mlp(layerNorm(x[t], block.ln_2), block.mlp);
        if (has(Mistake::no_mlp_residual)) x[t].setZero();
        x[t] += fed;
      }
    }
    cache.length += static_cast<Index>(ids.size());
    if (!has(Mistake::no_final_layer_norm))
      for (Row& row : x) row = layerNorm(row, parameters_.ln_f);
    return x;
  }

  /// Logits [V] of one of step's rows.
  Row unembed(const Row& x) const {
    const bool is_tied = !parameters_.lm_head || has(Mistake::ignored_lm_head);
    const Matrix<float>& head = is_tied ? parameters_.wte : *parameters_.lm_head;
    if (has(Mistake::untransposed_head))
      return x * Eigen::Map<const Matrix<float>>(head.data(), head.cols(), head.rows());
    const Row logits = x * head.transpose();
    return has(Mistake::unknown) ? Row(1.1f * logits) : logits;
  }

  /// The greedy id behind step's rows.
  int nextId(const std::vector<Row>& x) const {
    Row logits = unembed(x.back());
    if (has(Mistake::argmax_of_all_rows))
      for (const Row& row : x) logits = logits.cwiseMax(unembed(row));
    return argmax(logits, mistake_);
  }

  const Parameters<float>& parameters_;
  const Config& config_;
  Mistake mistake_;
};

}  // namespace planted
