# Two translation units and a shared library, each with the whole library, become one program; nothing in it is a global
# that could change; and translation units for different processors cannot exchange the library's types.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(g++)
require_compiler(nm)

# built(argument...): compiles or links, which must succeed.
function(built)
  compile(errors g++ -std=c++20 -O0 ${ARGN})
  if(errors)
    message(FATAL_ERROR "g++ ${ARGN}:\n${errors}")
  endif()
endfunction()

file(WRITE ${WORK_DIR}/library.cpp [[
#include <driftless/driftless.hpp>
int layers(const driftless::Config& config) { return static_cast<int>(driftless::randomParameters<float>(config, 1).h.size()); }
]])
file(WRITE ${WORK_DIR}/other.cpp [[
#include <driftless/driftless.hpp>
int positions(const driftless::Config& config) { return static_cast<int>(config.n_positions); }
]])
file(WRITE ${WORK_DIR}/program.cpp [[
#include <driftless/config.hpp>
#include <driftless/parameters.hpp>
int layers(const driftless::Config& config);
int positions(const driftless::Config& config);
int main() {
  driftless::Config config;
  config.n_layer = 2, config.n_head = 1, config.n_embd = config.n_inner = config.vocab_size = config.n_positions = 4;
  return layers(config) == 2 && positions(config) == 4 ? 0 : 1;
}
]])
built(-fPIC -c library.cpp -o library.o)
built(-shared library.o -o liblibrary.so)
built(-c other.cpp -o other.o)
built(-c program.cpp -o program.o)
built(program.o other.o library.o -o two_units -pthread)
built(program.o other.o -L. -llibrary -Wl,-rpath,${WORK_DIR} -o with_shared -pthread)
foreach(program two_units with_shared)
  execute_process(COMMAND ${WORK_DIR}/${program} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "${program}: exit status ${status}")
  endif()
endforeach()

execute_process(
  COMMAND nm -C ${WORK_DIR}/library.o
  OUTPUT_VARIABLE symbols
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9a-f]* [BbDdGgSsu] [^\n]*driftless::[^\n]*" globals "${symbols}")
list(FILTER globals EXCLUDE REGEX "vtable|typeinfo|DW\\.ref")
if(globals)
  list(JOIN globals "\n" globals)
  message(SEND_ERROR "globals that can change:\n${globals}")
endif()

file(WRITE ${WORK_DIR}/takes.cpp [[
#include <driftless/config.hpp>
int heads(const driftless::Config& config) { return static_cast<int>(config.n_head); }
]])
file(WRITE ${WORK_DIR}/gives.cpp [[
#include <driftless/config.hpp>
int heads(const driftless::Config& config);
int main() { return heads({}); }
]])
built(-c takes.cpp -o takes.o)
built(-c gives.cpp -o gives.o)
built(takes.o gives.o -o same_processor)
if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  built(-mavx2 -mfma -mf16c -c gives.cpp -o gives_avx2.o)
  compile(errors g++ takes.o gives_avx2.o -o mixed)
  if(NOT errors MATCHES "undefined reference to .heads\\(driftless::avx2_fused::Config const&\\)")
    message(SEND_ERROR "code for AVX2 was not refused by code that is not:\n${errors}")
  endif()
endif()
