// One of two units that include every header: they must link, and share what is shared.
#include "linked.hpp"

#include <cstdio>

int main() {
    const int here = sum_of_ranks(3), there = other_sum_of_ranks(3);
    if (here != 3 || there != 3) return std::printf("sums of 3 ranks: %d and %d\n", here, there), 1;
    if (address_of_sum() != other_address_of_sum()) return std::puts("colls::sum is two objects"), 1;
    return 0;
}
