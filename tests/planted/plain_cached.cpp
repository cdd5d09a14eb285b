#include "planted/plain_cached.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

namespace planted {

namespace {

using driftless::Activation;

Matrix<float> joined(const std::vector<Row>& rows) {
  if (rows.empty()) return {};
  Matrix<float> matrix(static_cast<Index>(rows.size()), rows.front().size());
  for (Index t = 0; t < matrix.rows(); ++t) matrix.row(t) = rows[static_cast<std::size_t>(t)];
  return matrix;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Mistake mistakeOf(const std::string& name) {
  if (name == "none") return Mistake::none;
  if (name == "unusual") return Mistake::unusual;
  if (name == "unknown") return Mistake::unknown;
  for (const KnownMistake& known : kKnownMistakes)
    if (known.name == name) return known.mistake;
  throw std::invalid_argument("DRIFTLESS_PLANTED: no mistake is called " + name);
}

}  // namespace

Mistakes plantedMistakes() {
  const char* variable = std::getenv("DRIFTLESS_PLANTED");
  const std::string names = variable == nullptr ? "none" : variable;
  const std::size_t plus = names.find('+');
  return {mistakeOf(names.substr(0, plus)),
          plus == std::string::npos ? Mistake::none : mistakeOf(names.substr(plus + 1))};
}

Matrix<float> buildCausalMask(Index T, Mistakes mistakes) {
  if (mistakes.has(Mistake::mask_not_rebuilt)) T = 1;  // the stage's first length
  const bool multiplies = mistakes.has(Mistake::mask_to_multiply);
  const float hidden = multiplies ? 0 : mistakes.has(Mistake::finite_mask) ? kFiniteMask : -kInfinity;
  Matrix<float> mask = Matrix<float>::Constant(T, T, multiplies ? 1 : 0);
  if (mistakes.has(Mistake::no_mask)) return mask;
  const Index first_hidden = mistakes.has(Mistake::mask_hides_own_position) ? 0
                             : mistakes.has(Mistake::mask_sees_one_ahead)   ? 2
                                                                            : 1;
  for (Index i = 0; i < T; ++i)
    for (Index j = i + first_hidden; j < T; ++j) mask(i, j) = hidden;
  if (mistakes.has(Mistake::mask_transposed)) mask.transposeInPlace();
  return mask;
}

int argmax(const Row& logits, Mistakes mistakes) {
  const bool starts_at_zero = mistakes.has(Mistake::argmax_starts_at_zero);
  float largest = starts_at_zero ? 0 : -kInfinity;
  Index best = 0;
  for (Index i = 0; i < logits.size(); ++i)
    if (logits[i] > largest || (logits[i] == largest && mistakes.has(Mistake::last_index_on_ties)))
      largest = logits[best = i];
  return static_cast<int>(best);
}

PlainModel PlainModel::uncached() const {
  const auto outsideCache = [](Mistake mistake) { return isInCache(mistake) ? Mistake::none : mistake; };
  return {parameters_, {outsideCache(mistakes_.first), outsideCache(mistakes_.second)}};
}

Matrix<float> PlainModel::fullForward(const Ids& ids) const {
  const PlainModel model = uncached();
  Cache unused = model.newCache();
  std::vector<Row> logits;
  for (const Row& x : model.step(ids, unused)) logits.push_back(model.unembed(x));
  return joined(logits);
}

Index PlainModel::asked(Index n) const {
  if (n == 0) return 0;
  return n + (has(Mistake::one_id_too_many) ? 1 : 0) - (has(Mistake::one_id_too_few) ? 1 : 0);
}

Ids PlainModel::greedyRecompute(const Ids& prompt_ids, Index n, Index enough) const {
  PlainModel model = uncached();
  if (has(Mistake::mask_not_rebuilt)) model.masked_ = prompt_ids.size();
  Ids ids = prompt_ids;
  const Index without = has(Mistake::prompt_left_out) ? std::ssize(prompt_ids) : 0;
  for (Index left = asked(n); left > 0 && std::ssize(ids) - without < enough; --left) {
    Cache unused = model.newCache();
    std::vector<Row> x = model.step(ids, unused);
    if (has(Mistake::logits_of_prompts_last_row)) x.resize(prompt_ids.size());
    ids.push_back(model.nextId(x));
  }
  return {ids.begin() + without, ids.begin() + without + std::min(std::ssize(ids) - without, enough)};
}

Matrix<float> PlainModel::attention(Index layer, const Matrix<float>& x) const {
  Cache cache = newCache();
  std::vector<Row> out;
  for (Index t = 0; t < x.rows(); ++t) out.push_back(attnStep({x.row(t)}, cache, layer).front());
  return joined(out);
}

Prefilled PlainModel::prefill(const Ids& ids, const std::vector<Index>& chunk_sizes) const {
  Cache cache = newCache();
  Prefilled result;
  auto next = ids.begin();
  for (const Index size : chunk_sizes) {
    result.logits = lastLogits(step({next, next + size}, cache));
    next += size;
  }
  for (Index layer = 0; layer < config_.n_layer; ++layer) {
    const float scale = has(Mistake::scaled_keys_cached) ? scoreScale(layer) : 1;
    result.keys.push_back(joined(cache.layer(layer).keys) * scale);
    result.values.push_back(joined(cache.layer(layer).values));
  }
  return result;
}

Matrix<float> PlainModel::stepwise(const Ids& prompt_ids, const Ids& next_ids) const {
  Cache cache = newCache();
  std::vector<Row> logits = {lastLogits(step(prompt_ids, cache))};
  for (const int id : next_ids) logits.push_back(lastLogits(step({id}, cache)));
  return joined(logits);
}

std::vector<Row> PlainModel::prefillPrompt(Ids prompt_ids, Cache& cache) const {
  const int last = prompt_ids.back();
  if (has(Mistake::unusual)) {  // not a mistake: the last token may as well be decoded, if it is not prefilled
    for (const int id : prompt_ids)
      if (cache.length + 1 < std::ssize(prompt_ids)) step({id}, cache);
    return step({last}, cache);
  }
  if (has(Mistake::last_prompt_id_left_out) && prompt_ids.size() > 1) prompt_ids.pop_back();
  std::vector<Row> x = step(prompt_ids, cache);
  if (has(Mistake::decode_before_first_argmax)) x = step({last}, cache);
  if (has(Mistake::decode_before_first_argmax_in_place)) {
    --cache.length;
    x = step({last}, cache);
    ++cache.length;
  }
  if (has(Mistake::decode_before_first_argmax_uncounted)) {
    x = step({last}, cache);
    --cache.length;
  }
  if (has(Mistake::decode_before_first_argmax_in_place_uncounted)) {
    --cache.length;
    x = step({last}, cache);
  }
  if (has(Mistake::prompt_fed_again)) x = step(prompt_ids, cache);
  if (has(Mistake::first_id_dropped)) x = step({nextId(x)}, cache);
  return x;
}

Ids PlainModel::greedyGenerate(const Ids& prompt_ids, Index max_tokens, Index enough) const {
  Ids result;
  if (has(Mistake::prompt_in_result)) result = prompt_ids;
  Cache cache = newCache();
  std::vector<Row> x;
  int previous = prompt_ids.back();
  const int end_of_text = static_cast<int>(config_.vocab_size) - 1;
  for (Index left = asked(max_tokens); left > 0 && std::ssize(result) < enough; --left) {
    x = x.empty() ? prefillPrompt(prompt_ids, cache) : std::move(x);
    const bool is_full = cache.length >= config_.n_positions;
    if (is_full && has(Mistake::full_context_has_no_next_id)) break;
    const int id = nextId(x);
    if (id == end_of_text && has(Mistake::stops_before_end_of_text)) break;
    result.push_back(id);
    if (is_full && !has(Mistake::context_end_ignored)) break;
    if (id == end_of_text && has(Mistake::stops_after_end_of_text)) break;
    if (left == 1) break;
    const int fed = has(Mistake::previous_id_fed) ? std::exchange(previous, id) : id;
    x = step({fed}, cache);
    if (has(Mistake::ids_decoded_twice)) x = step({fed}, cache);
  }
  result.resize(static_cast<std::size_t>(std::min(std::ssize(result), enough)));
  return result;
}

Cache PlainModel::newCache() const {
  const bool is_shared = has(Mistake::one_cache_for_all_layers);
  return {std::vector<LayerRows>(is_shared ? 1 : static_cast<std::size_t>(config_.n_layer))};
}

Row PlainModel::layerNorm(const Row& x, const driftless::LayerNormParameters<float>& norm) const {
  const Row centred = x.array() - x.mean();
  const Index count = has(Mistake::sample_variance) ? x.size() - 1 : x.size();
  const float variance = centred.squaredNorm() / static_cast<float>(count);
  const float epsilon = has(Mistake::fixed_epsilon) ? 1e-5f : static_cast<float>(config_.layer_norm_epsilon);
  const float deviation =
      has(Mistake::epsilon_outside_root) ? std::sqrt(variance) + epsilon : std::sqrt(variance + epsilon);
  return (centred / deviation).cwiseProduct(norm.weight) + norm.bias;
}

Row PlainModel::activate(const Row& x) const {
  if (has(Mistake::no_activation)) return x;
  Activation activation = config_.activation_function;
  if (activation != Activation::gelu && activation != Activation::gelu_new)
    throw std::invalid_argument("expected one of the fixtures' activations");
  if (has(Mistake::erf_gelu)) activation = Activation::gelu;
  if (has(Mistake::tanh_gelu)) activation = Activation::gelu_new;
  if (activation == Activation::gelu)
    return x.unaryExpr([](float value) { return value / 2 * (1 + std::erf(value / std::numbers::sqrt2_v<float>)); });
  const float slope = std::sqrt(2 / std::numbers::pi_v<float>);
  return x.array() / 2 * (1 + (slope * (x.array() + 0.044715f * x.array().cube())).tanh());
}

Row PlainModel::linear(const Row& x, const driftless::LinearParameters<float>& layer, bool has_bias) const {
  const Row product = x * layer.weight;
  return has_bias ? Row(product + layer.bias) : product;
}

Row PlainModel::partOf(const Row& qkv, Index part) const {
  const Index C = config_.n_embd, D = config_.headSize();
  if (has(Mistake::keys_and_values_swapped) && part > 0) part = 3 - part;
  if (has(Mistake::queries_and_keys_swapped) && part < 2) part = 1 - part;
  if (!has(Mistake::qkv_split_by_head)) return qkv.segment(part * C, C);
  Row heads(C);
  for (Index head = 0; head < config_.n_head; ++head)
    heads.segment(head * D, D) = qkv.segment((3 * head + part) * D, D);
  return heads;
}

float PlainModel::scoreScale(Index layer) const {
  const float D = static_cast<float>(config_.headSize());
  float scale = 1 / std::sqrt(D);
  if (has(Mistake::unscaled_scores)) scale = 1;
  if (has(Mistake::scaled_by_head_size)) scale = 1 / D;
  if (has(Mistake::scaled_by_width)) scale = 1 / std::sqrt(static_cast<float>(config_.n_embd));
  if (config_.scale_attn_by_inverse_layer_idx && !has(Mistake::ignored_layer_scale))
    scale /= static_cast<float>(layer + 1);
  return scale;
}

std::vector<Row> PlainModel::attend(const std::vector<Row>& queries, const std::vector<Positions>& seen,
                                    const LayerRows& cache, float scale) const {
  const Index C = config_.n_embd;
  const Row unfilled = Row::Zero(C);
  const auto rowOf = [&](const std::vector<Row>& rows, std::size_t j) -> const Row& {
    return j < rows.size() ? rows[j] : unfilled;
  };
  std::vector<Row> mixed(queries.size(), unfilled);
  const auto attendByHead = [&](auto columns) {
    std::vector<Row> weights;
    std::vector<float> sums(static_cast<std::size_t>(config_.n_positions) +
                            cache.keys.size());  // of each key's weights
    for (std::size_t t = 0; t < queries.size(); ++t) {
      Row scores(std::ssize(seen[t]));
      for (Index i = 0; i < scores.size(); ++i)
        scores[i] = queries[t](columns).dot(rowOf(cache.keys, seen[t][static_cast<std::size_t>(i)])(columns)) * scale;
      if (!has(Mistake::no_softmax) && scores.size() > 0) {
        const bool by_query = !has(Mistake::softmax_over_queries);
        scores = (scores.array() - (by_query ? scores.maxCoeff() : 0)).exp().matrix().eval();
        if (by_query) scores /= scores.sum();
      }
      for (Index i = 0; i < scores.size(); ++i) sums[seen[t][static_cast<std::size_t>(i)]] += scores[i];
      weights.push_back(scores);
    }
    for (std::size_t t = 0; t < queries.size(); ++t)
      for (Index i = 0; i < weights[t].size(); ++i) {
        const std::size_t j = seen[t][static_cast<std::size_t>(i)];
        const float weight = has(Mistake::softmax_over_queries) ? weights[t][i] / sums[j] : weights[t][i];
        mixed[t](columns) += weight * rowOf(cache.values, j)(columns);
      }
  };
  const Index H = has(Mistake::single_head) ? 1 : config_.n_head;
  for (Index head = 0; head < H; ++head)
    if (has(Mistake::interleaved_heads))
      attendByHead(Eigen::seqN(head, C / H, H));
    else
      attendByHead(Eigen::seqN(head * (C / H), C / H));
  return mixed;
}

PlainModel::Positions PlainModel::seenBy(std::size_t t, std::size_t past, std::size_t rows) const {
  const std::size_t filled = past + rows;
  std::size_t first = 0, end = past + t + 1;
  if (has(Mistake::mask_not_offset)) end = t + 1;
  if (has(Mistake::own_position_unseen)) --end;
  if (has(Mistake::own_position_unseen_after_first) && end > 1) --end;
  if (has(Mistake::mask_sees_one_ahead)) end = std::min(end + 1, filled);
  if (has(Mistake::mask_transposed)) first = past + t;
  if (has(Mistake::mask_transposed) || has(Mistake::no_mask)) end = filled;
  if (has(Mistake::first_position_unseen)) first = 1;
  if (has(Mistake::past_unseen)) first = past;
  if (has(Mistake::one_unfilled_row_seen)) ++end;
  if (has(Mistake::unfilled_rows_seen)) end = std::max(filled, static_cast<std::size_t>(config_.n_positions));
  Positions seen;
  for (std::size_t j = first; j < end; ++j) seen.push_back(j);
  for (std::size_t j = std::max(end, masked_); j < filled; ++j) seen.push_back(j);
  if (has(Mistake::unusual)) std::reverse(seen.begin(), seen.end());  // of no importance
  return seen;
}

std::vector<Row> PlainModel::attnStep(const std::vector<Row>& x, Cache& cache, Index layer) const {
  const bool is_first_for_all = has(Mistake::first_layers_weights_for_all);
  const auto& attn = parameters_.h[is_first_for_all ? 0 : static_cast<std::size_t>(layer)].attn;
  LayerRows& own = cache.layer(layer);
  if (has(Mistake::cache_overwritten)) own = {};
  const std::size_t past = own.keys.size();
  const std::size_t copies = has(Mistake::rows_cached_twice) ? 2 : 1;
  std::vector<Row> queries;
  for (const Row& row : x) {
    const Row qkv = linear(row, attn.c_attn, !has(Mistake::no_c_attn_bias));
    queries.push_back(partOf(qkv, 0));
    own.keys.insert(own.keys.end(), copies, partOf(qkv, 1));
    own.values.insert(own.values.end(), copies, partOf(qkv, 2));
  }
  std::vector<Positions> seen;
  for (std::size_t t = 0; t < x.size(); ++t)
    seen.push_back(seenBy(copies * t + copies - 1, past, own.keys.size() - past));
  const bool reads_first = has(Mistake::first_layers_cache_read) && !cache.layer(0).keys.empty();
  std::vector<Row> out = attend(queries, seen, reads_first ? cache.layer(0) : own, scoreScale(layer));
  for (Row& row : out) {
    if (has(Mistake::transposed_c_proj))
      row = row * attn.c_proj.weight.transpose() + attn.c_proj.bias;
    else if (!has(Mistake::no_c_proj))
      row = linear(row, attn.c_proj, !has(Mistake::no_c_proj_bias));
  }
  if (has(Mistake::decoded_rows_not_kept) && past > 0 && x.size() == 1) {
    own.keys.resize(past);
    own.values.resize(past);
  }
  return out;
}

Row PlainModel::mlp(const Row& x, const driftless::MlpParameters<float>& mlp) const {
  const bool has_biases = !has(Mistake::no_mlp_biases);
  return linear(activate(linear(x, mlp.c_fc, has_biases)), mlp.c_proj, has_biases);
}

Index PlainModel::firstPosition(const Cache& cache) const {
  Index position = cache.length;
  if (cache.length > 0) {
    if (has(Mistake::position_restarted)) position = 0;
    if (has(Mistake::position_not_advanced)) position = cache.first_step;
    if (has(Mistake::position_one_early)) position = std::max<Index>(position - 1, 0);
    if (has(Mistake::position_one_late)) ++position;
  }
  return has(Mistake::positions_from_one) ? position + 1 : position;
}

Row PlainModel::embed(int id, Index position) const {
  if (has(Mistake::no_position_embedding)) return parameters_.wte.row(id);
  // Some mistakes run out of positions.
  return parameters_.wte.row(id) + parameters_.wpe.row(std::min(position, config_.n_positions - 1));
}

void PlainModel::runLayer(std::vector<Row>& x, Cache& cache, Index layer) const {
  const auto& block = parameters_.h[has(Mistake::first_layers_weights_for_all) ? 0 : static_cast<std::size_t>(layer)];
  std::vector<Row> normed = x;
  if (!has(Mistake::no_ln_1))
    for (Row& row : normed) row = layerNorm(row, block.ln_1);
  const std::vector<Row> attended = attnStep(normed, cache, layer);
  for (std::size_t t = 0; t < x.size(); ++t) {
    const Row before = x[t];
    if (has(Mistake::residual_from_normed)) x[t] = normed[t];
    if (has(Mistake::no_attention_residual)) x[t].setZero();
    x[t] += attended[t];
    Row fed = has(Mistake::parallel_mlp) ? before : x[t];
    if (!has(Mistake::no_ln_2)) fed = layerNorm(fed, has(Mistake::ln_1_used_twice) ? block.ln_1 : block.ln_2);
    if (has(Mistake::residual_from_normed)) x[t] = fed;
    if (has(Mistake::no_mlp_residual)) x[t].setZero();
    x[t] += mlp(fed, block.mlp);
  }
}

std::vector<Row> PlainModel::step(const Ids& ids, Cache& cache) const {
  std::vector<Row> x;
  Index position = firstPosition(cache);
  for (const int id : ids) x.push_back(embed(id, has(Mistake::same_position_for_all_rows) ? position : position++));
  const Index first_layer = has(Mistake::first_layer_left_out) ? 1 : 0;
  const Index end_layer = config_.n_layer - (has(Mistake::last_layer_left_out) ? 1 : 0);
  for (Index layer = first_layer; layer < end_layer; ++layer) runLayer(x, cache, layer);

  Index added = std::ssize(ids);
  if (cache.length == 0) cache.first_step = added;
  if (has(Mistake::rows_cached_twice)) added *= 2;
  if (has(Mistake::length_counted_per_layer)) added *= config_.n_layer;
  cache.length = has(Mistake::cache_overwritten) ? added : cache.length + added;
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

Row PlainModel::lastLogits(const std::vector<Row>& x) const {
  std::size_t row = x.size() - 1;
  if (has(Mistake::logits_of_first_row)) row = 0;
  if (has(Mistake::logits_of_row_before_last) && row > 0) --row;
  return unembed(x[row]);
}

int PlainModel::nextId(const std::vector<Row>& x) const {
  Row logits = lastLogits(x);
  if (has(Mistake::argmax_of_all_rows))
    for (const Row& row : x) logits = logits.cwiseMax(unembed(row));
  return argmax(logits, mistakes_);
}

}  // namespace planted
