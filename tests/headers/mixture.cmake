# A translation unit with the bodies from the headers and one that uses the compiled LIBRARY, both compiled with FLAGS,
# become one program, in which each computes the same bits.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(g++)
require_compiler(objdump)
no_globals(${LIBRARY})

file(WRITE ${WORK_DIR}/unit.cpp [[
#include <driftless/driftless.hpp>
#include <string>
#include <vector>
std::vector<float> NAME(const std::string& directory) {
  const auto weights = driftless::loadWeights(directory);
  driftless::ModelCache<float> cache(weights);
  const auto ids = driftless::Tokenizer::load(directory).encode("Once upon a time");
  const driftless::Matrix<float> logits = driftless::prefillLogits(ids, weights, cache);
  return {logits.data(), logits.data() + logits.size()};
}
]])
file(WRITE ${WORK_DIR}/program.cpp [[
#include <cstring>
#include <string>
#include <vector>
std::vector<float> withBodies(const std::string& directory);
std::vector<float> compiled(const std::string& directory);
int main(int, char** argv) {
  const auto a = withBodies(argv[1]), b = compiled(argv[1]);
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0 ? 0 : 1;
}
]])
built(${FLAGS} -DNAME=withBodies -c unit.cpp -o with_bodies.o)
built(${FLAGS} -DNAME=compiled -DDRIFTLESS_COMPILED -c unit.cpp -o compiled.o)
built(${FLAGS} program.cpp with_bodies.o compiled.o ${LIBRARY} -o mixture -pthread)
execute_process(COMMAND ${WORK_DIR}/mixture ${SOURCE_DIR}/fixtures/tales-gpt2 RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(SEND_ERROR "the same bits were expected of both: exit status ${status}")
endif()
