# colls::colls: units include the declarations of calls and groups alone; the definitions are a static library, compiled once in a
# build tree, with its compiler and flags. Part of the source tree, and of the installed package.
if(NOT TARGET colls_separate)
    get_filename_component(colls_sources "${COLLS_SOURCE_FOLDER}" ABSOLUTE)
    add_library(colls_separate STATIC EXCLUDE_FROM_ALL "${colls_sources}/calls.cpp" "${colls_sources}/network.cpp"
                                                       "${colls_sources}/folds.cpp" "${colls_sources}/dynamic.cpp")
    target_compile_definitions(colls_separate PUBLIC COLLS_SEPARATE)
    set_target_properties(colls_separate PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(colls_separate PUBLIC colls::header_only)
    # The last two are its names of version 0.2, of which the second had the calls of dynamic.hpp alone.
    foreach(name IN ITEMS colls separate dynamic)
        add_library(colls::${name} ALIAS colls_separate)
    endforeach()
endif()
