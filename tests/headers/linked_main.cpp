// Asks both units of linked_unit.cpp.
#include <cstdio>

extern "C" {
int sum_here(int ranks);
int sum_there(int ranks);
const void* address_here();
const void* address_there();
}

int main() {
    const int here = sum_here(3), there = sum_there(3);
    if (here != 3 || there != 3) return std::printf("sums of 3 ranks: %d and %d\n", here, there), 1;
    if (address_here() != address_there()) return std::puts("colls::sum is two objects"), 1;
    return 0;
}
