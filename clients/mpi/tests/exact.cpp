// An MPI program that adds floats and doubles by every function that COLLS_MPI_EXACT=1 makes exact, and compares each
// result with the sum as an integer, rounded once. Rank 0 prints how many results it has checked and how many are
// wrong, and how many results of the other functions are not those sums.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

namespace {

long long checked = 0, wrong = 0, rounded = 0;

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/// The addend of a rank, in units of which a float or double holds it: over so few binades that exact sums lose no bit.
template <class T>
std::int64_t addend(int rank, std::size_t i) {
    constexpr int digits = std::is_same_v<T, float> ? 22 : 44, binades = 14;
    const std::uint64_t h = mixed(mixed(static_cast<std::uint64_t>(rank) + 1) + i);
    const auto x = static_cast<std::int64_t>((h >> 20 & ((std::uint64_t{1} << digits) - 1)) << h % binades);
    return (h >> 16 & 1) != 0 ? -x : x;
}
template <class T>
std::vector<T> addends(int rank, std::size_t count) {
    std::vector<T> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(addend<T>(rank, i));
    return x;
}
template <class T>
std::vector<T> sums(int ranks, std::size_t count) {
    std::vector<T> x(count);
    for (std::size_t i = 0; i < count; ++i) {
        std::int64_t sum = 0;
        for (int r = 0; r < ranks; ++r) sum += addend<T>(r, i);
        x[i] = static_cast<T>(sum);
    }
    return x;
}

template <class T>
void add(MPI_Datatype type, std::size_t count) {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const auto ranks = static_cast<std::size_t>(size), at = static_cast<std::size_t>(rank);
    const int n = static_cast<int>(count);
    const std::vector<T> mine = addends<T>(rank, count), want = sums<T>(size, count);
    const auto differ = [&](const std::vector<T>& got, std::size_t from, std::size_t length) {
        return length > 0 && std::memcmp(got.data(), want.data() + from, length * sizeof(T)) != 0;
    };
    const auto check = [&](const std::vector<T>& got, std::size_t from, std::size_t length, const char* what) {
        ++checked;
        if (!differ(got, from, length)) return;
        ++wrong;
        std::fprintf(stderr, "rank %d of %d: %s of %zu numbers of %zu bytes\n", rank, size, what, count, sizeof(T));
    };
    std::vector<T> out(count, T(7)), both = mine;
    MPI_Allreduce(mine.data(), out.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    check(out, 0, count, "MPI_Allreduce");
    MPI_Allreduce(MPI_IN_PLACE, both.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    check(both, 0, count, "MPI_Allreduce in place");
    for (int root = 0; root < size; ++root) {
        out.assign(count, T(7));
        MPI_Reduce(mine.data(), out.data(), n, type, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root) check(out, 0, count, "MPI_Reduce");
        both = mine;
        const bool in_place = rank == root;
        MPI_Reduce(in_place ? MPI_IN_PLACE : mine.data(), both.data(), n, type, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root) check(both, 0, count, "MPI_Reduce in place");
    }
    // Blocks of 0, 1, 2 ... times a unit, and for the last rank the rest; then equal ones.
    std::vector<int> counts(ranks);
    for (std::size_t r = 0; r + 1 < ranks; ++r) counts[r] = static_cast<int>(r * (count / 20));
    counts.back() = n - std::accumulate(counts.begin(), counts.end() - 1, 0);
    const auto before = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + rank, 0));
    out.assign(count, T(7));
    MPI_Reduce_scatter(mine.data(), out.data(), counts.data(), type, MPI_SUM, MPI_COMM_WORLD);
    check(out, before, static_cast<std::size_t>(counts[at]), "MPI_Reduce_scatter");
    both = mine;
    MPI_Reduce_scatter(MPI_IN_PLACE, both.data(), counts.data(), type, MPI_SUM, MPI_COMM_WORLD);
    check(both, before, static_cast<std::size_t>(counts[at]), "MPI_Reduce_scatter in place");
    const std::size_t each = count / ranks;
    out.assign(count, T(7));
    MPI_Reduce_scatter_block(mine.data(), out.data(), static_cast<int>(each), type, MPI_SUM, MPI_COMM_WORLD);
    check(out, at * each, each, "MPI_Reduce_scatter_block");
    both = mine;
    MPI_Reduce_scatter_block(MPI_IN_PLACE, both.data(), static_cast<int>(each), type, MPI_SUM, MPI_COMM_WORLD);
    check(both, at * each, each, "MPI_Reduce_scatter_block in place");

    // What is started stays a plain sum, as other operators stay what they are.
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(mine.data(), out.data(), n, type, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    rounded += differ(out, 0, count);
    MPI_Allreduce(mine.data(), out.data(), n, type, MPI_MAX, MPI_COMM_WORLD);
    for (std::size_t i = 0; i < count; ++i) {
        T most = mine[i];
        for (int r = 0; r < size; ++r) most = std::max(most, static_cast<T>(addend<T>(r, i)));
        both[i] = most;
    }
    ++checked;
    wrong += count > 0 && std::memcmp(out.data(), both.data(), count * sizeof(T)) != 0;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    for (const std::size_t count : {0u, 1u, 20u, 1000u, 30000u}) {
        add<float>(MPI_FLOAT, count);
        add<double>(MPI_DOUBLE, count);
    }
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long long mine[] = {checked, wrong, rounded}, all[] = {0, 0, 0};
    MPI_Reduce(mine, all, 3, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("%d ranks, %lld checked, %lld wrong; of started calls %lld differ\n", size, all[0], all[1], all[2]);
    MPI_Finalize();
    return 0;
}
