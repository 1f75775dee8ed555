cmake_minimum_required(VERSION 3.22)
# cmake -DROOT=folder -P public_surface.cmake
# Users see include/colls without detail/, and the examples and documentation. Fails where a public header opens a namespace
# detail of its own, and where an example or a document names what is in one.
set(found "")

file(GLOB_RECURSE headers RELATIVE ${ROOT}/include ${ROOT}/include/colls/*.hpp)
list(FILTER headers EXCLUDE REGEX /detail/)
foreach(header IN LISTS headers)
    file(STRINGS ${ROOT}/include/${header} lines REGEX "^[ \t]*(inline )?namespace ([a-z0-9_ ]+::)*detail([ \t:{]|$)")
    if(lines)
        string(APPEND found "\n  include/${header}: ${lines}")
    endif()
endforeach()

file(GLOB_RECURSE shown RELATIVE ${ROOT} ${ROOT}/examples/*.cpp ${ROOT}/examples/*.hpp ${ROOT}/examples/*.cu ${ROOT}/examples/*.cuh
     ${ROOT}/docs/*.md)
foreach(file IN LISTS shown ITEMS README.md)
    file(STRINGS ${ROOT}/${file} lines REGEX "detail::|<colls/([a-z]+/)?detail/")
    if(lines)
        string(APPEND found "\n  ${file}: ${lines}")
    endif()
endforeach()

if(found)
    message(FATAL_ERROR "what is internal belongs into a folder detail, and examples and documents do without it:${found}")
endif()
