// A user's program of two units: ranks as processes, over shared memory and over TCP, and a world of one.
#include "groups.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

int main() {
    for (const char* name :
        {"COLLS_RANK", "COLLS_SIZE", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
        unsetenv(name);
    if (colls::world().size() != 1) return std::puts("a world without a launcher is not of one rank"), 1;
    for (const char* transport : {"shm", "tcp"}) {
        setenv("COLLS_TRANSPORT", transport, 1);
        try {
            colls::processes::run(3, [](colls::communicator& comm) {
                std::vector<int> value(1000, comm.rank() + 1);
                colls::start::all_reduce(comm, value, colls::sum).wait();
                if (value.back() != 6 || reversed_sum(comm, comm.rank()) != 3)
                    throw std::runtime_error("a sum is wrong");
            });
        } catch (const std::exception& e) {
            return std::printf("%s: %s\n", transport, e.what()), 1;
        }
    }
    return 0;
}
