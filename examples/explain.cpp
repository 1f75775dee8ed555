// Prints which schedule `automatic` chooses for an all_reduce, and why: all candidates with their predicted times.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/explain.cpp -o explain
// Run:   ./explain [RANKS [BYTES]]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    const std::size_t only = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
    bool said = true;
    colls::threads::run(ranks, [&](auto& comm) {
        for (const std::size_t bytes : {std::size_t{64}, std::size_t{64} << 10, std::size_t{16} << 20}) {
            // example-begin explain
            const std::string table = colls::explain(comm, colls::collective::all_reduce, only ? only : bytes);
            if (comm.rank() == 0) std::printf("%s\n", table.c_str());
            // example-end
            if (table.empty()) said = false;
            if (only) break;
        }
    });
    return said ? 0 : 1;
}
