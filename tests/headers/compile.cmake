# Included by the scripts: compile(output compiler argument...) runs the compiler in WORK_DIR with the include paths, and
# sets `output` to what it printed, "" where it was content.

cmake_minimum_required(VERSION 3.22...3.28)
file(MAKE_DIRECTORY ${WORK_DIR})

macro(require_compiler compiler)
  find_program(found_${compiler} ${compiler})
  if(NOT found_${compiler})
    message(STATUS "[skipped] there is no ${compiler}")
    return()
  endif()
endmacro()

function(compile output compiler)
  set(flags -I${SOURCE_DIR}/include -Wall -Wextra -Werror)
  foreach(dir ${SYSTEM_DIRS})
    list(APPEND flags -isystem ${dir})
  endforeach()
  execute_process(
    COMMAND ${compiler} ${flags} ${ARGN}
    WORKING_DIRECTORY ${WORK_DIR}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE printed
    ERROR_VARIABLE printed)
  if(status EQUAL 0)
    set(printed "")
  elseif(printed STREQUAL "")
    set(printed "exit status ${status}")
  endif()
  set(${output} "${printed}" PARENT_SCOPE)
endfunction()

# built(argument...): compiles or links, which must succeed.
function(built)
  compile(errors g++ -std=c++20 -O0 ${ARGN})
  if(errors)
    message(FATAL_ERROR "g++ ${ARGN}:\n${errors}")
  endif()
endfunction()

# no_globals(file): fails if an object file or library has a global of ours that could change, other than the choice of
# kernels, which is made once.
function(no_globals file)
  execute_process(
    COMMAND objdump -tC ${file}
    WORKING_DIRECTORY ${WORK_DIR}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "O \\.t?(bss|data)[^\n]*driftless::[^\n]*" globals "${symbols}")
  list(FILTER globals EXCLUDE REGEX "O \\.data\\.rel\\.ro|kernelSet\\(\\)::set")
  if(globals)
    list(JOIN globals "\n" globals)
    message(SEND_ERROR "${file}: globals that can change:\n${globals}")
  endif()
endfunction()
