# colls::mpi: groups over MPI, compiled over colls::colls; colls::mpi_header_only: over colls::header_only. In the source tree, and
# installed as a component of the package, whose user finds the MPI.
if(NOT TARGET colls::mpi)
    # As colls::mpi itself, seen by all directories.
    set(colls_targets_global ${CMAKE_FIND_PACKAGE_TARGETS_GLOBAL})
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)
    find_package(MPI QUIET COMPONENTS CXX)
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ${colls_targets_global})
    unset(colls_targets_global)
    if(MPI_CXX_FOUND)
        add_library(colls::mpi_header_only INTERFACE IMPORTED GLOBAL)
        target_link_libraries(colls::mpi_header_only INTERFACE colls::header_only MPI::MPI_CXX)
        add_library(colls_mpi_separate STATIC EXCLUDE_FROM_ALL "${COLLS_SOURCE_FOLDER}/mpi.cpp")
        add_library(colls::mpi ALIAS colls_mpi_separate)
        add_library(colls::mpi_separate ALIAS colls_mpi_separate)   # its name of version 0.2
        set_target_properties(colls_mpi_separate PROPERTIES POSITION_INDEPENDENT_CODE ON)
        target_link_libraries(colls_mpi_separate PUBLIC colls::colls MPI::MPI_CXX)
    endif()
endif()
if(NOT TARGET colls::mpi)
    set(colls_mpi_FOUND FALSE)
    set(colls_mpi_NOT_FOUND_MESSAGE "it needs an MPI for C++, and none was found")
endif()
