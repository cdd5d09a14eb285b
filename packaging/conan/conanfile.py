"""Packages the tree that it lies in: conan create packaging/conan -s compiler.cppstd=20 --build=missing"""

import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy

required_conan_version = ">=2.0"


class DriftlessConan(ConanFile):
    name = "driftless"
    version = "0.1.0"
    description = "KV-cached GPT-2 inference over Eigen whose cache never drifts"
    license = "MIT"
    topics = ("gpt-2", "inference", "kv-cache", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        copy(self, "LICENSE", root, self.export_sources_folder)
        copy(self, "include/*.hpp", root, self.export_sources_folder)

    def requirements(self):
        self.requires("eigen/3.4.0")
        self.requires("nlohmann_json/3.11.3")

    def validate(self):
        check_min_cppstd(self, 20)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "include/*.hpp", self.source_folder, self.package_folder)

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
