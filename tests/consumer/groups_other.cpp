// The other unit: calls of its own, on groups that the first one made.
#include "groups.hpp"

#include <vector>

int reversed_sum(colls::communicator& comm, int mine) {
    colls::communicator reversed = comm.split(0, -comm.rank());
    std::vector<int> value(5000, mine);
    colls::all_reduce<colls::ring>(reversed, value, colls::sum);
    return reversed.rank() == comm.size() - 1 - comm.rank() ? value.back() : -1;
}
