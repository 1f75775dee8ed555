// The program that README.md shows first. scripts/check-readme compares its text and its output with the page.

// example-begin program
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <vector>

int main() {
    colls::threads::run(4, [](colls::communicator& comm) {  // four ranks, each a thread
        std::vector<float> x(1000, static_cast<float>(comm.rank() + 1));
        colls::all_reduce(comm, x, colls::sum);               // in place; the library chooses the schedule
        colls::all_reduce<colls::ring>(comm, x, colls::max);  // here the program chooses it
        if (comm.rank() == 0) std::printf("%d ranks: x[999] is %g\n", comm.size(), x[999]);
    });
}
// example-end
