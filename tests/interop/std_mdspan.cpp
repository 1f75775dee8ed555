// std::mdspan as a buffer of typed and dynamic calls: each layout of the standard, on ranks that have the same tensor
// in different layouts. tests/interop/check_mdspan compiles it, where a standard library has <mdspan>.
#include <colls/interop/mdspan.hpp>
#include <colls/transports/threads.hpp>

#include <colls/colls.hpp>

#include <array>
#include <cstdio>
#include <mdspan>
#include <stdexcept>
#include <string>
#include <vector>

namespace interop = colls::interop;
namespace dynamic = colls::dynamic;
using matrix = std::dextents<std::size_t, 2>;

static_assert(interop::mdspan_like<std::mdspan<int, matrix>>);
static_assert(interop::has_strides<std::mdspan<int, matrix, std::layout_stride>>);

namespace {

void expect(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}

/// Sums rank + 10 i + j over ranks by a view of 3 x 4 elements in memory of 24, and leaves the rest as it is.
template <class View>
void check(colls::communicator& comm, const std::string& what, View make) {
    std::vector<int> memory(24, -1), want;
    const auto v = make(memory.data());
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 4; ++j)
            v.data_handle()[v.mapping()(i, j)] = static_cast<int>(10 * i + j) + comm.rank();
    want = memory;
    for (int& x : want)
        if (x != -1) x = comm.size() * (x - comm.rank()) + comm.size() * (comm.size() - 1) / 2;
    dynamic::all_reduce(comm, interop::strided(v), dynamic::op::sum);
    expect(memory == want, what + ": other elements were summed");
}

}  // namespace

int main() {
    const auto rows = [](int* p) { return std::mdspan(p, 3, 4); };
    const auto columns = [](int* p) { return std::mdspan<int, matrix, std::layout_left>(p, 3, 4); };
    const auto fixed = [](int* p) { return std::mdspan<int, std::extents<int, 3, 4>>(p); };
    const auto strided = [](int* p) {
        return std::mdspan<int, matrix, std::layout_stride>(
            p, std::layout_stride::mapping(matrix(3, 4), std::array<std::size_t, 2>{8, 2}));
    };
    colls::threads::run(3, [&](colls::communicator& comm) {
        check(comm, "layout_right", rows);
        check(comm, "layout_left", columns);
        check(comm, "layout_stride", strided);
        if (comm.rank() == 0)
            check(comm, "different layouts", columns);
        else if (comm.rank() == 1)
            check(comm, "different layouts", strided);
        else
            check(comm, "different layouts", fixed);

        std::vector<int> x(12, 1);
        colls::all_reduce(comm, interop::elements(columns(x.data())), colls::sum);
        expect(x == std::vector<int>(12, 3), "elements: the sums are others");
        try {
            std::vector<int> y(24);
            (void)interop::elements(strided(y.data()));
            expect(false, "elements: gaps are not refused");
        } catch (const colls::error& e) {
            expect(std::string(e.what()).find("3 x 4 elements has gaps") != std::string::npos, e.what());
        }
    });
    std::puts("std::mdspan: right");
}
