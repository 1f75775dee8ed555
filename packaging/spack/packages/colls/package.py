import os

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Colls(CMakePackage):
    """Collective communication (all_reduce, broadcast, all_to_all, ...) between threads, processes, hosts and GPUs. A
    schedule is a type that the compiler proves right for every rank; header-only C++20."""

    # There is no archive to download. The sources are the project's own tree, from its top:
    #     spack repo add packaging/spack && spack dev-build --source-path . colls@VERSION
    license("Apache-2.0")

    version("0.2.0")

    variant("tools", default=True, description="Programs that prove, price, draw and time schedules")
    variant("mpi", default=True, description="libcolls_mpi.so, which runs the collectives of unchanged MPI programs")
    variant("c", default=True, description="colls.h and libcolls.so, the calls for C")
    variant("verbs", default=False, description="RDMA in colls_perf")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("rdma-core", when="+verbs")
    with when("+tools"):
        depends_on("cli11@2:", type="build")
        depends_on("fmt@9:")
        depends_on("nlohmann-json", type="build")
        depends_on("pugixml")
        depends_on("range-v3@0.12:", type="build")

    requires("%gcc@12:", "%clang@19:", policy="one_of", msg="colls needs g++ 12 or clang 19")
    requires("target=x86_64:", "target=aarch64:", policy="one_of", msg="colls needs a target of 64 bits")
    conflicts("platform=darwin", msg="colls runs on Linux alone")
    conflicts("platform=windows", msg="colls runs on Linux alone")

    def cmake_args(self):
        return [
            self.define("COLLS_BUILD_TESTS", False),
            self.define("COLLS_BUILD_EXAMPLES", False),
            self.define("COLLS_BUILD_BENCHMARKS", False),
            self.define_from_variant("COLLS_BUILD_TOOLS", "tools"),
            self.define_from_variant("COLLS_BUILD_MPI_CLIENT", "mpi"),
            self.define_from_variant("COLLS_BUILD_C_CLIENT", "c"),
            self.define_from_variant("COLLS_MPI", "mpi"),
            self.define_from_variant("COLLS_VERBS", "verbs"),
        ]

    @run_after("install")
    def keep_consumer(self):
        cache_extra_test_sources(self, join_path("tests", "consumer"))

    def test_consumer(self):
        """compiles and runs a program with the installed headers"""
        program = join_path(self.test_suite.current_test_cache_dir, "tests", "consumer", "main.cpp")
        compiler = which(os.environ["CXX"], required=True)
        compiler("-std=c++20", "-pthread", f"-I{self.prefix.include}", program, "-o", "consumer")
        which(join_path(".", "consumer"), required=True)()
