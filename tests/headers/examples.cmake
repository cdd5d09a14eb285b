# The examples compile with the headers alone: all of them as one file, each in a namespace of its own.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(g++)

file(GLOB examples ${SOURCE_DIR}/examples/*.cpp)
set(includes "")
set(programs "")
foreach(example ${examples})
  file(STRINGS ${example} lines REGEX "^#include <")
  list(APPEND includes ${lines})
  get_filename_component(name ${example} NAME_WE)
  string(APPEND programs "namespace ${name}_example {\n#include \"${example}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES includes)
list(JOIN includes "\n" includes)
file(WRITE ${WORK_DIR}/examples.cpp "${includes}\n${programs}")
# A function called main in a namespace is a function like others.
built(-Wno-main -Wno-return-type -c examples.cpp -o examples.o)
