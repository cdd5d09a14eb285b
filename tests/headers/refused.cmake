# Options that would give other bits, and standards before C++20, are refused with an error of ours that stands first.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(${COMPILER})

file(WRITE ${WORK_DIR}/all.cpp "#include <driftless/driftless.hpp>\n")

# refused(message argument...)
function(refused message)
  compile(output ${COMPILER} -fsyntax-only ${ARGN} all.cpp)
  string(REGEX MATCHALL "error: [^\n]*" errors "${output}")
  list(GET errors 0 first)
  if(NOT first MATCHES "${message}")
    message(SEND_ERROR "${ARGN}: expected the error \"${message}\", got:\n${output}")
  endif()
  set(errors "${errors}" PARENT_SCOPE)
endfunction()

refused("driftless needs C\\+\\+20" -std=c++17)
list(LENGTH errors count)
if(count GREATER 2) # ours, and the one that ends the compilation
  message(SEND_ERROR "-std=c++17: ${count} errors, expected no more than two:\n${errors}")
endif()

foreach(option -ffast-math -ffinite-math-only)
  refused("identical bits, which -ffast-math voids" -std=c++20 ${option})
endforeach()
if(COMPILER STREQUAL g++) # clang++ does not tell of these, or does not have them
  refused("identical bits, which -ffast-math voids" -std=c++20 -fno-signed-zeros)
  refused("identical bits, which -fsingle-precision-constant voids" -std=c++20 -fsingle-precision-constant)
  if(PROCESSOR MATCHES "x86_64|AMD64")
    refused("identical bits, which -mfpmath=387 voids" -std=c++20 -mfpmath=387)
  endif()
endif()
