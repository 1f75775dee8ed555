// expect: the sizes do not add up to the extent of the matrix
#include <colls/redistribute/layout.hpp>

#ifdef RIGHT
constexpr auto uneven = colls::layout::by_rows({4, 6}, {0, 2}).with_row_sizes({3, 1});
#else
constexpr auto uneven = colls::layout::by_rows({4, 6}, {0, 2}).with_row_sizes({3, 2});
#endif
