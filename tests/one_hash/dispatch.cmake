# The compiled LIBRARY, whose kernels for all instruction sets print one hash; and the PROGRAM on an emulated processor that
# has none of them but the first. A set that this processor lacks is left out, which is said; the last that it has must be
# the program's own choice.

file(MAKE_DIRECTORY ${WORK_DIR})
set(sse2_needs sse2)
set(avx2_needs avx2 fma f16c)
set(avx2_vnni_needs ${avx2_needs} avx_vnni)
set(avx512_needs ${avx2_needs} avx512f avx512bw avx512dq avx512vl)
set(avx512_vnni_needs ${avx512_needs} avx512_vnni)
file(STRINGS /proc/cpuinfo features REGEX "^flags" LIMIT_COUNT 1)
execute_process(
  COMMAND ${COMPILER} -std=c++20 -O1 -DDRIFTLESS_COMPILED -I${SOURCE_DIR}/include -isystem ${EIGEN_INCLUDE_DIR}
          ${SOURCE_DIR}/tests/one_hash/logits_hash.cpp ${LIBRARY} -pthread -o ${WORK_DIR}/logits_hash
  COMMAND_ERROR_IS_FATAL ANY)
file(READ ${SOURCE_DIR}/fixtures/one-hash.json hashes)
foreach(kernels sse2 avx2 avx2_vnni avx512 avx512_vnni)
  set(missing "")
  foreach(feature ${${kernels}_needs})
    if(NOT features MATCHES " ${feature}( |$)")
      list(APPEND missing ${feature})
    endif()
  endforeach()
  if(missing)
    message("${kernels}: left out, this processor has no ${missing}")
    continue()
  endif()
  set(best ${kernels})
  set(ENV{DRIFTLESS_KERNELS} ${kernels})
  foreach(model odd quantized tales-gpt2)
    string(JSON expected GET "${hashes}" ${model})
    set(argument ${model})
    if(model STREQUAL tales-gpt2)
      set(argument ${SOURCE_DIR}/fixtures/${model})
    endif()
    execute_process(
      COMMAND ${WORK_DIR}/logits_hash ${argument}
      OUTPUT_VARIABLE actual
      ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT actual STREQUAL expected)
      message(SEND_ERROR "${kernels}, ${model}: expected the hash ${expected}, got ${actual}${error}")
    else()
      message("${kernels}, ${model}: ${actual}")
    endif()
  endforeach()
endforeach()

set(ENV{DRIFTLESS_KERNELS} "")
execute_process(COMMAND ${PROGRAM} info OUTPUT_VARIABLE info COMMAND_ERROR_IS_FATAL ANY)
if(NOT info MATCHES "vector instructions +${best}\n")
  message(SEND_ERROR "expected the program to choose ${best}:\n${info}")
endif()
set(ENV{DRIFTLESS_KERNELS} mmx)
execute_process(COMMAND ${PROGRAM} info ERROR_VARIABLE error RESULT_VARIABLE status OUTPUT_QUIET)
if(NOT status EQUAL 2 OR NOT error MATCHES "DRIFTLESS_KERNELS: expected .*sse2 on this processor, got \"mmx\"")
  message(SEND_ERROR "kernels that there are not: status ${status}: ${error}")
endif()
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
