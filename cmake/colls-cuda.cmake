# colls::cuda: kernels (colls/transports/cuda.hpp), for sources that nvcc compiles as C++20. In the source tree, and installed as a
# component of the package, whose user enables the language CUDA.
if(NOT TARGET colls::cuda)
    add_library(colls::cuda INTERFACE IMPORTED GLOBAL)
    target_link_libraries(colls::cuda INTERFACE colls::colls)
    target_compile_features(colls::cuda INTERFACE cxx_std_20)
    # A kernel calls schedules, which are plain constexpr functions.
    target_compile_options(colls::cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
endif()
