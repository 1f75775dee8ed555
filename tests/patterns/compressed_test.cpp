// Compressed all_reduce and top-k: the same bits as a serial computation, on every rank and every transport; rounding
// errors within the bound that the proof's count gives; what error feedback keeps.
#include "catch.hpp"

#include "patterns/quantized_reference.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/compressed.hpp>
#include <colls/patterns/top_k.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace colls;
using namespace support;

namespace {

using floats = std::vector<float>;
using int8 = quantized<std::int8_t>;
using e4m3 = quantized<fp8_e4m3>;
using e5m2 = quantized<fp8_e5m2, 32>;

/// The contribution of a rank to a call. Magnitudes differ between blocks and within them.
floats contribution(int rank, std::size_t count, int turn = 0) {
    std::mt19937 random(static_cast<unsigned>(rank * 1000 + turn));
    std::normal_distribution<float> normal;
    floats x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(i / 50 % 9) - 4);
    return x;
}
std::vector<floats> contributions(int n, std::size_t count, int turn = 0) {
    std::vector<floats> x;
    for (int r = 0; r < n; ++r) x.push_back(contribution(r, count, turn));
    return x;
}
std::size_t index(int i) { return static_cast<std::size_t>(i); }
std::string bytes_of(std::span<const float> x) {
    const auto bytes = std::as_bytes(x);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
/// Fails where a rank has other bits than rank 0.
void expect_same_everywhere(communicator& comm, const floats& x) {
    floats of_root = x;
    broadcast(comm, of_root, 0);
    expect(bytes_of(x) == bytes_of(of_root), "other bits than rank 0");
}
/// Runs f on n threads; an exception that leaves f is a failed check.
template <class F>
void on_threads(int n, F f) {
    INFO(n << " ranks");
    CHECK_NOTHROW(threads::run(n, f));
}

// The serial computation

template <class E>
struct element_of_floats {
    static constexpr std::size_t size = sizeof(accumulator_of<E, sum_t>) / sizeof(float);
    static E make(const float* x) {
        if constexpr (size == 1)
            return E(*x);
        else
            return reference_block<E>(x);
    }
    static float value(const E& e, std::size_t i) {
        if constexpr (size == 1)
            return static_cast<float>(e);
        else
            return static_cast<float>(e.codes[i]) * e.scale;
    }
};

/// All ranks at once: each rounds its contribution and its residual, one fold adds them up in float, and rounds.
template <class E>
struct serial {
    using element = element_of_floats<E>;
    std::size_t count;
    bool feedback;
    std::vector<floats> residual;
    serial(int n, std::size_t c, bool f = true)
        : count(c), feedback(f), residual(static_cast<std::size_t>(n), floats(c)) {}

    floats operator()(const std::vector<floats>& x) {
        floats result(count);
        for (std::size_t at = 0; at < count; at += element::size) {
            const std::size_t m = std::min(element::size, count - at);
            float total[element::size] = {};
            E e{};
            for (std::size_t r = 0; r < x.size(); ++r) {
                float mine[element::size] = {};
                for (std::size_t i = 0; i < m; ++i) mine[i] = x[r][at + i] + (feedback ? residual[r][at + i] : 0);
                e = element::make(mine);
                for (std::size_t i = 0; i < element::size; ++i) {
                    const float v = element::value(e, i);
                    total[i] = r == 0 ? v : total[i] + v;
                    if (i < m) residual[r][at + i] = mine[i] - v;
                }
            }
            if (x.size() > 1) e = element::make(total);  // one rank folds nothing
            for (std::size_t i = 0; i < m; ++i) result[at + i] = element::value(e, i);
        }
        return result;
    }
};

/// Several calls, each compared bit for bit with the serial computation, on every transport.
template <class E>
void check_direct(int n, std::size_t count, compression how, int turns) {
    serial<E> model(n, count, how.error_feedback);
    std::vector<floats> expected;
    for (int t = 0; t < turns; ++t) expected.push_back(model(contributions(n, count, t)));
    on_every_transport(n, [&](communicator& comm) {
        compressed_all_reduce<E> exchange(count, how);
        for (int t = 0; t < turns; ++t) {
            floats x = contribution(comm.rank(), count, t);
            exchange(comm, x);
            expect(bytes_of(x) == bytes_of(expected[static_cast<std::size_t>(t)]), "other bits than one rank");
        }
        const auto left = exchange.residual();
        const floats& mine = model.residual[static_cast<std::size_t>(comm.rank())];
        expect(how.error_feedback ? bytes_of(left) == bytes_of(mine) : left.empty(), "another residual");
    });
}

/// Another schedule: the same bits on every rank, and no error beyond the bound.
template <class E, class Schedule>
void check_bound(int n, std::size_t count) {
    using exchange_type = compressed_all_reduce<E, Schedule>;
    constexpr std::size_t size = exchange_type::values_each;
    const double bound = exchange_type::error_bound(n);
    const auto x = contributions(n, count);
    on_threads(n, [&](communicator& comm) {
        exchange_type exchange(count);
        floats mine = x[static_cast<std::size_t>(comm.rank())];
        exchange(comm, mine);
        expect_same_everywhere(comm, mine);
        double worst = 0;  // as a part of the bound
        for (std::size_t at = 0; at < count; at += size) {
            const std::size_t end = std::min(at + size, count);
            double magnitudes = 0;
            for (const floats& of_rank : x) {
                float most = 0;
                for (std::size_t i = at; i < end; ++i) most = std::max(most, std::abs(of_rank[i]));
                magnitudes += most;
            }
            for (std::size_t i = at; i < end; ++i) {
                double exact = 0;
                for (const floats& of_rank : x) exact += of_rank[i];
                worst = std::max(worst, std::abs(mine[i] - exact) / (magnitudes * bound));
            }
        }
        expect(worst <= 1 + 1e-5, "an error is beyond the bound");
        expect(worst > 0.02, "the bound is too far from the errors to bound anything");
    });
}

/// The serial computation of top_k_all_reduce, by sorting.
struct serial_top_k {
    std::size_t k;
    float momentum;
    std::vector<floats> residual, velocity;
    serial_top_k(int n, std::size_t count, std::size_t k_, float m)
        : k(k_), momentum(m), residual(static_cast<std::size_t>(n), floats(count)), velocity(residual) {}

    floats operator()(const std::vector<floats>& x) {
        floats result(x[0].size());
        for (std::size_t r = 0; r < x.size(); ++r) {
            std::vector<std::size_t> order(result.size());
            for (std::size_t i = 0; i < order.size(); ++i) {
                order[i] = i;
                velocity[r][i] = momentum * velocity[r][i] + x[r][i];
                residual[r][i] += velocity[r][i];
            }
            const auto larger = [&](std::size_t a, std::size_t b) {
                const float u = std::abs(residual[r][a]), v = std::abs(residual[r][b]);
                return std::isnan(u) || std::isnan(v) ? std::isnan(u) && !std::isnan(v) : u > v;
            };
            std::stable_sort(order.begin(), order.end(), larger);
            for (std::size_t j = 0; j < k; ++j) {
                const std::size_t i = order[j];
                result[i] += residual[r][i];
                residual[r][i] = velocity[r][i] = 0;
            }
        }
        return result;
    }
};

}  // namespace

TEST_CASE("compressed: the bits of the serial computation on every rank and transport", "[patterns]") {
    check_direct<int8>(4, 1000, {}, 3);
    check_direct<e4m3>(3, 129, {}, 3);
    check_direct<e5m2>(2, 4097, {}, 2);
    check_direct<bfloat16>(3, 777, {}, 3);
    check_direct<int8>(5, 5000, {.error_feedback = false, .chunk = 300}, 2);  // chunks of 384: whole blocks
    check_direct<e4m3>(7, 3000, {.error_feedback = true, .chunk = 1}, 2);
}

TEST_CASE("compressed: short buffers, of which some ranks reduce nothing", "[patterns]") {
    for (const int n : {1, 2, 3, 5})
        for (const std::size_t count : {0u, 1u, 127u, 128u, 129u, 257u}) {
            serial<int8> model(n, count);
            const auto expected = model(contributions(n, count));
            on_threads(n, [&](communicator& comm) {
                compressed_all_reduce<> exchange(count);
                expect(exchange.elements() == (count + 127) / 128, "another number of blocks");
                floats x = contribution(comm.rank(), count);
                exchange(comm, x);
                expect(bytes_of(x) == bytes_of(expected), "other bits than one rank");
            });
        }
}

TEST_CASE("compressed: the proof counts how often a schedule rounds a value", "[patterns]") {
    STATIC_REQUIRE(compressed_all_reduce<int8>::requantisations(1) == 0);
    STATIC_REQUIRE(compressed_all_reduce<int8>::requantisations(2) == 1);
    STATIC_REQUIRE(compressed_all_reduce<int8>::requantisations(7) == 1);
    STATIC_REQUIRE(compressed_all_reduce<int8, ring>::requantisations(4) == 3);
    STATIC_REQUIRE(compressed_all_reduce<int8, ring>::requantisations(7) == 6);
    STATIC_REQUIRE(compressed_all_reduce<int8, tree<2>>::requantisations(8) == 3);
    STATIC_REQUIRE(compressed_all_reduce<int8, tree<2>>::requantisations(5) == 3);
    STATIC_REQUIRE(compressed_all_reduce<int8, halving_doubling>::requantisations(8) == 3);
    STATIC_REQUIRE(compressed_all_reduce<int8, one_shot::all_reduce>::requantisations(8) == 1);
    constexpr double e = int8::worst_error;  // half a scale
    CHECK(e == Approx(0.5 / 127).epsilon(1e-4));
    CHECK(compressed_all_reduce<int8>::error_bound(4) == Approx((1 + e) * (1 + e) - 1));
    CHECK(compressed_all_reduce<int8, ring>::error_bound(4) == Approx(std::pow(1 + e, 4) - 1));
    CHECK(compressed_all_reduce<float>::error_bound(4) == 0);

    CHECK(compressed_all_reduce<int8>(1024).bytes_sent(4) == Approx(1.5 * 8 * 132));  // 2 (n - 1) / n of 8 blocks
    CHECK(compressed_all_reduce<bfloat16>(1024).bytes_sent(4) == Approx(1.5 * 2048));
}

TEST_CASE("compressed: errors stay within the bound of each schedule", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7}) {
        check_bound<int8, direct>(n, 3000);
        check_bound<int8, ring>(n, 3000);
        check_bound<e4m3, ring>(n, 3000);
        check_bound<e4m3, tree<2>>(n, 3000);
        check_bound<e5m2, one_shot::all_reduce>(n, 3000);
        check_bound<bfloat16, double_tree>(n, 3000);
    }
    check_bound<int8, halving_doubling>(8, 3000);
}

TEST_CASE("compressed: one requantisation of a value costs half a scale", "[patterns]") {
    // Sums of quantised contributions, in double, against the result: one fold has rounded it.
    const int n = 4;
    const std::size_t count = 640;
    const auto x = contributions(n, count);
    std::vector<double> exact(count);
    for (const floats& of_rank : x)
        for (std::size_t i = 0; i < count; ++i) {
            const int8 block = reference_block<int8>(of_rank.data() + i / 128 * 128);
            exact[i] += double{block.scale} * block.codes[i % 128];
        }
    on_threads(n, [&](communicator& comm) {
        compressed_all_reduce<int8> exchange(count);
        floats sums = x[static_cast<std::size_t>(comm.rank())];
        exchange(comm, sums);
        for (std::size_t at = 0; at < count; at += 128) {
            double most = 0;
            for (std::size_t i = at; i < at + 128; ++i) most = std::max(most, std::abs(exact[i]));
            for (std::size_t i = at; i < at + 128; ++i)
                expect(std::abs(sums[i] - exact[i]) <= most / 127 * 0.5 * (1 + 1e-4), "more than half a scale");
        }
    });
}

TEST_CASE("compressed: with error feedback no contribution is lost over many calls", "[patterns]") {
    // Values far below a scale: each alone is rounded to zero.
    const int turns = 400;
    on_threads(2, [&](communicator& comm) {
        compressed_all_reduce<int8> kept(256), forgetful(256, {.error_feedback = false});
        double with = 0, without = 0;
        for (int t = 0; t < turns; ++t) {
            floats x(256, 0.001f);
            x[0] = x[128] = 1.0f;  // the scale is 1 / 127
            floats y = x;
            kept(comm, x);
            forgetful(comm, y);
            with += x[77];
            without += y[77];
        }
        const double all = 2 * turns * 0.001;
        expect(without == 0, "without a residual something was sent");
        expect(std::abs(with - all) < 0.03 * all, "the sum over all calls is " + std::to_string(with));
    });
}

TEST_CASE("compressed: a NaN or an infinity of one rank reaches every rank", "[patterns]") {
    on_threads(3, [](communicator& comm) {
        compressed_all_reduce<int8> exchange(500);
        compressed_all_reduce<bfloat16> by_bfloat16(500);
        floats x = contribution(comm.rank(), 500);
        if (comm.rank() == 1) x[130] = std::numeric_limits<float>::infinity();
        if (comm.rank() == 2) x[499] = std::numeric_limits<float>::quiet_NaN();
        floats y = x;
        exchange(comm, x);
        by_bfloat16(comm, y);
        for (std::size_t i = 0; i < 500; ++i)
            expect(std::isnan(x[i]) == (i >= 128 && (i < 256 || i >= 384)), "the blocks of both are NaN, no others");
        expect(std::isinf(y[130]) && std::isnan(y[499]) && std::isfinite(y[131]), "bfloat16 keeps single values");
        expect_same_everywhere(comm, x);
        floats z(500, 1.0f);
        exchange(comm, z);
        for (const float v : z) expect(std::isfinite(v), "the next call is not finite");
    });
    on_threads(2, [](communicator& comm) {
        floats x(128, 0x1p126f);  // finite contributions, and a sum that is too large
        compressed_all_reduce<int8> exchange(128);
        exchange(comm, x);
        expect(std::isnan(x[0]) && std::isnan(x[127]), "a sum of 2^127 is NaN");
    });
}

TEST_CASE("compressed: a sum is started, and waited for later; a residual is saved and restored", "[patterns]") {
    const std::size_t count = 3000;
    serial<int8> model(3, count);
    const auto first = model(contributions(3, count)), second = model(contributions(3, count, 1));
    on_threads(3, [&](communicator& comm) {
        compressed_all_reduce<int8> before(count, {.chunk = 1024});
        floats x = contribution(comm.rank(), count), y = contribution(comm.rank(), count, 1);
        before.start(comm, x);
        const std::string refused = refusal_of([&] { before.start(comm, y); });
        expect(lacks(refused, {"compressed_all_reduce", "call wait() first"}) == "", refused);
        before.wait();
        expect(bytes_of(x) == bytes_of(first), "other bits than one rank");

        compressed_all_reduce<int8> after(count);  // other chunks: the same bits
        std::ranges::copy(before.residual(), after.residual().begin());
        after(comm, y);
        expect(bytes_of(y) == bytes_of(second), "other bits than one rank after restoring");
    });
}

TEST_CASE("compressed and top-k: one object serves several groups in turn, with one residual", "[patterns]") {
    // The group, each half of it, the group again, and so on.
    const int n = 4, turns = 5;
    const std::size_t count = 700, k = 23;
    serial<int8> model(n, count);
    serial_top_k largest(n, count, k, 0.5f);
    std::vector<std::vector<floats>> sums, sparse;  // by turn and rank
    for (int t = 0; t < turns; ++t) {
        const auto x = contributions(n, count, t);
        sums.emplace_back(), sparse.emplace_back();
        const int ranks = t % 2 ? n / 2 : n;
        for (int first = 0; first < n; first += ranks) {
            const auto part = [&](auto& all) { return std::span(all).subspan(index(first), index(ranks)); };
            const auto copy = [&](auto& all) {
                const auto some = part(all);
                return std::vector<floats>(some.begin(), some.end());
            };
            serial<int8> of_part(ranks, count);
            serial_top_k largest_of_part(ranks, count, k, 0.5f);
            of_part.residual = copy(model.residual);
            largest_of_part.residual = copy(largest.residual);
            largest_of_part.velocity = copy(largest.velocity);
            sums.back().resize(index(first + ranks), of_part(copy(x)));
            sparse.back().resize(index(first + ranks), largest_of_part(copy(x)));
            std::ranges::copy(of_part.residual, part(model.residual).begin());
            std::ranges::copy(largest_of_part.residual, part(largest.residual).begin());
            std::ranges::copy(largest_of_part.velocity, part(largest.velocity).begin());
        }
    }
    on_threads(n, [&](communicator& comm) {
        communicator half = comm.split(comm.rank() / 2, comm.rank());
        compressed_all_reduce<int8> exchange(count, {.chunk = 256});
        top_k_all_reduce top(count, k, 0.5f);
        for (int t = 0; t < turns; ++t) {
            floats x = contribution(comm.rank(), count, t), y = x;
            exchange(t % 2 ? half : comm, x);
            top(t % 2 ? half : comm, y);
            expect(bytes_of(x) == bytes_of(sums[index(t)][index(comm.rank())]), "another sum");
            expect(bytes_of(y) == bytes_of(sparse[index(t)][index(comm.rank())]), "another sparse sum");
        }
    });
}

TEST_CASE("compressed: after an error of the group the next sum is over another one", "[patterns]") {
    std::atomic<int> failed{0}, right{0};
    on_threads(3, [&](communicator& comm) {
        if (comm.rank() == 2) return;
        const std::size_t count = 700;
        const compression how{.error_feedback = false, .chunk = 256};
        compressed_all_reduce<colls::bfloat16> exchange(count, how), started(count, how);
        floats x(count, 1.0f), gone(count, 1.0f);
        const auto fails = [&](auto call) {
            try {
                call();
            } catch (const colls::error& e) {
                failed += e.code() == colls::errc::peer_failed;
            }
        };
        fails([&] { exchange(comm, x); });
        fails([&] { started.start(comm, gone), started.wait(); });
        gone = {};
        communicator rest = comm.shrink();
        for (auto* of : {&exchange, &started}) {
            x.assign(count, 1.0f);
            (*of)(rest, x);
            right += x == floats(count, 2.0f);
        }
    });
    CHECK(failed == 4);
    CHECK(right == 4);
}

TEST_CASE("compressed and top-k: ranks that wait for one with a wrong buffer are told", "[patterns]") {
    for (const bool largest : {false, true}) {
        std::atomic<int> told{0}, over{0};
        on_threads(2, [&](communicator& comm) {
            comm.set_timeout(std::chrono::seconds(60));
            compressed_all_reduce<int8> exchange(500);
            top_k_all_reduce top(500, 5);
            floats x(comm.rank() == 1 ? 499 : 500);
            try {
                largest ? top(comm, x) : exchange(comm, x);
            } catch (const colls::error& e) {
                told += e.code() == (comm.rank() == 1 ? colls::errc::invalid_argument : colls::errc::peer_failed) &&
                        lacks(e.what(), {"holds 499 floats"}) == "";
            }
            ++over;
            while (over < 2) std::this_thread::yield();  // rank 1 does not leave before
        });
        CHECK(told == 2);
    }
}

TEST_CASE("compressed: refuses a buffer of another length", "[patterns]") {
    on_threads(1, [](communicator& comm) {
        compressed_all_reduce<int8> exchange(500);
        floats x(499);
        const std::string text = refusal_of([&] { exchange(comm, x); });
        expect(lacks(text, {"rank 0 in compressed_all_reduce", "holds 499 floats, and should hold 500"}) == "", text);
        // The longest chunk there can be is one for all.
        compressed_all_reduce<int8> whole(5000, {.chunk = SIZE_MAX});
        const std::uint64_t before = comm.context().log.count;
        x.assign(5000, 1);
        whole(comm, x);
        expect(comm.context().log.count == before + 1, "one call");
        communicator nowhere;
        x.assign(500, 0.001f);
        expect(refusal_of([&] { exchange(nowhere, x); }) != "none", "a communicator of no group");
        expect(exchange.residual()[0] == 0, "a call that was refused has changed the residual");
    });
}

TEST_CASE("quantized: blocks are elements for every call", "[patterns]") {
    on_every_transport(3, [](communicator& comm) {
        std::vector<int8> blocks(7), all(21), scanned(7);
        const floats x = contribution(comm.rank(), 7 * 128);
        for (std::size_t b = 0; b < 7; ++b) blocks[b] = reference_block<int8>(x.data() + b * 128);
        all_gather(comm, blocks, all);
        inclusive_scan(comm, blocks, scanned, sum);
        auto averaged = blocks;
        all_reduce<direct>(comm, averaged, avg);
        all_reduce<ring>(comm, blocks, sum);
        for (std::size_t i = 0; i < 7 * 128; ++i) {
            const auto at = [&](const std::vector<int8>& v, std::size_t first) {
                const int8& b = v[first + i / 128];
                return double{b.scale} * b.codes[i % 128];
            };
            double upto = 0, total = 0, scale = 0;
            for (std::size_t r = 0; r < 3; ++r) {
                total += at(all, r * 7);
                if (static_cast<int>(r) <= comm.rank()) upto += at(all, r * 7);
                scale += all[r * 7 + i / 128].scale;
            }
            expect(std::abs(at(scanned, 0) - upto) <= 1.01 * scale, "scan");
            expect(std::abs(at(blocks, 0) - total) <= 1.01 * scale, "sum by the ring");
            expect(std::abs(at(averaged, 0) - total / 3) <= 0.51 * scale / 3, "average");
        }
    });
}

TEST_CASE("top-k: the bits of the serial computation on every rank and transport", "[patterns]") {
    for (const float momentum : {0.0f, 0.9f}) {
        const int n = 3, turns = 4;
        const std::size_t count = 1000, k = 17;
        serial_top_k model(n, count, k, momentum);
        std::vector<floats> expected;
        for (int t = 0; t < turns; ++t) expected.push_back(model(contributions(n, count, t)));
        on_every_transport(n, [&](communicator& comm) {
            top_k_all_reduce exchange(count, k, momentum);
            for (int t = 0; t < turns; ++t) {
                floats x = contribution(comm.rank(), count, t);
                exchange(comm, x);
                expect(bytes_of(x) == bytes_of(expected[static_cast<std::size_t>(t)]), "other bits than one rank");
            }
            const auto me = static_cast<std::size_t>(comm.rank());
            expect(bytes_of(exchange.residual()) == bytes_of(model.residual[me]), "another residual");
            expect(momentum == 0 || bytes_of(exchange.velocity()) == bytes_of(model.velocity[me]), "another velocity");
        });
    }
}

TEST_CASE("top-k: ties, zeros, infinities and NaNs, and every k", "[patterns]") {
    const float bad = std::numeric_limits<float>::quiet_NaN(), end = std::numeric_limits<float>::infinity();
    for (const floats& x : {floats(9, 2.0f), floats(5), floats{1, -1, 1e-45f, 0, -0.0f, 1},
             floats{0x1p-9f, 0x1.000002p-9f, 0x1.0008p-9f, 0x1p-10f}, floats{3, bad, end, -bad, -end, 4}})
        for (std::size_t k = 1; k <= x.size(); ++k) {
            serial_top_k model(2, x.size(), k, 0);
            const floats expected = model({x, x});
            on_threads(2, [&](communicator& comm) {
                top_k_all_reduce exchange(x.size(), k);
                floats mine = x;
                exchange(comm, mine);
                const auto same = [](float u, float v) { return u == v || (std::isnan(u) && std::isnan(v)); };
                for (std::size_t i = 0; i < x.size(); ++i) {
                    expect(same(mine[i], expected[i]), "another sum");
                    expect(same(exchange.residual()[i], model.residual[0][i]), "another residual");
                }
                expect_same_everywhere(comm, mine);
            });
        }
}

TEST_CASE("top-k: refuses a k that is out of range, and a buffer of another length", "[patterns]") {
    for (const std::size_t k : {0u, 6u})
        CHECK(lacks(refusal_of([&] { top_k_all_reduce(5, k); }),
                  {"k is " + std::to_string(k), "from 1 to", "here 5"}) == "");
    // Before memory is taken, of which there is less.
    CHECK(lacks(refusal_of([] { top_k_all_reduce(std::size_t{1} << 60, 1); }), {"below 2^32"}) == "");
    on_threads(1, [](communicator& comm) {
        top_k_all_reduce exchange(5, 2);
        floats x(6);
        const std::string text = refusal_of([&] { exchange(comm, x); });
        expect(lacks(text, {"holds 6 floats, and should hold 5"}) == "", text);
        expect(exchange.bytes_sent(4) == 3 * 2 * 8, "another number of bytes");
    });
}
