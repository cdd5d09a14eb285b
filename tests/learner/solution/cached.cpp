#include "given.hpp"

/// A solution of examples/learner/cached.cpp.
namespace learner {

class LayerCache {
 public:
  Index length() const { return static_cast<Index>(keys_.size()); }

  void append(const Row& key, const Row& value) {
    keys_.push_back(key);
    values_.push_back(value);
  }

  const Row& key(Index t) const { return keys_[static_cast<std::size_t>(t)]; }
  const Row& value(Index t) const { return values_[static_cast<std::size_t>(t)]; }
  Matrix keys() const { return matrixOf(keys_); }
  Matrix values() const { return matrixOf(values_); }

 private:
  static Matrix matrixOf(const std::vector<Row>& rows) {
    Matrix matrix(static_cast<Index>(rows.size()), rows.front().size());
    for (Index t = 0; t < matrix.rows(); ++t) matrix.row(t) = rows[static_cast<std::size_t>(t)];
    return matrix;
  }

  std::vector<Row> keys_, values_;
};

/// One row's attention over the first `visible` positions, before c_proj: [C].
Row attend(const Row& query, const LayerCache& cache, Index visible, Index D, float scale) {
  Row mixed = Row::Zero(query.size());
  Row weights(visible);
  for (Index begin = 0; begin < query.size(); begin += D) {
    for (Index t = 0; t < visible; ++t)
      weights[t] = query.segment(begin, D).dot(cache.key(t).segment(begin, D)) * scale;
    weights = softmax(weights);
    for (Index t = 0; t < visible; ++t) mixed.segment(begin, D) += weights[t] * cache.value(t).segment(begin, D);
  }
  return mixed;
}

Matrix attnStep(const Matrix& x, LayerCache& cache, const Parameters& model, Index layer) {
  const AttentionParameters& attn = model.h[static_cast<std::size_t>(layer)].attn;
  const Index C = model.config.n_embd;
  const Matrix qkv = linear(x, attn.c_attn);
  Matrix mixed(x.rows(), C);
  for (Index t = 0; t < x.rows(); ++t) {
    cache.append(qkv.row(t).segment(C, C), qkv.row(t).tail(C));
    mixed.row(t) =
        attend(qkv.row(t).head(C), cache, cache.length(), model.config.headSize(), scoreScale(model.config, layer));
  }
  return linear(mixed, attn.c_proj);
}

Matrix blockStep(Matrix x, LayerCache& cache, const Parameters& model, Index layer) {
  const auto& block = model.h[static_cast<std::size_t>(layer)];
  x += attnStep(layerNorm(x, block.ln_1, model.config), cache, model, layer);
  x += mlp(layerNorm(x, block.ln_2, model.config), block.mlp, model.config);
  return x;
}

class ModelCache {
 public:
  explicit ModelCache(const Config& config) : layers_(static_cast<std::size_t>(config.n_layer)) {}
  Index length() const { return layers_.front().length(); }
  LayerCache& layer(Index index) { return layers_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<LayerCache> layers_;
};

/// Runs ids, the first of which stands at `position`, onto the cache: logits [V] of the last one.
Row step(const Ids& ids, Index position, const Parameters& model, ModelCache& cache) {
  Matrix x = embed(ids, position, model);
  for (Index layer = 0; layer < model.config.n_layer; ++layer) x = blockStep(x, cache.layer(layer), model, layer);
  return unembed(layerNorm(x.bottomRows(1), model.ln_f, model.config), model);
}

Row prefill(const Ids& ids, const Parameters& model, ModelCache& cache) {
  return step(ids, cache.length(), model, cache);
}

Row decodeStep(int id, Index position, const Parameters& model, ModelCache& cache) {
  return step({id}, position, model, cache);
}

Ids generateTokens(const Ids& prompt, Index max_tokens, const Parameters& model) {
  Ids generated;
  if (max_tokens == 0) return generated;
  ModelCache cache(model.config);
  Row logits = prefill(prompt, model, cache);
  for (;;) {
    generated.push_back(argmax(logits));
    if (static_cast<Index>(generated.size()) == max_tokens || cache.length() == model.config.n_positions)
      return generated;
    logits = decodeStep(generated.back(), cache.length(), model, cache);
  }
}

}  // namespace learner

#include "cached_adapters.hpp"
