// Where one memory order alone stands between two threads: without it ThreadSanitizer finds a race here. What else the
// ranks share in these tests is relaxed, so that it orders nothing.
#include "catch.hpp"

#include <colls/colls.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/messages/detail/message_lowering.hpp>
#include <colls/operation.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

TEST_CASE("plans: a thread reads what another one has made", "[orders]") {
    using namespace colls::detail;
    const colls::any_schedule s(colls::bruck<4>::all_gather{});
    const execution_plan& direct = *execution_plan_for(s, 29);
    plan_by_messages();
    const execution_plan& of_messages = *execution_plan_for(s, 29, reach::nothing);
    const auto length = [](const execution_plan& p) { return p.program_of(7).body.size(); };
    const std::function<std::size_t()> kinds[] = {[&] { return length(out_of_reach_plan(direct, false)); },
        [&] { return length(copied_otherwise(direct)); }, [&] { return length(of_messages); }};
    for (const auto& length_of_kind : kinds) {
        std::size_t made = 0, found = 0;
        std::atomic<bool> done = false;
        std::thread other([&] {
            while (!done.load(std::memory_order_relaxed))
                std::this_thread::yield();  // it orders nothing: the plan does
            found = length_of_kind();
        });
        made = length_of_kind();
        done.store(true, std::memory_order_relaxed);
        other.join();
        CHECK(made > 0);
        CHECK(found == made);
    }
}

TEST_CASE("wait hook: one that a rank sets while another waits sees what was stored before", "[orders]") {
    static std::atomic<int> seen;
    seen = 0;
    colls::threads::run(2, [](colls::communicator& comm) {
        static int number;
        const auto until = std::chrono::steady_clock::now() + 20s;
        if (comm.rank() == 0) {
            std::this_thread::sleep_for(10ms);  // rank 1 waits, in most runs
            number = 42;
            colls::set_wait_hook(
                [](void* at) {
                    if (seen.load(std::memory_order_relaxed) == 0)
                        seen.store(*static_cast<int*>(at), std::memory_order_relaxed);
                },
                &number);
            // Relaxed: it orders nothing, so that the hook alone does.
            while (seen.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < until)
                std::this_thread::sleep_for(100us);
        }
        colls::barrier(comm);
    });
    colls::set_wait_hook(nullptr);
    CHECK(seen == 42);
}

TEST_CASE("fault: a rank that has left by an error may use its buffer again at once", "[orders]") {
    // Rank 0's broadcast ends by its deadline, since one rank never comes. The other one has copied the buffer and has
    // left the call; that it has is all that orders its copy before what rank 0 then does (a race for ThreadSanitizer).
    for (const int late : {1, 2}) {
        std::atomic<bool> over = false;
        colls::threads::run(3, [&](colls::communicator& comm) {
            std::vector<int> data(100'000, comm.rank());
            const auto wait_until_over = [&] {
                const auto until = std::chrono::steady_clock::now() + 20s;
                while (!over.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < until)
                    std::this_thread::sleep_for(1ms);
            };
            if (comm.rank() == late) return wait_until_over();
            if (comm.rank() == 0) comm.set_timeout(500ms);
            try {
                colls::broadcast<colls::direct>(comm, data, 0);
            } catch (const colls::error&) {  // of the other one too, where the machine was too busy for it
                if (comm.rank() == 0) std::fill(data.begin(), data.end(), 7);
            }
            if (comm.rank() == 0) over.store(true, std::memory_order_relaxed);
            wait_until_over();
        });
        CHECK(over.load());
    }
}
