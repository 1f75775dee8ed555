# colls::cuda: kernels (colls/transports/cuda.hpp), for sources that nvcc compiles as C++20, beside colls::colls or alone: header-only.
# In the source tree, and installed as a component of the package, whose user enables the language CUDA.
if(NOT TARGET colls::cuda)
    add_library(colls::cuda INTERFACE IMPORTED GLOBAL)
    target_link_libraries(colls::cuda INTERFACE colls::header_only)
    target_compile_features(colls::cuda INTERFACE cxx_std_20)
    # The feature speaks of the language CXX alone; and not every CMake knows that nvcc has C++20.
    if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
        target_compile_features(colls::cuda INTERFACE cuda_std_20)
    else()
        target_compile_options(colls::cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
    endif()
    # A kernel calls schedules, which are plain constexpr functions.
    target_compile_options(colls::cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
endif()
