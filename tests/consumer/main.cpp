// A user's program: three ranks add up their numbers.
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <vector>

int main() {
    std::vector<int> sums(3);
    colls::threads::run(3, [&](auto& comm) {
        std::vector<int> value(1000, comm.rank() + 1);
        colls::all_reduce<colls::ring>(comm, value, colls::sum);
        sums[static_cast<std::size_t>(comm.rank())] = value.front() + value.back();
    });
    for (const int sum : sums)
        if (sum != 12) return std::printf("sum %d, and not 12\n", sum), 1;
    return 0;
}
