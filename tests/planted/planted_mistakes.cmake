# Proves that the stages can fail and that they name the mistake that makes them fail:
# cmake -DPROGRAM=<driftless_planted> -DSTAGES=<list> -P planted_mistakes.cmake
#
# Runs the stages on the implementation in plain_cached.cpp, without a mistake, with each, and with some pairs. The
# stages that a mistake concerns must go red, by a failed check and not by a crash, and their diagnosis must name this
# mistake and no other, except where others give the very same results. The other stages must stay green; those that
# take long are asked for one mistake of each kind.

cmake_minimum_required(VERSION 3.22...3.28)

set(quick_stages causal-mask attn-step)
set(uncached_stages full-forward greedy-recompute)
set(cached_stages prefill full-decode-step per-step-identity greedy-decode)

# run_stage(stage failures verdict) sets `verdict` to green, "red by <what is named>" or what else happened. The run
# ends at the given number of failed checks.
function(run_stage stage failures verdict)
  execute_process(
    COMMAND ${PROGRAM} --test-suite=${stage} --no-skip --abort-after=${failures}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  string(REGEX MATCH "assertions: +[0-9]+ \\| +([0-9]+) passed \\| +([0-9]+) failed" counts "${output}")
  set(passed ${CMAKE_MATCH_1})
  set(failed ${CMAKE_MATCH_2})
  if(status EQUAL 0 AND counts AND passed GREATER 0 AND failed EQUAL 0)
    set(${verdict} green PARENT_SCOPE)
  elseif(status EQUAL 1 AND counts AND failed GREATER 0 AND NOT output MATCHES "test case CRASHED|threw exception")
    string(REGEX MATCHALL "MESSAGE: diagnosis: [^.,]+" diagnoses "${output}") # one a test case
    list(REMOVE_DUPLICATES diagnoses)
    list(TRANSFORM diagnoses REPLACE "MESSAGE: diagnosis: " "")
    list(JOIN diagnoses ", " diagnoses)
    set(${verdict} "red by ${diagnoses}" PARENT_SCOPE)
  else()
    set(${verdict} "neither green nor red, exit status ${status}:\n${output}" PARENT_SCOPE)
  endif()
endfunction()

function(expect_verdict mistake stage failures wanted)
  run_stage(${stage} ${failures} verdict)
  if(NOT verdict STREQUAL wanted)
    message(SEND_ERROR "mistake ${mistake}: stage ${stage} was expected to be ${wanted}, it is ${verdict}")
  endif()
endfunction()

# expect_red(mistake stage... [NAMED name] [GREEN stage...] [EXCEPT stage names...]): after EXCEPT, stages with what is
# named there instead.
function(expect_red mistake)
  cmake_parse_arguments(expected "" "NAMED" "GREEN;EXCEPT" ${ARGN})
  if(NOT expected_NAMED)
    set(expected_NAMED ${mistake})
  endif()
  set_property(GLOBAL APPEND PROPERTY planted ${mistake})
  set(ENV{DRIFTLESS_PLANTED} ${mistake})
  foreach(stage ${STAGES})
    list(FIND expected_EXCEPT ${stage} exception)
    if(NOT exception EQUAL -1)
      math(EXPR exception "${exception} + 1")
      list(GET expected_EXCEPT ${exception} named)
      expect_verdict(${mistake} ${stage} 12 "red by ${named}")
    elseif(stage IN_LIST expected_UNPARSED_ARGUMENTS)
      expect_verdict(${mistake} ${stage} 12 "red by ${expected_NAMED}")
    elseif(stage IN_LIST quick_stages OR stage IN_LIST expected_GREEN)
      expect_verdict(${mistake} ${stage} 12 green)
    endif()
  endforeach()
  message(STATUS "${mistake}: red are ${expected_UNPARSED_ARGUMENTS} ${expected_EXCEPT}")
endfunction()

expect_red(none GREEN ${STAGES})
expect_red(unusual GREEN ${STAGES}) # right, but written in another way
expect_red(unknown full-forward prefill full-decode-step per-step-identity NAMED none)
expect_red(left_over_from_earlier_call greedy-decode)

# The mask.
foreach(mistake mask_hides_own_position finite_mask mask_to_multiply)
  expect_red(${mistake} causal-mask)
endforeach()
expect_red(mask_not_rebuilt causal-mask greedy-recompute)
foreach(mistake no_mask mask_sees_one_ahead)
  expect_red(${mistake} causal-mask ${uncached_stages} ${cached_stages})
endforeach()
set(only_own "mask_transposed or past_unseen or cache_overwritten") # a single row sees but itself
expect_red(mask_transposed causal-mask ${uncached_stages} prefill greedy-decode
           EXCEPT attn-step ${only_own} full-decode-step ${only_own} per-step-identity "mask_transposed or past_unseen")

# The model.
foreach(mistake interleaved_heads qkv_split_by_head single_head keys_and_values_swapped queries_and_keys_swapped
                no_c_attn_bias unscaled_scores scaled_by_head_size scaled_by_width ignored_layer_scale no_softmax
                softmax_over_queries no_c_proj transposed_c_proj no_c_proj_bias first_layers_weights_for_all)
  expect_red(${mistake} ${uncached_stages} attn-step ${cached_stages})
endforeach()
foreach(mistake no_position_embedding positions_from_one same_position_for_all_rows no_ln_1 no_ln_2 ln_1_used_twice
                sample_variance fixed_epsilon epsilon_outside_root no_attention_residual no_mlp_residual
                residual_from_normed parallel_mlp no_activation no_mlp_biases first_layer_left_out last_layer_left_out
                no_final_layer_norm untransposed_head ignored_lm_head)
  expect_red(${mistake} ${uncached_stages} ${cached_stages})
endforeach()
# These change the logits, but need not change which is largest.
foreach(mistake erf_gelu tanh_gelu)
  expect_red(${mistake} full-forward prefill full-decode-step per-step-identity)
endforeach()

# The choice of ids.
foreach(mistake logits_of_first_row logits_of_row_before_last)
  expect_red(${mistake} greedy-recompute prefill per-step-identity greedy-decode)
endforeach()
foreach(mistake logits_of_prompts_last_row prompt_left_out)
  expect_red(${mistake} greedy-recompute)
endforeach()
foreach(mistake argmax_of_all_rows one_id_too_few one_id_too_many)
  expect_red(${mistake} greedy-recompute greedy-decode)
endforeach()
expect_red(last_index_on_ties greedy-recompute greedy-decode GREEN full-forward prefill full-decode-step
           per-step-identity)

# The cache.
foreach(mistake own_position_unseen own_position_unseen_after_first first_position_unseen mask_not_offset
                one_unfilled_row_seen unfilled_rows_seen)
  expect_red(${mistake} attn-step ${cached_stages})
endforeach()
expect_red(past_unseen greedy-decode EXCEPT attn-step ${only_own} prefill "past_unseen or cache_overwritten"
           full-decode-step ${only_own} per-step-identity "mask_transposed or past_unseen")
expect_red(cache_overwritten per-step-identity greedy-decode EXCEPT attn-step ${only_own} full-decode-step ${only_own})
# After a first token that is cached twice, the second is one position late; that both are seen twice changes nothing.
expect_red(rows_cached_twice full-decode-step per-step-identity greedy-decode
           EXCEPT prefill "rows_cached_twice, rows_cached_twice or position_one_late")
expect_red(decoded_rows_not_kept attn-step prefill per-step-identity greedy-decode)
expect_red(scaled_keys_cached prefill)
foreach(mistake one_cache_for_all_layers first_layers_cache_read position_one_early position_one_late
                length_counted_per_layer)
  expect_red(${mistake} ${cached_stages})
endforeach()
expect_red(position_restarted ${cached_stages} GREEN ${uncached_stages})
expect_red(position_not_advanced prefill per-step-identity greedy-decode)

# Generation.
foreach(mistake argmax_starts_at_zero decode_before_first_argmax decode_before_first_argmax_in_place
                decode_before_first_argmax_uncounted decode_before_first_argmax_in_place_uncounted prompt_fed_again
                last_prompt_id_left_out first_id_dropped previous_id_fed ids_decoded_twice prompt_in_result
                stops_after_end_of_text stops_before_end_of_text context_end_ignored)
  expect_red(${mistake} greedy-decode)
endforeach()
expect_red(full_context_has_no_next_id
           EXCEPT greedy-decode "one_id_too_few or full_context_has_no_next_id, full_context_has_no_next_id")

# Two at once.
set(ENV{DRIFTLESS_PLANTED} unscaled_scores+no_c_proj_bias)
foreach(stage full-forward attn-step prefill greedy-decode)
  expect_verdict(unscaled_scores+no_c_proj_bias ${stage} 12 "red by unscaled_scores and no_c_proj_bias")
endforeach()
# One of them shows earlier in the course.
set(ENV{DRIFTLESS_PLANTED} own_position_unseen+position_one_early)
expect_verdict(own_position_unseen+position_one_early attn-step 12 "red by own_position_unseen")
expect_verdict(own_position_unseen+position_one_early full-decode-step 12
               "red by own_position_unseen and position_one_early")
set(ENV{DRIFTLESS_PLANTED} prompt_in_result+previous_id_fed)
expect_verdict(prompt_in_result+previous_id_fed greedy-decode 12 "red by previous_id_fed and prompt_in_result")
# An unknown mistake beside a known one is not taken for two known ones.
set(ENV{DRIFTLESS_PLANTED} unknown+no_ln_1)
expect_verdict(unknown+no_ln_1 full-forward 12 "red by none")

# After a prompt of one token, two mistakes put the next one at position 0. Nobody can tell them apart by that.
set(ENV{DRIFTLESS_PLANTED} position_restarted)
expect_verdict(position_restarted full-decode-step 1 "red by position_restarted or position_one_early")

file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/plain_cached.hpp known REGEX "{Mistake::[a-z_0-9]+,")
list(TRANSFORM known REPLACE ".*{Mistake::([a-z_0-9]+),.*" "\\1")
file(READ ${CMAKE_CURRENT_LIST_DIR}/../../docs/mistakes.md documented)
foreach(mistake ${known})
  string(FIND "${documented}" "`${mistake}`" found)
  if(found EQUAL -1)
    message(SEND_ERROR "docs/mistakes.md does not list the known mistake ${mistake}")
  endif()
endforeach()
get_property(planted GLOBAL PROPERTY planted)
list(REMOVE_ITEM known ${planted})
if(known)
  message(SEND_ERROR "known mistakes that were not planted: ${known}")
endif()
