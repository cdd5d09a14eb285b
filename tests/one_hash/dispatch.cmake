# The compiled LIBRARY, whose kernels for all instruction sets print one hash; and the PROGRAM on an emulated processor that
# has none of them but the first. A set that this processor lacks is left out, which is said.

file(MAKE_DIRECTORY ${WORK_DIR})
execute_process(
  COMMAND ${COMPILER} -std=c++20 -O1 ${FLAGS} -DDRIFTLESS_COMPILED -I${SOURCE_DIR}/include -isystem ${EIGEN_INCLUDE_DIR}
          ${SOURCE_DIR}/tests/one_hash/logits_hash.cpp ${LIBRARY} -pthread -o ${WORK_DIR}/logits_hash
  COMMAND_ERROR_IS_FATAL ANY)
file(READ ${SOURCE_DIR}/fixtures/one-hash.json hashes)
foreach(kernels ${KERNELS})
  set(ENV{DRIFTLESS_KERNELS} ${kernels})
  foreach(model odd tales-gpt2)
    string(JSON expected GET "${hashes}" ${model})
    set(argument ${model})
    if(NOT model STREQUAL odd)
      set(argument ${SOURCE_DIR}/fixtures/${model})
    endif()
    execute_process(
      COMMAND ${WORK_DIR}/logits_hash ${argument}
      OUTPUT_VARIABLE actual
      ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(error MATCHES "DRIFTLESS_KERNELS: expected .* on this processor")
      message("${kernels}: left out, ${error}")
    elseif(NOT actual STREQUAL expected)
      message(SEND_ERROR "${kernels}, ${model}: expected the hash ${expected}, got ${actual}${error}")
    else()
      message("${kernels}, ${model}: ${actual}")
    endif()
  endforeach()
endforeach()

set(ENV{DRIFTLESS_KERNELS} "")
find_program(emulator qemu-x86_64)
if(NOT emulator)
  message("no qemu-x86_64: a processor without AVX is left out")
  return()
endif()
execute_process(
  COMMAND ${emulator} -cpu Nehalem ${PROGRAM} generate "Once upon a time" -n 8
  OUTPUT_VARIABLE tale
  ERROR_VARIABLE error
  RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0 OR NOT tale STREQUAL ", when the young man was in the")
  message(SEND_ERROR "without AVX: status ${status}: ${tale}${error}")
endif()
