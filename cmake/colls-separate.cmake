# colls::separate: units see the declarations of calls and groups alone; the engine behind them is a static library, compiled once
# a build tree, with its compiler and flags. In the source tree, and installed as part of the package.
if(NOT TARGET colls_separate)
    get_filename_component(colls_sources "${COLLS_SOURCE_FOLDER}" ABSOLUTE)
    add_library(colls_separate STATIC EXCLUDE_FROM_ALL "${colls_sources}/engine.cpp" "${colls_sources}/network.cpp"
                                                       "${colls_sources}/folds.cpp")
    add_library(colls::separate ALIAS colls_separate)
    target_compile_definitions(colls_separate PUBLIC COLLS_SEPARATE)
    set_target_properties(colls_separate PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(colls_separate PUBLIC colls::colls)
endif()
