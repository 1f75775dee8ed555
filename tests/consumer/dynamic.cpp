// A user's program: three ranks add up their numbers, of a type that is known at run time.
#include <colls/dynamic.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <vector>

int main(int argc, char**) {
    using namespace colls::dynamic;
    std::vector<float> sums(3);
    colls::threads::run(3, [&](auto& comm) {
        std::vector<float> value(1000, static_cast<float>(comm.rank() + 1));
        all_reduce(comm, buffer{value.data(), value.size(), type::float32}, argc > 1 ? op::max : op::sum);
        sums[static_cast<std::size_t>(comm.rank())] = value.front() + value.back();
    });
    for (const float sum : sums)
        if (sum != 12) return std::printf("sum %g, and not 12\n", static_cast<double>(sum)), 1;
    return 0;
}
