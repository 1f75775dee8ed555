// Many groups over MPI, made by ranks with unlike histories, and in threads, in an order of each rank's own.
//     program HOSTS ROUNDS SEED
// The ranks are dealt out to that many hosts (COLLS_HOST). A group of all, then rounds of: subsets of ranks, drawn
// alike on all, of which each rank makes groups in one order (some belong to more than others), or, where the MPI
// allows it, all at once, in threads that begin in an order of its own. Each group is checked while the others live.
#include <colls/colls.hpp>
#include <colls/transports/mpi.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

int own = -1;

[[noreturn]] void wrong(const std::string& what) {
    std::fprintf(stderr, "rank %d: wrong: %s\n", own, what.c_str());
    std::_Exit(1);
}

/// The group consists of these ranks of the world, in this order, and computes.
void check(colls::communicator& comm, const std::vector<int>& members) {
    if (comm.size() != static_cast<int>(members.size())) wrong("size " + std::to_string(comm.size()));
    std::vector<int> all(members.size() + 2, -7);
    colls::all_gather(comm, std::span(&own, 1), std::span(all).subspan(1, members.size()));
    if (!std::equal(members.begin(), members.end(), all.begin() + 1) || all.front() != -7 || all.back() != -7)
        wrong("members");
    for (const std::size_t n : {std::size_t{1}, std::size_t{3000}}) {
        std::vector<int> x(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = own * 3 + static_cast<int>(i % 11);
        colls::all_reduce(comm, x, colls::sum);
        const int sum = 3 * std::accumulate(members.begin(), members.end(), 0), size = comm.size();
        for (std::size_t i = 0; i < n; ++i)
            if (x[i] != sum + size * static_cast<int>(i % 11)) wrong("sum");
    }
}

struct subset {
    std::vector<int> members;
    MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace

int main(int argc, char** argv) {
    const char* number = std::getenv("OMPI_COMM_WORLD_RANK");
    if (number == nullptr) number = std::getenv("PMI_RANK");
    if (number == nullptr || argc != 4) return 1;
    own = std::atoi(number);
    const int hosts = std::atoi(argv[1]), rounds = std::atoi(argv[2]);
    setenv("COLLS_HOST", std::to_string(own % hosts).c_str(), 1);
    int level = 0, size = 0, made = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    try {
        std::vector<int> everyone(static_cast<std::size_t>(size));
        std::iota(everyone.begin(), everyone.end(), 0);
        colls::communicator world = colls::mpi::communicator_of(MPI_COMM_WORLD);
        check(world, everyone);
        std::mt19937 draw(static_cast<unsigned>(std::atoi(argv[3])));              // alike on all
        std::mt19937 mine(static_cast<unsigned>(std::atoi(argv[3]) * 997 + own));  // and not
        for (int round = 0; round < rounds; ++round) {
            std::vector<subset> all(4);
            for (subset& s : all) {
                std::vector<int> order = everyone;
                std::shuffle(order.begin(), order.end(), draw);
                order.resize(1 + draw() % static_cast<unsigned>(size));
                const auto at = std::find(order.begin(), order.end(), own);
                const int key = static_cast<int>(at - order.begin());
                MPI_Comm_split(MPI_COMM_WORLD, at != order.end() ? 0 : MPI_UNDEFINED, key, &s.comm);
                s.members = order;
            }
            std::erase_if(all, [](const subset& s) { return s.comm == MPI_COMM_NULL; });
            std::vector<colls::communicator> groups(all.size());
            const auto make = [&](std::size_t i, bool alone) {
                try {
                    groups[i] = colls::mpi::communicator_of(all[i].comm, {.alone = alone});
                    check(groups[i], all[i].members);
                } catch (const colls::error& x) {
                    wrong(x.what());
                }
            };
            if (round % 2 == 0 || level < MPI_THREAD_MULTIPLE) {
                for (std::size_t i = 0; i < all.size(); ++i) make(i, false);
            } else {
                std::vector<std::size_t> order(all.size());
                std::iota(order.begin(), order.end(), std::size_t{0});
                std::shuffle(order.begin(), order.end(), mine);
                std::vector<std::thread> threads;
                for (const std::size_t i : order) threads.emplace_back(make, i, true);
                for (std::thread& t : threads) t.join();
            }
            for (std::size_t i = 0; i < all.size(); ++i) check(groups[i], all[i].members);
            check(world, everyone);
            made += static_cast<int>(all.size());
            groups.clear();
            for (subset& s : all) MPI_Comm_free(&s.comm);
        }
        check(world, everyone);
    } catch (const colls::error& x) {
        wrong(x.what());
    }
    std::printf("rank %d of %d on %d hosts: %d groups right%s\n", own, size, hosts, made,
        level < MPI_THREAD_MULTIPLE ? ", without threads" : "");
    MPI_Finalize();
}
