#pragma once

#include <span>
#include <vector>

#include "adapters.hpp"

/// A cached GPT-2 as a learner might write it, with at most one of the usual mistakes in it: the stages must tell it
/// from a right one, and Diagnosis compares wrong results with it. It shares nothing with the library but the
/// parameters. Every row is computed by itself, so that without a mistake its bits do not depend on how a sequence is
/// cut either.
namespace planted {

using adapters::Ids, adapters::Index, adapters::Matrix, adapters::Prefilled;
using driftless::Config, driftless::Parameters;
using Row = driftless::RowVector<float>;

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
    {Mistake::erf_gelu, "erf_gelu", "GELU is computed by erf although the config asks for gelu_new, the tanh form"},
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
     "the whole prompt is fed again, after the prefill, before the first id is chosen"},
};

/// The mistake that the environment variable DRIFTLESS_PLANTED names; none if it is not set.
Mistake plantedMistake();

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

Matrix<float> buildCausalMask(Index T, Mistake mistake);
int argmax(const Row& logits, Mistake mistake);

/// Refers to the parameters, which must outlive it. The public functions are what the stages ask of an implementation,
/// see adapters.hpp.
class PlainModel {
 public:
  PlainModel(const Parameters<float>& parameters, Mistake mistake)
      : parameters_(parameters), config_(parameters.config), mistake_(mistake) {}

  Matrix<float> fullForward(const Ids& ids) const;
  /// With a new cache for every id: a mistake in the model itself shows here, one in the use of a cache does not.
  Ids greedyRecompute(Ids ids, Index n) const;
  Matrix<float> attention(Index layer, const Matrix<float>& x) const;
  Prefilled prefill(const Ids& ids, const std::vector<Index>& chunk_sizes) const;
  Matrix<float> stepwise(const Ids& prompt_ids, const Ids& next_ids) const;
  Ids greedyGenerate(const Ids& prompt_ids, Index max_tokens) const;

 private:
  bool has(Mistake mistake) const { return mistake_ == mistake; }
  Cache newCache(bool may_be_shared = true) const;

  Row layerNorm(const Row& x, const driftless::LayerNormParameters<float>& norm) const;
  Row activate(const Row& x) const;
  /// Part 0, 1 or 2 (Q, K or V) of c_attn's output [3C], heads side by side: [C].
  Row partOf(const Row& qkv, Index part) const;
  /// One row's attention over rows of keys and values, heads side by side: [C].
  Row attend(const Row& query, std::span<const Row> keys, std::span<const Row> values, Index layer) const;
  /// How many rows of the cache row t of a step sees, which added `rows` to the `past` that were there before.
  std::size_t rowsInSight(std::size_t past, std::size_t rows, std::size_t t) const;
  /// One layer's attention over new rows x, ln_1's outputs, which become part of the cache.
  std::vector<Row> attnStep(const std::vector<Row>& x, LayerRows& cache, Index layer) const;
  Row mlp(const Row& x, const driftless::MlpParameters<float>& mlp) const;
  Index firstPosition(const Cache& cache) const;
  Row embed(int id, Index position) const;
  /// Runs ids onto the cache; returns what the head multiplies, a row for each.
  std::vector<Row> step(const Ids& ids, Cache& cache) const;
  /// Logits [V] of one of step's rows.
  Row unembed(const Row& x) const;
  /// The greedy id after step's rows.
  int nextId(const std::vector<Row>& x) const;

  const Parameters<float>& parameters_;
  const Config& config_;
  Mistake mistake_;
};

}  // namespace planted
