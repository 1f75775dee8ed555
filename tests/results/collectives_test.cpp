// Every collective with every schedule, group size and root, in rotation, compared to the serial reference.
#include "catch.hpp"

#include "support/batch.hpp"

#include <algorithm>
#include <cstdio>
#include <random>

using namespace support;

namespace {

using communicator = colls::threads::communicator;
using jobs_list = std::deque<job<communicator>>;

/// Runs the collected calls in one group of n ranks, and checks their results.
void run_and_check(int n, jobs_list& jobs, std::uint64_t seed) {
    INFO("group of " << n << ", seed " << seed);
    try {
        run_jobs(n, jobs, seed);
    } catch (const std::exception& failure) {
        std::string all;
        for (const auto& j : jobs) all += "\n  " + j.describe();
        FAIL(failure.what() << "\nthe calls:" << all);
    }
    std::size_t i = 0;
    for (const auto& j : jobs) {
        if (const std::string wrong = j.wrong(); !wrong.empty())
            FAIL("call " << i << ": " << j.describe() << ": " << wrong);
        ++i;
    }
    CHECK(i == jobs.size());
    jobs.clear();
}

shape shape_of(verb c, int n, std::size_t count, int root = 0) {
    shape s{c, n, rooted(c) ? root : 0, {}};
    const auto ranks = static_cast<std::size_t>(n);
    if (c == verb::all_to_all)
        s.counts.assign(ranks * ranks, count / ranks + (count % ranks != 0 ? 1 : 0));
    else
        s.counts = balanced(count, n);
    return s;
}

const entry<communicator>& kind_named(std::string_view name) {
    for (const auto& e : common_kinds<communicator>())
        if (name == e.kind.name) return e;
    FAIL("no kind " << name);
    std::abort();
}

/// Selects among the group sizes far above the number of cores: one below, at and above a power of two, and the
/// largest. Each takes a minute where all ranks share two cores.
bool worth_its_time(int n) { return long_run || n <= 9 || n == 13 || n == 17; }

/// Builds of another compiler than g++, or with a sanitizer, run what g++'s build has run: fewer sizes are enough.
#ifdef __clang__
constexpr bool repeats = true;
#else
constexpr bool repeats = sanitized;
#endif

}  // namespace

TEST_CASE("collectives: every schedule gives the right result at every group size that it supports", "[collectives]") {
    for (const int n : awkward_sizes) {
        if ((repeats && n > (sanitized_threads ? 8 : 17)) || n > most_ranks || !worth_its_time(n)) continue;
        random_source random(static_cast<std::uint64_t>(n));
        jobs_list jobs;
        const auto ranks = static_cast<std::size_t>(n);
        std::vector<std::size_t> counts = {0, 1, ranks - 1, ranks, ranks + 1, 8 * ranks + 3, 2039, 20'011};
        const std::size_t turns = n > 40                         ? 1
                                  : n > 20                       ? 2
                                  : long_run                     ? counts.size()
                                  : sanitized_threads            ? 1
                                  : tested_transport == "routed" ? 2
                                  : repeats                      ? 2
                                  : by_processes                 ? 2
                                  : n > 9                        ? 1
                                                                 : 3;
        if (turns < counts.size() || by_processes)
            std::shuffle(counts.begin(), counts.end(), std::minstd_rand(static_cast<unsigned>(n)));
        for (const row& r : all_schedules()) {
            if (!r.supports(n)) continue;
            const bool folds = reduces(r.collective);
            const bool ordered = !folds || keeps_order(r, n);
            const auto& kinds = common_kinds<communicator>();
            for (std::size_t turn = 0; turn < turns; ++turn) {
                const auto& e = random.pick(kinds);
                if (!ordered && e.kind.how == judged::in_order) continue;
                call_plan p;
                p.shape =
                    shape_of(r.collective, n, n > 20 ? random.pick(counts) : counts[turn], random.between(0, n - 1));
                p.in_place = job<communicator>::can_be_in_place(p.shape, false) && random.one_in(2);
                p.same = p.in_place && r.collective == verb::all_reduce && random.one_in(2);
                p.how = e.all_ways ? static_cast<way>(random.below(3)) : way::blocking;
                p.chosen = &r.schedule;
                p.schedule = r.name;
                p.seed = random.next();
                jobs.emplace_back(e, p);
            }
            if (jobs.size() > 100) run_and_check(n, jobs, random.next());
        }
        run_and_check(n, jobs, random.next());
    }
}

TEST_CASE("collectives: every root, in place and out of place", "[collectives]") {
    for (const int n : {2, 3, 5, 8, 13, 17}) {
        if (n > most_ranks || (!long_run && n > 8)) continue;
        random_source random(static_cast<std::uint64_t>(100 + n));
        jobs_list jobs;
        for (const verb c : {verb::broadcast, verb::scatter, verb::gather, verb::reduce}) {
            std::vector<const row*> rows = {nullptr};
            for (const row& r : all_schedules())
                if (r.collective == c && r.supports(n)) rows.push_back(&r);
            for (const row* r : rows)
                for (int root = 0; root < n; ++root)
                    for (const bool in_place : {false, true}) {
                        const bool words = !r || !reduces(c) || keeps_order(*r, n);
                        const auto& e = kind_named(words && random.one_in(2) ? "word concatenation" : "int32 sum");
                        call_plan p;
                        p.shape = shape_of(c, n, random.below(300), root);
                        p.in_place = in_place && job<communicator>::can_be_in_place(p.shape, false);
                        p.idle_buffers = random.one_in(2);
                        if (r) {
                            p.chosen = &r->schedule;
                            p.schedule = r->name;
                        }
                        p.seed = random.next();
                        jobs.emplace_back(e, p);
                    }
            run_and_check(n, jobs, random.next());
        }
    }
}

TEST_CASE("collectives: automatic gives the right result at the sizes where its choice changes", "[collectives]") {
    for (const int n : {1, 2, 3, 4, 8, 17}) {
        if (n > most_ranks || (!long_run && (n == 3 || n > 8))) continue;
        random_source random(static_cast<std::uint64_t>(200 + n));
        jobs_list jobs;
        const auto& e = kind_named("float sum");
        for (int c = 0; c < colls::collective_count; ++c)
            for (std::size_t bytes = 4; bytes <= (std::size_t{1} << 21); bytes *= 2) {
                if (n > 4 && bytes > (std::size_t{1} << 18)) continue;
                for (const std::size_t count : {bytes / 4 - 1, bytes / 4, bytes / 4 + 1}) {
                    call_plan p;
                    p.shape = shape_of(static_cast<verb>(c), n, count, random.between(0, n - 1));
                    p.in_place = job<communicator>::can_be_in_place(p.shape, false) && random.one_in(2);
                    p.how = static_cast<way>(random.below(3));
                    p.seed = random.next();
                    jobs.emplace_back(e, p);
                }
                if (jobs.size() > 30) run_and_check(n, jobs, random.next());
            }
        run_and_check(n, jobs, random.next());
    }
}

TEST_CASE("collectives: thousands of calls in one group without a barrier between them", "[collectives][stress]") {
    for (const int n : {2, 3, 8}) {
        random_source random(static_cast<std::uint64_t>(300 + n));
        jobs_list jobs;
        const std::size_t calls = repeats ? 500 : n > 4 ? 2000 : 5000;
        const auto& kinds = common_kinds<communicator>();
        while (jobs.size() < calls) {
            const auto& e = random.pick(kinds);
            // The same call several times in a row now and then: buffers that alternate by parity are reused at once.
            const call_plan p = pick_plan(random, n, e, random.one_in(8) ? 200'000 : 4000);
            for (std::size_t times = random.one_in(10) ? random.below(20) : 1; times-- > 0;) {
                jobs.emplace_back(e, p);
            }
        }
        run_and_check(n, jobs, random.next());
    }
}
