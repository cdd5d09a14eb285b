# What our own binaries are compiled with and users of the library are not.
set(CMAKE_CXX_EXTENSIONS OFF)
add_library(driftless_own_flags INTERFACE)
if(NOT MSVC)
  target_compile_options(driftless_own_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion
                                                       $<$<BOOL:${DRIFTLESS_WARNINGS_AS_ERRORS}>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # False alarms of GCC 12: in its own AVX-512 intrinsics (GCC bug 105593) and in std::string (105651).
  target_compile_options(driftless_own_flags INTERFACE -Wno-uninitialized -Wno-maybe-uninitialized -Wno-restrict)
endif()
if(DRIFTLESS_NATIVE)
  # Some compilers for AArch64 do not know the flag. They lose nothing: NEON and fused multiply-add are in its baseline.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native DRIFTLESS_HAS_MARCH_NATIVE)
  target_compile_options(driftless_own_flags INTERFACE $<$<BOOL:${DRIFTLESS_HAS_MARCH_NATIVE}>:-march=native>)
endif()
