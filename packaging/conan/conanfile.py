"""Packages the tree that it lies in: conan create packaging/conan -s compiler.cppstd=20 --build=missing

The headers, target driftless::driftless; with -o "driftless/*:header_only=False" the library driftless::compiled.
"""

import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir

required_conan_version = ">=2.0"


class DriftlessConan(ConanFile):
    name = "driftless"
    version = "0.2.0"
    description = "KV-cached GPT-2 inference over Eigen whose cache never drifts"
    license = "MIT"
    topics = ("gpt-2", "inference", "kv-cache", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    options = {"header_only": [True, False], "shared": [True, False], "fPIC": [True, False]}
    default_options = {"header_only": True, "shared": False, "fPIC": True}
    implements = ["auto_shared_fpic", "auto_header_only"]
    no_copy_source = True

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("LICENSE", "CMakeLists.txt", "cmake/*", "docs/CMakeLists.txt", "include/*.hpp", "src/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        self.requires("eigen/3.4.0", transitive_headers=True)
        self.requires("nlohmann_json/3.11.3", transitive_headers=bool(self.options.header_only))

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["DRIFTLESS_BUILD_TOOLS"] = False
        toolchain.cache_variables["DRIFTLESS_BUILD_TESTS"] = False
        toolchain.cache_variables["DRIFTLESS_BUILD_COMPILED"] = not self.options.header_only
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share"))
        for folder in ("cmake", "pkgconfig"):  # Conan writes its own
            rmdir(self, os.path.join(self.package_folder, "lib", folder))

    def package_info(self):
        if self.options.header_only:
            self.cpp_info.bindirs = []
            self.cpp_info.libdirs = []
        else:
            self.cpp_info.set_property("cmake_target_name", "driftless::compiled")
            self.cpp_info.set_property("pkg_config_name", "driftless-compiled")
            self.cpp_info.libs = ["driftless_compiled"]
            self.cpp_info.defines = ["DRIFTLESS_COMPILED"]
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
