# Proves that the stages can fail and that they name the mistake that makes them fail:
# cmake -DPROGRAM=<driftless_planted> -DSTAGES=<list> -P planted_mistakes.cmake
#
# Runs the stages on the implementation in plain_cached.cpp, without a mistake and with each. The stages that a mistake
# concerns must go red, by a failed check and not by a crash, and their diagnosis must name this mistake and no other.
# The others must stay green; those that take long are asked for one mistake of each kind.

cmake_minimum_required(VERSION 3.22...3.28)

set(quick_stages causal-mask attn-step)
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
    string(REGEX MATCHALL "diagnosis: [^.,]+" diagnoses "${output}") # one a test case
    list(REMOVE_DUPLICATES diagnoses)
    list(TRANSFORM diagnoses REPLACE "diagnosis: " "")
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

# expect_red(mistake stage... [NAMED name] [GREEN stage...])
function(expect_red mistake)
  cmake_parse_arguments(expected "" "NAMED" "GREEN" ${ARGN})
  if(NOT expected_NAMED)
    set(expected_NAMED ${mistake})
  endif()
  set_property(GLOBAL APPEND PROPERTY planted ${mistake})
  set(ENV{DRIFTLESS_PLANTED} ${mistake})
  foreach(stage ${STAGES})
    if(stage IN_LIST expected_UNPARSED_ARGUMENTS)
      expect_verdict(${mistake} ${stage} 12 "red by ${expected_NAMED}")
    elseif(stage IN_LIST quick_stages OR stage IN_LIST expected_GREEN)
      expect_verdict(${mistake} ${stage} 12 green)
    endif()
  endforeach()
  message(STATUS "${mistake}: red are ${expected_UNPARSED_ARGUMENTS}")
endfunction()

expect_red(none GREEN ${STAGES})
expect_red(mask_hides_own_position causal-mask)
expect_red(no_mask causal-mask full-forward greedy-recompute ${cached_stages})
expect_red(position_restarted ${cached_stages} GREEN full-forward greedy-recompute)
foreach(mistake position_one_early position_one_late one_cache_for_all_layers)
  expect_red(${mistake} ${cached_stages})
endforeach()
expect_red(mask_not_offset attn-step ${cached_stages})
foreach(mistake interleaved_heads qkv_split_by_head keys_and_values_swapped unscaled_scores)
  expect_red(${mistake} full-forward greedy-recompute attn-step ${cached_stages})
endforeach()
foreach(mistake no_attention_residual no_mlp_residual sample_variance no_final_layer_norm untransposed_head
                ignored_lm_head)
  expect_red(${mistake} full-forward greedy-recompute ${cached_stages})
endforeach()
# These two change the logits, but need not change which is largest.
expect_red(erf_gelu full-forward prefill full-decode-step per-step-identity)
expect_red(unknown full-forward prefill full-decode-step per-step-identity NAMED none)
expect_red(argmax_of_all_rows greedy-recompute greedy-decode)
expect_red(last_index_on_ties greedy-recompute greedy-decode GREEN full-forward prefill full-decode-step
           per-step-identity)
expect_red(decode_before_first_argmax greedy-decode)
expect_red(prompt_fed_again greedy-decode)

# After a prompt of one token, two mistakes put the next one at position 0. Nobody can tell them apart by that.
set(ENV{DRIFTLESS_PLANTED} position_restarted)
expect_verdict(position_restarted full-decode-step 1 "red by position_restarted or position_one_early")

file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/plain_cached.hpp known REGEX "{Mistake::[a-z_]+, \"")
list(TRANSFORM known REPLACE ".*{Mistake::([a-z_]+),.*" "\\1")
get_property(planted GLOBAL PROPERTY planted)
list(REMOVE_ITEM known ${planted})
if(known)
  message(SEND_ERROR "known mistakes that were not planted: ${known}")
endif()
