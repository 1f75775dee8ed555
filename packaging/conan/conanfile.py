"""colls for Conan 2. The version is read from the headers; the sources are those of the project that this file lies in."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"


class Colls(ConanFile):
    name = "colls"
    description = "Collective communication whose schedules are proven at compile time: threads, processes, hosts, GPUs"
    license = "Apache-2.0"
    topics = ("collectives", "all-reduce", "mpi", "hpc", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    # separate: what is behind the calls, compiled once (colls::colls), beside the headers alone (colls::header_only).
    options = {"separate": [True, False]}
    default_options = {"separate": True}

    @property
    def _project(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        config = load(self, os.path.join(self._project, "include", "colls", "config.hpp"))
        self.version = ".".join(re.findall(r"^#define COLLS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", config, re.M))

    def export_sources(self):
        for kept in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, kept, self._project, self.export_sources_folder)

    def configure(self):
        self.package_type = "static-library" if self.options.separate else "header-library"

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("colls runs on Linux alone")
        if self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("colls needs a target of 64 bits: x86_64 or armv8")

    def package_id(self):
        if not self.info.options.separate:
            self.info.settings.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS", "TOOLS", "MPI_CLIENT", "C_CLIENT"):
            toolchain.cache_variables[f"COLLS_BUILD_{part}"] = False
        for dependency in ("MPI", "VERBS"):
            toolchain.cache_variables[f"COLLS_{dependency}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.separate:
            cmake.build(target="colls_separate")

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        # Conan makes the files by which CMake and pkg-config find a package.
        rmdir(self, os.path.join(self.package_folder, "share"))
        copy(self, "*.a", self.build_folder, os.path.join(self.package_folder, "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "colls")
        self._component("header_only").system_libs = ["pthread"]
        compiled = self._component("colls", "header_only")
        if self.options.separate:
            compiled.libs = ["colls_separate"]
            compiled.defines = ["COLLS_SEPARATE"]
            for name in ("separate", "dynamic"):  # its names of version 0.2
                self._component(name, "colls")

    def _component(self, name, *requires):
        component = self.cpp_info.components[name]
        component.set_property("cmake_target_name", f"colls::{name}")
        component.requires = list(requires)
        component.bindirs = []
        return component
