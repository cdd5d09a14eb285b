# Compiles and runs the C++ of README.md in WORK_DIR. The first block is a whole program, compiled by the README's own
# line; the README must show what it prints. The others are fragments, which fragments.cpp makes a program of, one after
# another.

foreach(needed /usr/include/eigen3/Eigen/Core /usr/include/nlohmann/json.hpp)
  if(NOT EXISTS ${needed})
    message("[skipped] the README's compiler line is for Debian with its packages, and there is no ${needed}")
    return()
  endif()
endforeach()
find_program(compiler g++)
if(NOT compiler)
  message("[skipped] no g++ on this machine")
  return()
endif()

# next_block(language into): the next fenced block of `rest`, which moves past it; empty if there is none.
macro(next_block language into)
  set(${into} "")
  set(fence "```${language}\n")
  string(FIND "${rest}" "${fence}" begin)
  if(NOT begin EQUAL -1)
    string(LENGTH "${fence}" length)
    math(EXPR begin "${begin} + ${length}")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "```" length)
    string(SUBSTRING "${rest}" 0 ${length} ${into})
    string(SUBSTRING "${rest}" ${length} -1 rest)
  endif()
endmacro()

file(READ ${SOURCE_DIR}/README.md readme)
set(rest "${readme}")
next_block(cpp hello)
next_block(sh hello_line)
file(WRITE ${WORK_DIR}/hello.cpp "${hello}")
file(WRITE ${WORK_DIR}/fragments.inc "")
next_block(cpp fragment)
while(fragment)
  file(APPEND ${WORK_DIR}/fragments.inc "${fragment}")
  next_block(cpp fragment)
endwhile()

foreach(folder include fixtures)
  file(CREATE_LINK ${SOURCE_DIR}/${folder} ${WORK_DIR}/${folder} SYMBOLIC)
endforeach()

# run(COMMAND...): in WORK_DIR, as a reader would in the repository; what it prints goes to `output`.
macro(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK_DIR} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
endmacro()

run(sh -c "${hello_line}")
run(./hello)
string(STRIP "${output}" story)
string(FIND "${readme}" "${story}" position)
if(story STREQUAL "" OR position EQUAL -1)
  message(FATAL_ERROR "expected a story that README.md shows, got: ${output}")
endif()

run(${compiler} -std=c++20 -Wall -Wextra -I. -Iinclude -isystem /usr/include/eigen3
    ${SOURCE_DIR}/tests/readme/fragments.cpp -o fragments -pthread)
run(./fragments)
