#pragma once

#include <limits>
#include <vector>

#include "adapters.hpp"

/// A cached GPT-2 as a learner might write it, with the usual mistakes in it, one or two at a time: the stages must
/// tell it from a right one, and Diagnosis compares wrong results with it. It shares nothing with the library but the
/// parameters. Every row is computed by itself, so that without a mistake its bits do not depend on how a sequence is
/// cut either.
namespace planted {

using adapters::Ids, adapters::Index, adapters::Matrix, adapters::Prefilled;
using driftless::Config, driftless::Parameters;
using Row = driftless::RowVector<float>;

enum class Mistake {
  none,
  unusual,  ///< right, but written in another way
  unknown,  ///< not a known one: every logit is a tenth too large
  left_over_from_earlier_call,
  // The mask.
  mask_hides_own_position,
  mask_transposed,
  mask_sees_one_ahead,
  no_mask,
  mask_not_rebuilt,
  finite_mask,
  mask_to_multiply,
  // The model.
  no_position_embedding,
  positions_from_one,
  same_position_for_all_rows,
  no_ln_1,
  no_ln_2,
  ln_1_used_twice,
  sample_variance,
  fixed_epsilon,
  epsilon_outside_root,
  interleaved_heads,
  qkv_split_by_head,
  single_head,
  keys_and_values_swapped,
  queries_and_keys_swapped,
  no_c_attn_bias,
  unscaled_scores,
  scaled_by_head_size,
  scaled_by_width,
  ignored_layer_scale,
  no_softmax,
  softmax_over_queries,
  no_c_proj,
  transposed_c_proj,
  no_c_proj_bias,
  no_attention_residual,
  no_mlp_residual,
  residual_from_normed,
  parallel_mlp,
  erf_gelu,
  tanh_gelu,
  no_activation,
  no_mlp_biases,
  first_layer_left_out,
  last_layer_left_out,
  first_layers_weights_for_all,
  no_final_layer_norm,
  untransposed_head,
  ignored_lm_head,
  // The choice of ids.
  logits_of_first_row,
  logits_of_row_before_last,
  logits_of_prompts_last_row,
  argmax_of_all_rows,
  argmax_starts_at_zero,
  last_index_on_ties,
  prompt_left_out,
  one_id_too_few,
  one_id_too_many,
  // The cache: what is cached and what is seen of it.
  own_position_unseen,
  own_position_unseen_after_first,
  first_position_unseen,
  past_unseen,
  mask_not_offset,
  one_unfilled_row_seen,
  unfilled_rows_seen,
  rows_cached_twice,
  decoded_rows_not_kept,
  cache_overwritten,
  scaled_keys_cached,
  one_cache_for_all_layers,
  first_layers_cache_read,
  // The cache: positions.
  position_restarted,
  position_one_early,
  position_one_late,
  position_not_advanced,
  length_counted_per_layer,
  // Generation.
  decode_before_first_argmax,
  decode_before_first_argmax_in_place,
  decode_before_first_argmax_uncounted,
  decode_before_first_argmax_in_place_uncounted,
  prompt_fed_again,
  last_prompt_id_left_out,
  first_id_dropped,
  previous_id_fed,
  ids_decoded_twice,
  prompt_in_result,
  stops_after_end_of_text,
  stops_before_end_of_text,
  full_context_has_no_next_id,
  context_end_ignored,
};

struct KnownMistake {
  Mistake mistake;
  const char* name;
  const char* explanation;  ///< continues "these are the results that come out when"
};

/// By the step of the course that is first wrong.
inline constexpr KnownMistake kKnownMistakes[] = {
    {Mistake::left_over_from_earlier_call, "left_over_from_earlier_call",
     "the same call gives another result when it is made again: something is left over from an earlier call, such as a "
     "cache that is not emptied, or is not initialised"},
    // The mask.
    {Mistake::mask_hides_own_position, "mask_hides_own_position",
     "the mask hides a token from itself: its diagonal is minus infinity too"},
    {Mistake::mask_transposed, "mask_transposed",
     "the mask is the other triangle: a token sees itself and the later ones, not the earlier ones"},
    {Mistake::mask_sees_one_ahead, "mask_sees_one_ahead",
     "a token sees the next one as well: the mask begins one column too late"},
    {Mistake::no_mask, "no_mask", "nothing is masked: a token sees the later tokens that are fed together with it"},
    {Mistake::mask_not_rebuilt, "mask_not_rebuilt",
     "the mask is built for the first length only and kept while the sequence grows"},
    {Mistake::finite_mask, "finite_mask", "hidden places hold a large negative number instead of minus infinity"},
    {Mistake::mask_to_multiply, "mask_to_multiply",
     "the mask holds 1 for what is seen and 0 for what is hidden; it is added to the scores, so it must hold 0 and "
     "minus infinity"},
    // The model.
    {Mistake::no_position_embedding, "no_position_embedding", "the position embedding, wpe, is left out"},
    {Mistake::positions_from_one, "positions_from_one", "positions are counted from 1 instead of from 0"},
    {Mistake::same_position_for_all_rows, "same_position_for_all_rows",
     "all tokens that are fed together get the position of the first of them"},
    {Mistake::no_ln_1, "no_ln_1", "the attention's LayerNorm, ln_1, is left out"},
    {Mistake::no_ln_2, "no_ln_2", "the MLP's LayerNorm, ln_2, is left out"},
    {Mistake::ln_1_used_twice, "ln_1_used_twice",
     "the MLP's input is normalised with the weights of ln_1 instead of ln_2"},
    {Mistake::sample_variance, "sample_variance", "LayerNorm divides the sum of squares by C - 1 instead of by C"},
    {Mistake::fixed_epsilon, "fixed_epsilon",
     "LayerNorm's epsilon is 1e-5, whatever the config's layer_norm_epsilon is"},
    {Mistake::epsilon_outside_root, "epsilon_outside_root",
     "LayerNorm adds epsilon to the standard deviation instead of to the variance, outside the root"},
    {Mistake::interleaved_heads, "interleaved_heads",
     "head h takes the columns h, h + H, h + 2H and so on instead of the D neighbouring ones from h * D"},
    {Mistake::qkv_split_by_head, "qkv_split_by_head",
     "c_attn's columns are split into heads first and then into Q, K and V, instead of the other way round"},
    {Mistake::single_head, "single_head",
     "all C columns are one head, instead of H heads of D columns with a softmax each"},
    {Mistake::keys_and_values_swapped, "keys_and_values_swapped",
     "keys and values are swapped; c_attn's columns are Q, K and V, in this order"},
    {Mistake::queries_and_keys_swapped, "queries_and_keys_swapped",
     "queries and keys are swapped; c_attn's columns are Q, K and V, in this order"},
    {Mistake::no_c_attn_bias, "no_c_attn_bias", "c_attn's bias is left out"},
    {Mistake::unscaled_scores, "unscaled_scores", "the attention's scores are not divided by sqrt(D)"},
    {Mistake::scaled_by_head_size, "scaled_by_head_size",
     "the attention's scores are divided by D instead of by sqrt(D): the root is missing, or they are scaled twice"},
    {Mistake::scaled_by_width, "scaled_by_width",
     "the attention's scores are divided by sqrt(C) instead of by the root of a head's columns, sqrt(D)"},
    {Mistake::ignored_layer_scale, "ignored_layer_scale",
     "the attention's scores are not divided by the layer's number as well, which scale_attn_by_inverse_layer_idx in "
     "the config asks for"},
    {Mistake::no_softmax, "no_softmax", "the scores themselves are the attention's weights: softmax is left out"},
    {Mistake::softmax_over_queries, "softmax_over_queries",
     "softmax runs down the columns of the scores instead of along their rows: each row, one query's, must add up to "
     "1"},
    {Mistake::no_c_proj, "no_c_proj", "the attention's output projection, c_proj, is left out"},
    {Mistake::transposed_c_proj, "transposed_c_proj",
     "the attention's c_proj is multiplied as if it were transposed; a weight here is [in, out], y = x * W + b"},
    {Mistake::no_c_proj_bias, "no_c_proj_bias", "the bias of the attention's c_proj is left out"},
    {Mistake::no_attention_residual, "no_attention_residual",
     "the attention's output replaces the residual stream instead of being added to it"},
    {Mistake::no_mlp_residual, "no_mlp_residual",
     "the MLP's output replaces the residual stream instead of being added to it"},
    {Mistake::residual_from_normed, "residual_from_normed",
     "the outputs of attention and MLP are added to what LayerNorm gave instead of to the residual stream"},
    {Mistake::parallel_mlp, "parallel_mlp",
     "the MLP reads the block's input instead of the sum of that and the attention's output"},
    {Mistake::erf_gelu, "erf_gelu", "GELU is computed by erf although the config asks for gelu_new, the tanh form"},
    {Mistake::tanh_gelu, "tanh_gelu", "GELU is computed by tanh although the config asks for gelu, the erf form"},
    {Mistake::no_activation, "no_activation", "the MLP's activation is left out"},
    {Mistake::no_mlp_biases, "no_mlp_biases", "the biases of the MLP's c_fc and c_proj are left out"},
    {Mistake::first_layer_left_out, "first_layer_left_out", "the first layer is left out"},
    {Mistake::last_layer_left_out, "last_layer_left_out", "the last layer is left out"},
    {Mistake::first_layers_weights_for_all, "first_layers_weights_for_all",
     "every layer computes with the weights of the first"},
    {Mistake::no_final_layer_norm, "no_final_layer_norm", "the final LayerNorm, ln_f, is left out"},
    {Mistake::untransposed_head, "untransposed_head",
     "the unembedding reads the numbers of its [V, C] matrix as if it were [C, V], instead of transposing it"},
    {Mistake::ignored_lm_head, "ignored_lm_head",
     "the unembedding multiplies by wte although the checkpoint has an lm_head of its own"},
    // The choice of ids.
    {Mistake::logits_of_first_row, "logits_of_first_row", "the logits are those of the first row instead of the last"},
    {Mistake::logits_of_row_before_last, "logits_of_row_before_last",
     "the logits are those of the row before the last instead of the last"},
    {Mistake::logits_of_prompts_last_row, "logits_of_prompts_last_row",
     "every id is chosen from the row of the prompt's last token instead of from the last row"},
    {Mistake::argmax_of_all_rows, "argmax_of_all_rows",
     "the largest logit of all rows, flattened, is chosen instead of the last row's largest"},
    {Mistake::argmax_starts_at_zero, "argmax_starts_at_zero",
     "the largest logit is sought from 0 up, so that a row of negative logits has none"},
    {Mistake::last_index_on_ties, "last_index_on_ties", "the last of equal logits is chosen instead of the first"},
    {Mistake::prompt_left_out, "prompt_left_out",
     "the result lacks the prompt; it must be the prompt, unchanged, and the new ids"},
    {Mistake::one_id_too_few, "one_id_too_few", "one id too few is generated"},
    {Mistake::one_id_too_many, "one_id_too_many", "one id too many is generated"},
    // The cache: what is cached and what is seen of it.
    {Mistake::own_position_unseen, "own_position_unseen",
     "a row does not see its own position: its key and value must be in the cache before it attends"},
    {Mistake::own_position_unseen_after_first, "own_position_unseen_after_first",
     "a row does not see its own position, except for the very first one: its key and value must be in the cache "
     "before it attends"},
    {Mistake::first_position_unseen, "first_position_unseen",
     "the first position is not seen: attention begins at row 1 of the cache instead of row 0"},
    {Mistake::past_unseen, "past_unseen",
     "the cached rows are not seen: attention is only over the rows of the step itself"},
    {Mistake::mask_not_offset, "mask_not_offset",
     "the mask is not offset by the cached length: row t of a step sees the keys 0 to t, not 0 to length + t"},
    {Mistake::one_unfilled_row_seen, "one_unfilled_row_seen",
     "one row too many is seen: the one after the last that is filled, with zeros in it"},
    {Mistake::unfilled_rows_seen, "unfilled_rows_seen",
     "all n_positions rows of the cache are seen, also those that are not filled yet and hold zeros"},
    {Mistake::rows_cached_twice, "rows_cached_twice",
     "every row's key and value are appended twice, and so seen twice"},
    {Mistake::decoded_rows_not_kept, "decoded_rows_not_kept",
     "the key and value of a decoded token are used in its own step but do not stay in the cache"},
    {Mistake::cache_overwritten, "cache_overwritten",
     "a step's keys and values replace those in the cache instead of being appended"},
    {Mistake::scaled_keys_cached, "scaled_keys_cached",
     "the keys in the cache are scaled already; they are c_attn's K, with bias and unscaled"},
    {Mistake::one_cache_for_all_layers, "one_cache_for_all_layers",
     "all layers append to one cache instead of each to its own"},
    {Mistake::first_layers_cache_read, "first_layers_cache_read",
     "all layers attend to the first layer's keys and values instead of their own"},
    // The cache: positions.
    {Mistake::position_restarted, "position_restarted",
     "the position of a decoded token is counted from 0 instead of from the cache's length"},
    {Mistake::position_one_early, "position_one_early",
     "a step onto a cache starts one position too early; its first token stands at the cache's length, counted from 0"},
    {Mistake::position_one_late, "position_one_late",
     "a step onto a cache starts one position too late; its first token stands at the cache's length, counted from 0"},
    {Mistake::position_not_advanced, "position_not_advanced",
     "every step after the first starts at the same position, the first step's length, instead of the cache's"},
    {Mistake::length_counted_per_layer, "length_counted_per_layer",
     "the cache's length grows by a step's rows once for every layer instead of once"},
    // Generation.
    {Mistake::decode_before_first_argmax, "decode_before_first_argmax",
     "the prompt's last token is decoded once more before the first id is chosen, instead of choosing it from the "
     "prefill's logits"},
    {Mistake::decode_before_first_argmax_in_place, "decode_before_first_argmax_in_place",
     "the prompt's last token is decoded once more, at its own position, before the first id is chosen, instead of "
     "choosing it from the prefill's logits"},
    {Mistake::decode_before_first_argmax_uncounted, "decode_before_first_argmax_uncounted",
     "the prompt's last token is decoded once more before the first id is chosen, instead of choosing it from the "
     "prefill's logits; that id then gets the same position"},
    {Mistake::decode_before_first_argmax_in_place_uncounted, "decode_before_first_argmax_in_place_uncounted",
     "the prompt's last token is decoded once more, at its own position, before the first id is chosen, instead of "
     "choosing it from the prefill's logits; positions go on as if it had not been, yet the cache holds it twice"},
    {Mistake::prompt_fed_again, "prompt_fed_again",
     "the whole prompt is fed again, after the prefill, before the first id is chosen"},
    {Mistake::last_prompt_id_left_out, "last_prompt_id_left_out", "the prompt's last token is not fed at all"},
    {Mistake::first_id_dropped, "first_id_dropped",
     "the first id, chosen from the prefill's logits, is decoded but missing from the result"},
    {Mistake::previous_id_fed, "previous_id_fed",
     "each step decodes the id before the newest: first the prompt's last token, then the first id, and so on"},
    {Mistake::ids_decoded_twice, "ids_decoded_twice", "every id is decoded twice"},
    {Mistake::prompt_in_result, "prompt_in_result", "the result begins with the prompt; it must hold the new ids only"},
    {Mistake::stops_after_end_of_text, "stops_after_end_of_text",
     "generation stops after <|endoftext|>; it must go on to the number of ids that were asked for"},
    {Mistake::stops_before_end_of_text, "stops_before_end_of_text",
     "generation stops before <|endoftext|>; it must go on to the number of ids that were asked for"},
    {Mistake::full_context_has_no_next_id, "full_context_has_no_next_id",
     "no id is chosen from the logits of the last position; a full context still has a next id"},
    {Mistake::context_end_ignored, "context_end_ignored", "generation goes on although all n_positions are taken"},
};

/// Mistakes in a model with a cache; without one, nothing can show them.
constexpr bool isInCache(Mistake mistake) { return mistake >= Mistake::own_position_unseen; }

/// One mistake, or two at once.
struct Mistakes {
  Mistake first = Mistake::none;
  Mistake second = Mistake::none;

  constexpr bool has(Mistake mistake) const { return first == mistake || second == mistake; }
};

/// The mistakes that the environment variable DRIFTLESS_PLANTED names, joined by a plus; none if it is not set.
Mistakes plantedMistakes();

/// One layer's keys and values [C], a row for every position so far.
struct LayerRows {
  std::vector<Row> keys;
  std::vector<Row> values;
};

struct Cache {
  std::vector<LayerRows> layers;
  Index length = 0;      ///< where the next step starts
  Index first_step = 0;  ///< how many ids the first step had

  LayerRows& layer(Index index) { return layers[static_cast<std::size_t>(index) % layers.size()]; }
};

/// What finite_mask has instead of minus infinity.
inline constexpr float kFiniteMask = -1e9f;

Matrix<float> buildCausalMask(Index T, Mistakes mistakes);
int argmax(const Row& logits, Mistakes mistakes);

/// Refers to the parameters, which must outlive it. The public functions are what the stages ask of an implementation,
/// see adapters.hpp; those with `enough` end when the result has that many ids.
class PlainModel {
 public:
  PlainModel(const Parameters<float>& parameters, Mistakes mistakes)
      : parameters_(parameters), config_(parameters.config), mistakes_(mistakes) {}

  Matrix<float> fullForward(const Ids& ids) const;
  Ids greedyRecompute(const Ids& prompt_ids, Index n, Index enough = kAll) const;
  Matrix<float> attention(Index layer, const Matrix<float>& x) const;
  Prefilled prefill(const Ids& ids, const std::vector<Index>& chunk_sizes) const;
  Matrix<float> stepwise(const Ids& prompt_ids, const Ids& next_ids) const;
  Ids greedyGenerate(const Ids& prompt_ids, Index max_tokens, Index enough = kAll) const;

 private:
  static constexpr Index kAll = std::numeric_limits<Index>::max();
  using Positions = std::vector<std::size_t>;

  bool has(Mistake mistake) const { return mistakes_.has(mistake); }
  /// The same without the mistakes that are only made in a cache.
  PlainModel uncached() const;
  Cache newCache() const;
  /// How many ids to generate if n are asked for.
  Index asked(Index n) const;

  Row layerNorm(const Row& x, const driftless::LayerNormParameters<float>& norm) const;
  Row activate(const Row& x) const;
  Row linear(const Row& x, const driftless::LinearParameters<float>& layer, bool has_bias) const;
  /// Part 0, 1 or 2 (Q, K or V) of c_attn's output [3C], heads side by side: [C].
  Row partOf(const Row& qkv, Index part) const;
  float scoreScale(Index layer) const;
  /// Attention of each query over the rows of the cache that it sees, heads side by side: [C] each.
  std::vector<Row> attend(const std::vector<Row>& queries, const std::vector<Positions>& seen, const LayerRows& cache,
                          float scale) const;
  /// The rows of the cache that row t of a step sees, which added `rows` to the `past` that were there before.
  Positions seenBy(std::size_t t, std::size_t past, std::size_t rows) const;
  /// One layer's attention over new rows x, ln_1's outputs, which become part of the cache.
  std::vector<Row> attnStep(const std::vector<Row>& x, Cache& cache, Index layer) const;
  Row mlp(const Row& x, const driftless::MlpParameters<float>& mlp) const;
  Index firstPosition(const Cache& cache) const;
  Row embed(int id, Index position) const;
  void runLayer(std::vector<Row>& x, Cache& cache, Index layer) const;
  /// Runs ids onto the cache; returns what the head multiplies, a row for each.
  std::vector<Row> step(const Ids& ids, Cache& cache) const;
  /// Logits [V] of one of step's rows.
  Row unembed(const Row& x) const;
  /// Logits [V] of the last of step's rows.
  Row lastLogits(const std::vector<Row>& x) const;
  /// The greedy id after step's rows.
  int nextId(const std::vector<Row>& x) const;
  /// The rows from which the first id of a generation is chosen.
  std::vector<Row> prefillPrompt(Ids prompt_ids, Cache& cache) const;

  const Parameters<float>& parameters_;
  const Config& config_;
  Mistakes mistakes_;
  std::size_t masked_ = std::numeric_limits<std::size_t>::max();  ///< the rows that there is a mask for
};

}  // namespace planted
