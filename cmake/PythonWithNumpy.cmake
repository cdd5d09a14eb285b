# Sets `python` to the first Python in PATH or, if that one lacks NumPy, to the system's: Debian's NumPy is for Debian's
# Python. Not set where there is no Python.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  set(python ${Python3_EXECUTABLE})
  execute_process(COMMAND ${python} -c "import numpy" RESULT_VARIABLE lacks_numpy OUTPUT_QUIET ERROR_QUIET)
  if(lacks_numpy AND EXISTS /usr/bin/python3)
    set(python /usr/bin/python3)
  endif()
endif()
