// What a group of GPUs does on the host: threads go to the NUMA node of a GPU, and back; memory is given out and taken
// back; the memory of kernels and their proxy has its parts side by side.
#include "catch.hpp"

#include "verbs/made_tree.hpp"

#include <colls/cuda/detail/far/domains.hpp>
#include <colls/cuda/detail/far/near_device.hpp>
#include <colls/cuda/detail/group/device_arena.hpp>
#include <colls/cuda/detail/kernel/far_memory.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using colls::cuda::detail::near_device;
using colls::detail::rdma::cores_of_list;

namespace {

std::vector<int> numbers(const cpu_set_t& set) {
    std::vector<int> all;
    for (int c = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(static_cast<std::size_t>(c), &set)) all.push_back(c);
    return all;
}
std::vector<int> own_cores() {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    return numbers(set);
}
std::vector<int> listed(const char* text) { return numbers(cores_of_list(std::istringstream(text))); }

}  // namespace

TEST_CASE("domains of ranks that reach each other's memory") {
    using colls::cuda::detail::domains_of;
    using all = std::vector<int>;
    CHECK(domains_of(4, [](int, int) { return true; }) == all{0, 0, 0, 0});
    CHECK(domains_of(3, [](int, int) { return false; }) == all{0, 1, 2});
    CHECK(domains_of(5, [](int a, int b) { return a % 2 == b % 2; }) == all{0, 1, 0, 1, 0});
    // 1 reaches 0 and 2, which do not reach each other: 2 is alone, and 3, which reaches all but 1, joins it.
    CHECK(domains_of(4, [](int a, int b) { return a + b != 2 && a + b != 4; }) == all{0, 0, 2, 2});
    // A domain has at most as many ranks as a kernel has places for.
    const all many = domains_of(150, [](int, int) { return true; });
    CHECK(std::count(many.begin(), many.end(), 0) == 72);
    CHECK(std::count(many.begin(), many.end(), 72) == 72);
    CHECK(many[149] == 144);
}

TEST_CASE("lists of cores") {
    CHECK(listed("0-2,5,8-9\n") == std::vector<int>{0, 1, 2, 5, 8, 9});
    CHECK(listed("7\n") == std::vector<int>{7});
    CHECK(listed("").empty());
    CHECK(listed("none").empty());
    CHECK(listed("1022-5000").back() == 1023);
    CHECK(listed("3-1,4") == std::vector<int>{4});
}

TEST_CASE("a thread near a device, the threads that it starts, and its way back") {
    const std::vector<int> before = own_cores();
    const int last = before.back();
    made_sysfs::made_tree t;
    t.gpu("pci0000:15/0000:15:01.0", "0000:1b:00.0", 1);
    t.gpu("pci0000:15/0000:15:01.0", "0000:1c:00.0", 2);
    t.gpu("pci0000:15/0000:15:01.0", "0000:1d:00.0", 3);
    t.gpu("pci0000:15/0000:15:01.0", "0000:1e:00.0", -1);
    t.node(0, "0-1023");
    t.node(1, std::to_string(last) + ",1000-1023\n");
    t.node(2, std::to_string(last + 1) + "\n");
    for (const char* const address : {"0000:1b:00.0", "00000000:1B:00.0"}) {
        std::vector<int> inside;
        std::thread started;
        {
            const near_device there(address, t.root());
            CHECK(own_cores() == std::vector<int>{last});
            started = std::thread([&] {
                cpu_set_t set;
                if (sched_getaffinity(0, sizeof set, &set) == 0) inside = numbers(set);
            });
        }
        started.join();
        CHECK(inside == std::vector<int>{last});
        CHECK(own_cores() == before);
    }
    // No core of that node is the thread's; there is no list; no node; no such device.
    for (const char* const address : {"0000:1c:00.0", "0000:1d:00.0", "0000:1e:00.0", "0000:1f:00.0", "x"}) {
        const near_device there(address, t.root());
        CHECK(own_cores() == before);
    }
}

TEST_CASE("what an arena gives out has its own bytes, and what it gets back is whole again") {
    constexpr std::size_t all = 10 * 256;
    alignas(256) static std::byte memory[all];
    colls::cuda::detail::device_arena arena(memory, all);
    CHECK(arena.take(all + 1) == nullptr);
    std::vector<int> order = {0, 1, 2, 3};
    do {  // given back in every order
        const std::size_t bytes[] = {1, 256, 257, 6 * 256};
        std::byte* at[4];
        std::size_t next = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            at[i] = arena.take(bytes[i]);
            CHECK(at[i] == memory + next);
            next += (bytes[i] + 255) / 256 * 256;
        }
        CHECK(next == all);
        CHECK(arena.take(1) == nullptr);
        for (const int i : order) arena.give(at[i], bytes[i]);
        // Where something is taken in between, the others do not join over it.
        std::byte* const first = arena.take(300);
        std::byte* const second = arena.take(256);
        arena.give(first, 300);
        CHECK(arena.take(8 * 256) == nullptr);
        CHECK(arena.take(7 * 256) == memory + 3 * 256);
        CHECK(arena.take(2 * 256) == memory);
        arena.give(memory, 2 * 256);
        arena.give(second, 256);
        arena.give(memory + 3 * 256, 7 * 256);
        CHECK(arena.take(all) == memory);
        CHECK(arena.take(1) == nullptr);
        arena.give(memory, all);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the parts of the memory of kernels and their proxy share no byte, and fill it") {
    for (const int ranks : {2, 3, 17, 200}) {
        const colls::cuda::detail::far_layout layout{ranks, 3, 1 << 16, 16};
        std::vector<std::byte> memory(layout.bytes() + 128);
        const colls::cuda::detail::far_memory m{memory.data(), layout, nullptr};
        std::vector<std::pair<const std::byte*, std::uint64_t>> parts;
        const auto add = [&](const auto* at, std::uint64_t bytes) {
            parts.emplace_back(reinterpret_cast<const std::byte*>(at), bytes);
        };
        for (int r = 0; r < ranks; ++r) add(m.shadow(r), m.layout.shadow_bytes);
        for (int c = 0; c < m.layout.channels; ++c) {
            add(m.posted(c), 128);
            add(m.done(c), 128);
            for (int r = 0; r < ranks; ++r) add(m.arrived(c, r), 8);
            for (const std::uint64_t number : {6U, 7U}) {
                add(&m.post(c, number), sizeof(colls::cuda::detail::far_post));
                for (const bool receives : {false, true}) {
                    add(m.pieces(c, number, receives), m.layout.pieces * sizeof(colls::cuda::detail::far_piece));
                    add(m.window(c, number, receives), m.layout.window_bytes);
                }
            }
            add(m.mailed(c), 128);
            for (std::uint32_t i = 0; i < m.layout.mail_entries; ++i)
                add(&m.mail(c, m.layout.mail_entries + i), sizeof(colls::cuda::detail::far_mail));
            for (const bool receives : {false, true})
                for (std::uint32_t i = 0; i < m.layout.moved_entries; ++i) add(m.moved(c, receives, i), 8);
        }
        std::sort(parts.begin(), parts.end());
        const std::byte* end = m.base;
        int apart = 0;
        for (const auto& [at, bytes] : parts) {
            apart += at >= end && at - end < 128;
            end = at + bytes;
        }
        INFO(ranks);
        CHECK(apart == static_cast<int>(parts.size()));
        CHECK(end == m.base + m.layout.bytes());
    }
    using colls::cuda::detail::far_layout;
    CHECK(far_layout{2, 1}.groups() == 1);
    CHECK(far_layout{2, 2}.groups() == 1);
    CHECK(far_layout{2, 5}.groups() == 3);
}
