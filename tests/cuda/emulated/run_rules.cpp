// run_rules KERNEL THREADS: runs a kernel of rules.py in two blocks, and prints the 64 words it may have written. With
// a name that begins with "devices_": in two grids that nothing orders, of one block each, on devices 0 and 1.
#include "kernels.hpp"
#include "memory.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {
alignas(256) unsigned char words[256], other[256], peer[256], first[256], second[256];
}

int main(int, char** arguments) {
    using namespace emulated;
    const kernel* k = find_kernel(arguments[1]);
    if (!k) return 1;
    add_allocation(words, sizeof words, 0, memory_kind::device);
    add_allocation(other, sizeof other, 0, memory_kind::device);
    remove_allocation(other);
    add_allocation(peer, sizeof peer, 1, memory_kind::device);
    set_access_rule([](int, const allocation& a) { return a.address != reinterpret_cast<std::uintptr_t>(peer); });
    add_allocation(first, sizeof first, 0, memory_kind::device);
    add_allocation(second, sizeof second, 1, memory_kind::device);
    static unsigned char range[256];
    void* const copies[] = {first, second};
    add_multicast(range, sizeof range, copies);
    const void* at[] = {words, other, peer, range, second};
    const auto run = [&](unsigned blocks, int device) {
        std::uint64_t whole[2] = {static_cast<std::uint64_t>(device), 0};
        unsigned char* parameters[6];
        for (int i = 0; i < 5; ++i) parameters[i] = reinterpret_cast<unsigned char*>(&at[i]);
        parameters[5] = reinterpret_cast<unsigned char*>(whole);
        run_grid(*k, parameters, {blocks}, {static_cast<unsigned>(std::atoi(arguments[2]))}, 0, device, {});
    };
    if (std::string_view(arguments[1]).starts_with("devices_")) {
        std::thread other([&] { run(1, 1); });
        run(1, 0);
        other.join();
    } else {
        run(2, 0);
    }
    for (int i = 0; i < 64; ++i) std::printf("%08x ", reinterpret_cast<std::uint32_t*>(words)[i]);
    std::printf("\n");
}
