// Going on after a failure: one of five processes is killed in the middle of the work. The others get an error, shrink
// the group, and go on.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/survivors.cpp -o survivors
// Run:   ./survivors
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>

#include <csignal>
#include <cstdio>
#include <span>
#include <stdexcept>

int main() {
    int survivors = 0;
    try {
        colls::processes::run(5, [](colls::communicator& comm) {
            auto x = comm.allocate<double>(100'000);  // shared memory: the other processes access it directly
            for (int step = 0; step < 20; ++step) {
                for (double& v : x) v = 1;
                if (step == 7 && comm.size() == 5 && comm.rank() == 3) raise(SIGKILL);
                // example-begin shrink
                try {
                    colls::all_reduce(comm, x, colls::sum);
                } catch (const colls::error& e) {
                    if (comm.rank() == 0) std::printf("%s\n", e.what());
                    comm = comm.shrink();  // the remaining ranks, the same on all of them
                    colls::all_reduce(comm, std::span(&step, 1), colls::min);  // some may have finished this step
                    --step;                                                    // and once more
                    continue;
                }
                // example-end
                if (x[99'999] != comm.size()) throw std::runtime_error("a wrong sum");
            }
            if (comm.rank() == 0) std::printf("%d ranks came to the end\n", comm.size());
            if (comm.size() != 4) throw std::runtime_error("a wrong group");
        });
    } catch (const colls::error& e) {
        std::printf("run: %s\n", e.what());
        survivors = e.peer() == 3 ? 4 : 0;
    }
    return survivors == 4 ? 0 : 1;
}
