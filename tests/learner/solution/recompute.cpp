#include <limits>

#include "given.hpp"

/// A solution of examples/learner/recompute.cpp.
namespace learner {

Matrix buildCausalMask(Index T) {
  Matrix mask = Matrix::Zero(T, T);
  for (Index query = 0; query < T; ++query)
    for (Index key = query + 1; key < T; ++key) mask(query, key) = -std::numeric_limits<float>::infinity();
  return mask;
}

Matrix attention(const Matrix& x, const Parameters& model, Index layer) {
  const AttentionParameters& attn = model.h[static_cast<std::size_t>(layer)].attn;
  const Index T = x.rows(), C = model.config.n_embd, D = model.config.headSize();
  const Matrix qkv = linear(x, attn.c_attn);
  const Matrix mask = buildCausalMask(T);
  Matrix mixed(T, C);
  for (Index begin = 0; begin < C; begin += D) {
    const auto q = qkv.middleCols(begin, D), k = qkv.middleCols(C + begin, D), v = qkv.middleCols(2 * C + begin, D);
    Matrix weights = q * k.transpose() * scoreScale(model.config, layer) + mask;
    for (Index t = 0; t < T; ++t) weights.row(t) = softmax(weights.row(t));
    mixed.middleCols(begin, D) = weights * v;
  }
  return linear(mixed, attn.c_proj);
}

Matrix fullForward(const Ids& ids, const Parameters& model) {
  Matrix x = embed(ids, 0, model);
  for (Index layer = 0; layer < model.config.n_layer; ++layer) {
    const auto& block = model.h[static_cast<std::size_t>(layer)];
    x += attention(layerNorm(x, block.ln_1, model.config), model, layer);
    x += mlp(layerNorm(x, block.ln_2, model.config), block.mlp, model.config);
  }
  return unembed(layerNorm(x, model.ln_f, model.config), model);
}

int argmax(const Row& logits) {
  Index best = 0;
  for (Index i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<int>(best);
}

Ids greedyDecode(Ids ids, const Parameters& model, Index n) {
  for (Index i = 0; i < n; ++i) ids.push_back(argmax(fullForward(ids, model).bottomRows(1)));
  return ids;
}

}  // namespace learner

#include "recompute_adapters.hpp"
