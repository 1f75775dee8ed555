# Options for the project's own programs alone, not for those of its users: warnings, sanitizers, a compiler cache.

find_program(COLLS_CCACHE ccache)
mark_as_advanced(COLLS_CCACHE)
if(COLLS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${COLLS_CCACHE})
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Finds the packages that a part of the project needs, given as NAME=DEBIAN_PACKAGE. Sets colls_missing to those that are missing, and
# prints which to install; the caller then leaves the part out.
function(colls_find part)
    set(missing "")
    set(packages "")
    foreach(library IN LISTS ARGN)
        string(REGEX MATCH "^([^=]+)=(.+)$" library "${library}")
        find_package(${CMAKE_MATCH_1} QUIET)
        if(NOT ${CMAKE_MATCH_1}_FOUND)
            list(APPEND missing ${CMAKE_MATCH_1})
            list(APPEND packages ${CMAKE_MATCH_2})
        endif()
    endforeach()
    set(colls_missing ${missing} PARENT_SCOPE)
    if(missing)
        list(JOIN missing ", " missing)
        list(JOIN packages " " packages)
        message(STATUS "colls: left out, since ${missing} was not found: ${part} (install ${packages})")
    endif()
endfunction()

# A list, since tests that call the compiler directly use the same warnings.
set(colls_warnings -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow)
if(COLLS_WERROR)
    list(APPEND colls_warnings -Werror)
endif()

# gold links such programs in a third of the time. g++ compiles them in five sixths of it if it collects its garbage less often, and
# takes 0.9 GB for the largest instead of 0.7.
set(less_garbage_collection "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=gold COLLS_GOLD)
    set(less_garbage_collection --param=ggc-min-heapsize=524288)
endif()

# The project's programs include declarations of calls alone; the definitions are compiled once in a build tree, with these flags.
add_library(colls_flags INTERFACE)
target_compile_features(colls_flags INTERFACE cxx_std_20)
target_compile_options(colls_flags INTERFACE ${colls_warnings} ${less_garbage_collection})
target_link_options(colls_flags INTERFACE $<$<BOOL:${COLLS_GOLD}>:-fuse-ld=gold>)
if(COLLS_SANITIZE)
    target_compile_options(colls_flags INTERFACE -DCOLLS_CHECK_INDICES)
    set(sanitizers -fsanitize=${COLLS_SANITIZE})
    if(COLLS_SANITIZE MATCHES "undefined")
        list(APPEND sanitizers -fno-sanitize-recover=undefined)
    endif()
    target_compile_options(colls_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer)
    target_link_options(colls_flags INTERFACE ${sanitizers})
endif()
target_link_libraries(colls_separate PRIVATE colls_flags)
if(COLLS_OPTIMISE_ENGINE)
    target_compile_options(colls_separate PRIVATE -O2)
endif()
if(TARGET colls_mpi_separate)
    target_link_libraries(colls_mpi_separate PRIVATE colls_flags)
endif()
add_library(colls_development INTERFACE)
target_link_libraries(colls_development INTERFACE colls::colls colls_flags)

# colls_with_verbs, colls_with_ofi, colls_with_tls: what is linked to one has that beside TCP. (Their headers set themselves up.)
foreach(header IN ITEMS transports/verbs transports/ofi tls)
    get_filename_component(network ${header} NAME)
    if(TARGET colls::${network})
        set(source ${CMAKE_CURRENT_BINARY_DIR}/networks/${network}.cpp)
        file(CONFIGURE OUTPUT ${source} CONTENT "#include <colls/${header}.hpp>\n")
        add_library(colls_with_${network} OBJECT EXCLUDE_FROM_ALL ${source})
        set_target_properties(colls_with_${network} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                               VISIBILITY_INLINES_HIDDEN ON)
        target_link_libraries(colls_with_${network} PUBLIC colls_development colls::${network})
    endif()
endforeach()

# <colls/colls.hpp>, precompiled where g++ finds it before the header itself: programs that include it first, and are not optimised,
# take a third of the time to compile. (Another way than target_precompile_headers, by which a program compiles without its includes.)
set(colls_precompiled_flags -std=c++20 -Wpedantic -DCOLLS_SEPARATE)
if(COLLS_OPTIMISE_ENGINE AND NOT COLLS_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(colls_precompiled ${PROJECT_BINARY_DIR}/precompiled)
    set(made ${colls_precompiled}/colls/colls.hpp.gch)
    set(header ${PROJECT_SOURCE_DIR}/include/colls/colls.hpp)
    file(MAKE_DIRECTORY ${colls_precompiled}/colls)
    add_custom_command(OUTPUT ${made} DEPFILE ${made}.d DEPENDS ${header} VERBATIM
        COMMAND ${CMAKE_CXX_COMPILER} ${colls_precompiled_flags} -w -I${PROJECT_SOURCE_DIR}/include -MD -MF ${made}.d -MT ${made}
                -x c++-header ${header} -o ${made})
    add_custom_target(colls_precompiled DEPENDS ${made})
endif()
# Programs of few lines, of which the includes take most of the time.
function(colls_small_program target)
    if(TARGET colls_precompiled)
        target_compile_options(${target} PRIVATE -O0)
        target_include_directories(${target} BEFORE PRIVATE ${colls_precompiled})
        add_dependencies(${target} colls_precompiled)
        # What the compiler says that it read does not name a header in there.
        get_target_property(sources ${target} SOURCES)
        set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS ${colls_precompiled}/colls/colls.hpp.gch)
    endif()
endfunction()

# So many files of a program are compiled as one unit, since most of a file's time goes into the headers of its libraries.
function(colls_in_units target files_each)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files_each})
endfunction()

# Charts as SVG files, for the examples, the tools, the benchmarks and their tests.
find_package(fmt QUIET)
if(fmt_FOUND)
    set(charts ${PROJECT_SOURCE_DIR}/examples/common)
    add_library(colls_charts STATIC EXCLUDE_FROM_ALL ${charts}/gantt.cpp ${charts}/plot.cpp ${charts}/svg.cpp)
    target_link_libraries(colls_charts PUBLIC colls_flags fmt::fmt)
endif()
