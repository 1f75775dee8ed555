# cmake -DCOMPILER=clang++ -DINCLUDE=folder -DSOURCE=file -P check.cmake
# The file compiles for AArch64, and its folds and its copy store past the caches, by pairs of vectors.
execute_process(COMMAND ${COMPILER} --target=aarch64-linux-gnu -std=c++20 -O2 -Wall -Wextra -Werror -I${INCLUDE} -S -o - ${SOURCE}
                RESULT_VARIABLE result OUTPUT_VARIABLE code ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "${SOURCE} does not compile for AArch64:\n${errors}")
endif()
foreach(function fold_floats_past_caches fold_bytes_past_caches copy_past_caches)
    if(NOT code MATCHES "${function}[^:\n]*:")
        message(FATAL_ERROR "${function} is not in the code")
    endif()
    string(REGEX REPLACE ".*\n(_Z[^\n]*${function}[^:\n]*:)" "\\1" body "${code}")
    string(REGEX REPLACE "\n[.]Lfunc_end.*" "" body "${body}")
    if(NOT body MATCHES "stnp[\t ]+q")
        message(FATAL_ERROR "${function} does not store past the caches:\n${body}")
    endif()
endforeach()
