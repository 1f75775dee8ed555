// Run under qemu-user, on processors that are not x86: calls on threads, over shared memory, and over TCP.
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int wrong = 0;
void expect(bool right, const char* what, int rank) {
    if (right) return;
    std::fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
    ++wrong;
}

void calls(colls::communicator& comm) {
    const int rank = comm.rank(), n = comm.size();
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
        std::vector<float> x(count, static_cast<float>(rank + 1));
        colls::all_reduce(comm, x, colls::sum);
        expect(x.front() == static_cast<float>(n * (n + 1) / 2) && x.back() == x.front(), "all_reduce", rank);
        std::vector<int> own(count, rank), all(count * static_cast<std::size_t>(n));
        colls::all_gather(comm, own, all);
        for (int r = 0; r < n; ++r) expect(all[count * static_cast<std::size_t>(r)] == r, "all_gather", rank);
    }
    const std::vector<long> number(1, rank + 1);
    std::vector<long> scanned(1);
    colls::inclusive_scan(comm, number, scanned, colls::sum);
    expect(scanned[0] == (rank + 1) * (rank + 2) / 2, "inclusive_scan", rank);
    colls::communicator half = comm.split(rank % 2, 0);
    colls::barrier(half);
}

}  // namespace

int main() {
    colls::threads::run(3, [](auto& comm) { calls(comm); });
    for (const char* const transport : {"shm", "tcp"}) {
        setenv("COLLS_TRANSPORT", transport, 1);
        colls::processes::run(3, [](auto& comm) {
            calls(comm);
            if (wrong > 0) std::exit(1);
        });
    }
    std::puts(wrong == 0 ? "right" : "wrong");
    return wrong != 0;
}
