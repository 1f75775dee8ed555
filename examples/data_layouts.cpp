// Buffers whose elements do not lie in a row: the columns of a matrix, as blocks with displacements.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/data_layouts.cpp -o data_layouts
// Run:   ./data_layouts
#include <colls/dynamic.hpp>
#include <colls/transports/threads.hpp>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace dynamic = colls::dynamic;

namespace {

constexpr std::size_t rows = 3, columns = 8, columns_of[] = {2, 1, 1};  // of each rank
using matrix = std::array<std::array<int, columns>, rows>;

// example-begin layouts
/// Each rank has some columns of a matrix, one after the other; all ranks get the matrix, row by row. The columns of
/// rank 0 come to the right end, and a column between those of two ranks stays as it is.
void assemble(colls::communicator& comm, const std::vector<int>& own, matrix& all) {
    const auto column = dynamic::data_layout::vector(rows, 1, columns).with_extent(1);
    std::vector<std::size_t> counts, places;  // in elements of the sequence of all columns
    for (std::size_t r = 0, end = columns; r < 3; end -= columns_of[r++] + 1) {
        counts.push_back(columns_of[r] * rows);
        places.push_back((end - columns_of[r]) * rows);
    }
    dynamic::all_gather_v(comm, {own.data(), own.size(), dynamic::type::int32},
        {all.data(), columns, dynamic::type::int32, &column}, {counts, places});
}
// example-end

}  // namespace

int main() {
    colls::threads::run(3, [](colls::communicator& comm) {
        std::vector<int> own;
        for (std::size_t i = 0; i < columns_of[comm.rank()] * rows; ++i)
            own.push_back(100 * comm.rank() + static_cast<int>(10 * (i / rows) + i % rows));
        matrix all{};
        assemble(comm, own, all);
        const matrix wanted{
            {{0, 0, 200, 0, 100, 0, 0, 10}, {0, 0, 201, 0, 101, 0, 1, 11}, {0, 0, 202, 0, 102, 0, 2, 12}}};
        if (all != wanted) throw std::runtime_error("the columns are in other places");
        for (const auto& row : all) {
            for (const int x : row)
                if (comm.rank() == 0) std::printf("%4d", x);
            if (comm.rank() == 0) std::printf("\n");
        }
    });
}
