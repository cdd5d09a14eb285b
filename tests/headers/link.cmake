# Two translation units and a shared library, each with the whole library, become one program; nothing in it is a global
# that could change; and translation units for different processors, with different versions of the library, or of which
# only one has the bodies of its functions, cannot exchange its types.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(g++)
require_compiler(objdump)

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
  config.n_layer = 2, config.n_head = 1, config.n_embd = config.vocab_size = config.n_positions = 4;
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

no_globals(library.o)

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
built(takes.o gives.o -o same)

# refused(name namespace argument...): takes.o and what g++ makes of the arguments do not link, for they call the library
# by different names.
function(refused name namespace)
  built(${ARGN} -c -o gives_${name}.o)
  compile(errors g++ takes.o gives_${name}.o -o mixed)
  if(NOT errors MATCHES "undefined reference to .heads\\(driftless::${namespace}::Config const&\\)")
    message(SEND_ERROR "${name}: was not refused:\n${errors}")
  endif()
endfunction()

refused(compiled "[a-z0-9_]+_compiled" -DDRIFTLESS_COMPILED gives.cpp)
file(WRITE ${WORK_DIR}/gives_version.cpp [[
#include <driftless/version.hpp>
#undef DRIFTLESS_VERSION_PATCH
#define DRIFTLESS_VERSION_PATCH 99
#include "gives.cpp"
]])
refused(version "v[0-9]+_[0-9]+_99_[a-z0-9_]+" gives_version.cpp)
if(PROCESSOR MATCHES "x86_64|AMD64")
  refused(avx2 "[a-z0-9_]+_avx2_fused_[a-z_]+" -mavx2 -mfma -mf16c gives.cpp)
endif()
