// The other unit.
#include "linked.hpp"

int other_sum_of_ranks(int ranks) { return sum_of_ranks(ranks); }
const void* other_address_of_sum() { return address_of_sum(); }
