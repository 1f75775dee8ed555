// Wrong arguments, ranks that disagree, ranks that fail: every rank gets an error with the right code, none hangs, and
// no data moves where the mistake could be found before.
#include "catch.hpp"

#include "support/batch.hpp"

#include <colls/detail/group/backoff.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

using namespace support;

namespace {

/// The result of each rank's call: the code of its error, or none.
class outcomes {
public:
    template <class F>
    void of(int rank, F call) {
        std::string text;
        int code = 0, peer = colls::none, thrower = colls::none;
        try {
            call();
        } catch (const colls::error& failure) {
            code = static_cast<int>(failure.code());
            peer = failure.peer();
            thrower = failure.rank();
            text = failure.what();
        }
        const std::lock_guard lock(*mutex_);
        codes_[rank] = code;
        peers_[rank] = peer;
        throwers_[rank] = thrower;
        texts_[rank] = text;
    }
    int count(colls::errc code) const {
        int sum = 0;
        for (const auto& [rank, c] : codes_) sum += c == static_cast<int>(code);
        return sum;
    }
    int failed() const {
        int sum = 0;
        for (const auto& [rank, c] : codes_) sum += c != 0;
        return sum;
    }
    int peer(int rank) const { return peers_.at(rank); }
    int thrower(int rank) const { return throwers_.at(rank); }
    std::string text(int rank) const { return texts_.at(rank); }
    std::string all() const {
        std::string s;
        for (const auto& [rank, text] : texts_)
            s += "rank " + std::to_string(rank) + " (" + std::to_string(codes_.at(rank)) + "): " + text + "\n";
        return s;
    }

private:
    std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
    std::map<int, int> codes_, peers_, throwers_;
    std::map<int, std::string> texts_;
};

/// Times are printed with COLLS_TEST_FIGURES=1 and not asserted, since other programs may use the cores.
void figure(const char* what, std::chrono::steady_clock::time_point began) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (setting("COLLS_TEST_FIGURES", 0)) std::printf("%s: %.3f s\n", what, took.count());
}

/// Every rank makes the same wrong call: invalid_argument everywhere, buffers as they were, and the group still works.
template <class F>
void refused_everywhere(const char* what, int n, F call) {
    INFO(what << ", n " << n);
    outcomes got;
    std::atomic<int> changed{0}, broken{0};
    colls::threads::run(n, [&](auto& comm) {
        guarded buffer(64 * sizeof(int));
        const auto data = buffer.as<int>();
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = comm.rank() * 100 + static_cast<int>(i);
        const std::vector<int> before(data.begin(), data.end());
        got.of(comm.rank(), [&] { call(comm, data); });
        if (!std::equal(before.begin(), before.end(), data.begin()) || !buffer.broken().empty()) ++changed;
        std::array<int, 1> one = {1};
        colls::all_reduce(comm, one, colls::sum);
        if (one[0] != n) ++broken;
    });
    INFO(got.all());
    CHECK(got.count(colls::errc::invalid_argument) == n);
    CHECK(changed == 0);
    CHECK(broken == 0);
    for (int r = 0; r < n; ++r) {
        CHECK(got.thrower(r) == r);
        CHECK(got.text(r).size() > 20);
    }
}

/// The ranks' calls do not fit together: every rank gets an error from this call or its next. Each rank calls `first`,
/// then barriers until the control message has reached it.
template <class F>
outcomes disagree(int n, F first) {
    outcomes got;
    try {
        colls::threads::run(n, [&](auto& comm) {
            got.of(comm.rank(), [&] {
                first(comm);
                for (int i = 0; i < 3; ++i) colls::barrier(comm);
            });
        });
    } catch (const colls::error&) {}
    return got;
}

}  // namespace

TEST_CASE("bad input: rejects a root outside the group", "[bad_input]") {
    for (const int n : {1, 2, 5})
        for (const int root : {-1, -5, n, n + 7, std::numeric_limits<int>::max()}) {
            const auto size = static_cast<std::size_t>(n);
            refused_everywhere("broadcast", n, [&](auto& comm, auto data) { colls::broadcast(comm, data, root); });
            refused_everywhere("reduce", n,
                [&](auto& comm, auto data) { colls::reduce(comm, data.first(32), data.last(32), colls::sum, root); });
            refused_everywhere(
                "gather", n, [&](auto& comm, auto data) { colls::gather(comm, data.first(1), data.last(size), root); });
            refused_everywhere("scatter", n,
                [&](auto& comm, auto data) { colls::scatter(comm, data.first(size), data.last(1), root); });
            refused_everywhere("start::broadcast", n, [&](auto& comm, auto data) {
                auto operation = colls::start::broadcast(comm, data, root);
                operation.wait();
            });
            refused_everywhere("prepare::broadcast", n,
                [&](auto& comm, auto data) { auto plan = colls::prepare::broadcast(comm, data, root); });
        }
}

TEST_CASE("bad input: rejects buffers and counts whose lengths do not fit together", "[bad_input]") {
    for (const int n : {1, 2, 4}) {
        const auto size = static_cast<std::size_t>(n);
        refused_everywhere("all_reduce", n,
            [](auto& comm, auto data) { colls::all_reduce(comm, data.first(10), data.subspan(20, 11), colls::sum); });
        refused_everywhere("all_reduce of a count that has overflowed", n, [](auto& comm, auto data) {
            const std::span<int> far(reinterpret_cast<int*>(data.data()), std::size_t{1} << 62);
            colls::all_reduce(comm, far, colls::sum);
        });
        if (n > 1)
            refused_everywhere("all_gather_v, counts whose sum wraps", n, [&](auto& comm, auto data) {
                std::vector<std::size_t> counts(size, 4);
                counts[0] = 0 - 4 * (size - 1);  // together 0
                colls::all_gather_v(comm, data.first(comm.rank() == 0 ? 0 : 4), data.subspan(20, 0), counts);
            });
        refused_everywhere("all_reduce, no output", n,
            [](auto& comm, auto data) { colls::all_reduce(comm, data.first(10), data.first(0), colls::sum); });
        refused_everywhere("all_gather, output too short", n,
            [&](auto& comm, auto data) { colls::all_gather(comm, data.first(4), data.subspan(20, 3 * size)); });
        refused_everywhere("all_gather, output too long", n,
            [&](auto& comm, auto data) { colls::all_gather(comm, data.first(4), data.subspan(20, 5 * size)); });
        refused_everywhere("reduce_scatter, output too long", n, [&](auto& comm, auto data) {
            colls::reduce_scatter(comm, data.first(4 * size), data.subspan(20, 5), colls::sum);
        });
        refused_everywhere("inclusive_scan", n, [](auto& comm, auto data) {
            colls::inclusive_scan(comm, data.first(10), data.subspan(20, 9), colls::sum);
        });
        refused_everywhere("exclusive_scan", n, [](auto& comm, auto data) {
            colls::exclusive_scan(comm, data.first(9), data.subspan(20, 10), colls::sum);
        });
        refused_everywhere("all_to_all", n,
            [&](auto& comm, auto data) { colls::all_to_all(comm, data.first(2 * size), data.subspan(20, 3 * size)); });
        if (n > 1)
            refused_everywhere("all_to_all of a count that n does not divide", n, [&](auto& comm, auto data) {
                colls::all_to_all(comm, data.first(2 * size + 1), data.subspan(20, 2 * size + 1));
            });
        refused_everywhere("all_gather_v, too few counts", n, [&](auto& comm, auto data) {
            const std::vector<int> counts(size - 1, 2);
            colls::all_gather_v(comm, data.first(2), data.subspan(20, 2 * size), counts);
        });
        refused_everywhere("all_gather_v, output not the sum of the counts", n, [&](auto& comm, auto data) {
            const std::vector<int> counts(size, 2);
            colls::all_gather_v(comm, data.first(2), data.subspan(20, 2 * size + 1), counts);
        });
        refused_everywhere("all_gather_v, input not its count", n, [&](auto& comm, auto data) {
            const std::vector<int> counts(size, 2);
            colls::all_gather_v(comm, data.first(3), data.subspan(20, 2 * size), counts);
        });
        refused_everywhere("all_gather_v, a negative count", n, [&](auto& comm, auto data) {
            std::vector<int> counts(size, 2);
            counts[0] = -2;
            colls::all_gather_v(comm, data.first(2), data.subspan(20, 2 * size), counts);
        });
        refused_everywhere("reduce_scatter_v, counts beyond the input", n, [&](auto& comm, auto data) {
            const std::vector<int> counts(size, 3);
            colls::reduce_scatter_v(comm, data.first(2 * size), data.subspan(20, 3), counts, colls::sum);
        });
        refused_everywhere("all_to_all_v, too many counts", n, [&](auto& comm, auto data) {
            const std::vector<int> counts(size + 1, 1), fine(size, 1);
            colls::all_to_all_v(comm, data.first(size), data.subspan(20, size), counts, fine);
        });
        refused_everywhere("all_to_all_v, input not the sum", n, [&](auto& comm, auto data) {
            const std::vector<int> counts(size, 1);
            colls::all_to_all_v(comm, data.first(size + 1), data.subspan(20, size), counts, counts);
        });
        if (n > 1)
            refused_everywhere(
                "all_to_all_v in place, other counts to a rank than from it", n, [&](auto& comm, auto data) {
                    std::vector<int> sends(size, 1), receives(size, 1);
                    sends.front() = receives.back() = 2;
                    colls::all_to_all_v(comm, data.first(size + 1), data.first(size + 1), sends, receives);
                });
        // Wrong at the root only: the other ranks find nothing wrong, and must not wait for ever.
        for (const bool scatters : {false, true}) {
            outcomes got = disagree(n, [&](auto& comm) {
                std::vector<int> whole(2 * size + 1), own(2);
                if (scatters)
                    colls::scatter(comm, whole, own, 0);
                else
                    colls::gather(comm, own, whole, 0);
            });
            INFO(got.all());
            CHECK(got.failed() == n);
        }
    }
}

TEST_CASE("bad input: rejects a null buffer of some elements", "[bad_input]") {
    for (const int n : {1, 3}) {
        const std::span<int> nowhere(static_cast<int*>(nullptr), 8);
        const auto size = static_cast<std::size_t>(n);
        refused_everywhere("all_reduce", n, [&](auto& comm, auto) { colls::all_reduce(comm, nowhere, colls::sum); });
        refused_everywhere("all_reduce, in", n,
            [&](auto& comm, auto data) { colls::all_reduce(comm, nowhere, data.first(8), colls::sum); });
        refused_everywhere("all_reduce, out", n,
            [&](auto& comm, auto data) { colls::all_reduce(comm, data.first(8), nowhere, colls::sum); });
        refused_everywhere("broadcast", n, [&](auto& comm, auto) { colls::broadcast(comm, nowhere, 0); });
        refused_everywhere(
            "all_gather", n, [&](auto& comm, auto data) { colls::all_gather(comm, nowhere, data.first(8 * size)); });
        refused_everywhere("inclusive_scan", n,
            [&](auto& comm, auto data) { colls::inclusive_scan(comm, data.first(8), nowhere, colls::sum); });
    }
    // A null span of no elements is allowed.
    std::atomic<int> fine{0};
    colls::threads::run(3, [&](auto& comm) {
        const std::span<int> nothing;
        colls::all_reduce(comm, nothing, colls::sum);
        colls::broadcast(comm, nothing, 1);
        colls::all_gather(comm, nothing, nothing);
        colls::inclusive_scan(comm, nothing, nothing, colls::sum);
        colls::all_to_all(comm, nothing, nothing);
        ++fine;
    });
    CHECK(fine == 3);
}

TEST_CASE("bad input: rejects buffers that overlap without being in place", "[bad_input]") {
    for (const int n : {1, 2, 3}) {
        const auto size = static_cast<std::size_t>(n);
        for (const std::size_t shift : {1u, 5u, 9u}) {
            refused_everywhere("all_reduce", n, [&](auto& comm, auto data) {
                colls::all_reduce(comm, data.first(10), data.subspan(shift, 10), colls::sum);
            });
            refused_everywhere("all_reduce, the other way", n, [&](auto& comm, auto data) {
                colls::all_reduce(comm, data.subspan(shift, 10), data.first(10), colls::sum);
            });
            refused_everywhere("exclusive_scan", n, [&](auto& comm, auto data) {
                colls::exclusive_scan(comm, data.first(10), data.subspan(shift, 10), colls::sum);
            });
        }
        refused_everywhere("all_to_all", n,
            [&](auto& comm, auto data) { colls::all_to_all(comm, data.first(10 * size), data.subspan(3, 10 * size)); });
        if (n > 1) {
            refused_everywhere("all_gather, in another rank's block", n, [&](auto& comm, auto data) {
                const auto next = static_cast<std::size_t>((comm.rank() + 1) % n);
                colls::all_gather(comm, data.subspan(next * 5, 5), data.first(5 * size));
            });
            refused_everywhere("reduce_scatter, into another rank's block", n, [&](auto& comm, auto data) {
                const auto next = static_cast<std::size_t>((comm.rank() + 1) % n);
                colls::reduce_scatter(comm, data.first(5 * size), data.subspan(next * 5, 5), colls::sum);
            });
        }
    }
}

TEST_CASE("bad input: rejects a schedule at a group size that it does not support", "[bad_input]") {
    for (const int n : {3, 6, 12}) {
        outcomes got;
        colls::threads::run(n, [&](auto& comm) {
            std::vector<int> data(24, comm.rank());
            got.of(comm.rank(), [&] { colls::all_reduce<colls::halving_doubling>(comm, data, colls::sum); });
            for (const int x : data)
                if (x != comm.rank()) std::abort();
            colls::barrier(comm);
        });
        INFO(got.all());
        CHECK(got.count(colls::errc::unsupported) == n);
    }
}

namespace {
/// Sends the right number of blocks, one of which is the wrong block.
struct wrong_reduce_scatter : pairwise_reduce_scatter {
    static constexpr colls::step at(int rank, int n, int round) {
        colls::step s = pairwise_reduce_scatter::at(rank, n, round);
        if (rank == 1 && round == 0) s.send.blocks = colls::block(rank);
        return s;
    }
};
/// Has a receive without a send, which would wait for ever.
struct unmatched_broadcast : chain_broadcast {
    static constexpr colls::step at(int rank, int n, int round) {
        colls::step s = chain_broadcast{1}.at(rank, n, round);
        if (rank == 0 && round == 0) s.send = {};
        return s;
    }
};
}  // namespace

TEST_CASE("bad input: rejects a schedule whose proof fails", "[bad_input]") {
    outcomes got;
    colls::threads::run(4, [&](auto& comm) {
        std::vector<int> in(8, comm.rank()), out(2, -1);
        got.of(comm.rank(), [&] { colls::reduce_scatter<wrong_reduce_scatter>(comm, in, out, colls::sum); });
        if (out != std::vector<int>(2, -1)) std::abort();
        colls::barrier(comm);
    });
    INFO(got.all());
    CHECK(got.count(colls::errc::wrong_schedule) == 4);
    outcomes second;
    colls::threads::run(3, [&](auto& comm) {
        std::vector<int> data(8, comm.rank());
        second.of(comm.rank(), [&] { colls::broadcast<unmatched_broadcast>(comm, data, 1); });
        colls::barrier(comm);
    });
    INFO(second.all());
    CHECK(second.count(colls::errc::wrong_schedule) == 3);
}

TEST_CASE("bad input: ranks that make different calls get a mismatch", "[bad_input][mismatch]") {
    for (const int n : {2, 3, 8})
        for (const std::size_t count : {std::size_t{3}, std::size_t{3000}, std::size_t{50'000}})
            for (const int odd : {0, n - 1}) {
                INFO("n " << n << ", count " << count << ", the odd one " << odd);
                const auto check = [&](const char* what, const outcomes& got) {
                    INFO(what << "\n" << got.all());
                    CHECK(got.failed() == n);
                    CHECK(got.count(colls::errc::mismatch) == n);
                };
                check("count", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count + (comm.rank() == odd ? 1 : 0));
                    colls::all_reduce(comm, data, colls::sum);
                }));
                check("a much larger count", disagree(n, [&](auto& comm) {
                    std::vector<int> data(comm.rank() == odd ? count * 50 : count);
                    colls::all_reduce(comm, data, colls::sum);
                }));
                check("collective", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count);
                    if (comm.rank() == odd)
                        colls::broadcast(comm, data, 0);
                    else
                        colls::all_reduce(comm, data, colls::sum);
                }));
                check("operator", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count);
                    if (comm.rank() == odd)
                        colls::all_reduce(comm, data, colls::max);
                    else
                        colls::all_reduce(comm, data, colls::sum);
                }));
                check("type of the same size", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count);
                    std::vector<float> other(count);
                    if (comm.rank() == odd)
                        colls::all_reduce(comm, other, colls::sum);
                    else
                        colls::all_reduce(comm, data, colls::sum);
                }));
                check("root", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count);
                    colls::broadcast(comm, data, comm.rank() == odd ? 1 : 0);
                }));
                check("schedule", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count);
                    if (comm.rank() == odd)
                        colls::all_reduce<colls::ring>(comm, data, colls::sum);
                    else
                        colls::all_reduce<colls::direct>(comm, data, colls::sum);
                }));
                check("a started call against another collective", disagree(n, [&](auto& comm) {
                    std::vector<int> data(count), more(count * static_cast<std::size_t>(n));
                    auto operation = comm.rank() == odd ? colls::start::all_gather(comm, data, more)
                                                        : colls::start::all_reduce(comm, data, colls::sum);
                    operation.wait();
                }));
            }
}

TEST_CASE("bad input: v-variants whose counts differ across ranks are a mismatch", "[bad_input][mismatch]") {
    for (const int n : {2, 4}) {
        const auto size = static_cast<std::size_t>(n);
        outcomes gathered = disagree(n, [&](auto& comm) {
            std::vector<int> counts(size, 3);
            if (comm.rank() == 1) counts[0] = 4;  // its own count differs from the other ranks'
            std::vector<int> in(3), out(3 * size + (comm.rank() == 1 ? 1 : 0));
            colls::all_gather_v(comm, in, out, counts);
        });
        INFO(gathered.all());
        CHECK(gathered.count(colls::errc::mismatch) == n);
        outcomes crossed = disagree(n, [&](auto& comm) {
            std::vector<int> sends(size, 2), receives(size, 2);
            if (comm.rank() == 1) receives[0] = 3;  // rank 0 sends two
            std::vector<int> in(2 * size), out(2 * size + (comm.rank() == 1 ? 1 : 0));
            colls::all_to_all_v(comm, in, out, sends, receives);
        });
        INFO(crossed.all());
        CHECK(crossed.count(colls::errc::mismatch) == n);
    }
}

TEST_CASE("bad input: an exception of one rank ends the others' calls, and leaves threads::run", "[bad_input]") {
    for (const int n : {2, 3, 8, 17})
        for (const std::size_t count : {std::size_t{1}, std::size_t{50'000}})
            for (int turn = 0; turn < 4; ++turn) {
                const int thrower = turn % 2 ? n - 1 : 0;
                outcomes got;
                bool right = false;
                try {
                    colls::threads::run(n, [&](auto& comm) {
                        std::vector<int> data(count, 1);
                        const auto calls = [&](int times) {
                            for (int i = 0; i < times; ++i) colls::all_reduce(comm, data, colls::sum);
                        };
                        if (comm.rank() == thrower) {
                            calls(turn);
                            throw std::out_of_range("my own business");
                        }
                        // Also in the last call that the throwing rank made: another rank may still be in it.
                        got.of(comm.rank(), [&] { calls(turn + 3); });
                    });
                } catch (const std::out_of_range& failure) {
                    right = std::string_view(failure.what()) == "my own business";
                }
                INFO("n " << n << ", count " << count << ", thrower " << thrower << "\n" << got.all());
                CHECK(right);
                CHECK(got.count(colls::errc::peer_failed) == n - 1);
                for (int r = 0; r < n; ++r)
                    if (r != thrower) CHECK(got.peer(r) == thrower);
            }
}

TEST_CASE("bad input: an operator that throws", "[bad_input]") {
    struct refusal {};
    for (const std::size_t count : {std::size_t{3}, std::size_t{40'000}}) {
        bool right = false;
        try {
            colls::threads::run(3, [&](auto& comm) {
                std::vector<int> data(count, comm.rank());
                colls::all_reduce(comm, data, colls::commutative([](int a, int b) {
                    if (a == 2 || b == 2) throw refusal{};
                    return a + b;
                }));
                colls::barrier(comm);
            });
        } catch (const refusal&) {
            right = true;
        }
        CHECK(right);
    }
}

TEST_CASE("bad input: the error names a rank that has left early, without waiting for it", "[bad_input]") {
    for (const int n : {2, 5}) {
        outcomes got;
        const auto began = std::chrono::steady_clock::now();
        colls::threads::run(n, [&](auto& comm) {
            if (comm.rank() == 1) return;
            std::vector<int> data(20'000);
            got.of(comm.rank(), [&] { colls::all_reduce(comm, data, colls::sum); });
        });
        INFO(got.all());
        CHECK(got.count(colls::errc::peer_failed) == n - 1);
        for (int r = 0; r < n; ++r)
            if (r != 1) CHECK(got.peer(r) == 1);
        figure("a rank that leaves", began);
    }
}

TEST_CASE("bad input: a timeout names the rank that does not call", "[bad_input]") {
    constexpr double deadline = 2;
    for (const std::size_t count : {std::size_t{1}, std::size_t{50'000}}) {
        outcomes got;
        std::atomic<int> over{0};
        const auto began = std::chrono::steady_clock::now();
        try {
            colls::threads::run(3, [&](auto& comm) {
                std::vector<int> data(count);
                // All ranks are there: within this deadline the others wait for rank 1 alone, and for a core.
                colls::barrier(comm);
                if (comm.rank() != 1) comm.context().env.timeout = deadline;
                if (comm.rank() == 1) {
                    while (over < 2) std::this_thread::yield();
                    got.of(1, [&] { colls::all_reduce(comm, data, colls::sum); });
                    return;
                }
                got.of(comm.rank(), [&] { colls::all_reduce(comm, data, colls::sum); });
                ++over;
            });
        } catch (const colls::error&) {}
        const auto took = std::chrono::steady_clock::now() - began;
        INFO(got.all());
        CHECK(got.failed() == 3);
        CHECK(got.count(colls::errc::timeout) == 3);
        CHECK(got.peer(0) == 1);
        CHECK(got.peer(2) == 1);
        // A call in rounds: the error names the round, and the blocks that were to be received in it.
        if (count > 1) CHECK(got.all().find(", round 0, block") != std::string::npos);
        CHECK(took > std::chrono::duration<double>(0.8 * deadline));
        figure("a rank that never comes", began);
    }
}

TEST_CASE("bad input: rejects a group of no ranks", "[bad_input]") {
    for (const int n : {0, -1}) {
        bool thrown = false;
        try {
            colls::threads::run(n, [](auto&) {});
        } catch (const colls::error& failure) {
            thrown = failure.code() == colls::errc::invalid_argument;
        }
        CHECK(thrown);
    }
}
