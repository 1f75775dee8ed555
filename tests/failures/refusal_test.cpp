// A rank whose own arguments are wrong gets the error at once. The ranks that wait for it are told so, unless it makes
// the call with right arguments after all.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/every_transport.hpp"
#include "support/launch.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>
#include <colls/world.hpp>

#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>

using namespace support;

namespace {

struct figures {
    std::atomic<int> told, other, right;
    std::atomic<int> late;  ///< calls that have failed when the rank had waited for a tenth of a second
};
template <class F>
std::string on(const std::string& transport, int n, F f) {
    std::string text = "no error";
    try {
        run_over(transport, n, f);
    } catch (const colls::error& e) {
        text = e.what();
    }
    return text;
}

}  // namespace

TEST_CASE("refusal: ranks that wait for one with wrong arguments are told why", "[refusal]") {
    for (const std::string& transport : every_transport())
        for (const std::size_t count : {std::size_t{3}, std::size_t{30'000}})
            for (const bool used_before : {false, true}) {
                common<figures> got;
                on(transport, 4, [&](colls::communicator& comm) {
                    std::vector<int> own(count, comm.rank()), all(comm.rank() == 0 ? 4 * count - 4 : 0);
                    if (used_before) colls::all_reduce(comm, own, colls::sum);
                    try {
                        colls::gather(comm, own, all, 0);
                        colls::barrier(comm);  // a gather of few bytes does not wait for its root
                        ++got->other;
                    } catch (const colls::error& e) {
                        const std::string text = e.what();
                        if (comm.rank() == 0)
                            got->right += e.code() == colls::errc::invalid_argument &&
                                          says(text, "the output holds " + std::to_string(4 * count - 4));
                        else if (e.code() == colls::errc::peer_failed && e.peer() == 0 && says(text, "refused") &&
                                 says(text, "the output holds"))
                            ++got->told;
                        else
                            std::fprintf(stderr, "%s\n", text.c_str()), ++got->other;
                    }
                    // Rank 0 is not in any call of the library while the others wait.
                    for (int i = 0; i < 20'000 && got->told + got->other < 3; ++i) usleep(1'000);
                });
                INFO(transport << ", count " << count << ", used before: " << used_before);
                CHECK(got->right == 1);
                CHECK(got->told == 3);
                CHECK(got->other == 0);
            }
}

TEST_CASE("refusal: a rank that corrects its arguments completes the call for all", "[refusal]") {
    for (const std::string& transport : every_transport())
        for (const std::size_t count : {std::size_t{3}, std::size_t{30'000}}) {
            common<figures> got;
            const auto task = [&](colls::communicator& comm) {
                const auto corrected = [&](auto call) {
                    const double began = colls::detail::seconds_now();
                    try {
                        call();
                    } catch (const colls::error&) {
                        got->late += colls::detail::seconds_now() - began > 0.1;
                        throw;
                    }
                };
                for (int turn = 0; turn < 5; ++turn) {
                    std::vector<int> own(count, comm.rank() + turn), all(4 * count), few(2);
                    if (comm.rank() == turn % 4) try {
                            colls::all_gather(comm, own, few);
                        } catch (const colls::error& e) {
                            got->told += e.code() == colls::errc::invalid_argument;
                        }
                    corrected([&] { colls::all_gather(comm, own, all); });
                    got->right += all[0] == turn && all[4 * count - 1] == 3 + turn;
                }
                // A plan is a call, too.
                std::vector<int> x(count, 1);
                auto plan = colls::prepare::all_reduce(comm, x, colls::sum);
                if (comm.rank() == 2) try {
                        colls::broadcast(comm, x, 4);
                    } catch (const colls::error& e) {
                        got->told += e.code() == colls::errc::invalid_argument;
                    }
                corrected([&] { plan.run(); });
                usleep(comm.rank() == 2 ? 150'000
                                        : 0);  // the others wait for it: it is slow, and its last call was accepted
                colls::barrier(comm);
                got->right += x[count - 1] == 4;
            };
            // Once more where the rank was late, as one that has lost its core: the others wait for a tenth of a
            // second.
            std::string text;
            for (int trial = 0; trial < 5 && (trial == 0 || got->late > 0); ++trial) {
                got->told = got->right = got->late = 0;
                text = on(transport, 4, task);
            }
            INFO(transport << ", count " << count << ": " << text);
            CHECK(text == "no error");
            CHECK(got->told == 6);
            CHECK(got->right == 24);
        }
}

TEST_CASE("refusal: a rank that splits its group after one has made its next call", "[refusal]") {
    for (const std::string& transport : every_transport()) {
        const std::string text = on(transport, 2, [](colls::communicator& comm) {
            int x = comm.rank();
            if (comm.rank() == 1) try {
                    colls::broadcast(comm, std::span(&x, 1), 2);
                } catch (const colls::error&) {}
            colls::communicator part = comm.split(0, 0);
            usleep(comm.rank() == 1 ? 300'000 : 0);  // the other one waits for it: it is slow
            colls::barrier(comm);
        });
        INFO(transport);
        CHECK(text == "no error");
    }
}

TEST_CASE("refusal: ranks that run a plan are told of one whose plan is still in use", "[refusal]") {
    const with_environment deadline("COLLS_TIMEOUT", "20");
    for (const std::string& transport : every_transport())
        for (const bool started : {false, true}) {
            common<figures> got;
            on(transport, 2, [&](colls::communicator& comm) {
                int x = 1;
                colls::plan plan = colls::prepare::all_reduce(comm, std::span(&x, 1), colls::sum);
                colls::operation first = plan.start();
                if (comm.rank() == 0) first.wait();
                try {
                    if (started)
                        plan.start().wait();
                    else
                        plan.run();
                } catch (const colls::error& e) {
                    const bool right =
                        e.code() == (comm.rank() == 0 ? colls::errc::peer_failed : colls::errc::invalid_argument);
                    ++(right && says(e.what(), "the plan's operation is not over") ? got->right : got->other);
                }
                first.wait();
                while (comm.rank() == 1 && got->right + got->other < 2) usleep(1'000);
            });
            INFO(transport << ", started: " << started);
            CHECK(got->right == 2);
            CHECK(got->other == 0);
        }
}

// Programs of one rank, as texts: 'r' for a call that it refuses, 'c' for a call that it makes. A rank is at a position
// of its program: its calls and refusals before that are behind it, and its last refusal is known to the others until
// it makes a call.
TEST_CASE("refusal: a rank takes a peer's for its own call unless it has refused as often at that place", "[refusal]") {
    struct place_of {
        std::uint64_t calls = 0, published = 0;
        colls::detail::refused_calls refused;
        place_of(const std::string& program, std::size_t length) {
            for (const char step : program.substr(0, length))
                if (step == 'r')
                    published = refused.add(calls);
                else
                    ++calls, published = 0;
        }
    };
    std::vector<std::string> programs;
    for (std::size_t length = 1; length <= 6; ++length)
        for (unsigned bits = 0; bits < 1u << length; ++bits) {
            programs.emplace_back();
            for (std::size_t i = 0; i < length; ++i) programs.back() += bits >> i & 1 ? 'r' : 'c';
        }
    const auto refusals_at = [](const std::string& program, std::uint64_t place) {
        unsigned count = 0;
        std::uint64_t calls = 0;
        for (const char step : program) (step == 'r' ? count += calls == place : calls++);
        return count;
    };
    int wrong = 0, concerned = 0;
    for (const std::string& own : programs)
        for (const std::string& other : programs)
            for (std::size_t i = 0; i < own.size(); ++i) {
                if (own[i] != 'c') continue;
                const place_of self(own, i);  // it waits in the call at i
                for (std::size_t j = 0; j <= other.size(); ++j) {
                    const place_of peer(other, j);
                    const bool told = self.refused.concerns(peer.published, self.calls);
                    const bool right =
                        j > 0 && other[j - 1] == 'r' && peer.calls <= self.calls &&
                        refusals_at(other.substr(0, j), peer.calls) > refusals_at(own.substr(0, i), peer.calls);
                    wrong += told != right;
                    if (own == other) wrong += told;  // equal programs: one is only slower
                    concerned += told;
                }
            }
    CHECK(wrong == 0);
    CHECK(concerned > 1000);
    // A rank that is more places ahead than are remembered, and one that refuses without end.
    colls::detail::refused_calls ahead, behind;
    const std::uint64_t first = behind.add(0);
    ahead.add(0), ahead.add(32);
    CHECK_FALSE(ahead.concerns(first, 33));
    for (int i = 0; i < 70'000; ++i) ahead.add(64), behind.add(64);
    CHECK_FALSE(ahead.concerns(behind.add(64), 64));
    CHECK(ahead.concerns(behind.add(65), 65));
}

namespace {

/// All ranks make the same calls, some of which are wrong, and one rank is slower.
void refuse_together(colls::communicator& comm, figures& got) {
    const int n = comm.rank(), slow = comm.size() - 1;
    std::vector<int> own(3, n), all(3 * static_cast<std::size_t>(comm.size())), few(2), x(3, 1);
    const auto late = [&] {
        if (n == slow) usleep(130'000);  // a rank that waits takes a refusal for its call after 0.1 s
    };
    const auto refused = [&](auto call) {
        try {
            call();
            ++got.other;
        } catch (const colls::error& e) {
            got.told += e.code() == colls::errc::invalid_argument;
        }
    };
    const auto good = [&](auto call) {
        if (got.told > 0) late();
        call();
        ++got.right;
    };
    good([&] { colls::barrier(comm); });
    refused([&] { colls::all_gather(comm, own, few); });
    late();
    refused([&] { colls::all_gather(comm, own, few); });
    good([&] { colls::all_gather(comm, own, all); });
    refused([&] { colls::start::all_gather(comm, own, few).wait(); });
    refused([&] { colls::broadcast(comm, x, comm.size()); });
    good([&] { colls::start::all_reduce(comm, x, colls::sum).wait(); });
    refused([&] { colls::prepare::all_gather(comm, own, few).run(); });
    auto plan = colls::prepare::all_reduce(comm, x, colls::sum);
    refused([&] { colls::prepare::broadcast(comm, x, -1).run(); });
    good([&] { plan.run(); });
}

}  // namespace

TEST_CASE("refusal: calls that all ranks refuse leave the group whole, where one rank is slower", "[refusal]") {
    std::vector<std::string> all = every_transport();
    if (!sanitized_threads) all.push_back("hosts");
    for (const std::string& transport : all)
        for (const bool part : {false, true}) {
            if (part ? transport == "shm" : transport == "threads" || transport == "hosts") continue;
            common<figures> got;
            const auto task = [&](colls::communicator& comm) {
                if (!part) return refuse_together(comm, *got);
                colls::communicator half = comm.split(comm.rank() % 2, comm.rank());
                refuse_together(half, *got);
                colls::barrier(comm);
            };
            std::string text = "no error";
            if (transport == "hosts") try {
                    launch_world(4, 2, task);
                } catch (const std::exception& e) {
                    text = e.what();
                }
            else
                text = on(transport, 4, task);
            INFO(transport << ", part: " << part << ": " << text);
            CHECK(text == "no error");
            CHECK(got->told == 4 * 6);
            CHECK(got->other == 0);
            CHECK(got->right == 4 * 4);
        }
}
