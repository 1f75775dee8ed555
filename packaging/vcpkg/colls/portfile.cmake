# Headers, and sources that CMake compiles in the tree of the program (colls::colls). The port lies in the project's own tree, and
# takes its sources from there: vcpkg install colls --overlay-ports=packaging/vcpkg
get_filename_component(project "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
if(NOT EXISTS "${project}/include/colls/config.hpp")
    message(FATAL_ERROR "colls: there is no ${project}/include/colls/config.hpp: the port has to stay in packaging/vcpkg of colls' source tree")
endif()

set(SOURCE_PATH "${CURRENT_BUILDTREES_DIR}/src/colls")
file(REMOVE_RECURSE "${SOURCE_PATH}")
file(COPY "${project}/CMakeLists.txt" "${project}/LICENSE" "${project}/cmake" "${project}/include" DESTINATION "${SOURCE_PATH}")

set(VCPKG_BUILD_TYPE release)     # no file differs between the two
set(VCPKG_FIXUP_ELF_RPATH OFF)    # there are no programs and no libraries
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DCOLLS_BUILD_TESTS=OFF
        -DCOLLS_BUILD_EXAMPLES=OFF
        -DCOLLS_BUILD_BENCHMARKS=OFF
        -DCOLLS_BUILD_TOOLS=OFF
        -DCOLLS_BUILD_MPI_CLIENT=OFF
        -DCOLLS_BUILD_C_CLIENT=OFF
        -DCOLLS_MPI=OFF
        -DCOLLS_VERBS=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/colls)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc" "${CURRENT_PACKAGES_DIR}/share/cmake")

file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
