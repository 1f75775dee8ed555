// Threads go to the NUMA node of a GPU, and back.
#include "catch.hpp"

#include "verbs/made_tree.hpp"

#include <colls/cuda/detail/far/near_device.hpp>

#include <sched.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

using colls::cuda::detail::cores_of_list;
using colls::cuda::detail::near_device;

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
