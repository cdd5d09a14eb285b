include(FetchContent)

# driftless_dependency(target package version URL url SHA256 hash INCLUDE_DIR dir)
#
# Makes the header-only `target` available: the one that a parent project has defined, else an installed `package` of at
# least `version`, else the headers in folder INCLUDE_DIR of the pinned archive; driftless_fetched lists the packages
# that came so. Imported, so its headers give no warnings. A macro, since what a package's configuration sets (doctest:
# the path of its CMake module) is for the caller.
macro(driftless_dependency target package version)
  cmake_parse_arguments(dependency "" "URL;SHA256;INCLUDE_DIR" "" ${ARGN})
  if(NOT TARGET ${target})
    find_package(${package} ${version} CONFIG QUIET)
  endif()
  if(NOT TARGET ${target})
    message(STATUS "Fetching ${dependency_URL}")
    string(TOLOWER ${package} dependency_name)
    # A SOURCE_SUBDIR that does not exist keeps the archive's own CMake project, with its tests and options, out of ours.
    FetchContent_Declare(
      ${dependency_name}
      URL ${dependency_URL}
      URL_HASH SHA256=${dependency_SHA256}
      SOURCE_SUBDIR headers-only)
    FetchContent_MakeAvailable(${dependency_name})
    list(APPEND driftless_fetched ${package})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} INTERFACE ${${dependency_name}_SOURCE_DIR}/${dependency_INCLUDE_DIR})
  endif()
endmacro()
