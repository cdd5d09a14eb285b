#include "given.hpp"

/// Part 1: GPT-2 without a cache. Yours to write, from top to bottom.
namespace learner {

/// Stage causal-mask. [T, T], row = query, column = key: 0 if the query sees the key, minus infinity if not.
Matrix buildCausalMask(Index T) {
  todo("buildCausalMask: return a [T, T] matrix with 0 where column <= row, and minus infinity elsewhere");
}

/// Causal attention of ln_1's output x [T, C] in a layer, counted from 0: [T, C], before the residual is added.
Matrix attention(const Matrix& x, const Parameters& model, Index layer) {
  todo(
      "attention: split c_attn's output [T, 3C] into Q, K and V, and each into heads of D columns; for every head take "
      "softmax(Q * K^T * scoreScale + mask) * V; put the heads side by side again and return c_proj of that");
}

/// Stage full-forward. Logits [T, V] of every id.
Matrix fullForward(const Ids& ids, const Parameters& model) {
  todo(
      "fullForward: embed the ids from position 0; for every layer add attention(ln_1(x)) to x, then mlp(ln_2(x)); "
      "return unembed(ln_f(x))");
}

/// Stages greedy-recompute and greedy-decode. The id to choose by logits [V].
int argmax(const Row& logits) {
  todo("argmax: return the index of the largest logit, the first of them if several are equal");
}

/// Stage greedy-recompute. The prompt and n ids that follow it.
Ids greedyDecode(Ids ids, const Parameters& model, Index n) {
  todo("greedyDecode: n times, append the argmax of fullForward's last row; return the prompt with what follows it");
}

}  // namespace learner

#include "recompute_adapters.hpp"  // joins all this to the stages
