// The proof at run time, at sizes beyond what a compiler evaluates: every schedule of the library at every group size.
#include "catch.hpp"
#include "support/random.hpp"
#include "support/schedules.hpp"

#include <colls/testing/schedule.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

using namespace colls;

namespace {

// Ten times slower under a sanitizer or without optimisation: the sweep then ends early. What it looks for there, a
// wild access, does not depend on the size, once masks have several words.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr int largest = 130;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
constexpr int largest = 130;
#else
constexpr int largest = 512;
#endif
#else
constexpr int largest = 512;
#endif

/// Whether n is in the sweep. The families themselves: every n. Every n to 128, then some, of
///   - what is put together from proven parts: by levels, lanes, folds, or another order of ranks;
///   - a family with another parameter;
///   - the all_reduce, barrier and exclusive scan of a family whose rounds or ports grow with n.
/// COLLS_TEST_EXHAUSTIVE=1 in the environment: every n of all of them, four times as long. Without COLLS_TEST_LONG=1
/// every n to 42, some to 255, and the largest, where the rounds do not grow with n.
bool swept(const std::string& name, const any_schedule& s, int n) {
    static const bool exhaustive = std::getenv("COLLS_TEST_EXHAUSTIVE") != nullptr;
    const bool some = n % 37 == 0 || n % 64 <= 1 || n == 255;
    const bool long_or_wide = static_cast<long>(s.rounds(n)) * s.ports(n) >= n / 4;
    if (!exhaustive && !support::long_run)
        return n <= 42 || (n > 62 && n < 67) || n == 81 || n == 255 || (n == largest && !long_or_wide);
    if (exhaustive || n <= 128 || n >= 511) return true;
    bool combined = false;
    for (const char* combinator : {"hierarchical", "striped", "folded", "permuted", "linear", "doubling>", "<4>"})
        combined = combined || name.find(combinator) != std::string::npos;
    const bool derived = s.implements == collective::all_reduce || s.implements == collective::barrier ||
                         s.implements == collective::exclusive_scan;
    if (!combined && !(derived && long_or_wide)) return true;
    return some;
}

/// Large blocks stay with the process: the pages of a proof cost more than the proof if the system takes them back.
void keep_memory() {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

}  // namespace

TEST_CASE("every schedule is proven at every legal group size up to 512", "[proof]") {
    keep_memory();
    const auto start = std::chrono::steady_clock::now();
    int proofs = 0;
    for (const auto& [name, s] : support::every_schedule()) {
        int sizes = 0;
        for (int n = 1; n <= largest; ++n) {
            if (!supports(s, n) || !swept(name, s, n)) continue;
            const report r = verify(s, n);
            if (!r.ok()) FAIL(name << " at " << n << ": " << r.text());
            ++sizes;
        }
        INFO(name);
        CHECK(sizes >= 5);
        proofs += sizes;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << "proof: " << proofs << " pairs of schedule and group size up to " << largest << " in " << took.count()
              << " s\n";
    CHECK(proofs > (support::long_run ? 55 * largest : 55 * 48));
}

TEST_CASE("symmetric schedules are proven in groups of up to 4096 ranks", "[proof]") {
    int proofs = 0;
    for (const auto& [name, s] : support::every_schedule())
        for (const int n : {1023, 1024, 4096}) {
            if ((largest < 512 || !support::long_run) && n != 1024) continue;
            if (!supports(s, n) || !properties_of(s, supports(s, 24) ? 24 : 16).symmetric) continue;
            // n^2 steps where the rounds or ports grow with n: at one size, and the ring itself at all.
            const bool long_or_wide = static_cast<long>(s.rounds(n)) * s.ports(n) >= n / 4;
            if (long_or_wide && n != 1023 && name != "ring reduce_scatter") continue;
            const report r = verify(s, n);
            INFO(name << " at " << n << ": " << r.text());
            CHECK(r.ok());
            ++proofs;
        }
    CHECK(proofs >= (largest < 512 || !support::long_run ? 20 : 60));
}

TEST_CASE("symmetric and full execution reach the same verdict", "[proof]") {
    int symmetric = 0, broken = 0;
    for (const auto& [name, s] : support::every_schedule())
        for (const int n : {2, 3, 5, 8, 16, 21, 63, 64, 65, 96, 129, 130}) {
            if (!supports(s, n)) continue;
            const detail::reader_of<any_schedule> reader(s);
            detail::symmetric_execution one(reader, n);
            if (!one.applies()) continue;
            ++symmetric;
            INFO(name << " at " << n);
            CHECK(one.run().ok());
            CHECK(detail::symbolic_execution(reader, n).run().ok());
            // Changed alike on every rank, it is still symmetric: both executions must reach the same verdict.
            for (std::uint64_t seed = 0; seed < 4; ++seed) {
                testing::detail::random random(seed + static_cast<std::uint64_t>(n));
                const int rounds = s.rounds(n);
                if (rounds < 1 || n > 100) continue;
                struct altered {
                    any_schedule s;
                    int round, kind, by;
                    collective implements = s.implements;
                    int rounds(int n) const { return s.rounds(n); }
                    int blocks(int n) const { return s.blocks(n); }
                    int ports(int n) const { return s.ports(n); }
                    int home(int n, int slot) const { return s.home(n, slot); }
                    int input(int rank, int n, int slot) const { return s.input(rank, n, slot); }
                    int output(int rank, int n, int slot) const { return s.output(rank, n, slot); }
                    step at(int rank, int n, int k, int port) const {
                        step st = s.at(rank, n, k, port);
                        if (k != round || port != 0) return st;
                        if (kind == 0 && st.send.peer != none) st.send.peer = mod(st.send.peer + by, n);
                        if (kind == 1 && st.send.blocks.modulus > 0)
                            st.send.blocks.first = mod(st.send.blocks.first + by, st.send.blocks.modulus);
                        if (kind == 1 && st.send.blocks.modulus == 0 && st.send.blocks.count == 1)
                            st.send.blocks.first = mod(st.send.blocks.first + by, blocks(n) > 0 ? blocks(n) : 1);
                        if (kind == 2) st.recv.action = action::copy;
                        if (kind == 3) st = {};
                        return st;
                    }
                };
                const altered bad{s, random.below(rounds), random.below(4), 1 + random.below(n - 1)};
                const detail::reader_of<altered> bad_reader(bad);
                detail::symmetric_execution bad_one(bad_reader, n);
                if (!bad_one.applies()) continue;
                const report a = bad_one.run(), b = detail::symbolic_execution(bad_reader, n).run();
                INFO(bad.kind << ": " << a.text() << " / " << b.text());
                CHECK(a.ok() == b.ok());
                CHECK(a.law == b.law);
                broken += !a.ok();
            }
        }
    CHECK(symmetric > 300);
    CHECK(broken > 300);
}

TEST_CASE("play: every schedule finishes with channels of one message, ranks in any order", "[proof]") {
    for (const auto& [name, s] : support::every_schedule())
        for (const int n : {1, 2, 3, 5, 8, 13, 16, 24, 33})
            if (supports(s, n))
                for (std::uint64_t seed = 0; seed < 3; ++seed) {
                    INFO(name << " at " << n);
                    CHECK(testing::play(s, n, seed).text() == verify(s, n).text());
                }
}
