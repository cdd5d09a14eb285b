#include "given.hpp"

/// Part 2: the same model with a cache, which holds the keys and values of every position so far, so that they need not
/// be computed again. Yours to write, from top to bottom. Members are yours to choose; functions that
/// cached_adapters.hpp calls must keep their names, or be changed there too.
namespace learner {

/// The keys and values of one layer.
class LayerCache {
 public:
  /// How many positions are cached.
  Index length() const { todo("LayerCache::length: return how many rows have been appended"); }

  /// Takes in one position's key [C] and value [C], heads side by side.
  void append(const Row& key, const Row& value) {
    todo("LayerCache::append: store the key and the value as the next row of each");
  }

  /// [length, C]: row t is position t's.
  Matrix keys() const { todo("LayerCache::keys: return the appended keys, a row for every position"); }
  Matrix values() const { todo("LayerCache::values: return the appended values, a row for every position"); }
};

/// Stage attn-step. Attention of ln_1's output x [T, C], whose rows follow the positions that the layer's cache holds
/// already: [T, C], before the residual is added. Afterwards the cache holds the new rows too.
Matrix attnStep(const Matrix& x, LayerCache& cache, const Parameters& model, Index layer) {
  todo(
      "attnStep: append the new rows' keys and values to the layer's cache, then let every new row's query attend to "
      "all that the cache holds up to that row's own position; softmax and scoreScale as in attention, then c_proj");
}

/// One block on the residual stream x [T, C]: [T, C].
Matrix blockStep(Matrix x, LayerCache& cache, const Parameters& model, Index layer) {
  todo("blockStep: add attnStep(ln_1(x)) to x, then add mlp(ln_2(x)) to that; return x");
}

/// One sequence's cache: one LayerCache for every layer.
class ModelCache {
 public:
  explicit ModelCache(const Config& config) { todo("ModelCache: make a LayerCache for each of n_layer layers"); }

  /// How many positions are cached.
  Index length() const { todo("ModelCache::length: return the number of positions that the layers hold"); }

  LayerCache& layer(Index index) { todo("ModelCache::layer: return the cache of the layer of this index"); }
};

/// Stage prefill. Runs ids onto the cache, which may hold earlier ids already: logits [V] of the last one.
Row prefill(const Ids& ids, const Parameters& model, ModelCache& cache) {
  todo(
      "prefill: embed the ids from position cache.length(), take them through blockStep with every layer's own cache, "
      "and return the logits of the last row: unembed(ln_f(x))");
}

/// Stages full-decode-step and per-step-identity. Runs one id, at the given position, onto the cache: its logits [V].
Row decodeStep(int id, Index position, const Parameters& model, ModelCache& cache) {
  todo(
      "decodeStep: embed the id at its position, take the one row through blockStep with every layer's own cache, and "
      "return unembed(ln_f(x)); the sums must be those of prefill, so let both call the same code");
}

/// Stage greedy-decode. Up to max_tokens greedy ids, without the prompt.
Ids generateTokens(const Ids& prompt, Index max_tokens, const Parameters& model) {
  todo(
      "generateTokens: prefill the prompt onto an empty cache; choose an id by argmax, the first one from the "
      "prefill's logits; decode it for the next logits; stop at max_tokens ids or when all n_positions are taken");
}

}  // namespace learner

#include "cached_adapters.hpp"  // joins all this to the stages
