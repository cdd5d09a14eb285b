include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/driftless)

# install_component(target name): the target, and the file from which driftlessConfig.cmake imports it.
function(install_component target name)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS ${target} EXPORT driftless-${name})
  install(
    EXPORT driftless-${name}
    NAMESPACE driftless::
    FILE driftless-${name}-targets.cmake
    DESTINATION ${package_dir})
endfunction()

# install_pkg_config(name destination): the file is relative to itself, so that the installed tree may be moved.
function(install_pkg_config name destination)
  foreach(dir INCLUDE LIB)
    file(RELATIVE_PATH to_${dir} ${CMAKE_INSTALL_PREFIX}/${destination} ${CMAKE_INSTALL_FULL_${dir}DIR})
  endforeach()
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${destination})
endfunction()

install(
  DIRECTORY include/driftless
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING
  PATTERN *.hpp)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/driftless)
install_component(driftless headers)
install_pkg_config(driftless ${CMAKE_INSTALL_DATADIR}/pkgconfig)

set(any_architecture ARCH_INDEPENDENT)
if(DRIFTLESS_BUILD_COMPILED)
  install_component(driftless_compiled compiled)
  install_pkg_config(driftless-compiled ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  set(any_architecture "")
endif()
if(DRIFTLESS_BUILD_TOOLS)
  file(RELATIVE_PATH to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(driftless_cli PROPERTIES INSTALL_RPATH $ORIGIN/${to_lib}) # for a shared driftless::compiled
  install(TARGETS driftless_cli)
  install(
    DIRECTORY fixtures/tales-gpt2/
    DESTINATION ${DRIFTLESS_MODEL_DIR}
    PATTERN goldens EXCLUDE)
  find_program(DRIFTLESS_HELP2MAN help2man)
  if(DRIFTLESS_HELP2MAN AND NOT CMAKE_CROSSCOMPILING) # it runs the program
    add_custom_command(
      OUTPUT driftless.1
      COMMAND ${DRIFTLESS_HELP2MAN} --no-info --help-option=--help-all --output=driftless.1
              "--name=${PROJECT_DESCRIPTION}" $<TARGET_FILE:driftless_cli>
      DEPENDS driftless_cli
      VERBATIM)
    add_custom_target(driftless_man ALL DEPENDS driftless.1)
    install(FILES ${PROJECT_BINARY_DIR}/driftless.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL) # if all was built
  else()
    message(STATUS "There will be no man page: it takes help2man")
  endif()
endif()

configure_file(cmake/driftlessConfig.cmake.in driftlessConfig.cmake @ONLY)
write_basic_package_version_file(driftlessConfigVersion.cmake COMPATIBILITY SameMinorVersion ${any_architecture})
install(FILES ${PROJECT_BINARY_DIR}/driftlessConfig.cmake ${PROJECT_BINARY_DIR}/driftlessConfigVersion.cmake
        DESTINATION ${package_dir})

if(driftless_fetched)
  list(JOIN driftless_fetched " and " names)
  message(STATUS "Installing driftless will not install the fetched ${names}: its users must bring them")
endif()

# `cpack -G DEB` makes a package for Debian and what descends from it.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_VENDOR "driftless")
  set(CPACK_PACKAGE_CONTACT "the driftless developers")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libeigen3-dev, nlohmann-json3-dev") # for those who compile against it
  include(CPack)
endif()
