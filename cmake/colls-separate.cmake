# colls::separate: units include the declarations of calls and groups alone; the definitions are a static library, compiled
# once in a build tree, with its compiler and flags. Part of the source tree, and of the installed package.
if(NOT TARGET colls_separate)
    get_filename_component(colls_sources "${COLLS_SOURCE_FOLDER}" ABSOLUTE)
    add_library(colls_separate STATIC EXCLUDE_FROM_ALL "${colls_sources}/calls.cpp" "${colls_sources}/network.cpp"
                                                       "${colls_sources}/folds.cpp")
    add_library(colls::separate ALIAS colls_separate)
    target_compile_definitions(colls_separate PUBLIC COLLS_SEPARATE)
    set_target_properties(colls_separate PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(colls_separate PUBLIC colls::colls)

    # Beside it, the calls of dynamic.hpp, for the programs that link it.
    add_library(colls_dynamic STATIC EXCLUDE_FROM_ALL "${colls_sources}/dynamic.cpp")
    add_library(colls::dynamic ALIAS colls_dynamic)
    set_target_properties(colls_dynamic PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(colls_dynamic PUBLIC colls::separate)
endif()
