# colls::pmix: groups by launchers with PMIx (colls/pmix.hpp). Debian keeps it apart, where pkg-config finds it.
if(NOT TARGET colls::pmix)
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(COLLS_PMIX QUIET pmix)
    endif()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/library-component.cmake")
colls_library_component(pmix pmix pmix.h)
