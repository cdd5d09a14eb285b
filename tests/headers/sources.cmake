# The files of src/, which the project compiles as one, can also be compiled one by one and linked: no function has its
# body in two of them, and none relies on what another includes.

include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
require_compiler(g++)

file(GLOB sources ${SOURCE_DIR}/src/*.cpp)
list(FILTER sources EXCLUDE REGEX "kernels_avx")
file(WRITE ${WORK_DIR}/program.cpp "int main() {}\n")
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  built(-DDRIFTLESS_COMPILED -c ${source} -o ${name}.o)
  list(APPEND objects ${name}.o)
endforeach()
built(program.cpp ${objects} -o program -pthread)
