# What a consumer may rely on; broken, each stops its configuration.

function(expect_no_flags_exported)
  foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS LINK_OPTIONS)
    get_target_property(exported driftless::driftless INTERFACE_${property})
    if(exported)
      message(FATAL_ERROR "driftless::driftless exports ${property}: ${exported}")
    endif()
  endforeach()
endfunction()

# In the build of another project the library is the only target of directory `source_dir`, and all options are off.
function(expect_nothing_else_built source_dir)
  get_directory_property(targets DIRECTORY ${source_dir} BUILDSYSTEM_TARGETS)
  if(NOT targets STREQUAL driftless)
    message(FATAL_ERROR "driftless adds the targets ${targets}")
  endif()
endfunction()

# Options that driftless, or what it includes, adds to the cache: all prefixed, and off.
function(expect_only_prefixed_options)
  get_directory_property(names CACHE_VARIABLES)
  foreach(name ${names})
    get_property(
      type
      CACHE ${name}
      PROPERTY TYPE)
    if(NOT type STREQUAL BOOL OR name MATCHES "^(CMAKE|FETCHCONTENT)_")
      continue()
    endif()
    if(NOT name MATCHES "^DRIFTLESS_" OR $CACHE{${name}})
      message(FATAL_ERROR "driftless sets ${name} to $CACHE{${name}}")
    endif()
  endforeach()
endfunction()
