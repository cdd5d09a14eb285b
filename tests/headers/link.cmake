# Two translation units and a shared library, each with the whole library, become one program; nothing in it is a global
# that could change. Translation units for different processors, with different versions of the library, or of which only
# one has the bodies of its functions, cannot exchange its types by functions and variables; where a class of the user's
# hides them from the linker, those for different processors, and with different allocators of Eigen's, can.

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

file(WRITE ${WORK_DIR}/defines.cpp [[
#include <driftless/cache.hpp>
int heads(const driftless::Config& config) { return static_cast<int>(config.n_head); }
driftless::Config* config() { return nullptr; }
driftless::Config variable;
]])
file(WRITE ${WORK_DIR}/uses.cpp [[
#include <driftless/config.hpp>
int heads(const driftless::Config& config);
driftless::Config* config();
extern driftless::Config variable;
int main() { return config() == nullptr ? heads(variable) : 0; }
]])
built(-c defines.cpp -o defines.o)
built(-c uses.cpp -o uses.o)
built(defines.o uses.o -o same -pthread)

# refused(name namespace argument...): defines.o and what g++ makes of the arguments do not link, for what one uses has
# another name in the other.
function(refused name namespace)
  built(${ARGN} -c -o uses_${name}.o)
  compile(errors g++ defines.o uses_${name}.o -o mixed)
  foreach(symbol "heads\\(driftless::${namespace}::Config const&\\)" "config\\[abi:${namespace}\\]\\(\\)"
                 "variable\\[abi:${namespace}\\]")
    if(NOT errors MATCHES "undefined reference to .${symbol}")
      message(SEND_ERROR "${name}: ${symbol} was not refused:\n${errors}")
    endif()
  endforeach()
endfunction()

refused(compiled "[a-z0-9_]+_compiled_align_[0-9]+" -DDRIFTLESS_COMPILED uses.cpp)
file(WRITE ${WORK_DIR}/uses_version.cpp [[
#include <driftless/version.hpp>
#undef DRIFTLESS_VERSION_PATCH
#define DRIFTLESS_VERSION_PATCH 99
#include "uses.cpp"
]])
refused(version "v[0-9]+_[0-9]+_99_[a-z0-9_]+" uses_version.cpp)
if(PROCESSOR MATCHES "x86_64|AMD64")
  refused(avx2 "[a-z0-9_]+_in_headers_avx2" -mavx2 -mfma -mf16c uses.cpp)
endif()

# A class of the user's with members of the library's: its functions are compiled in engine.cpp, and its members are also
# changed and freed in engine_user.cpp.
file(WRITE ${WORK_DIR}/engine.hpp [[
#include <driftless/argmax.hpp>
#include <driftless/forward.hpp>
struct Engine {
  explicit Engine(int positions);
  int next(int id);
  driftless::Weights<> weights;
  driftless::ModelCache<> cache;
  driftless::Workspace<> workspace;
};
]])
file(WRITE ${WORK_DIR}/engine.cpp [[
#include "engine.hpp"
driftless::Config smallConfig(int positions) {
  driftless::Config config;
  config.n_layer = 2, config.n_head = 3, config.n_embd = 33, config.vocab_size = 70, config.n_positions = positions;
  return config;
}
Engine::Engine(int positions)
    : weights(driftless::randomParameters<float>(smallConfig(positions), 1), {.threads = driftless::Threads(2)}),
      cache(weights),
      workspace(weights.threads) {}
int Engine::next(int id) { return driftless::argmax(decodeStep(id, cache.length(), weights, cache, workspace)); }
]])
file(WRITE ${WORK_DIR}/engine_user.cpp [[
#include "engine.hpp"
int main() {
  Engine engine(80);
  int there = 0;
  for (int id = 0; id < 66; ++id) there = engine.next(id);
  engine.cache.truncate(65);
  engine.cache = engine.cache.clone();
  const int here = driftless::argmax(decodeStep(65, 65, engine.weights, engine.cache, engine.workspace));
  const std::vector<int> ids = {1, 2};
  const std::vector<driftless::Chunk<float>> chunks = {{ids, &engine.cache}};
  prefill(chunks, engine.weights, engine.workspace);
  driftless::Config wider = engine.weights.config;
  wider.vocab_size = 90;
  engine.weights = driftless::Weights<>(driftless::randomParameters<float>(wider, 2));
  engine.next(80);
  decodeStep(80, engine.cache.length(), engine.weights, engine.cache, engine.workspace);
  engine.workspace = driftless::Workspace<>(driftless::Threads(1));
  engine.next(3);
  return here == there && engine.cache.layer(1).keys().rows() == 71 ? 0 : 1;
}
]])
# AddressSanitizer checks what is allocated and freed. It is linked, not compiled in, for that changes Eigen's allocator.
set(mixtures "-DEIGEN_MAX_ALIGN_BYTES=32" "-DEIGEN_MAX_ALIGN_BYTES=64" "-DEIGEN_MALLOC_ALREADY_ALIGNED=0")
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo avx2 REGEX "^flags.* avx2 .*fma" LIMIT_COUNT 1)
  if(avx2)
    list(APPEND mixtures "-mavx2 -mfma -mf16c")
  endif()
endif()
built(-O1 -c engine_user.cpp -o engine_user.o)
foreach(mixture ${mixtures})
  separate_arguments(flags UNIX_COMMAND "${mixture}")
  built(-O1 ${flags} -c engine.cpp -o engine.o)
  built(-fsanitize=address engine.o engine_user.o -o engine -pthread)
  execute_process(COMMAND ${WORK_DIR}/engine RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "an engine compiled with ${mixture}: exit status ${status}\n${errors}")
  endif()
endforeach()
