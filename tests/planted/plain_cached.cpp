#include "planted/plain_cached.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

namespace planted {

namespace {

using driftless::Activation;

Matrix<float> joined(const std::vector<Row>& rows) {
  Matrix<float> matrix(static_cast<Index>(rows.size()), rows.front().size());
  for (Index t = 0; t < matrix.rows(); ++t) matrix.row(t) = rows[static_cast<std::size_t>(t)];
  return matrix;
}

Row linear(const Row& x, const driftless::LinearParameters<float>& layer) { return x * layer.weight + layer.bias; }

}  // namespace

Mistake plantedMistake() {
  const char* variable = std::getenv("DRIFTLESS_PLANTED");
  const std::string name = variable == nullptr ? "none" : variable;
  if (name == "none") return Mistake::none;
  if (name == "unknown") return Mistake::unknown;
  for (const KnownMistake& known : kKnownMistakes)
    if (known.name == name) return known.mistake;
  throw std::invalid_argument("DRIFTLESS_PLANTED: no mistake is called " + name);
}

Matrix<float> buildCausalMask(Index T, Mistake mistake) {
  Matrix<float> mask = Matrix<float>::Zero(T, T);
  if (mistake == Mistake::no_mask) return mask;
  for (Index i = 0; i < T; ++i)
    for (Index j = mistake == Mistake::mask_hides_own_position ? i : i + 1; j < T; ++j)
      mask(i, j) = -std::numeric_limits<float>::infinity();
  return mask;
}

int argmax(const Row& logits, Mistake mistake) {
  Index best = 0;
  for (Index i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (logits[i] == logits[best] && mistake == Mistake::last_index_on_ties)) best = i;
  return static_cast<int>(best);
}

Matrix<float> PlainModel::fullForward(const Ids& ids) const {
  Cache unused = newCache(false);
  std::vector<Row> logits;
  for (const Row& x : step(ids, unused)) logits.push_back(unembed(x));
  return joined(logits);
}

Ids PlainModel::greedyRecompute(Ids ids, Index n) const {
  for (Index i = 0; i < n; ++i) {
    Cache unused = newCache(false);
    ids.push_back(nextId(step(ids, unused)));
  }
  return ids;
}

Matrix<float> PlainModel::attention(Index layer, const Matrix<float>& x) const {
  LayerRows cache;
  std::vector<Row> out;
  for (Index t = 0; t < x.rows(); ++t) out.push_back(attnStep({x.row(t)}, cache, layer).front());
  return joined(out);
}

Prefilled PlainModel::prefill(const Ids& ids, const std::vector<Index>& chunk_sizes) const {
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

Matrix<float> PlainModel::stepwise(const Ids& prompt_ids, const Ids& next_ids) const {
  Cache cache = newCache();
  std::vector<Row> logits = {unembed(step(prompt_ids, cache).back())};
  for (const int id : next_ids) logits.push_back(unembed(step({id}, cache).back()));
  return joined(logits);
}

Ids PlainModel::greedyGenerate(const Ids& prompt_ids, Index max_tokens) const {
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

Cache PlainModel::newCache(bool may_be_shared) const {
  const bool is_shared = may_be_shared && has(Mistake::one_cache_for_all_layers);
  return {std::vector<LayerRows>(is_shared ? 1 : static_cast<std::size_t>(config_.n_layer))};
}

Row PlainModel::layerNorm(const Row& x, const driftless::LayerNormParameters<float>& norm) const {
  const Row centred = x.array() - x.mean();
  const Index count = has(Mistake::sample_variance) ? x.size() - 1 : x.size();
  const float variance = centred.squaredNorm() / static_cast<float>(count);
  const float epsilon = static_cast<float>(config_.layer_norm_epsilon);
  return (centred / std::sqrt(variance + epsilon)).cwiseProduct(norm.weight) + norm.bias;
}

Row PlainModel::activate(const Row& x) const {
  if (config_.activation_function == Activation::gelu || has(Mistake::erf_gelu))
    return x.unaryExpr([](float value) { return value / 2 * (1 + std::erf(value / std::numbers::sqrt2_v<float>)); });
  if (config_.activation_function != Activation::gelu_new)
    throw std::invalid_argument("expected one of the fixtures' activations");
  const float slope = std::sqrt(2 / std::numbers::pi_v<float>);
  return x.array() / 2 * (1 + (slope * (x.array() + 0.044715f * x.array().cube())).tanh());
}

Row PlainModel::partOf(const Row& qkv, Index part) const {
  const Index C = config_.n_embd, D = config_.headSize();
  if (has(Mistake::keys_and_values_swapped) && part > 0) part = 3 - part;
  if (!has(Mistake::qkv_split_by_head)) return qkv.segment(part * C, C);
  Row heads(C);
  for (Index head = 0; head < config_.n_head; ++head)
    heads.segment(head * D, D) = qkv.segment((3 * head + part) * D, D);
  return heads;
}

Row PlainModel::attend(const Row& query, std::span<const Row> keys, std::span<const Row> values, Index layer) const {
  const Index D = config_.headSize(), H = config_.n_head;
  float scale = has(Mistake::unscaled_scores) ? 1 : 1 / std::sqrt(static_cast<float>(D));
  if (config_.scale_attn_by_inverse_layer_idx) scale /= static_cast<float>(layer + 1);
  Row mixed = Row::Zero(query.size());
  Row weights(static_cast<Index>(keys.size()));
  const auto attendByHead = [&](auto columns) {
    for (std::size_t j = 0; j < keys.size(); ++j)
      weights[static_cast<Index>(j)] = query(columns).dot(keys[j](columns)) * scale;
    weights = (weights.array() - weights.maxCoeff()).exp().matrix().eval();
    weights /= weights.sum();
    for (std::size_t j = 0; j < values.size(); ++j)
      mixed(columns) += weights[static_cast<Index>(j)] * values[j](columns);
  };
  for (Index head = 0; head < H; ++head)
    if (has(Mistake::interleaved_heads))
      attendByHead(Eigen::seqN(head, D, H));
    else
      attendByHead(Eigen::seqN(head * D, D));
  return mixed;
}

std::size_t PlainModel::rowsInSight(std::size_t past, std::size_t rows, std::size_t t) const {
  if (has(Mistake::no_mask)) return past + rows;
  return has(Mistake::mask_not_offset) ? t + 1 : past + t + 1;
}

std::vector<Row> PlainModel::attnStep(const std::vector<Row>& x, LayerRows& cache, Index layer) const {
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

Row PlainModel::mlp(const Row& x, const driftless::MlpParameters<float>& mlp) const {
  return linear(activate(linear(x, mlp.c_fc)), mlp.c_proj);
}

Index PlainModel::firstPosition(const Cache& cache) const {
  if (has(Mistake::position_restarted) || cache.length == 0) return 0;
  if (has(Mistake::position_one_early)) return cache.length - 1;
  return has(Mistake::position_one_late) ? cache.length + 1 : cache.length;
}

Row PlainModel::embed(int id, Index position) const {
  // Some mistakes run out of positions.
  return parameters_.wte.row(id) + parameters_.wpe.row(std::min(position, config_.n_positions - 1));
}

std::vector<Row> PlainModel::step(const Ids& ids, Cache& cache) const {
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

Row PlainModel::unembed(const Row& x) const {
  const bool is_tied = !parameters_.lm_head || has(Mistake::ignored_lm_head);
  const Matrix<float>& head = is_tied ? parameters_.wte : *parameters_.lm_head;
  if (has(Mistake::untransposed_head))
    return x * Eigen::Map<const Matrix<float>>(head.data(), head.cols(), head.rows());
  const Row logits = x * head.transpose();
  return has(Mistake::unknown) ? Row(1.1f * logits) : logits;
}

int PlainModel::nextId(const std::vector<Row>& x) const {
  Row logits = unembed(x.back());
  if (has(Mistake::argmax_of_all_rows))
    for (const Row& row : x) logits = logits.cwiseMax(unembed(row));
  return argmax(logits, mistake_);
}

}  // namespace planted
