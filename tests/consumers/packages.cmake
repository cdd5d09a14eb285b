# The Conan recipe and the vcpkg port in PACKAGING_DIR name VERSION, and the port installs what vcpkg expects. That is
# seen without vcpkg: its functions are played by those below.

cmake_minimum_required(VERSION 3.22...3.28)

file(STRINGS ${PACKAGING_DIR}/conan/conanfile.py recipe_version REGEX "^    version = ")
if(NOT recipe_version STREQUAL "    version = \"${VERSION}\"")
  message(FATAL_ERROR "conanfile.py has not version ${VERSION}: ${recipe_version}")
endif()

file(READ ${PACKAGING_DIR}/vcpkg/driftless/vcpkg.json manifest)
string(JSON port_version GET "${manifest}" version)
if(NOT port_version STREQUAL VERSION)
  message(FATAL_ERROR "vcpkg.json has not version ${VERSION}: ${port_version}")
endif()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 port "" "SOURCE_PATH" "OPTIONS")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${port_SOURCE_PATH} -B ${WORK_DIR}/build -G ${GENERATOR} ${OPTIONS}
                          -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} ${port_OPTIONS} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build --target install COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 port "" "CONFIG_PATH" "")
  file(RENAME ${CURRENT_PACKAGES_DIR}/${port_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/driftless)
endfunction()

function(vcpkg_check_features)
  cmake_parse_arguments(PARSE_ARGV 0 port "" "OUT_FEATURE_OPTIONS" "FEATURES")
  set(${port_OUT_FEATURE_OPTIONS} -DDRIFTLESS_BUILD_COMPILED=OFF PARENT_SCOPE)
endfunction()

function(vcpkg_fixup_pkgconfig)

endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 port "" "" "FILE_LIST")
  file(COPY_FILE ${port_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/driftless/copyright)
endfunction()

set(CURRENT_PORT_DIR ${PACKAGING_DIR}/vcpkg/driftless)
set(CURRENT_PACKAGES_DIR ${WORK_DIR}/packages)
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR})
include(${CURRENT_PORT_DIR}/portfile.cmake)

foreach(file include/driftless/driftless.hpp share/driftless/driftlessConfig.cmake share/pkgconfig/driftless.pc)
  if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/${file})
    message(FATAL_ERROR "The vcpkg port does not install ${file}")
  endif()
endforeach()
