// Datatypes made with counts of MPI_Count are taken apart as those made with counts of int. (Most programs cannot tell:
// a datatype that is not found to be in a row is packed, which is right, too, and only huge elements are packed in
// parts.)
#include "../src/types.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <cstddef>
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

namespace {

int checked = 0, wrong = 0;

void expect(bool right, const char* what) {
    ++checked;
    if (right) return;
    ++wrong;
    std::printf("wrong: %s\n", what);
}

using parts = std::vector<std::pair<MPI_Aint, std::size_t>>;

struct taken {
    bool has_parts = false;
    parts rows;
    bool in_row = false;
};
// It frees the datatype.
taken take_apart(MPI_Datatype type) {
    taken t;
    t.has_parts = colls_mpi::for_each_part(
        type, [&](MPI_Aint at, std::size_t count, MPI_Datatype) { t.rows.emplace_back(at, count); });
    t.in_row = colls_mpi::layout_of(type).in_row;
    MPI_Type_free(&type);
    return t;
}

/// `small(&type)` and `large(&type)` make the same datatype, of which `rows` are the parts.
template <class Small, class Large>
void compare(const char* name, bool in_row, const parts& rows, const Small& small, const Large& large) {
    MPI_Datatype a = MPI_DATATYPE_NULL, b = MPI_DATATYPE_NULL;
    small(&a);
    large(&b);
    expect(!colls_mpi::is_predefined(b), name);
    for (const taken& t : {take_apart(a), take_apart(b)}) {
        expect(t.has_parts == !rows.empty(), name);
        expect(t.rows == rows, name);
        expect(t.in_row == in_row, name);
    }
}

// A call of the functions with counts of int, and of MPI_Count. `C` and `A` are the types of counts and of addresses.
template <class C, class A>
struct arguments {
    static constexpr C two[] = {2, 3}, at[] = {5, 1}, sizes[] = {4, 3}, part[] = {2, 3}, begin[] = {1, 0},
                       all[] = {4, 3}, zero[] = {0, 0};
    static constexpr A in_bytes[] = {8, 40};
};
using small = arguments<int, MPI_Aint>;
using large = arguments<MPI_Count, MPI_Count>;

}  // namespace

#define BOTH(name, call_arguments)                                                                      \
    [](MPI_Datatype* type) {                                                                            \
        using a = small;                                                                                \
        static_cast<void>(sizeof(a));                                                                   \
        std::apply([&](auto... x) { MPI_Type_##name(x..., type); }, std::tuple call_arguments);         \
    },                                                                                                  \
        [](MPI_Datatype* type) {                                                                        \
            using a = large;                                                                            \
            static_cast<void>(sizeof(a));                                                               \
            std::apply([&](auto... x) { MPI_Type_##name##_c(x..., type); }, std::tuple call_arguments); \
        }

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    static constexpr int whole[] = {1, 1}, block[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK},
                         otherwise[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    static const MPI_Datatype types[] = {MPI_INT, MPI_INT};
    compare("contiguous", true, {{0, 3}}, BOTH(contiguous, (3, MPI_INT)));
    compare("vector", false, {{0, 2}, {20, 2}, {40, 2}}, BOTH(vector, (3, 2, 5, MPI_INT)));
    compare("a vector in a row", true, {{0, 2}, {8, 2}}, BOTH(vector, (2, 2, 2, MPI_INT)));
    compare("hvector", false, {{0, 2}, {12, 2}}, BOTH(create_hvector, (2, 2, 12, MPI_INT)));
    compare("an hvector in a row", true, {{0, 2}, {8, 2}}, BOTH(create_hvector, (2, 2, 8, MPI_INT)));
    compare("indexed", false, {{20, 2}, {4, 3}}, BOTH(indexed, (2, a::two, a::at, MPI_INT)));
    compare("hindexed", false, {{8, 2}, {40, 3}}, BOTH(create_hindexed, (2, a::two, a::in_bytes, MPI_INT)));
    compare("indexed_block", false, {{20, 3}, {4, 3}}, BOTH(create_indexed_block, (2, 3, a::at, MPI_INT)));
    compare("hindexed_block", false, {{8, 3}, {40, 3}}, BOTH(create_hindexed_block, (2, 3, a::in_bytes, MPI_INT)));
    compare("struct", false, {{8, 2}, {40, 3}}, BOTH(create_struct, (2, a::two, a::in_bytes, types)));
    compare("resized", false, {{0, 1}}, BOTH(create_resized, (MPI_INT, -8, 24)));
    compare("subarray", false, {{12, 3}, {24, 3}},
        BOTH(create_subarray, (2, a::sizes, a::part, a::begin, MPI_ORDER_C, MPI_INT)));
    compare("a whole subarray", true, {{0, 3}, {12, 3}, {24, 3}, {36, 3}},
        BOTH(create_subarray, (2, a::sizes, a::all, a::zero, MPI_ORDER_C, MPI_INT)));
    compare("a whole darray", true, {},
        BOTH(create_darray, (1, 0, 2, a::sizes, block, otherwise, whole, MPI_ORDER_C, MPI_INT)));
    std::printf("%d checked, %d wrong\n", checked, wrong);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}
