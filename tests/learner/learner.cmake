# Proves that examples/learner asks for what is to be written and that writing it is enough:
# cmake -D STARTING_POINT=<program> -D SOLVED=<program> -P learner.cmake
#
# One program grades the starting point as it stands, the other a solution. Every stage must be red with the first, by a
# message that says what to do, and green with the second.

cmake_minimum_required(VERSION 3.22...3.28)

# expect(stage function): `function` is the one that is asked for first.
function(expect stage function)
  execute_process(COMMAND ${STARTING_POINT} --test-suite=${stage} --no-skip RESULT_VARIABLE status OUTPUT_VARIABLE output)
  if(NOT status EQUAL 1 OR NOT output MATCHES "test cases: +[1-9][0-9]* \\| +0 passed" OR output MATCHES "CRASHED")
    message(SEND_ERROR "starting point: all of stage ${stage} was expected to be red, got status ${status}:\n${output}")
  endif()
  string(REGEX MATCH "to do: [^\n]*" asked_for "${output}")
  if(NOT asked_for MATCHES "^to do: ${function}: ")
    message(SEND_ERROR "starting point: stage ${stage} was expected to ask for ${function} first, got:\n${output}")
  endif()

  execute_process(COMMAND ${SOLVED} --test-suite=${stage} --no-skip RESULT_VARIABLE status OUTPUT_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output MATCHES "test cases: +[1-9]")
    message(SEND_ERROR "solution: stage ${stage} was expected to be green, got status ${status}:\n${output}")
  endif()
  message(STATUS "${stage}: asks for ${function}, and is green when all is written")
endfunction()

expect(causal-mask buildCausalMask)
expect(full-forward fullForward)
expect(greedy-recompute greedyDecode)
expect(attn-step attnStep)
expect(prefill ModelCache)
expect(full-decode-step ModelCache)
expect(per-step-identity ModelCache)
expect(greedy-decode argmax)
