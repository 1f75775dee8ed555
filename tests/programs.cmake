# The test programs: how each is compiled, and colls_test(), by which the CMakeLists.txt of each folder lists its own.

# The group size up to which the compiler proves each family. With 16 a file takes twice as long to compile as with 8, and the
# proof at run time goes further; scripts/test --long uses 16.
set(proven_to 8)
if(COLLS_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(proven_to 4)
endif()
if(COLLS_TEST_LONG)
    set(proven_to 16)
endif()

# OPTIMISED: what the optimiser makes of atomics and loops in headers is part of what the program tests. COMPUTING: it computes much.
# The others wait for the library, which is compiled apart: not optimised, they take half the time to compile, with clang's sanitizers
# a third.
set(COLLS_TEST_OPTIONS -O0 CACHE STRING "Compiler options of the others")
set(colls_test_levels OFF)
if(COLLS_OPTIMISE_ENGINE OR COLLS_SANITIZE)
    set(colls_test_levels ON)
endif()
set(optimised_options "$<IF:$<BOOL:${COLLS_OPTIMISE_ENGINE}>,-O2,-O1>")
set(computing_options "$<$<BOOL:${colls_test_levels}>:-O1>")
set(plain_options "$<$<BOOL:${colls_test_levels}>:${COLLS_TEST_OPTIONS}>")

add_library(colls_test_main OBJECT main.cpp support/limit.cpp)
set_source_files_properties(main.cpp support/limit.cpp PROPERTIES COMPILE_OPTIONS -O0)  # all of Catch2 2.13 takes 20 s at -O2
target_link_libraries(colls_test_main PUBLIC colls_development Catch2::Catch2)
if(TARGET Catch2::Catch2WithMain)
    target_link_libraries(colls_test_main PUBLIC Catch2::Catch2WithMain)
    target_compile_definitions(colls_test_main PRIVATE COLLS_TEST_CATCH_HAS_MAIN)
endif()
target_compile_definitions(colls_test_main PUBLIC COLLS_TEST_PROVEN_TO=${proven_to})
if(COLLS_SANITIZE MATCHES "thread")
    find_program(COLLS_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer)
    if(COLLS_SYMBOLIZER)
        target_compile_definitions(colls_test_main PRIVATE COLLS_TEST_SYMBOLIZER="${COLLS_SYMBOLIZER}")
    endif()
endif()
# Catch2 and the standard library, parsed once a build tree; and the same with the calls, for the programs that make some.
foreach(kind IN ITEMS precompiled precompiled_calls precompiled_computing)
    add_library(colls_test_${kind} OBJECT support/precompiled.cpp)
    target_link_libraries(colls_test_${kind} PRIVATE colls_development Catch2::Catch2)
    target_compile_definitions(colls_test_${kind} PRIVATE COLLS_TEST_PROVEN_TO=${proven_to})
    if(kind STREQUAL "precompiled_computing")
        target_compile_options(colls_test_${kind} PRIVATE ${computing_options})
        target_precompile_headers(colls_test_${kind} PRIVATE support/precompiled_calls.hpp)
    else()
        target_compile_options(colls_test_${kind} PRIVATE ${plain_options})
        target_precompile_headers(colls_test_${kind} PRIVATE support/${kind}.hpp)
    endif()
endforeach()

# What several tests use and takes long to compile.
add_library(colls_test_support STATIC EXCLUDE_FROM_ALL support/matrix.cpp support/schedules.cpp)
target_link_libraries(colls_test_support PRIVATE colls_development)
set_source_files_properties(support/matrix.cpp PROPERTIES COMPILE_OPTIONS "$<$<BOOL:${COLLS_OPTIMISE_ENGINE}>:-O1>")
set_source_files_properties(support/schedules.cpp PROPERTIES COMPILE_OPTIONS "${plain_options}")

# scripts/test-verbs runs programs that are linked to ${over_networks} over verbs, on machines with a device; tests of ofi/ run them over
# libfabric, those of failures/ with TLS.
set(over_networks $<TARGET_NAME_IF_EXISTS:colls_with_verbs> $<TARGET_NAME_IF_EXISTS:colls_with_ofi>
                  $<TARGET_NAME_IF_EXISTS:colls_with_tls>)

# colls_test(NAME ...): the program NAME_test.cpp of this folder, and its test NAME_test. Before the file's name, NAME may have that of a
# folder: schedules/ring is ring_test.cpp, the target schedules_ring_test, and the test schedules/ring_test.
#     QUICK              scripts/test --quick has it
#     BEYOND_DEFAULT     scripts/test --all has it, the default suite not: what it tests other tests of the suite test, too (on another
#                        transport, with more calls, at larger sizes), or it is a product beside the library
#     LONG               scripts/test --long alone has it: more of the same
#     NOT_UNDER          sanitizers that would find nothing in it: address, thread, or sanitizers for all
#     LONG_UNDER         likewise, where only the long run has it
#     NEEDS              targets without which it is left out
#     OPTIMISED, COMPUTING    see above
#     WITHOUT_CALLS      names of collectives in its scope would mean two things beside the calls
#     WITHOUT_PRECOMPILED     it has options that the precompiled headers have not
#     LIBRARIES, DEFINITIONS, PROGRAMS    what it is linked to, macros, and the targets that it runs
#     CASES              arguments: the cases that run
function(colls_test test)
    cmake_parse_arguments(PARSE_ARGV 1 its "QUICK;BEYOND_DEFAULT;LONG;OPTIMISED;COMPUTING;WITHOUT_CALLS;WITHOUT_PRECOMPILED" ""
        "NOT_UNDER;LONG_UNDER;NEEDS;LIBRARIES;DEFINITIONS;PROGRAMS;CASES")
    if(its_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "colls_test(${test}) does not know ${its_UNPARSED_ARGUMENTS}")
    endif()
    set(name ${test}_test)
    cmake_path(GET name FILENAME file)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file}.cpp)
    set_property(GLOBAL APPEND PROPERTY COLLS_TEST_SOURCES ${source})
    foreach(library IN LISTS its_NEEDS)
        if(NOT TARGET ${library})
            return()
        endif()
    endforeach()
    if(NOT COLLS_TEST_LONG)
        list(APPEND its_NOT_UNDER ${its_LONG_UNDER})
    endif()
    foreach(sanitizer IN LISTS its_NOT_UNDER)
        if(COLLS_SANITIZE MATCHES "${sanitizer}" OR (COLLS_SANITIZE AND sanitizer STREQUAL "sanitizers"))
            return()
        endif()
    endforeach()
    if((its_LONG AND NOT COLLS_TEST_LONG) OR NOT name MATCHES "${COLLS_TEST_ONLY}")
        return()
    endif()

    string(REPLACE "/" "_" target ${name})
    add_executable(${target} ${source})
    # All programs beside each other, whatever their folder.
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${colls_test_programs})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tools/colls)
    target_link_libraries(${target} PRIVATE colls_test_main colls_test_support ${its_LIBRARIES})
    target_compile_definitions(${target} PRIVATE ${its_DEFINITIONS})
    set(level plain)
    set(precompiled precompiled_calls)
    if(its_WITHOUT_CALLS)
        set(precompiled precompiled)
    endif()
    if(colls_test_levels AND its_OPTIMISED)
        set(level optimised)
        set(precompiled "")
    elseif(colls_test_levels AND its_COMPUTING)
        set(level computing)
        set(precompiled precompiled_computing)
        if(its_WITHOUT_CALLS)
            set(precompiled "")
        endif()
    endif()
    target_compile_options(${target} PRIVATE ${${level}_options})
    if(precompiled AND NOT its_WITHOUT_PRECOMPILED)
        target_precompile_headers(${target} REUSE_FROM colls_test_${precompiled})
    endif()

    add_test(NAME ${COLLS_TEST_PREFIX}${name} COMMAND ${target} ${its_CASES})
    set_tests_properties(${COLLS_TEST_PREFIX}${name} PROPERTIES TIMEOUT ${colls_test_hour} LABELS suite)
    set(limit ${COLLS_TEST_TIMEOUT})
    if(its_PROGRAMS)
        add_dependencies(${target} ${its_PROGRAMS})
    endif()
    if(NOT its_BEYOND_DEFAULT AND NOT its_LONG)
        colls_in_default(${name} ${target})
    elseif(NOT COLLS_SANITIZE)
        set(limit 600)   # some compile programs
    endif()
    if(its_QUICK)
        add_dependencies(colls_quick ${target})
        set_property(TEST ${COLLS_TEST_PREFIX}${name} APPEND PROPERTY LABELS quick)
    endif()
    set_property(TEST ${COLLS_TEST_PREFIX}${name} PROPERTY ENVIRONMENT COLLS_TEST_LIMIT=${limit})
    if(COLLS_TEST_LONG)
        set_property(TEST ${COLLS_TEST_PREFIX}${name} APPEND PROPERTY ENVIRONMENT COLLS_TEST_LONG=1)
    endif()
endfunction()
