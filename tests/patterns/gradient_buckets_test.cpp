// Buckets of gradients, against sums computed from a formula: every order of ready(), every size of bucket, uneven
// steps, accumulation; clipping and the broadcast of weights.
#include "catch.hpp"

#include "exact/reference.hpp"
#include "support/allocations.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/broadcast_spans.hpp>
#include <colls/patterns/clip.hpp>
#include <colls/patterns/gradient_buckets.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>

using namespace support;

namespace {

enum class layout { adjoining, apart, mixed };

/// Gradients of these sizes: one after the other in memory, each with a gap behind it, or with a gap behind every third
/// one.
template <class T>
struct model {
    model(const std::vector<std::size_t>& sizes, layout how) {
        const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
        memory.resize(total + sizes.size());
        std::size_t at = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            gradients.emplace_back(memory.data() + at, sizes[i]);
            at += sizes[i] + (how == layout::apart || (how == layout::mixed && i % 3 == 0) ? 1 : 0);
        }
    }
    std::vector<T> memory;
    std::vector<std::span<T>> gradients;
};

/// What a rank contributes: small integers, so that sums are exact in every order.
double value(int rank, std::size_t gradient, std::size_t element, int step) {
    return static_cast<double>((gradient * 7 + element * 3 + static_cast<std::size_t>(rank * 5 + step)) % 64) - 20;
}
double sum_of(int ranks, std::size_t gradient, std::size_t element, int step) {
    double total = 0;
    for (int r = 0; r < ranks; ++r) total += value(r, gradient, element, step);
    return total;
}

const std::vector<std::size_t> sizes = {300, 7, 0, 64, 1, 0, 5000, 12, 900, 0};

/// One step: each gradient gets its value immediately before it is ready, in the order given.
template <class T>
void make_step(
    colls::gradient_buckets<T>& exchange, model<T>& net, int rank, int step, const std::vector<std::size_t>& order) {
    for (const auto& gradient : net.gradients) std::ranges::fill(gradient, T(1e6));
    for (const std::size_t i : order) {
        for (std::size_t e = 0; e < net.gradients[i].size(); ++e)
            net.gradients[i][e] = static_cast<T>(value(rank, i, e, step));
        exchange.ready(i);
    }
    exchange.wait();
}
std::vector<std::size_t> some_order(std::size_t count, int rank, int step) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (step == 0) std::ranges::reverse(order);  // as back-propagation
    if (step >= 2) {                             // each rank another one
        random_source random = stream(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank));
        for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    }
    return order;
}
/// Whether every gradient is what `wanted(gradient, element)` says.
template <class T, class F>
bool is(const model<T>& net, F wanted) {
    for (std::size_t i = 0; i < net.gradients.size(); ++i)
        for (std::size_t e = 0; e < net.gradients[i].size(); ++e)
            if (net.gradients[i][e] != static_cast<T>(wanted(i, e))) return false;
    return true;
}

/// A few steps with sum and with avg, in orders that differ between ranks.
void check_steps(colls::communicator& comm, std::size_t bucket_bytes, layout how) {
    const int n = comm.size();
    model<double> net(sizes, how);
    const auto label = [&](const char* op, int step) {
        return std::string(op) + ", bucket of " + std::to_string(bucket_bytes) + " bytes, step " + std::to_string(step);
    };
    colls::gradient_buckets sums(comm, net.gradients, colls::sum, {.bucket_bytes = bucket_bytes});
    for (int step = 0; step < 4; ++step) {
        make_step(sums, net, comm.rank(), step, some_order(sizes.size(), comm.rank(), step));
        expect(is(net, [&](std::size_t i, std::size_t e) { return sum_of(n, i, e, step); }), label("sum", step));
        expect(sums.participants() == n, "all ranks take part");
    }
    colls::gradient_buckets exact(comm, net.gradients, colls::exact, {.bucket_bytes = bucket_bytes});
    for (int step = 0; step < 4; ++step) {
        make_step(exact, net, comm.rank(), step, some_order(sizes.size(), comm.rank(), step));
        expect(is(net, [&](std::size_t i, std::size_t e) { return sum_of(n, i, e, step); }), label("exact", step));
    }
    colls::gradient_buckets averages(comm, net.gradients, colls::avg, {.bucket_bytes = bucket_bytes});
    make_step(averages, net, comm.rank(), 9, some_order(sizes.size(), comm.rank(), 9));
    expect(is(net, [&](std::size_t i, std::size_t e) { return sum_of(n, i, e, 9) / n; }), label("avg", 9));
}

constexpr std::size_t everything = std::size_t{1} << 40;

}  // namespace

TEST_CASE("gradient_buckets: sum and avg in every order of ready(), buckets of 1 byte to everything", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7})
        for (const layout how : {layout::adjoining, layout::apart, layout::mixed}) {
            INFO(n << " ranks, layout " << static_cast<int>(how));
            CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
                for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{8192}, everything})
                    check_steps(comm, bytes, how);
            }));
        }
}

TEST_CASE("gradient_buckets: the same between processes", "[patterns]") {
    if (sanitized_threads) return;
    for (const std::string& transport : process_transports()) {
        INFO(transport);
        CHECK_NOTHROW(run_over(transport, 3, [&](colls::communicator& comm) {
            check_steps(comm, 1000, layout::adjoining);
            check_steps(comm, 4000, layout::apart);
        }));
    }
}

TEST_CASE("gradient_buckets: all 24 orders of four gradients, also opposite orders on two ranks", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(2, [](colls::communicator& comm) {
        model<float> net({10, 20, 5, 40}, layout::apart);
        colls::gradient_buckets exchange(comm, net.gradients, colls::sum, {.bucket_bytes = 60});
        std::vector<std::size_t> order = {0, 1, 2, 3};
        int step = 0;
        do {
            std::vector<std::size_t> own = order;
            if (comm.rank() == 1) std::ranges::reverse(own);
            make_step(exchange, net, comm.rank(), ++step, own);
            expect(is(net, [&](std::size_t i, std::size_t e) { return sum_of(2, i, e, step); }), "a wrong sum");
        } while (std::ranges::next_permutation(order).found);
        expect(step == 24, "24 orders");
    }));
}

TEST_CASE(
    "gradient_buckets: fills buckets from the last gradient, and copies only what does not adjoin", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(2, [](colls::communicator& comm) {
        model<float> net({10, 10, 10, 10, 10}, layout::mixed);  // gaps behind 0 and 3
        colls::gradient_buckets pairs(comm, net.gradients, colls::sum, {.bucket_bytes = 80});
        expect(pairs.bucket_count() == 3, "three buckets");
        const std::vector<std::size_t> bucket = {2, 1, 1, 0, 0};
        for (std::size_t i = 0; i < bucket.size(); ++i) expect(pairs.bucket_of(i) == bucket[i], "bucket of a gradient");
        expect(!pairs.in_place(0) && pairs.in_place(1) && pairs.in_place(2), "a gap lies in bucket 0 alone");

        colls::gradient_buckets single(comm, net.gradients, colls::sum, {.bucket_bytes = 1});
        expect(single.bucket_count() == 5, "buckets of one gradient");
        colls::gradient_buckets whole(comm, net.gradients, colls::sum, {.bucket_bytes = everything});
        expect(whole.bucket_count() == 1 && !whole.in_place(0), "one bucket");
    }));
}

TEST_CASE("gradient_buckets: ranks may lay out their memory differently", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(
        3, [](colls::communicator& comm) { check_steps(comm, 3000, static_cast<layout>(comm.rank())); }));
}

TEST_CASE("gradient_buckets: gradients without elements, and no gradients", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(3, [](colls::communicator& comm) {
        model<float> empty({0, 0, 0}, layout::adjoining);
        colls::gradient_buckets exchange(comm, empty.gradients, colls::avg);
        make_step(exchange, empty, comm.rank(), 1, {1, 0, 2});
        make_step(exchange, empty, comm.rank(), 2, {2, 1, 0});
        colls::gradient_buckets none(comm, std::vector<std::span<float>>{}, colls::sum, {.uneven = true});
        none.wait();
        expect(none.participants() == 3, "three participants");
        none.join();
    }));
}

TEST_CASE("gradient_buckets: a schedule may be given", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(3, [](colls::communicator& comm) {
        model<float> net(sizes, layout::adjoining);
        colls::gradient_buckets exchange(comm, net.gradients, colls::sum, {.bucket_bytes = 1000}, colls::ring{});
        make_step(exchange, net, comm.rank(), 1, some_order(sizes.size(), comm.rank(), 3));
        expect(is(net, [](std::size_t i, std::size_t e) { return sum_of(3, i, e, 1); }), "a wrong sum");
    }));
}

TEST_CASE("gradient_buckets: ready() advances every bucket that is in flight, in every step", "[patterns]") {
    if (sanitized_threads) return;            // looks at gradients while they are exchanged
    std::array<std::atomic<int>, 2> calls{};  // of ready(), by rank
    std::atomic<int> missed{0};
    CHECK_NOTHROW(colls::threads::run(2, [&](colls::communicator& comm) {
        constexpr std::size_t each = 200;  // calls of ready() for each large bucket: many times what it needs
        std::vector<std::size_t> many(2 * each, 1);
        many.insert(many.end(), {5000, 5000});
        model<double> net(many, layout::adjoining);
        colls::gradient_buckets exchange(comm, net.gradients, colls::sum, {.bucket_bytes = 40'000});
        const auto rank = static_cast<std::size_t>(comm.rank());
        // Ranks take turns, so that how far a bucket is depends on the number of calls and not on time.
        const auto ready = [&](std::size_t i) {
            exchange.ready(i);
            const int mine = calls[rank].fetch_add(1) + 1;
            while (calls[1 - rank] < mine) std::this_thread::yield();
        };
        for (int step = 0; step < 3; ++step) {
            std::ranges::fill(net.memory, 1.0 + step);
            std::size_t next = 2 * each;
            for (const std::size_t large : {2 * each + 1, 2 * each}) {  // buckets 0 and 1
                ready(large);
                for (std::size_t k = 0; k < each; ++k) ready(--next);  // gradients of the last bucket
                missed += !std::ranges::all_of(net.gradients[large],
                    [&](double& e) { return std::atomic_ref(e).load(std::memory_order_relaxed) == 2.0 * (1 + step); });
            }
            exchange.wait();
            expect(std::ranges::all_of(net.memory, [&](double e) { return e == 2.0 * (1 + step) || e == 1.0 + step; }),
                "a wrong sum");
        }
    }));
    CHECK(missed == 0);  // buckets that are not over before wait()
}

TEST_CASE("gradient_buckets: a progress_thread may serve the communicator", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(3, [](colls::communicator& comm) {
        colls::progress_thread helper(comm);
        check_steps(comm, 3000, layout::mixed);
    }));
}

TEST_CASE("gradient_buckets: allocates nothing after the first step", "[patterns]") {
#if defined(__GLIBC__) && !defined(TESTS_SANITIZED)
    allocations = 0;
    CHECK_NOTHROW(colls::threads::run(3, [](colls::communicator& comm) {
        model<float> net(sizes, layout::mixed);
        colls::gradient_buckets exchange(comm, net.gradients, colls::avg, {.bucket_bytes = 1000, .uneven = true});
        const auto order = some_order(sizes.size(), 0, 0);
        for (int step = 0; step < 5; ++step) {
            counting = step > 0;
            make_step(exchange, net, comm.rank(), step, order);
            counting = false;
            colls::barrier(comm);
        }
        colls::gradient_buckets exact(comm, net.gradients, colls::exact, {.bucket_bytes = 1000});
        for (int step = 0; step < 5; ++step) {
            counting = step > 0;
            make_step(exact, net, comm.rank(), step, order);
            counting = false;
            colls::barrier(comm);
        }
        { const std::vector<int> seen((counting = true, 100)); }  // the counter counts
        counting = false;
        exchange.join();
    }));
    CHECK(allocations == 3);
#endif
}

TEST_CASE("uneven steps: ranks that have joined take part with zeros, and avg divides by the others", "[patterns]") {
    for (const int n : {1, 2, 3, 5}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
            for (const bool average : {false, true}) {
                model<double> net(sizes, average ? layout::mixed : layout::adjoining);
                const bool exact = !average && n == 3;
                auto exchange = [&] {
                    if (exact)
                        return std::make_unique<colls::gradient_buckets<double>>(comm, net.gradients, colls::exact,
                            colls::bucket_options{.bucket_bytes = 3000, .uneven = true});
                    return average ? std::make_unique<colls::gradient_buckets<double>>(comm, net.gradients, colls::avg,
                                         colls::bucket_options{.bucket_bytes = 3000, .uneven = true})
                                   : std::make_unique<colls::gradient_buckets<double>>(comm, net.gradients, colls::sum,
                                         colls::bucket_options{.bucket_bytes = 3000, .uneven = true});
                }();
                for (const int epoch : {0, 1, 2}) {
                    // Rank r has r steps in the first epoch and the last; rank 0 has most in the second.
                    const auto steps_of = [&](int rank) { return epoch == 1 ? n - rank : rank; };
                    const int most = epoch == 1 ? n : n - 1;
                    int step = 0;
                    const auto check = [&] {
                        const auto wanted = [&](std::size_t i, std::size_t e) {
                            double total = 0;
                            int taking_part = 0;
                            for (int r = 0; r < n; ++r)
                                if (steps_of(r) > step) total += value(r, i, e, step), ++taking_part;
                            expect(exchange->participants() == taking_part, "participants");
                            return average ? total / taking_part : total;
                        };
                        expect(is(net, wanted), "a wrong result in step " + std::to_string(step));
                        ++step;
                    };
                    while (step < steps_of(comm.rank())) {
                        make_step(*exchange, net, comm.rank(), step, some_order(sizes.size(), comm.rank(), step));
                        check();
                    }
                    exchange->join(check);
                    expect(step == most, "join lasts until all ranks have joined");
                }
            }
        }));
    }
}

TEMPLATE_TEST_CASE(
    "gradient_buckets by exact: the same bits for every number of ranks", "[patterns]", float, double, colls::half) {
    using T = TestType;
    // Three numbers of an element, with three of the ranks, within so few binades that no bit of them is lost.
    const auto number = [](std::size_t i, std::size_t e, std::size_t k) {
        random_source random = stream(i, e, k);
        const int size = random.between(0, std::is_same_v<T, colls::half> ? 8 : 18);
        const double x = std::ldexp(random.between(1, 1 << 20) + std::ldexp(random.between(0, 1 << 20), -30), -size);
        const double y = random.one_in(2) ? x / (1 << 20) : -x / (1 << 20);
        if constexpr (std::is_same_v<T, double>)
            return y;
        else
            return static_cast<T>(static_cast<float>(y));
    };
    model<T> want(sizes, layout::adjoining);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i)
        for (std::size_t e = 0; e < sizes[i]; ++e) {
            reference::bit_sum sum;
            for (std::size_t k = 0; k < 3; ++k) sum.add(static_cast<double>(number(i, e, k)));
            want.gradients[i][e] = static_cast<T>(sum.rounded<T>());
            const T plain = static_cast<T>(number(i, e, 0) + number(i, e, 1));
            differ += static_cast<T>(plain + number(i, e, 2)) != want.gradients[i][e];
        }
    CHECK(differ > 500);
    for (const int n : {3, 4, 7, 34})
        for (const std::size_t bytes : {std::size_t{500}, everything}) {
            INFO(n << " ranks, buckets of " << bytes << " bytes");
            CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
                model<T> net(sizes, layout::mixed);
                colls::gradient_buckets exchange(
                    comm, net.gradients, colls::exact, {.bucket_bytes = bytes, .uneven = n == 4});
                for (int step = 0; step < 2; ++step) {
                    for (std::size_t i = sizes.size(); i-- > 0;) {
                        for (std::size_t e = 0; e < sizes[i]; ++e) {
                            const std::size_t ranks = static_cast<std::size_t>(n), rank = (i + e + ranks) % ranks;
                            T& x = net.gradients[i][e] = T(0.0f);
                            for (std::size_t k = 0; k < 3; ++k)  // neighbours from `rank` on
                                if ((rank + k) % ranks == static_cast<std::size_t>(comm.rank())) x = number(i, e, k);
                        }
                        exchange.ready(i);
                    }
                    exchange.wait();
                    for (std::size_t i = 0; i < sizes.size(); ++i)
                        expect(std::ranges::equal(net.gradients[i], want.gradients[i]), "the bits of a sum");
                }
                if (n == 4) exchange.join();
            }));
        }
}

TEST_CASE("uneven steps: over processes", "[patterns]") {
    if (sanitized_threads) return;
    for (const std::string& transport : process_transports()) {
        INFO(transport);
        CHECK_NOTHROW(run_over(transport, 3, [&](colls::communicator& comm) {
            model<float> net(sizes, layout::apart);
            colls::gradient_buckets exchange(comm, net.gradients, colls::avg, {.bucket_bytes = 1000, .uneven = true});
            int step = 0;
            for (; step < comm.rank() * 2; ++step)
                make_step(exchange, net, comm.rank(), step, some_order(sizes.size(), comm.rank(), 0));
            exchange.join([&] { ++step; });
            expect(step == 4, "every rank sees all steps");
            expect(is(net, [](std::size_t i, std::size_t e) { return value(2, i, e, 3); }), "rank 2 alone in step 3");
        }));
    }
}

TEST_CASE("no_sync: several backward passes, one exchange", "[patterns]") {
    for (const bool uneven : {false, true})
        CHECK_NOTHROW(colls::threads::run(3, [&](colls::communicator& comm) {
            model<double> net(sizes, layout::mixed);
            colls::gradient_buckets exchange(comm, net.gradients, colls::avg, {.bucket_bytes = 500, .uneven = uneven});
            const auto accumulate = [&](int step) {
                for (std::size_t i = sizes.size(); i-- > 0;) {
                    for (std::size_t e = 0; e < sizes[i]; ++e) net.gradients[i][e] += value(comm.rank(), i, e, step);
                    exchange.ready(i);
                }
                exchange.wait();
            };
            for (int update = 0; update < 3; ++update) {
                for (const auto& gradient : net.gradients) std::ranges::fill(gradient, 0.0);
                {
                    const auto accumulating = exchange.no_sync();
                    accumulate(3 * update);
                    accumulate(3 * update + 1);
                    const auto own = [&](std::size_t i, std::size_t e) {
                        return value(comm.rank(), i, e, 3 * update) + value(comm.rank(), i, e, 3 * update + 1);
                    };
                    expect(is(net, own), "nothing is exchanged yet");
                }
                accumulate(3 * update + 2);
                const auto wanted = [&](std::size_t i, std::size_t e) {
                    double total = 0;
                    for (int k = 0; k < 3; ++k) total += sum_of(3, i, e, 3 * update + k);
                    return total / 3;
                };
                expect(is(net, wanted), "the average of three passes");
            }
        }));
}

TEST_CASE("no_sync: a step that an exception ends is forgotten", "[patterns]") {
    for (const bool uneven : {false, true})
        CHECK_NOTHROW(colls::threads::run(2, [&](colls::communicator& comm) {
            model<float> net({4, 4, 4}, layout::adjoining);
            colls::gradient_buckets exchange(comm, net.gradients, colls::sum, {.bucket_bytes = 1, .uneven = uneven});
            if (comm.rank() == 1) try {
                    const auto accumulating = exchange.no_sync();
                    exchange.ready(2);
                    throw std::runtime_error("out of memory");
                } catch (const std::runtime_error&) {}
            for (int step = 0; step < 2; ++step) {
                for (std::size_t i = 3; i-- > 0;) {
                    std::ranges::fill(net.gradients[i], static_cast<float>(comm.rank() + 1));
                    exchange.ready(i);
                }
                exchange.wait();
                expect(is(net, [](std::size_t, std::size_t) { return 3.0f; }), "the sums of a step after it");
            }
        }));
}

TEST_CASE("gradient_buckets: refuses wrong calls on the rank that makes them, which may correct them", "[patterns]") {
    CHECK_NOTHROW(colls::threads::run(2, [](colls::communicator& comm) {
        model<float> net({4, 4, 4, 4}, layout::adjoining);
        colls::gradient_buckets exchange(comm, net.gradients, colls::sum, {.bucket_bytes = 1});
        const auto refused = [](auto call, std::initializer_list<std::string> parts) {
            const std::string missing = lacks(refusal_of(call), parts);
            expect(missing.empty(), missing);
        };
        if (comm.rank() == 1) {
            refused([&] { exchange.ready(4); }, {"rank 1", "ready(4)", "4 gradients"});
            exchange.ready(3);
            refused([&] { exchange.ready(3); }, {"ready(3)", "before", "wait()"});
            exchange.ready(1);
            refused([&] { exchange.wait(); }, {"ready() was not called for gradient 0, 2"});
            refused([&] { exchange.join(); }, {"uneven"});
            refused([&] { (void)exchange.no_sync(); }, {"within a step"});
            exchange.ready(2);
            refused([&] { exchange.wait(); }, {"gradient 0"});
            exchange.ready(0);
        } else {
            for (std::size_t i = 4; i-- > 0;) exchange.ready(i);
        }
        exchange.wait();
        {
            {
                const auto guard = exchange.no_sync();
                exchange.ready(0);
            }
            for (const std::size_t i : {1u, 2u, 3u}) exchange.ready(i);
            refused([&] { exchange.wait(); }, {"ready() was not called for gradient 0"});
            exchange.ready(0);
            exchange.wait();
        }
    }));
    CHECK_NOTHROW(colls::threads::run(1, [](colls::communicator& comm) {
        std::vector<float> x(9);
        const auto text = refusal_of([&] {
            colls::gradient_buckets exchange(comm, std::vector{std::span(x)}, colls::sum, {.bucket_bytes = 0});
        });
        expect(says(text, "bucket_bytes is 0"), text);
        // One bucket, however long.
        const std::vector<std::span<float>> seven(7, std::span(x).first(0));
        colls::gradient_buckets many(comm, seven, colls::sum, {.uneven = true});
        many.ready(2);
        const auto missing = refusal_of([&] { many.wait(); });
        expect(says(missing, "for gradient 0, 1, 3, 4, 5 and 1 more"), missing);
        const auto joined = refusal_of([&] { many.join(); });
        expect(says(joined, "join() within a step"), joined);
        for (const std::size_t i : {0u, 1u, 3u, 4u, 5u, 6u}) many.ready(i);
        many.wait();
        many.join();
        colls::gradient_buckets one(
            comm, std::vector{std::span(x)}, colls::sum, {.bucket_bytes = std::size_t{1} << 63});
        expect(one.bucket_count() == 1, "one bucket");
        // Lengths whose sum wraps: the buffer of both would be short.
        std::vector<float> y(9);
        const std::vector<std::span<float>> wrapping = {{y.data(), 9}, {x.data(), 0 - std::size_t{4}}};
        const auto sum = refusal_of([&] { colls::packed_spans<float>(comm, wrapping); });
        expect(says(sum, "longer together than 2^63 bytes"), sum);
    }));
}

TEST_CASE("gradient_buckets: a rank that leaves by an error breaks the group for the others", "[patterns]") {
    std::string text, told[3];
    try {
        colls::threads::run(3, [&](colls::communicator& comm) {
            try {  // construction, too: a rank may be in it yet when another leaves
                model<float> net({4000, 4000}, layout::adjoining);
                colls::gradient_buckets exchange(comm, net.gradients, colls::sum, {.bucket_bytes = 1});
                if (comm.rank() != 1) exchange.ready(1);
                exchange.ready(0);
                exchange.wait();
            } catch (const colls::error& e) {
                told[comm.rank()] = e.code() == colls::errc::peer_failed ? "peer_failed" : e.what();
                throw;
            }
        });
    } catch (const colls::error& e) {
        text = e.what();
    }
    CHECK(told[0] == "peer_failed");
    CHECK(told[2] == "peer_failed");
    CHECK(lacks(text, {"rank 1", "not called for gradient 1"}) == "");
}

TEST_CASE("gradient_buckets: ranks that register other gradients get mismatch", "[patterns]") {
    struct registration {
        std::vector<std::size_t> sizes;
        colls::bucket_options options;
        std::string what;
    };
    const std::vector<registration> cases = {
        {{10, 20, 30}, {}, "the size of gradient 2 differs between ranks: 30 to 31"},
        {{10, 20, 31}, {.bucket_bytes = 7}, "bucket_bytes differs"},
        {{10, 20, 31}, {.uneven = true}, "uneven differs"},
        {{10, 20}, {}, ""},
    };
    for (const registration& other : cases) {
        INFO(other.what);
        std::atomic<int> mismatches{0};
        CHECK_NOTHROW(colls::threads::run(3, [&](colls::communicator& comm) {
            model<float> net(comm.rank() == 2 ? other.sizes : std::vector<std::size_t>{10, 20, 31}, layout::apart);
            // A rank that let the error out here would break the group while another is in the comparison yet.
            try {
                colls::gradient_buckets exchange(
                    comm, net.gradients, colls::avg, comm.rank() == 2 ? other.options : colls::bucket_options{});
            } catch (const colls::error& e) {
                if (e.code() == colls::errc::mismatch && says(e.what(), other.what)) ++mismatches;
            }
        }));
        CHECK(mismatches == 3);
    }
    std::atomic<int> mismatches{0};
    CHECK_NOTHROW(colls::threads::run(2, [&](colls::communicator& comm) {
        std::vector<float> x(9);
        const std::vector spans{std::span(x)};
        try {
            if (comm.rank() == 0)
                colls::gradient_buckets exchange(comm, spans, colls::avg);
            else
                colls::gradient_buckets exchange(comm, spans, colls::sum);
        } catch (const colls::error& e) {
            if (e.code() == colls::errc::mismatch && says(e.what(), "operator")) ++mismatches;
        }
    }));
    CHECK(mismatches == 2);
}

TEST_CASE("clip_by_global_norm: as computed by one rank, replicated and sharded", "[patterns]") {
    for (const int n : {1, 2, 3, 7}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
            model<float> whole(sizes, layout::mixed);
            long double squares = 0;
            for (std::size_t i = 0; i < sizes.size(); ++i)
                for (std::size_t e = 0; e < sizes[i]; ++e) {
                    const double x = value(3, i, e, 1) / 10;
                    whole.gradients[i][e] = static_cast<float>(x);
                    squares += static_cast<long double>(whole.gradients[i][e]) * whole.gradients[i][e];
                }
            const double norm = static_cast<double>(std::sqrt(squares));
            const auto before = whole.memory;
            const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); };
            const auto scaled = [&](const std::vector<float>& x, std::size_t from, std::size_t count, double factor) {
                for (std::size_t e = 0; e < count; ++e)
                    if (std::abs(x[e] - before[from + e] * factor) > 1e-6 * std::abs(before[from + e])) return false;
                return true;
            };

            expect(near(colls::clip_by_global_norm(comm, whole.gradients, norm * 2), norm), "norm");
            expect(whole.memory == before, "a norm below the limit changes nothing");
            expect(near(colls::clip_by_global_norm(comm, whole.gradients, norm / 4), norm), "norm");
            expect(scaled(whole.memory, 0, before.size(), 0.25), "scaled to a quarter");

            // Shards: all of memory, cut unevenly; rank 0 has nothing where there are several.
            const auto cut = [&](int r) {
                return r == 0 ? 0 : before.size() * static_cast<std::size_t>(r * r) / static_cast<std::size_t>(n * n);
            };
            const std::size_t from = n > 1 && comm.rank() <= 1 ? 0 : cut(comm.rank());
            const std::size_t to = n > 1 && comm.rank() == 0 ? 0 : cut(comm.rank() + 1);
            std::vector<float> shard(
                before.begin() + static_cast<std::ptrdiff_t>(from), before.begin() + static_cast<std::ptrdiff_t>(to));
            const std::vector parts = {
                std::span(shard).first(shard.size() / 3), std::span(shard).subspan(shard.size() / 3)};
            const double found = colls::clip_by_global_norm(comm, parts, 1.0, colls::gradient_layout::sharded);
            expect(near(found, norm), "norm of shards");
            expect(scaled(shard, from, shard.size(), 1 / norm), "shards scaled to norm 1");

            std::vector<float> odd = {1, 2, std::numeric_limits<float>::infinity()};
            expect(std::isinf(colls::clip_by_global_norm(comm, std::vector{std::span(odd)}, 1.0)), "infinite");
            expect(odd[0] == 1 && odd[1] == 2, "gradients stay as they are where the norm is not finite");
            for (const double wrong : {0.0, -1.0, std::nan("")})
                expect(
                    says(refusal_of([&] { colls::clip_by_global_norm(comm, parts, wrong); }), "positive"), "max_norm");
        }));
    }
}

namespace {

template <class T>
void check_exact_clip(std::uint64_t seed) {
    INFO("seed " << seed);
    model<T> given(sizes, layout::mixed);
    random_source random = stream(31, seed);
    reference::bit_sum sum;
    for (const auto& gradient : given.gradients)
        for (T& v : gradient) {
            v = static_cast<T>(std::ldexp(static_cast<float>(random.between(1, 1 << 20)), -random.between(0, 40)));
            sum.add(static_cast<double>(v) * static_cast<double>(v));
        }
    const double norm = std::sqrt(sum.rounded<double>());
    std::vector<T> want;
    for (const auto& gradient : given.gradients)
        for (const T v : gradient) want.push_back(static_cast<T>(static_cast<double>(v) * (norm / 7 / norm)));
    const auto same = [](std::span<const T> a, std::span<const T> b) {
        return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
    };
    for (const int n : {1, 2, 3, 7}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
            model<T> whole(sizes, layout::adjoining);
            for (std::size_t i = 0; i < sizes.size(); ++i)
                std::ranges::copy(given.gradients[i], whole.gradients[i].begin());
            const std::span<T> all = std::span(whole.memory).first(want.size());
            const std::vector<T> before(all.begin(), all.end());
            const double found = colls::clip_by_global_norm(
                comm, whole.gradients, norm / 7, colls::gradient_layout::replicated, colls::exact);
            expect(found == norm && same(all, want), "replicated");
            // Every rank's shard begins at a place of its own, and rank 0's is empty where there are several.
            const auto cut = [&](int r) {
                return r <= 0 ? 0 : before.size() * static_cast<std::size_t>(r * r) / static_cast<std::size_t>(n * n);
            };
            const std::size_t from = n == 1 || comm.rank() == 1 ? 0 : cut(comm.rank()),
                              to = n > 1 && comm.rank() == 0 ? 0 : cut(comm.rank() + 1);
            std::vector<T> shard(
                before.begin() + static_cast<std::ptrdiff_t>(from), before.begin() + static_cast<std::ptrdiff_t>(to));
            const std::vector parts = {
                std::span(shard).first(shard.size() / 3), std::span(shard).subspan(shard.size() / 3)};
            const double of_parts =
                colls::clip_by_global_norm(comm, parts, norm / 7, colls::gradient_layout::sharded, colls::exact);
            expect(of_parts == norm && same(shard, std::span(want).subspan(from, to - from)), "sharded");
        }));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("clip_by_global_norm with exact: the bits of one rank, replicated and sharded", "[patterns]", float,
    double, colls::bfloat16) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) check_exact_clip<TestType>(seed);
}

TEST_CASE("broadcast_spans: every rank gets the root's weights", "[patterns]") {
    for (const int n : {1, 3, 5})
        CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
            for (int root = 0; root < n; ++root)
                for (const layout how : {layout::adjoining, layout::apart}) {
                    model<float> net(sizes, comm.rank() == 1 ? layout::mixed : how);
                    for (std::size_t i = 0; i < sizes.size(); ++i)
                        for (std::size_t e = 0; e < sizes[i]; ++e)
                            net.gradients[i][e] = static_cast<float>(value(comm.rank(), i, e, root));
                    colls::broadcast_spans(comm, net.gradients, root);
                    expect(is(net, [&](std::size_t i, std::size_t e) { return value(root, i, e, root); }), "weights");
                }
        }));
}
