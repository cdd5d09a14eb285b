# Files that are compiled for processors with more instructions than everybody's offer the linker nothing but kernels: a
# function of Eigen or the standard library that was not inlined there could take the place of everybody's.

foreach(object ${OBJECTS})
  if(NOT object MATCHES "kernels_(avx[0-9]+(_vnni)?)")
    continue()
  endif()
  set(vectors ${CMAKE_MATCH_1})
  execute_process(
    COMMAND nm -C --defined-only --extern-only ${object}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
  if(NOT symbols MATCHES "multiplyPanel|multiplyQuantized")
    message(SEND_ERROR "${object} has no kernels")
  endif()
  list(FILTER symbols EXCLUDE REGEX "detail::${vectors}::|KernelSet|VnniKernels")
  if(symbols)
    list(JOIN symbols "\n" symbols)
    message(SEND_ERROR "${object}: what is not a kernel:\n${symbols}")
  endif()
  set(looked_at ${object})
endforeach()
if(NOT looked_at)
  message("[skipped] the library is built for one processor")
endif()
