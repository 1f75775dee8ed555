// Functions beside the collectives: blocks of buffers, waiting for several operations, exchange, recv_any and abort;
// and an operator that each rank gives a factor of its own. On threads, and between processes over shared memory and
// TCP.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

/// Numbers that identify the sender, the message and the place in it.
std::vector<int> letter(int from, int number, std::size_t count) {
    std::vector<int> v(count);
    std::iota(v.begin(), v.end(), from * 1'000'000 + number * 7919);
    return v;
}
void nap(double seconds) {
    const timespec t{static_cast<time_t>(seconds),
        static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
    nanosleep(&t, nullptr);
}

/// Every reduction, with a factor that only this rank gives.
void sum_by_factors(colls::communicator& comm, std::size_t count) {
    const int n = comm.size(), me = comm.rank();
    const auto own = colls::premul_sum(me + 2);
    const auto value = [](int rank, std::size_t i) { return rank * 7 + static_cast<int>(i % 100); };
    const auto filled = [&](std::size_t length) {
        std::vector<int> x(length);
        for (std::size_t i = 0; i < length; ++i) x[i] = value(me, i);
        return x;
    };
    const auto check = [&](const char* call, std::span<const int> got, std::size_t first, int ranks) {
        for (std::size_t i = 0; i < got.size(); ++i) {
            int sum = 0;
            for (int r = 0; r < ranks; ++r) sum += (r + 2) * value(r, first + i);
            if (got[i] != sum)
                throw std::runtime_error(std::string(call) + " of " + std::to_string(count) + ": element " +
                                         std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                                         std::to_string(sum));
        }
    };
    const std::vector<int> in = filled(count);
    std::vector<int> x = in, out(count);
    colls::all_reduce(comm, in, out, own);
    check("all_reduce", out, 0, n);
    colls::all_reduce(comm, x, own);
    check("all_reduce in place", x, 0, n);
    x = in;
    colls::all_reduce<colls::ring>(comm, x, own);
    check("all_reduce by a ring", x, 0, n);
    colls::inclusive_scan(comm, in, out, own);
    check("inclusive_scan", out, 0, me + 1);
    out.assign(count, 5);
    colls::exclusive_scan(comm, in, out, own);
    expect(me > 0 || std::all_of(out.begin(), out.end(), [](int y) { return y == 5; }), "exclusive_scan on rank 0");
    if (me > 0) check("exclusive_scan", out, 0, me);
    for (const int root : {0, n - 1}) {
        colls::reduce(comm, in, out, own, root);
        if (me == root) check("reduce", out, 0, n);
    }
    colls::start::all_reduce(comm, in, out, own).wait();
    check("start::all_reduce", out, 0, n);
    x = in;
    colls::plan again = colls::prepare::all_reduce(comm, x, own),
                to_root = colls::prepare::reduce(comm, in, out, own, 0);
    for (int k = 0; k < 3; ++k) {
        std::copy(in.begin(), in.end(), x.begin());
        k == 1 ? again.start().wait() : again.run();
        check("prepare::all_reduce", x, 0, n);
        to_root.run();
        if (me == 0) check("prepare::reduce", out, 0, n);
    }
    std::vector<int> all = filled(count * static_cast<std::size_t>(n));
    const std::size_t first = static_cast<std::size_t>(me) * count;
    colls::reduce_scatter(comm, all, out, own);
    check("reduce_scatter", out, first, n);
    colls::start::reduce_scatter(comm, all, out, own).wait();
    check("start::reduce_scatter", out, first, n);
    expect(in == filled(count) && all == filled(all.size()), "an input has changed");
    const std::span<int> block(all.data() + first, count);
    colls::reduce_scatter(comm, all, block, own);
    check("reduce_scatter in place", block, first, n);
}

static_assert(colls::block_of(10, 4, 0) == colls::buffer_block{0, 3});
static_assert(colls::block_of(10, 4, 2) == colls::buffer_block{6, 2});
static_assert(colls::blocks_of(10, 4).size() == 4 && colls::blocks_of(10u, 4)[3] == colls::buffer_block{8, 2});
static_assert(std::input_iterator<colls::buffer_blocks::iterator>);
static_assert(colls::blocks_of(colls::ring::reduce_scatter{}, 4) == 4);  // the overload for schedules is still found

}  // namespace

TEST_CASE("blocks: cover the buffer in order, the first ones longer by one", "[helpers]") {
    for (const int n : {1, 2, 3, 7, 64})
        for (const std::size_t count : {0u, 1u, 2u, 6u, 7u, 8u, 1000u, 1'000'003u}) {
            std::size_t next = 0;
            int r = 0;
            for (const auto [offset, size] : colls::blocks_of(count, n)) {
                REQUIRE(offset == next);
                REQUIRE(size == count / static_cast<std::size_t>(n) +
                                    (static_cast<std::size_t>(r) < count % static_cast<std::size_t>(n)));
                REQUIRE(colls::block_of(count, n, r) == colls::blocks_of(count, n)[r]);
                REQUIRE(colls::block_of(count, n, r) == colls::buffer_block{offset, size});
                next += size;
                ++r;
            }
            CHECK(r == n);
            CHECK(next == count);
        }
    CHECK(lacks(refusal_of([] { colls::block_of(5, 3, 3); }), {"block 3 is out of range: there are blocks 0 to 2"}) ==
          "");
    CHECK(lacks(refusal_of([] { colls::block_of(5, 3, -1); }), {"block -1 is out of range"}) == "");
    CHECK(lacks(refusal_of([] { colls::block_of(5, 0, 0); }), {"0 blocks"}) == "");
    CHECK(lacks(refusal_of([] { colls::blocks_of(5, -2); }), {"-2 blocks"}) == "");
}

TEST_CASE("blocks: are those of the collectives", "[helpers]") {
    for (const int n : {1, 3, 5})
        on_every_transport(n, [n](auto& comm) {
            for (const std::size_t count : {std::size_t{0}, std::size_t{2}, std::size_t{13}, std::size_t{10'001}}) {
                const auto [offset, size] = colls::block_of(count, n, comm.rank());
                std::vector<int> whole(count), own(size);
                std::iota(whole.begin(), whole.end(), 5);
                colls::reduce_scatter(comm, whole, own, colls::max);
                expect(std::equal(own.begin(), own.end(), whole.begin() + static_cast<std::ptrdiff_t>(offset)),
                    "reduce_scatter");
                std::vector<int> all(count, -1);
                colls::all_gather(comm, own, all);
                expect(all == whole, "all_gather");
            }
        });
}

TEST_CASE("wait_all: takes ranges, arrays and single operations, in any order, empty ones too", "[helpers]") {
    for (const int n : {2, 3, 5})
        on_every_transport(n, [n](auto& comm) {
            const int rank = comm.rank();
            for (const std::size_t count : {std::size_t{0}, std::size_t{13}, std::size_t{100'003}}) {
                std::vector<std::vector<int>> in(static_cast<std::size_t>(n), std::vector<int>(count, -1)), out;
                std::vector<colls::operation> operations;
                operations.emplace_back();
                for (int peer = 0; peer < n; ++peer) out.push_back(letter(rank, peer, count));
                for (int peer = 0; peer < n; ++peer)
                    operations.push_back(colls::start::send(comm, out[static_cast<std::size_t>(peer)], peer));
                for (int peer = n - 1; peer >= 0; --peer)
                    operations.push_back(colls::start::recv(comm, in[static_cast<std::size_t>(peer)], peer));
                colls::wait_all(operations);
                for (const auto& o : operations) expect(o.empty(), "an operation is not over");
                for (int peer = 0; peer < n; ++peer)
                    expect(in[static_cast<std::size_t>(peer)] == letter(peer, rank, count), "a message");
                colls::wait_all(operations);  // once more: nothing to wait for

                std::vector<int> a(count, rank), b(count, 1), c(count, rank);
                auto first = colls::start::all_reduce(comm, a, colls::sum);
                colls::wait_all(first, colls::start::all_reduce(comm, b, colls::sum));
                colls::operation one[] = {colls::start::broadcast(comm, c, n - 1), {}};
                colls::wait_all(one);
                expect(a == std::vector<int>(count, n * (n - 1) / 2) && b == std::vector<int>(count, n) &&
                           c == std::vector<int>(count, n - 1),
                    "sums");
            }
        });
}

TEST_CASE("wait_all: throws the first error once all operations are over", "[helpers]") {
    on_every_transport(3, [](auto& comm) {
        colls::communicator whole = comm.split(0, comm.rank()), part = comm.split(0, comm.rank());
        std::vector<int> data(20'000, 1), other(30'000, 1);
        if (comm.rank() == 2) {
            colls::barrier(comm);
            part = {};  // leaves that group alone
            colls::start::all_reduce(whole, other, colls::sum).wait();
        } else {
            std::vector<colls::operation> operations;
            operations.push_back(colls::start::all_reduce(part, data, colls::sum));
            operations.push_back(colls::start::all_reduce(whole, other, colls::sum));
            colls::barrier(comm);  // rank 2 leaves once both have started: an operation of a broken group would not
            bool thrown = false;
            try {
                colls::wait_all(operations);
            } catch (const colls::error& failure) {
                thrown = failure.code() == colls::errc::peer_failed;
            }
            expect(thrown, "no error");
            expect(operations[0].empty() && operations[1].empty(), "not all are over");
        }
        expect(other == std::vector<int>(30'000, 3), "the other operation's result");
        colls::barrier(whole);
    });
}

TEST_CASE("wait_any: returns each operation once, as they end, and then none", "[helpers]") {
    for (const int n : {2, 4})
        on_every_transport(n, [n](auto& comm) {
            if (comm.rank() != 0) {
                // In reverse order of ranks, each once the message before has been received.
                int turn = 0;
                colls::recv(comm, std::span(&turn, 1), 0);
                colls::send(comm, letter(comm.rank(), 0, 1000), 0);
                return;
            }
            std::vector<std::vector<int>> in(static_cast<std::size_t>(n), std::vector<int>(1000));
            std::vector<colls::operation> operations(static_cast<std::size_t>(n));  // that of rank 0 stays empty
            for (int peer = 1; peer < n; ++peer)
                operations[static_cast<std::size_t>(peer)] =
                    colls::start::recv(comm, in[static_cast<std::size_t>(peer)], peer);
            for (int peer = n - 1; peer > 0; --peer) {
                colls::send(comm, std::span(&peer, 1), peer);
                expect(colls::wait_any(operations) == peer, "another index");
                expect(operations[static_cast<std::size_t>(peer)].empty(), "it is not empty");
                expect(in[static_cast<std::size_t>(peer)] == letter(peer, 0, 1000), "a message");
            }
            expect(colls::wait_any(operations) == colls::none, "all are empty");
            expect(colls::wait_any(std::vector<colls::operation>{}) == colls::none, "no operations");
        });
}

TEST_CASE("wait_any: throws the error of a failed operation, which is empty then", "[helpers]") {
    on_every_transport(2, [](auto& comm) {
        colls::communicator part = comm.split(0, comm.rank());
        std::vector<int> data(20'000, 1);
        colls::barrier(part);
        if (comm.rank() == 1) {
            part = {};
        } else {
            std::vector<colls::operation> operations(2);
            operations[1] = colls::start::recv(part, data, 1);
            bool thrown = false;
            try {
                colls::wait_any(operations);
            } catch (const colls::error& failure) {
                thrown = failure.code() == colls::errc::peer_failed && failure.peer() == 1;
            }
            expect(thrown && operations[1].empty() && colls::wait_any(operations) == colls::none, "no error");
        }
        colls::barrier(comm);
    });
}

TEST_CASE("exchange: around a ring, with a partner, and of a rank with itself", "[helpers]") {
    for (const int n : {1, 2, 3, 5, 8})
        on_every_transport(n, [n](auto& comm) {
            const int rank = comm.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
            for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{100'003}}) {
                std::vector<int> in(count, -1);
                for (int turn = 0; turn < 3; ++turn) {
                    colls::exchange(comm, letter(rank, turn, count), right, in, left);
                    expect(in == letter(left, turn, count), "from the left");
                }
                colls::exchange(comm, letter(rank, 9, count), rank, in, rank);
                expect(in == letter(rank, 9, count), "from itself");
                const int partner = (rank ^ 1) < n ? rank ^ 1 : rank;
                colls::exchange(comm, letter(rank, 4, count), partner, in, partner);
                expect(in == letter(partner, 4, count), "from the partner");
            }
            // Different types and lengths in the two directions.
            std::vector<double> doubles(7);
            std::vector<char> chars(3, static_cast<char>('a' + rank));
            if (n == 2 && rank == 0) colls::exchange(comm, chars, 1, doubles, 1);
            if (n == 2 && rank == 1) colls::exchange(comm, std::vector<double>(7, 2.5), 0, chars, 0);
            if (n == 2) expect(rank == 0 ? doubles[6] == 2.5 : chars[2] == 'a', "other types");
        });
}

TEST_CASE("exchange: wrong arguments are refused before anything moves", "[helpers]") {
    on_every_transport(2, [](auto& comm) {
        std::vector<int> data(10), other(10);
        const std::span<int> all(data);
        const int peer = 1 - comm.rank();
        expect(lacks(refusal_of([&] { colls::exchange(comm, data, 2, other, peer); }),
                   {"in exchange: peer 2 is out of range: this group has ranks 0 to 1"})
                   .empty(),
            "to");
        expect(lacks(refusal_of([&] { colls::exchange(comm, data, peer, other, -1); }),
                   {"in exchange: peer -1 is out of range"})
                   .empty(),
            "from");
        expect(lacks(refusal_of([&] { colls::exchange(comm, all.first(6), peer, all.last(5), peer); }),
                   {"the two buffers overlap"})
                   .empty(),
            "overlap");
        colls::exchange(comm, all.first(5), peer, all.last(5), peer);  // and the group still works
    });
}

TEST_CASE("recv_any: receives all messages of all ranks, those of each rank in order", "[helpers]") {
    for (const int n : {2, 3, 5, 8})
        on_every_transport(n, [n](auto& comm) {
            constexpr int many = 20;
            const int rank = comm.rank();
            for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{40'003}}) {
                if (rank != 0) {
                    std::vector<colls::operation> sends;
                    std::vector<std::vector<int>> out;
                    for (int i = 0; i < many; ++i) out.push_back(letter(rank, i, count));
                    for (int i = 0; i < many; ++i) {
                        if (i % 3 == rank % 3)
                            colls::send(comm, out[static_cast<std::size_t>(i)], 0);
                        else
                            sends.push_back(colls::start::send(comm, out[static_cast<std::size_t>(i)], 0));
                        if (i % 7 == 6) colls::wait_all(sends), sends.clear();
                    }
                    colls::wait_all(sends);
                } else {
                    std::vector<int> next(static_cast<std::size_t>(n)), in(count);
                    for (int i = 0; i < many * (n - 1); ++i) {
                        const int from = colls::recv_any(comm, in);
                        expect(from > 0 && from < n, "no rank");
                        expect(in == letter(from, next[static_cast<std::size_t>(from)]++, count), "another message");
                    }
                    for (int r = 1; r < n; ++r) expect(next[static_cast<std::size_t>(r)] == many, "of each as many");
                }
                colls::barrier(comm);
            }
        });
}

TEST_CASE("probe_any: names a rank whose message recv_any receives next, or none", "[helpers]") {
    for (const int n : {2, 3, 5})
        on_every_transport(n, [n](auto& comm) {
            for (int turn = 0; turn < 3; ++turn) {
                if (comm.rank() == 0) {
                    expect(colls::probe_any(comm) == colls::none, "a message before any is sent");
                    colls::barrier(comm);
                    int seen = 0;
                    while (seen < n - 1) {
                        const int from = colls::probe_any(comm);
                        if (from == colls::none) continue;
                        int value = 0;
                        expect(colls::recv_any(comm, std::span(&value, 1)) == value, "of another rank than it says");
                        ++seen;
                    }
                    expect(colls::probe_any(comm) == colls::none, "a message after all have come");
                } else {
                    colls::barrier(comm);
                    const int value = comm.rank();
                    colls::send(comm, std::span(&value, 1), 0);
                }
                colls::barrier(comm);
            }
        });
}

TEST_CASE("recv_any: serves ranks that send all the time in turn", "[helpers]") {
    on_every_transport(4, [](auto& comm) {
        constexpr int many = 30;
        std::vector<int> data(3);
        if (comm.rank() != 0) {
            colls::send(comm, data, 0);
            colls::barrier(comm);
            std::vector<colls::operation> sends;
            for (int i = 0; i < many; ++i) sends.push_back(colls::start::send(comm, data, 0));
            colls::barrier(comm);
            colls::wait_all(sends);
            return;
        }
        // One message of each: where ranks share no memory, they announce the next ones when they send them.
        for (int i = 0; i < 3; ++i) colls::recv_any(comm, data);
        colls::barrier(comm);
        colls::barrier(comm);  // all ranks have sent a message
        std::vector<int> heard(4);
        for (int i = 0; i < 3 * many; ++i) {
            nap(1e-3);  // so that the next message of the rank just received from has arrived
            ++heard[static_cast<std::size_t>(colls::recv_any(comm, data))];
            // However slow a rank is, its first message was there before, and is received before the last ones of the
            // two others.
            if (i == 2 * many - 1) expect(*std::min_element(heard.begin() + 1, heard.end()) > 0, "one is kept waiting");
        }
    });
}

TEST_CASE("recv_any: a parameter server whose workers leave at any time", "[helpers]") {
    for (const int n : {2, 4})
        on_every_transport(n, [n](auto& comm) {
            constexpr int steps = 25;
            const auto length = static_cast<std::size_t>(1000);
            std::vector<long> sum(length + 1);
            if (comm.rank() == 0) {
                std::vector<long> gradient(length + 1);
                for (int i = 0; i < steps * (n - 1); ++i) {
                    const int from = colls::recv_any(comm, gradient);
                    expect(gradient[length] == from, "another rank's");
                    for (std::size_t k = 0; k < length; ++k) sum[k] += gradient[k];
                    colls::send(comm, sum, from);
                }
                expect(sum[length - 1] == static_cast<long>(steps) * n * (n - 1) / 2, "the sum");
                return;
            }
            for (int i = 0; i < steps; ++i) {
                std::vector<long> gradient(length + 1, comm.rank());
                colls::exchange(comm, gradient, 0, sum, 0);
                expect(sum[0] >= static_cast<long>(i + 1) * comm.rank(), "the parameters");
            }
        });
}

TEST_CASE("recv_any: leaves a rank's messages to a started recv from that rank", "[helpers]") {
    on_every_transport(3, [](auto& comm) {
        const int rank = comm.rank();
        std::vector<int> first(500), any(500);
        if (rank == 0) {
            auto posted = colls::start::recv(comm, first, 1);
            colls::barrier(comm);
            // Rank 1 sends two messages, the first of which belongs to the started recv; rank 2 sends one.
            const int from = colls::recv_any(comm, any);
            if (from == 2) {
                expect(any == letter(2, 0, 500), "of rank 2");
                posted.wait();
                expect(colls::recv_any(comm, any) == 1 && any == letter(1, 1, 500), "the second of rank 1");
            } else {
                expect(posted.test() && any == letter(1, 1, 500), "the second of rank 1, after the first");
                expect(colls::recv_any(comm, any) == 2 && any == letter(2, 0, 500), "of rank 2");
            }
            expect(first == letter(1, 0, 500), "the first of rank 1");
        } else {
            colls::barrier(comm);
            for (int i = 0; i < 3 - rank; ++i) colls::send(comm, letter(rank, i, 500), 0);
        }
        colls::barrier(comm);
    });
}

TEST_CASE("recv_any: does not take the message that a started recv waits for", "[helpers]") {
    on_every_transport(3, [](auto& comm) {
        constexpr std::size_t many = 3'000'000;  // sent in many pieces where processes share memory
        std::vector<int> first(many), any(500);
        for (int turn = 0; turn < 3; ++turn) {
            if (comm.rank() == 0) {
                auto posted = colls::start::recv(comm, first, 1);
                colls::barrier(comm);
                expect(colls::recv_any(comm, any) == 2 && any == letter(2, turn, 500),
                    "of rank 2, since rank 1 sends one only");
                posted.wait();
                expect(first == letter(1, turn, many), "of rank 1");
            } else {
                colls::barrier(comm);
                nap(comm.rank() == 1 ? 1e-3 : 0.1);
                colls::send(comm, letter(comm.rank(), turn, comm.rank() == 1 ? many : 500), 0);
            }
        }
    });
}

TEST_CASE("recv_any: a message of this rank to itself, and a recv from the same rank after it", "[helpers]") {
    for (const int n : {1, 3})
        on_every_transport(n, [n](auto& comm) {
            std::vector<int> out = letter(comm.rank(), 0, 77), in(77);
            auto sending = colls::start::send(comm, out, comm.rank());
            expect(colls::recv_any(comm, in) == comm.rank() && in == out, "from itself");
            sending.wait();
            if (n == 1) {
                expect(lacks(refusal_of([&] { colls::recv_any(comm, in); }),
                           {"in recv_any: a message to itself would never come: start the send first"})
                           .empty(),
                    "none would come");
                return;
            }
            colls::barrier(comm);
            // From one rank, received in both ways.
            const int right = (comm.rank() + 1) % n, left = (comm.rank() + n - 1) % n;
            std::vector<std::vector<int>> outs;
            std::vector<colls::operation> sends;
            for (int i = 0; i < 6; ++i) outs.push_back(letter(comm.rank(), i, 77));
            for (int i = 0; i < 6; ++i)
                sends.push_back(colls::start::send(comm, outs[static_cast<std::size_t>(i)], right));
            for (int i = 0; i < 6; ++i) {
                if (i % 2 == 0)
                    expect(colls::recv_any(comm, in) == left, "from the left");
                else
                    colls::recv(comm, in, left);
                expect(in == letter(left, i, 77), "in order");
            }
            colls::wait_all(sends);
        });
}

TEST_CASE(
    "recv_any: errors for another length, for a group that all others have left, and for a timeout", "[helpers]") {
    on_every_transport(2, [](auto& comm) {
        colls::communicator longer = comm.split(0, comm.rank()), late = comm.split(0, comm.rank());
        std::vector<int> data(comm.rank() == 0 ? 10 : 12);
        const auto failure_of = [&](auto call) {
            try {
                call();
            } catch (const colls::error& failure) {
                return std::pair(failure.code(), std::string(failure.what()));
            }
            return std::pair(colls::errc{}, std::string("none"));
        };
        const auto [code, text] = failure_of([&] {
            comm.rank() == 0 ? static_cast<void>(colls::recv_any(longer, data)) : colls::send(longer, data, 0);
        });
        expect(code == colls::errc::mismatch, "mismatch: " + text);
        if (comm.rank() == 0) {
            late.context().env.timeout = 0.5;
            const auto [why, said] = failure_of([&] { colls::recv_any(late, data); });
            expect(
                why == colls::errc::timeout && lacks(said, {"in recv_any: no rank has sent a message: waited"}).empty(),
                "deadline: " + said);
        }
        colls::barrier(comm);
        if (comm.rank() == 1) return;
        const auto [why, said] = failure_of([&] { colls::recv_any(comm, data); });
        expect(why == colls::errc::peer_failed &&
                   lacks(said, {"in recv_any: all other ranks have left the group"}).empty(),
            "gone: " + said);
    });
}

TEST_CASE("abort: ranks that wait, compute, or call later get the reason and the rank", "[helpers]") {
    for (const int n : {1, 2, 5})
        on_every_transport(n, [n](auto& comm) {
            const int rank = comm.rank(), guilty = n / 2;
            std::vector<int> data(50'000, 1);
            const auto expect_abort = [guilty](const colls::error& failure) {
                expect(failure.code() == colls::errc::peer_failed && failure.peer() == guilty &&
                           lacks(failure.what(), {"rank " + std::to_string(guilty) + " aborted: loss is not a number"})
                               .empty(),
                    failure.what());
            };
            const auto expect_control = [&](auto call) {
                try {
                    call();
                } catch (const colls::error& failure) {
                    return expect_abort(failure);
                }
                throw std::runtime_error("no error");
            };
            try {
                colls::barrier(comm);
            } catch (const colls::error& failure) {  // the guilty rank has left it, and aborts already
                expect_abort(failure);
            }
            if (rank == guilty) {
                auto started = colls::start::all_reduce(comm, data, colls::sum);
                comm.abort("loss is not a number");
                comm.abort("once more, which changes nothing");
                if (n > 1) expect_control([&] { started.wait(); });
            } else if (rank == 0) {
                nap(0.2);  // computes meanwhile
            } else {
                expect_control([&] { colls::all_reduce(comm, data, colls::sum); });
            }
            expect_control([&] { colls::barrier(comm); });
            expect_control([&] { colls::start::all_reduce(comm, data, colls::sum).wait(); });
            if (n < 2) return;
            expect_control([&] { colls::recv_any(comm, data); });
            comm = comm.shrink();  // all ranks continue
            expect(comm.size() == n, "shrunk");
            colls::barrier(comm);
        });
}

TEST_CASE("abort: waiting ranks get the error at once, even if the aborting rank makes no further call", "[helpers]") {
    on_every_transport(3, [](auto& comm) {
        for (int guilty = 0; guilty < 3; ++guilty) {
            colls::communicator part = comm.split(0, comm.rank());  // a group in which no message has been sent
            if (comm.rank() == guilty) {
                nap(guilty % 2 == 0 ? 0 : 0.05);
                part.abort("enough");
                nap(0.2);
            } else {
                std::vector<int> data(10);
                try {
                    if (comm.rank() == (guilty + 1) % 3)
                        colls::recv_any(part, data);
                    else
                        colls::all_reduce(part, data, colls::sum);
                    throw std::runtime_error("no error");
                } catch (const colls::error& failure) {
                    expect(failure.peer() == guilty &&
                               lacks(failure.what(), {"rank " + std::to_string(guilty) + " aborted: enough"}).empty(),
                        failure.what());
                }
            }
            colls::barrier(comm);
        }
    });
}

TEST_CASE("premul_sum: each rank's own factor is on its own contribution", "[helpers]") {
    for (const int n : {1, 2, 3, 5})
        for (const std::size_t count : {0u, 1u, 6u, 1000u, 60'000u})
            on_every_transport(n, [&](auto& comm) { sum_by_factors(comm, count); });
}
