// A unit that includes every header. A program has it twice, the second time with names in _there: they must link, and
// share what is shared.
#include "everything.hpp"

#include <span>

/// The sum of 0 .. ranks-1 by a real call, as rank 0 has it.
extern "C" int sum_here(int ranks) {
    int result = -1;
    colls::threads::run(ranks, [&](auto& comm) {
        int value = comm.rank();
        colls::all_reduce(comm, std::span(&value, 1), colls::sum);
        if (comm.rank() == 0) result = value;
    });
    return result;
}
extern "C" const void* address_here() { return &colls::sum; }
