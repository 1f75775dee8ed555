// What both units do with the library.
#pragma once

#include "everything.hpp"

#include <span>

/// The sum of 0 .. ranks-1 by a real call, as rank 0 has it.
inline int sum_of_ranks(int ranks) {
    int result = -1;
    colls::threads::run(ranks, [&](auto& comm) {
        int value = comm.rank();
        colls::all_reduce(comm, std::span(&value, 1), colls::sum);
        if (comm.rank() == 0) result = value;
    });
    return result;
}
inline const void* address_of_sum() { return &colls::sum; }

int other_sum_of_ranks(int ranks);
const void* other_address_of_sum();
