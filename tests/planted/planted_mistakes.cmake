# Proves that the stages can fail: cmake -DPROGRAM=<driftless_planted> -P planted_mistakes.cmake
#
# Runs every stage on the implementation in plain_cached.hpp, once without a mistake and once with each. The stages that
# a mistake concerns must go red, by a failed check and not by a crash; all others must stay green.

cmake_minimum_required(VERSION 3.22...3.28)

set(stages
    causal-mask
    full-forward
    greedy-recompute
    attn-step
    prefill
    full-decode-step
    per-step-identity
    greedy-decode)
set(cached_stages prefill full-decode-step per-step-identity greedy-decode)

# run_stage(stage verdict) sets `verdict` to green, red or what else happened.
function(run_stage stage verdict)
  execute_process(
    COMMAND ${PROGRAM} --test-suite=${stage} --no-skip --abort-after=1
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  string(REGEX MATCH "assertions: +[0-9]+ \\| +([0-9]+) passed \\| +([0-9]+) failed" counts "${output}")
  set(passed ${CMAKE_MATCH_1})
  set(failed ${CMAKE_MATCH_2})
  if(status EQUAL 0 AND counts AND passed GREATER 0 AND failed EQUAL 0)
    set(${verdict} green PARENT_SCOPE)
  elseif(status EQUAL 1 AND counts AND failed GREATER 0 AND NOT output MATCHES "test case CRASHED|threw exception")
    set(${verdict} red PARENT_SCOPE)
  else()
    set(${verdict} "neither green nor red, exit status ${status}:\n${output}" PARENT_SCOPE)
  endif()
endfunction()

# expect_red(mistake [stage...] [UNCERTAIN stage...]): where a mistake is uncertain, it changes logits by more than the
# tolerance, but need not change which is largest.
function(expect_red mistake)
  cmake_parse_arguments(expected "" "" "UNCERTAIN" ${ARGN})
  set(ENV{DRIFTLESS_PLANTED} ${mistake})
  foreach(stage ${stages})
    if(stage IN_LIST expected_UNCERTAIN)
      continue()
    endif()
    set(wanted green)
    if(stage IN_LIST expected_UNPARSED_ARGUMENTS)
      set(wanted red)
    endif()
    run_stage(${stage} verdict)
    if(NOT verdict STREQUAL wanted)
      message(SEND_ERROR "mistake ${mistake}: stage ${stage} was expected to be ${wanted}, it is ${verdict}")
    endif()
  endforeach()
  message(STATUS "${mistake}: red are ${expected_UNPARSED_ARGUMENTS}")
endfunction()

expect_red(none)
expect_red(position_restarted ${cached_stages})
expect_red(position_off_by_one ${cached_stages})
expect_red(one_cache_for_all_layers ${cached_stages})
expect_red(no_final_layer_norm full-forward greedy-recompute ${cached_stages})
expect_red(no_mask_in_chunk full-forward greedy-recompute ${cached_stages})
expect_red(erf_gelu full-forward prefill full-decode-step per-step-identity UNCERTAIN greedy-recompute greedy-decode)
expect_red(last_index_on_ties greedy-recompute greedy-decode)
expect_red(unscaled_scores full-forward greedy-recompute attn-step ${cached_stages})
expect_red(mask_hides_own_position causal-mask)
