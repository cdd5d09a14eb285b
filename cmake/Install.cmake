include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Nothing here depends on the architecture, so all of it goes under share.
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/driftless)

target_include_directories(driftless INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(
  DIRECTORY include/driftless
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING
  PATTERN *.hpp)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/driftless)

install(TARGETS driftless EXPORT driftless)
install(
  EXPORT driftless
  NAMESPACE driftless::
  FILE driftlessTargets.cmake
  DESTINATION ${package_dir})
configure_file(cmake/driftlessConfig.cmake.in driftlessConfig.cmake @ONLY)
write_basic_package_version_file(driftlessConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/driftlessConfig.cmake ${PROJECT_BINARY_DIR}/driftlessConfigVersion.cmake
        DESTINATION ${package_dir})

# Relative to the file itself, so that the installed tree may be moved.
file(RELATIVE_PATH pkgconfig_to_include ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/driftless.pc.in driftless.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/driftless.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)

if(driftless_fetched)
  list(JOIN driftless_fetched " and " names)
  message(STATUS "Installing driftless will not install the fetched ${names}: its users must bring them")
endif()
