// What is left of an MPI program goes on: groups over MPI's messages, with a spare group.
//     program HOSTS SPLIT VICTIM...
// The ranks are dealt out to that many hosts (COLLS_HOST); 0: they are on one, and share memory instead. Each victim, a
// rank of the world, is killed in turn within a collective; the others shrink the group, or one split from it, and
// check what they compute. Each that comes to the end makes a file "right.RANK" in the working folder.
#include <colls/bootstrap.hpp>
#include <colls/colls.hpp>
#include <colls/transports/mpi.hpp>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

int own = -1;

void require(bool right, const std::string& what) {
    if (right) return;
    std::fprintf(stderr, "rank %d: wrong: %s\n", own, what.c_str());
    std::_Exit(1);
}

/// The group consists of these ranks of the world, and computes.
void check(colls::communicator& comm, const std::vector<int>& members) {
    require(comm.size() == static_cast<int>(members.size()), "size " + std::to_string(comm.size()));
    std::vector<int> all(members.size());
    colls::all_gather(comm, std::span(&own, 1), all);
    require(all == members, "members");
    for (const std::size_t n : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
        std::vector<double> x(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = own + static_cast<double>(i % 7);
        colls::all_reduce(comm, x, colls::sum);
        double sum = 0;
        for (const int m : members) sum += m;
        for (std::size_t i = 0; i < n; ++i)
            require(x[i] == sum + static_cast<double>(members.size()) * static_cast<double>(i % 7), "sum");
    }
}

/// The victim dies while it adds. The others have an error that names it.
void lose(colls::communicator& comm, const std::vector<int>& members, int victim) {
    const auto add = [victim](double a, double b) {
        if (own == victim) raise(SIGKILL);
        return a + b;
    };
    const auto at = static_cast<int>(std::find(members.begin(), members.end(), victim) - members.begin());
    try {
        for (int i = 0; i < 3; ++i) {  // some may come through the first
            std::vector<double> x(100'000, 1);
            colls::all_reduce(comm, x, add);
            colls::barrier(comm);
        }
        require(false, "no error");
    } catch (const colls::error& x) {
        std::fprintf(stderr, "rank %d: %s\n", own, x.what());
        require(x.code() == colls::errc::peer_failed && x.peer() == at, "the error");
    }
}

}  // namespace

int main(int argc, char** argv) {
    const char* number = std::getenv("OMPI_COMM_WORLD_RANK");
    if (number == nullptr) number = std::getenv("PMI_RANK");
    const int hosts = argc > 1 ? std::atoi(argv[1]) : 0;
    if (number == nullptr || argc < 4) return 1;
    own = std::atoi(number);
    if (hosts > 0) setenv("COLLS_HOST", std::to_string(own % hosts).c_str(), 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<int> members;
    for (int r = 0; r < size; ++r) members.push_back(r);
    colls::mpi::options how;
    if (hosts > 0) how = {.shared_memory = false, .spare = colls::bootstrap};
    colls::communicator world = colls::mpi::communicator_of(MPI_COMM_WORLD, how);
    colls::communicator part;
    if (std::string(argv[2]) == "split") {
        part = world.split(0, -own);
        std::reverse(members.begin(), members.end());
        check(part, members);
    }
    colls::communicator& comm = part.size() > 0 ? part : world;
    for (int i = 3; i < argc; ++i) {
        check(comm, members);
        const int victim = std::atoi(argv[i]);
        lose(comm, members, victim);
        std::erase(members, victim);
        const auto begun = std::chrono::steady_clock::now();
        comm = comm.shrink();
        std::fprintf(stderr, "rank %d: shrunk in %g s\n", own,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
        check(comm, members);
    }
    comm = colls::communicator();
    std::fclose(std::fopen(("right." + std::to_string(own)).c_str(), "w"));
    std::_Exit(0);  // MPI_Finalize would wait for the dead
}
