# Builds logits_hash.cpp with COMPILER and FLAGS (a list), runs it, through EMULATOR if given, and compares what it
# prints with fixtures/one-hash.json. Skips, saying why, where the compiler, the
# emulator or a processor feature named in NEEDS is not there.

find_program(compiler ${COMPILER})
if(NOT compiler)
  message("[skipped] no ${COMPILER} on this machine")
  return()
endif()
if(EMULATOR)
  find_program(emulator ${EMULATOR})
  if(NOT emulator)
    message("[skipped] no ${EMULATOR} on this machine")
    return()
  endif()
endif()
if(NEEDS)
  set(features "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo features REGEX "^flags" LIMIT_COUNT 1)
  endif()
  foreach(feature ${NEEDS})
    if(NOT features MATCHES " ${feature}( |$)")
      message("[skipped] this processor does not say that it has ${feature}")
      return()
    endif()
  endforeach()
endif()

# A folder of their own, for a cross-compiler must not see the other headers that lie beside these.
file(MAKE_DIRECTORY ${WORK_DIR}/include)
file(CREATE_LINK ${JSON_INCLUDE_DIR}/nlohmann ${WORK_DIR}/include/nlohmann SYMBOLIC)
file(CREATE_LINK ${EIGEN_INCLUDE_DIR}/Eigen ${WORK_DIR}/include/Eigen SYMBOLIC)
execute_process(
  COMMAND ${compiler} -std=c++20 ${FLAGS} -I${SOURCE_DIR}/include -isystem ${WORK_DIR}/include
          ${SOURCE_DIR}/tests/one_hash/logits_hash.cpp -pthread -o ${WORK_DIR}/logits_hash COMMAND_ERROR_IS_FATAL ANY)

file(READ ${SOURCE_DIR}/fixtures/one-hash.json hashes)
foreach(model odd quantized tales-gpt2)
  string(JSON expected GET "${hashes}" ${model})
  set(argument ${model})
  if(model STREQUAL tales-gpt2)
    set(argument ${SOURCE_DIR}/fixtures/${model})
  endif()
  execute_process(
    COMMAND ${emulator} ${WORK_DIR}/logits_hash ${argument}
    OUTPUT_VARIABLE actual OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT actual STREQUAL expected)
    message(FATAL_ERROR "${model}: expected the hash ${expected}, got ${actual}")
  endif()
  message("${model}: ${actual}")
endforeach()
