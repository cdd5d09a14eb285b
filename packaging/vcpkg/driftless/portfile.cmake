# An overlay port, which packages the tree that it lies in: vcpkg install driftless --overlay-ports=packaging/vcpkg, or
# driftless[compiled] for driftless::compiled beside the headers.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS feature_options FEATURES compiled DRIFTLESS_BUILD_COMPILED)
if(NOT "compiled" IN_LIST FEATURES)
  set(VCPKG_BUILD_TYPE release) # headers only
endif()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DDRIFTLESS_BUILD_TOOLS=OFF -DDRIFTLESS_BUILD_TESTS=OFF
                                                           ${feature_options})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/driftless)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
if(NOT "compiled" IN_LIST FEATURES)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib") # has held the CMake package only
endif()

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
