// The loops of Eigen's products of matrices: products.cpp compiles them once, for float and double, instead of each
// program for itself. Programs multiply as ever. Versions of Eigen that may name these loops otherwise are left alone:
// then each program compiles its own.
#pragma once

#include <Eigen/Core>

#if EIGEN_WORLD_VERSION == 3 && EIGEN_MAJOR_VERSION == 4

// clang-format off
#define EXAMPLE_PRODUCT(KEYWORD, T, LEFT, RIGHT)                                                                       \
    KEYWORD template struct Eigen::internal::general_matrix_matrix_product<                                            \
        Eigen::Index, T, LEFT, false, T, RIGHT, false, Eigen::ColMajor, 1>;
#define EXAMPLE_PRODUCT_WITH_VECTOR(KEYWORD, T, ORDER, OTHER)                                                          \
    KEYWORD template struct Eigen::internal::general_matrix_vector_product<Eigen::Index, T,                            \
        Eigen::internal::const_blas_data_mapper<T, Eigen::Index, ORDER>, ORDER, false, T,                              \
        Eigen::internal::const_blas_data_mapper<T, Eigen::Index, OTHER>, false>;
#define EXAMPLE_PACK(KEYWORD, T, ORDER)                                                                                \
    KEYWORD template struct Eigen::internal::gemm_pack_lhs<T, Eigen::Index,                                            \
        Eigen::internal::const_blas_data_mapper<T, Eigen::Index, ORDER>, Eigen::internal::gebp_traits<T, T>::mr,       \
        Eigen::internal::gebp_traits<T, T>::LhsProgress, Eigen::internal::gebp_traits<T, T>::LhsPacket4Packing, ORDER>;\
    KEYWORD template struct Eigen::internal::gemm_pack_rhs<T, Eigen::Index,                                            \
        Eigen::internal::const_blas_data_mapper<T, Eigen::Index, ORDER>, Eigen::internal::gebp_traits<T, T>::nr, ORDER>;
/// Declares the loops (KEYWORD: extern), or defines them (no KEYWORD).
#define EXAMPLE_PRODUCTS(KEYWORD, T)                                                                                   \
    KEYWORD template struct Eigen::internal::gebp_kernel<T, T, Eigen::Index,                                           \
        Eigen::internal::blas_data_mapper<T, Eigen::Index, Eigen::ColMajor, Eigen::Unaligned, 1>,                      \
        Eigen::internal::gebp_traits<T, T>::mr, Eigen::internal::gebp_traits<T, T>::nr, false, false>;                 \
    EXAMPLE_PACK(KEYWORD, T, Eigen::ColMajor)                                                                          \
    EXAMPLE_PACK(KEYWORD, T, Eigen::RowMajor)                                                                          \
    EXAMPLE_PRODUCT(KEYWORD, T, Eigen::ColMajor, Eigen::ColMajor)                                                      \
    EXAMPLE_PRODUCT(KEYWORD, T, Eigen::ColMajor, Eigen::RowMajor)                                                      \
    EXAMPLE_PRODUCT(KEYWORD, T, Eigen::RowMajor, Eigen::ColMajor)                                                      \
    EXAMPLE_PRODUCT_WITH_VECTOR(KEYWORD, T, Eigen::ColMajor, Eigen::RowMajor)                                          \
    EXAMPLE_PRODUCT_WITH_VECTOR(KEYWORD, T, Eigen::RowMajor, Eigen::ColMajor)
// clang-format on

EXAMPLE_PRODUCTS(extern, float)
EXAMPLE_PRODUCTS(extern, double)

#endif
