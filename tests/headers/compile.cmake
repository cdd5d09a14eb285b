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
