# Every header, or the umbrella alone, as HEADERS says, compiles as the first and only one, included twice, in strict mode;
# and the umbrella among macros that other people's headers are known to define.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(${COMPILER})

file(GLOB_RECURSE headers RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*.hpp)
set(umbrella driftless/driftless.hpp)
if(NOT umbrella IN_LIST headers)
  message(FATAL_ERROR "${umbrella} is missing from ${SOURCE_DIR}/include")
endif()

set(checked ${headers})
if(HEADERS STREQUAL "umbrella")
  set(checked ${umbrella})
endif()
set(strict -std=c++${STANDARD} -pedantic-errors -fsyntax-only)
foreach(header ${checked})
  # Without bodies, which would bring what a public header lacks; detail/ has the bodies.
  set(bodies -DDRIFTLESS_COMPILED)
  if(header MATCHES "/detail/")
    set(bodies "")
  endif()
  file(WRITE ${WORK_DIR}/twice.cpp "#include \"${header}\"\n#include \"${header}\"\n")
  compile(errors ${COMPILER} ${strict} ${bodies} twice.cpp)
  if(errors)
    message(SEND_ERROR "${header} alone:\n${errors}")
  endif()
endforeach()

# Our own lines must stand these macros, not those of the libraries, which therefore come first.
set(libraries "")
foreach(header ${headers})
  file(STRINGS ${SOURCE_DIR}/include/${header} includes REGEX "^#include <")
  list(APPEND libraries ${includes})
endforeach()
list(REMOVE_DUPLICATES libraries)
list(FILTER libraries EXCLUDE REGEX "windows\\.h|immintrin\\.h|arm_neon\\.h|the rest is left out")
list(JOIN libraries "\n" libraries)
set(macros "")
foreach(macro "min(a, b) ((a) < (b) ? (a) : (b))" "max(a, b) ((a) > (b) ? (a) : (b))" near far "small char" "ERROR 0"
              "I _Complex_I")
  string(APPEND macros "#define ${macro}\n")
endforeach()
file(WRITE ${WORK_DIR}/hostile.cpp "${libraries}\n${macros}#include \"${umbrella}\"\n")
compile(errors ${COMPILER} ${strict} hostile.cpp)
if(errors)
  message(SEND_ERROR "${umbrella} after hostile macros:\n${errors}")
endif()
