// expect: colls: redistribute: the layouts are of matrices of different shapes
#include <colls/redistribute.hpp>

#include <span>

constexpr auto rows = colls::layout::by_rows({4, 6}, {0, 2});
#ifdef RIGHT
constexpr auto columns = colls::layout::by_columns({4, 6}, {0, 3});
#else
constexpr auto columns = colls::layout::by_columns({6, 4}, {0, 3});
#endif

void call(colls::communicator& comm, std::span<float> in, std::span<float> out) {
    colls::redistribute<rows, columns>(comm, in, out);
}
