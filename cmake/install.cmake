# Install rules: headers, exported target, package configuration with a version file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# No file in here depends on the architecture.
set(package_folder ${CMAKE_INSTALL_DATADIR}/cmake/colls)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/colls DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp"
        PATTERN "src/*.cpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/colls)
# For builds without CMake. Relative, so that the folder may be moved.
file(RELATIVE_PATH colls_to_include ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/colls.pc.in ${PROJECT_BINARY_DIR}/colls.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/colls.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
install(TARGETS colls_header_only EXPORT colls-targets)
install(EXPORT colls-targets NAMESPACE colls:: DESTINATION ${package_folder})
set(COLLS_SOURCE_FOLDER ${CMAKE_INSTALL_INCLUDEDIR}/colls/src)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/colls-config.cmake.in ${PROJECT_BINARY_DIR}/colls-config.cmake
                              INSTALL_DESTINATION ${package_folder} PATH_VARS COLLS_SOURCE_FOLDER NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/colls-config-version.cmake VERSION ${PROJECT_VERSION}
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/colls-config.cmake ${PROJECT_BINARY_DIR}/colls-config-version.cmake
        ${CMAKE_CURRENT_LIST_DIR}/colls-separate.cmake ${CMAKE_CURRENT_LIST_DIR}/colls-mpi.cmake
        ${CMAKE_CURRENT_LIST_DIR}/colls-cuda.cmake ${CMAKE_CURRENT_LIST_DIR}/colls-verbs.cmake
        ${CMAKE_CURRENT_LIST_DIR}/colls-tls.cmake ${CMAKE_CURRENT_LIST_DIR}/colls-ofi.cmake
        ${CMAKE_CURRENT_LIST_DIR}/colls-pmix.cmake ${CMAKE_CURRENT_LIST_DIR}/library-component.cmake DESTINATION ${package_folder})
