// Groups that break together: communicator::tie_parts.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/detail/support/clock.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

/// Shared by all ranks.
struct counters {
    std::atomic<int> ready, heard, received, wrong;
    /// Waits outside of the library.
    void wait_until(const std::function<bool()>& is) {
        for (const double until = colls::detail::seconds_now() + 50; !is();) {
            if (colls::detail::seconds_now() > until) {
                wrong += 1;
                return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    /// The call ends by an error that says why.
    template <class F>
    void hears(const char* why, F call) {
        try {
            call();
            wrong += 1;
        } catch (const colls::error& x) {
            const bool right = x.code() == colls::errc::peer_failed && says(x.what(), why);
            (right ? heard : wrong) += 1;
            if (!right) std::fprintf(stderr, "%s\n", x.what());
        }
    }
};

}  // namespace

TEST_CASE("tie_parts: where one of the groups breaks, ranks hear of it that wait in another", "[tied]") {
    for (const std::string& transport : every_transport())
        for (const bool dies : {false, true})
            for (const bool tied : {true, false}) {
                if (dies && transport == "threads") continue;
                common<counters> shared;
                counters& count = *shared;
                const auto rank = [&](colls::communicator& comm) {
                    comm.set_timeout(std::chrono::seconds(100));
                    if (tied) comm.tie_parts();
                    colls::communicator pair = comm.split(comm.rank() / 2, 0);          // {0, 1}, {2, 3}, {4}
                    colls::communicator part = pair.split(0, 0);                        // split off twice
                    colls::communicator last = comm.split(comm.rank() < 3 ? 0 : 1, 0);  // {0, 1, 2}, {3, 4}
                    colls::barrier(comm);
                    count.ready += 1;
                    count.wait_until([&] { return count.ready == 5; });
                    const char* const why = dies ? "rank 0" : "for a reason";
                    std::vector<int> x(1);
                    const auto wait = [&](colls::communicator& in, int from) {
                        if (tied) return count.hears(why, [&] { colls::recv(in, x, from); });
                        colls::recv(in, x, from);
                        count.received += 1;
                    };
                    if (comm.rank() == 0) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others wait, and sleep
                        if (!dies) part.abort("for a reason");
                        if (dies) raise(SIGKILL);
                        count.wait_until([&] { return count.heard >= (tied ? 3 : 1); });
                    } else if (comm.rank() == 1) {
                        if (tied && !dies)
                            count.wait_until([&] { return count.heard == 2; });  // it hears nothing itself
                        count.hears(why, [&] { colls::barrier(part); });
                    } else if (comm.rank() == 2) {
                        wait(part, 1);  // for rank 3
                    } else if (comm.rank() == 3) {
                        if (tied) wait(last, 1);  // for rank 4
                        if (!tied) {
                            count.wait_until([&] { return count.heard == 1; });
                            std::this_thread::sleep_for(std::chrono::milliseconds(200));
                            colls::send(part, x, 0);
                        }
                    } else {
                        count.wait_until([&] { return count.heard + count.received >= (tied ? 3 : 2); });
                        if (tied) count.hears(why, [&] { colls::recv(comm, x, 1); });
                    }
                    // Those that are left go on in one group, which is tied to none.
                    if (!tied || dies) return;
                    colls::communicator left = comm.shrink();
                    colls::barrier(left);
                };
                try {
                    run_over(transport, 5, rank);
                } catch (const std::exception& x) {
                    if (!dies) std::fprintf(stderr, "%s\n", x.what());
                    count.wrong += !dies;
                }
                INFO(transport << (dies ? ", dies" : ", aborts") << (tied ? ", tied" : ""));
                CHECK(count.heard == (tied ? 4 : 1));
                CHECK(count.received == (tied ? 0 : 1));
                CHECK(count.wrong == 0);
            }
}
