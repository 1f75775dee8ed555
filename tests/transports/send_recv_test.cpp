// Messages from one rank to another: send, recv, start::send and start::recv.
#include "catch.hpp"

#include "support/batch.hpp"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

using namespace support;

namespace {

std::vector<int> message(int from, int to, std::size_t count, int number = 0) {
    std::vector<int> v(count);
    std::iota(v.begin(), v.end(), from * 1000 + to + number * 7919);
    return v;
}

}  // namespace

TEST_CASE("send and recv: data goes to a peer and back unchanged, at every size", "[send_recv]") {
    for (const std::size_t count : {0u, 1u, 13u, 14u, 15u, 1000u, 2048u, 8191u, 100'003u, 1'000'000u}) {
        std::atomic<int> wrong{0};
        colls::threads::run(2, [&](auto& comm) {
            guarded buffer(count * sizeof(int), sizeof(int) * 3);
            for (int turn = 0; turn < 5; ++turn) {
                if (comm.rank() == 0) {
                    const auto out = message(0, 1, count, turn);
                    colls::send(comm, out, 1);
                    colls::recv(comm, buffer.as<int>(), 1);
                } else {
                    colls::recv(comm, buffer.as<int>(), 0);
                    std::vector<int> back(buffer.as<int>().begin(), buffer.as<int>().end());
                    if (back != message(0, 1, count, turn)) ++wrong;
                    for (int& x : back) x = -x;
                    colls::send(comm, back, 0);
                }
                if (comm.rank() == 0) {
                    auto want = message(0, 1, count, turn);
                    for (int& x : want) x = -x;
                    if (!std::equal(want.begin(), want.end(), buffer.as<int>().begin())) ++wrong;
                }
            }
            if (!buffer.broken().empty()) ++wrong;
        });
        INFO("count " << count);
        CHECK(wrong == 0);
    }
}

TEST_CASE("start::send: all ranks of a ring may start their send before they receive", "[send_recv]") {
    for (const int n : {1, 2, 3, 5, 8, 17, 33})
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{500}, std::size_t{50'000}}) {
            std::atomic<int> wrong{0};
            colls::threads::run(n, [&](auto& comm) {
                const int rank = comm.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
                for (int turn = 0; turn < 3; ++turn) {
                    const auto out = message(rank, right, count, turn);
                    std::vector<int> in(count, -1);
                    auto sending = colls::start::send(comm, out, right);
                    if (turn % 2) {
                        auto receiving = colls::start::recv(comm, in, left);
                        receiving.wait();
                    } else {
                        colls::recv(comm, in, left);
                    }
                    sending.wait();
                    if (in != message(left, rank, count, turn)) ++wrong;
                }
            });
            INFO("n " << n << ", count " << count);
            CHECK(wrong == 0);
        }
}

TEST_CASE("start::send: the receiver has the message while the sender is out of the library", "[send_recv]") {
    for (const std::size_t count : {std::size_t{0}, std::size_t{100}, std::size_t{100'000}}) {
        std::atomic<bool> received{false}, in_time{false};
        std::atomic<int> wrong{0};
        colls::threads::run(2, [&](auto& comm) {
            if (comm.rank() == 0) {
                const auto out = message(0, 1, count);
                auto sending = colls::start::send(comm, out, 1);
                const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                while (!received.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < until)
                    std::this_thread::yield();
                in_time = received.load(std::memory_order_acquire);
                sending.wait();
            } else {
                std::vector<int> in(count, -1);
                colls::recv(comm, in, 0);
                if (in != message(0, 1, count)) ++wrong;
                received.store(true, std::memory_order_release);
            }
        });
        CHECK(in_time);
        CHECK(wrong == 0);
    }
}

TEST_CASE(
    "start::send and start::recv: messages of one pair match in the order in which they were started", "[send_recv]") {
    std::atomic<int> wrong{0};
    constexpr int many = 300;
    colls::threads::run(2, [&](auto& comm) {
        const int other = 1 - comm.rank();
        std::vector<std::vector<int>> out, in;
        std::vector<colls::operation> operations;
        for (int i = 0; i < many; ++i) {
            const std::size_t count = static_cast<std::size_t>(i) * 37 % 1001;
            out.push_back(message(comm.rank(), other, count, i));
            in.emplace_back(count);
        }
        // In both directions at once; the receives are started in the order of the sends.
        for (int i = 0; i < many; ++i) {
            const auto at = static_cast<std::size_t>(i);
            operations.push_back(colls::start::send(comm, out[at], other));
            operations.push_back(colls::start::recv(comm, in[at], other));
            if (i % 7 == 6)
                while (!operations.empty()) {
                    operations.back().wait();
                    operations.pop_back();
                }
        }
        for (auto& operation : operations) operation.wait();
        for (int i = 0; i < many; ++i)
            if (in[static_cast<std::size_t>(i)] !=
                message(other, comm.rank(), out[static_cast<std::size_t>(i)].size(), i))
                ++wrong;
    });
    CHECK(wrong == 0);
}

TEST_CASE("start::send and start::recv: all pairs at once, in any order, between collectives", "[send_recv]") {
    for (const int n : {2, 3, 8, 13}) {
        std::atomic<int> wrong{0};
        colls::threads::run(n, [&](auto& comm) {
            const int rank = comm.rank();
            random_source random = stream(4, static_cast<std::uint64_t>(rank));
            for (int turn = 0; turn < 5; ++turn) {
                const auto ranks = static_cast<std::size_t>(n);
                const std::size_t count = static_cast<std::size_t>(turn) * 1500;
                std::vector<std::vector<int>> out(ranks), in(ranks, std::vector<int>(count, -1));
                std::vector<int> order(ranks);
                std::iota(order.begin(), order.end(), 0);
                for (std::size_t i = ranks; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
                std::vector<colls::operation> operations;
                for (const int peer : order) {
                    const auto at = static_cast<std::size_t>(peer);
                    out[at] = message(rank, peer, count, turn);
                    operations.push_back(colls::start::send(comm, out[at], peer));
                }
                long one = 1;
                colls::all_reduce(comm, std::span(&one, 1), colls::sum);
                if (one != n) ++wrong;
                for (std::size_t i = ranks; i-- > 0;) {
                    const auto at = static_cast<std::size_t>(order[i]);
                    operations.push_back(colls::start::recv(comm, in[at], order[i]));
                }
                for (std::size_t i = operations.size(); i > 1; --i)
                    std::swap(operations[i - 1], operations[random.below(i)]);
                for (auto& operation : operations) operation.wait();
                for (int peer = 0; peer < n; ++peer)
                    if (in[static_cast<std::size_t>(peer)] != message(peer, rank, count, turn)) ++wrong;
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("send and recv: different lengths are a mismatch error on both ranks", "[send_recv]") {
    std::atomic<int> caught{0};
    colls::threads::run(2, [&](auto& comm) {
        std::vector<int> data(comm.rank() == 0 ? 10 : 12, comm.rank());
        try {
            if (comm.rank() == 0)
                colls::send(comm, data, 1);
            else
                colls::recv(comm, data, 0);
        } catch (const colls::error& failure) {
            if (failure.code() == colls::errc::mismatch) ++caught;
        }
        if (comm.rank() == 1 && data != std::vector<int>(12, 1)) caught = -100;
    });
    CHECK(caught == 2);
}

TEST_CASE("send and recv: reject a peer outside the group, which goes on to work", "[send_recv]") {
    std::atomic<int> caught{0};
    colls::threads::run(2, [&](auto& comm) {
        std::vector<int> data(3);
        for (const int peer : {-1, 2, 1000}) {
            const auto tried = [&](auto call) {
                try {
                    call();
                } catch (const colls::error& failure) {
                    if (failure.code() == colls::errc::invalid_argument) ++caught;
                }
            };
            tried([&] { colls::send(comm, data, peer); });
            tried([&] { colls::recv(comm, data, peer); });
            tried([&] { colls::start::send(comm, data, peer).wait(); });
            tried([&] { colls::start::recv(comm, data, peer).wait(); });
        }
        colls::barrier(comm);
    });
    CHECK(caught == 24);
}
