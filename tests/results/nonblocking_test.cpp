// Operations that are started and waited for later, persistent calls, and progress threads.
#include "catch.hpp"

#include "support/allocations.hpp"
#include "support/batch.hpp"
#include "support/every_transport.hpp"

#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/distance.hpp>
#include <colls/detail/group/backoff.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>

using namespace support;

namespace {

using communicator = colls::threads::communicator;

std::vector<long> numbers(int rank, std::size_t count, long salt) {
    std::vector<long> v(count);
    for (std::size_t i = 0; i < count; ++i) v[i] = salt * 1000 + rank * 17 + static_cast<long>(i % 101);
    return v;
}
std::vector<long> sum_of_numbers(int n, std::size_t count, long salt) {
    std::vector<long> v(count, 0);
    for (int r = 0; r < n; ++r) {
        const auto x = numbers(r, count, salt);
        for (std::size_t i = 0; i < count; ++i) v[i] += x[i];
    }
    return v;
}

}  // namespace

TEST_CASE("operations: may be waited for in a different order on each rank", "[nonblocking]") {
    for (const int n : {1, 2, 3, 4, 7, 8, 17})
        for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{20'000}}) {
            constexpr int many = 10;
            std::atomic<int> wrong{0};
            colls::threads::run(n, [&](auto& comm) {
                const int rank = comm.rank();
                random_source random = stream(count, static_cast<std::uint64_t>(rank));
                std::vector<std::vector<long>> in(many), out(many, std::vector<long>(count, -1));
                std::vector<colls::operation> operations;
                for (int i = 0; i < many; ++i) {
                    const auto at = static_cast<std::size_t>(i);
                    in[at] = numbers(rank, count, i);
                    operations.push_back(colls::start::all_reduce(comm, in[at], out[at], colls::sum));
                }
                std::vector<std::size_t> order(many);
                std::iota(order.begin(), order.end(), std::size_t{0});
                for (std::size_t i = many; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
                for (const std::size_t i : order) {
                    operations[i].wait();
                    if (out[i] != sum_of_numbers(n, count, static_cast<long>(i))) ++wrong;
                    if (!operations[i].test()) ++wrong;  // an operation that is over stays over
                    operations[i].wait();
                }
            });
            CHECK(wrong == 0);
        }
}

TEST_CASE("operations: blocking calls work while operations are in flight", "[nonblocking]") {
    for (const int n : {2, 3, 8}) {
        std::atomic<int> wrong{0};
        colls::threads::run(n, [&](auto& comm) {
            const int rank = comm.rank();
            for (int turn = 0; turn < 50; ++turn) {
                const std::size_t count = turn % 3 == 0 ? 5 : turn % 3 == 1 ? 3000 : 30'000;
                auto first = numbers(rank, count, turn), third = numbers(rank, 7, turn);
                std::vector<long> second = numbers(rank, count, turn + 1), gathered(static_cast<std::size_t>(n) * 3);
                auto a = colls::start::all_reduce(comm, first, colls::sum);
                auto b = colls::start::broadcast(comm, second, turn % n);
                colls::all_reduce(comm, third, colls::sum);
                if (third != sum_of_numbers(n, 7, turn)) ++wrong;
                const std::vector<long> own(3, rank);
                colls::all_gather(comm, own, gathered);
                for (std::size_t i = 0; i < gathered.size(); ++i)
                    if (gathered[i] != static_cast<long>(i / 3)) ++wrong;
                if (rank % 2) {
                    b.wait();
                    colls::barrier(comm);
                    a.wait();
                } else {
                    colls::barrier(comm);
                    a.wait();
                    b.wait();
                }
                if (first != sum_of_numbers(n, count, turn)) ++wrong;
                if (second != numbers(turn % n, count, turn + 1)) ++wrong;
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("operations: 200 started at once, more than the group has slots, all finish", "[nonblocking]") {
    for (const int n : {2, 5}) {
        constexpr int many = 200;
        std::atomic<int> wrong{0};
        colls::threads::run(n, [&](auto& comm) {
            std::vector<std::vector<long>> data;
            std::vector<colls::operation> operations;
            for (int i = 0; i < many; ++i) data.push_back(numbers(comm.rank(), 40, i));
            for (auto& d : data) operations.push_back(colls::start::all_reduce(comm, d, colls::sum));
            for (std::size_t i = many; i-- > 0;) operations[i].wait();
            for (int i = 0; i < many; ++i)
                if (data[static_cast<std::size_t>(i)] != sum_of_numbers(n, 40, i)) ++wrong;
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("test and wait_for: false until the last rank has started the operation", "[nonblocking]") {
    for (const std::size_t count : {std::size_t{1}, std::size_t{50'000}}) {
        std::atomic<bool> seen{false};
        std::atomic<int> wrong{0};
        colls::threads::run(3, [&](auto& comm) {
            auto data = numbers(comm.rank(), count, 1);
            if (comm.rank() == 2)
                while (!seen) std::this_thread::yield();
            auto operation = colls::start::all_reduce(comm, data, colls::sum);
            if (comm.rank() == 0) {
                if (operation.test()) ++wrong;
                const auto before = std::chrono::steady_clock::now();
                if (operation.wait_for(std::chrono::milliseconds(20))) ++wrong;
                const auto took = std::chrono::steady_clock::now() - before;
                if (took < std::chrono::milliseconds(20)) ++wrong;
                seen = true;
                while (!operation.test()) std::this_thread::yield();
            } else if (comm.rank() == 1) {
                while (!operation.wait_for(std::chrono::microseconds(300))) {}
            } else {
                operation.wait();
            }
            if (data != sum_of_numbers(3, count, 1)) ++wrong;
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("operation: can be moved while it is in flight, also by a vector that grows", "[nonblocking]") {
    std::atomic<int> wrong{0};
    colls::threads::run(4, [&](auto& comm) {
        auto data = numbers(comm.rank(), 5000, 3), more = numbers(comm.rank(), 5000, 4);
        auto operation = colls::start::all_reduce(comm, data, colls::sum);
        colls::operation other = std::move(operation);
        auto second = colls::start::all_reduce(comm, more, colls::sum);
        std::vector<colls::operation> kept;
        kept.push_back(std::move(second));
        kept.push_back(std::move(other));
        for (auto& k : kept) k.wait();
        if (data != sum_of_numbers(4, 5000, 3) || more != sum_of_numbers(4, 5000, 4)) ++wrong;
    });
    CHECK(wrong == 0);
}

TEST_CASE(
    "operation: one object is used again, for calls of other sizes, however the last one ended", "[nonblocking]") {
    std::atomic<int> wrong{0};
    colls::threads::run(3, [&](auto& comm) {
        colls::operation o;
        std::vector<std::vector<long>> data;
        const std::size_t counts[] = {1, 40'000, 300, 0, 5000, 70'000, 2, 1000};
        for (int turn = 0; turn < 16; ++turn) data.push_back(numbers(comm.rank(), counts[turn % 8], turn));
        for (int turn = 0; turn < 16; ++turn) {
            auto& x = data[static_cast<std::size_t>(turn)];
            o = colls::start::all_reduce(comm, x, colls::sum);  // finishes the one before, where it is not over
            if (turn % 4 == 0) o.wait();
            while (turn % 4 == 1 && !o.test()) {}
            while (turn % 4 == 2 && !o.wait_for(std::chrono::microseconds(50))) {}
            wrong += turn % 4 != 3 && (!o.empty() || x != sum_of_numbers(3, x.size(), turn));
        }
        o = {};
        for (int turn = 0; turn < 16; ++turn) {
            const auto& x = data[static_cast<std::size_t>(turn)];
            wrong += x != sum_of_numbers(3, x.size(), turn);
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("every collective: gives right results when it is started, and each time that it is prepared and run",
    "[nonblocking]") {
    constexpr int n = 4;
    constexpr std::size_t block = 1000, total = n * block;
    on_every_transport(n, [&](colls::communicator& comm) {
        const int rank = comm.rank();
        const auto check = [&](bool right) { expect(right, "a wrong result"); };
        int turn = 2;  // on which what ranks contribute depends
        auto everything = numbers(1, total, 7 + turn);
        auto full = sum_of_numbers(n, total, turn);
        auto own = numbers(rank, total, turn);
        const auto part = [&](const std::vector<long>& v, int r) {
            return std::vector<long>(
                v.begin() + r * static_cast<long>(block), v.begin() + (r + 1) * static_cast<long>(block));
        };
        std::vector<std::size_t> counts(n, block);
        std::vector<long> b = rank == 1 ? everything : std::vector<long>(total), s(block), g(total), ag(total),
                          rd(total), rs(block), ar(total), aa(total), in_scan(total), ex_scan(total, -5);
        std::vector<long> sv(block), gv(total), agv(total), rsv(block), aav(total);
        auto mine = part(everything, rank);
        const std::vector<long> nothing;
        std::vector<long> none_out;
        const auto all = [&](auto space) {
            std::vector<decltype(space.barrier(comm))> list;
            list.push_back(space.broadcast(comm, b, 1));
            list.push_back(space.scatter(comm, rank == 2 ? everything : nothing, s, 2));
            list.push_back(space.gather(comm, mine, rank == 3 ? g : none_out, 3));
            list.push_back(space.all_gather(comm, mine, ag));
            list.push_back(space.reduce(comm, own, rank == 0 ? rd : none_out, colls::sum, 0));
            list.push_back(space.reduce_scatter(comm, own, rs, colls::sum));
            list.push_back(space.all_reduce(comm, own, ar, colls::sum));
            list.push_back(space.all_to_all(comm, own, aa));
            list.push_back(space.barrier(comm));
            list.push_back(space.inclusive_scan(comm, own, in_scan, colls::sum));
            list.push_back(space.exclusive_scan(comm, own, ex_scan, colls::sum));
            list.push_back(space.scatter_v(comm, rank == 2 ? everything : nothing, sv, counts, 2));
            list.push_back(space.gather_v(comm, mine, rank == 3 ? gv : none_out, counts, 3));
            list.push_back(space.all_gather_v(comm, mine, agv, counts));
            list.push_back(space.reduce_scatter_v(comm, own, rsv, counts, colls::sum));
            list.push_back(space.all_to_all_v(comm, own, aav, counts, counts));
            return list;
        };
        const auto judge = [&] {
            check(b == everything && g == (rank == 3 ? everything : std::vector<long>(total, 0)));
            check(s == mine && sv == mine && ag == everything && agv == everything);
            check(gv == g && ar == full && rs == part(full, rank) && rsv == rs);
            if (rank == 0) check(rd == full);
            std::vector<long> crossed;
            for (int r = 0; r < n; ++r) {
                const auto piece = part(numbers(r, total, turn), rank);
                crossed.insert(crossed.end(), piece.begin(), piece.end());
            }
            check(aa == crossed && aav == crossed);
            std::vector<long> before(total, rank == 0 ? -5 : 0);
            for (int r = 0; r < rank; ++r) {
                const auto theirs = numbers(r, total, turn);
                for (std::size_t i = 0; i < total; ++i) before[i] += theirs[i];
            }
            check(ex_scan == before);
            for (std::size_t i = 0; i < total; ++i) before[i] = (rank == 0 ? 0 : before[i]) + own[i];
            check(in_scan == before);
        };
        struct started : start_way {};
        auto operations = all(started{});
        for (std::size_t i = 0; i < operations.size(); ++i)  // odd ranks wait in the reverse order
            operations[rank % 2 ? operations.size() - 1 - i : i].wait();
        judge();
        struct prepared : prepare_way {};
        auto plans = all(prepared{});
        for (int run = 0; run < 6; ++run) {
            ++turn;
            std::ranges::copy(numbers(1, total, 7 + turn), everything.begin());
            full = sum_of_numbers(n, total, turn);
            std::ranges::copy(numbers(rank, total, turn), own.begin());
            std::ranges::copy(part(everything, rank), mine.begin());
            for (auto* v : {&s, &ag, &rs, &ar, &aa, &in_scan, &sv, &agv, &rsv, &aav})
                std::fill(v->begin(), v->end(), -1);
            if (rank == 1)
                b = everything;
            else
                std::fill(b.begin(), b.end(), -1);
            if (run % 2 == 0) {
                for (auto& plan : plans) plan.run();
            } else {
                std::vector<colls::operation> again;
                for (auto& plan : plans) again.push_back(plan.start());
                for (auto& operation : again) operation.wait();
            }
            judge();
        }
    });
}

/// Rank 0 finds the other rank at another distance than so far, as if the system had moved it.
void move_cores(colls::communicator& comm) {
    namespace detail = colls::detail;
    detail::rank_context& self = comm.context();
    if (comm.rank() != 0) return;
    const double limit = self.backend->figures().near_below,
                 seconds = detail::near_so_far(self) ? 2 * limit : limit / 2;
    for (int i = 0; i < 4; ++i) detail::distance::take_sample(self, self.direct.count, seconds);
}

TEST_CASE("a prepared collective: allocates nothing when it is run or started again", "[nonblocking][prepare]") {
    if (!sanitized) {  // that the counter does count
        allocations = 0;
        counting = true;
        std::free(std::malloc(static_cast<std::size_t>(random_source(1).between(8, 9))));
        const std::vector<long> some(static_cast<std::size_t>(random_source(2).between(100, 101)));
        counting = false;
        CHECK(allocations >= 1);
        CHECK(some[0] == 0);
    }
    for (const int n : {1, 2, 3, 4, 8})
        for (const std::size_t count : {std::size_t{1}, std::size_t{300}, std::size_t{5000}, std::size_t{70'000}}) {
            std::atomic<int> wrong{0};
            allocations = 0;
            colls::threads::run(n, [&](auto& comm) {
                const int rank = comm.rank();
                std::vector<long> x(count), sum(count), gathered(count * static_cast<std::size_t>(n)), piece;
                const std::vector<std::size_t> parts = balanced(count, n);
                piece.resize(parts[static_cast<std::size_t>(rank)]);
                std::vector<long> b(count), scan(count);
                auto reduce = colls::prepare::all_reduce(comm, x, sum, colls::sum);
                auto gather = colls::prepare::all_gather(comm, x, gathered);
                auto scatter = colls::prepare::reduce_scatter(comm, x, piece, colls::sum);
                auto broadcast = colls::prepare::broadcast(comm, b, n - 1);
                auto scans = colls::prepare::inclusive_scan(comm, x, scan, colls::sum);
                auto barrier = colls::prepare::barrier(comm);
                std::vector<long> first(count);
                for (int turn = 0; turn < (sanitized ? 6 : 30); ++turn) {  // nothing is counted under sanitizers
                    for (std::size_t i = 0; i < count; ++i) x[i] = turn * 1000 + rank * 17 + static_cast<long>(i % 101);
                    b = x;
                    if (turn == 3 && n == 2) move_cores(comm);  // copies go the other way from now on
                    counting = turn > 2;                        // the first runs may still allocate
                    reduce.run();
                    gather.run();
                    scatter.run();
                    broadcast.run();
                    scans.run();
                    barrier.run();
                    auto one = reduce.start();
                    auto two = gather.start();
                    two.wait();
                    one.wait();
                    counting = false;
                    if (sum != sum_of_numbers(n, count, turn)) ++wrong;
                    if (b != numbers(n - 1, count, turn)) ++wrong;
                    const auto last = numbers(n - 1, count, turn);
                    if (!std::equal(last.begin(), last.end(), gathered.end() - static_cast<long>(count))) ++wrong;
                    if (rank == n - 1 && scan != sum) ++wrong;
                }
            });
            INFO("n " << n << ", count " << count);
            CHECK(wrong == 0);
            CHECK(allocations == 0);
        }
}

TEST_CASE(
    "prepared collectives: allocate nothing when more of them are in flight than before", "[nonblocking][prepare]") {
    for (const int n : {1, 2, 3}) {
        std::atomic<int> wrong{0};
        allocations = 0;
        colls::threads::run(n, [&](auto& comm) {
            std::vector<std::vector<int>> data(20, std::vector<int>(10));
            std::vector<colls::plan> plans;  // a ring needs no scratch memory where ranks are threads
            for (auto& x : data) plans.push_back(colls::prepare::all_reduce(comm, x, colls::sum, colls::ring{}));
            std::vector<colls::operation> started(plans.size());
            for (std::size_t i = 0; i < plans.size(); ++i) {
                std::ranges::fill(data[i], 1);
                plans[i].start().wait();
                plans[i].run();
            }
            counting = true;
            for (std::size_t i = 0; i < plans.size(); ++i) started[i] = plans[i].start();
            for (auto& operation : started) operation.wait();
            counting = false;
            for (const auto& x : data)
                if (x != std::vector<int>(10, n * n * n)) ++wrong;
        });
        INFO(n << " ranks");
        CHECK(wrong == 0);
        CHECK(allocations == 0);
    }
}

TEST_CASE("operations: a rank is not active in others' memory between calls", "[nonblocking]") {
    std::atomic<int> active{0};
    colls::threads::run(2, [&](auto& comm) {
        std::vector<int> many(1 << 18, 1), few(1, 1);
        auto started = colls::start::all_reduce(comm, many, colls::sum);
        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        colls::all_reduce(comm, few, colls::sum);  // advances the started operation while it waits
        active += static_cast<int>(comm.context().memory.state(comm.rank()).active.load());
        started.wait();
    });
    CHECK(active == 0);
}

TEST_CASE("operations: an error in one group is not thrown by a call of another group", "[nonblocking]") {
    std::atomic<int> right{0}, mismatches{0};
    colls::threads::run(2, [&](auto& comm) {
        auto part = comm.split(0, comm.rank());
        std::vector<int> data(1 << 16, 1), other(comm.rank() == 0 ? 4096 : 8192, 1);
        auto started = colls::start::all_reduce(part, other, colls::sum);
        if (comm.rank() == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 waits, and finds the mismatch
        colls::all_reduce(comm, data, colls::sum);
        right += std::count(data.begin(), data.end(), 2) == static_cast<std::ptrdiff_t>(data.size());
        try {
            started.wait();
        } catch (const colls::error& e) {
            mismatches += e.code() == colls::errc::mismatch;
        }
    });
    CHECK(right == 2);
    CHECK(mismatches == 2);
}

TEST_CASE("progress_thread: advances operations while its rank computes, and while its rank calls", "[nonblocking]") {
    std::atomic<int> done{0}, wrong{0};
    colls::threads::run(3, [&](auto& comm) {
        std::vector<long> x(100'000, comm.rank() + 1), sum(x.size()), small(3, 1);
        const auto begin = [&] { return colls::start::all_reduce(comm, x, sum, colls::sum, colls::ring{}); };
        for (int turn = 1; turn <= 5; ++turn) {
            if (comm.rank() == 0) {
                colls::progress_thread helper(comm);
                auto part = comm.split(0, -comm.rank());
                auto a = begin();
                const double until = colls::detail::seconds_now() + 250;  // less than the other ranks' deadline
                while (done != 2 * turn && colls::detail::seconds_now() < until) std::this_thread::yield();
                wrong += done != 2 * turn;
                colls::all_reduce(part, small, colls::max);  // while the progress thread is running
                a.wait();
            } else {
                auto part = comm.split(0, -comm.rank());
                auto a = begin();
                a.wait();
                ++done;
                colls::all_reduce(part, small, colls::max);
            }
            wrong += sum != std::vector<long>(sum.size(), 6) || small[2] != 1;
            colls::barrier(comm);
        }
    });
    CHECK(wrong == 0);
}

namespace {
struct throwing_sum {
    static constexpr bool commutative = true;
    bool throws;
    int operator()(int a, int b) const {
        if (throws) throw std::runtime_error("7 is no number");
        return a + b;
    }
};
}  // namespace

TEST_CASE(
    "progress_thread: what an operator throws in it ends the waits of all ranks, and names the rank", "[nonblocking]") {
    std::atomic<int> told{0};
    std::atomic<bool> over{false};
    const auto tells = [&](auto& comm, colls::operation& o) {
        try {
            o.wait();
        } catch (const colls::error& e) {
            const std::string text = e.what();
            told += e.code() == colls::errc::peer_failed && text.find("7 is no number") != text.npos &&
                    text.find("rank 0 in an operation in flight") != text.npos && comm.size() == 2;
        }
    };
    colls::threads::run(2, [&](auto& comm) {
        comm.set_timeout(std::chrono::seconds(20));
        std::vector<int> x(1000, 1);
        if (comm.rank() == 0) {
            colls::progress_thread helper(comm);
            auto a = colls::start::all_reduce(comm, x, throwing_sum{true});
            // This rank waits for nothing before the other has the error.
            for (const double until = colls::detail::seconds_now() + 30; !over && colls::detail::seconds_now() < until;)
                std::this_thread::yield();
            tells(comm, a);
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0's own call cannot finish by itself
            auto a = colls::start::all_reduce(comm, x, throwing_sum{false});
            tells(comm, a);
            over = true;
        }
    });
    CHECK(told == 2);
}
