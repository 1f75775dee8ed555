// Random calls, whose results are compared with those of the serial reference. Environment variables:
//   COLLS_TEST_SEED    the seed of the run (by default the time, and printed)
//   COLLS_TEST_CASES   the number of calls (6,000; with scripts/test --long 20,000)
//   COLLS_TEST_BATCH   runs this batch of the seed only
//   COLLS_TEST_KIND    uses only types and operators whose name contains this text
#include "catch.hpp"

#include "support/batch.hpp"

#include <chrono>
#include <cstdio>
#include <map>

using namespace support;

namespace {

using communicator = colls::threads::communicator;

/// Mostly small groups, since the time of a case grows with the square of the group's size.
int pick_size(random_source& random) {
    const std::size_t x = random.below(1000);
    if (x < 620) return awkward_sizes[random.below(7)];       // 1 ... 8
    if (x < 850) return awkward_sizes[7 + random.below(4)];   // 10 ... 17
    if (x < 985) return awkward_sizes[11 + random.below(4)];  // 31 ... 48
    if (x < 998) return awkward_sizes[15 + random.below(3)];  // 64 ... 66
    return 129;
}

}  // namespace

TEST_CASE("random calls: have the results of the serial reference", "[random]") {
    const std::uint64_t seed = setting("COLLS_TEST_SEED",
        static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) & 0xffffffff);
    const std::uint64_t cases = setting("COLLS_TEST_CASES", sanitized ? 1500 : long_run ? 20'000 : 6000);
    constexpr auto every = ~std::uint64_t{0};
    const std::uint64_t only = setting("COLLS_TEST_BATCH", every);
    const char* kind_text = std::getenv("COLLS_TEST_KIND");

    std::vector<const entry<communicator>*> entries, started;
    for (const auto& e : all_kinds<communicator>())
        if (!kind_text || std::string_view(e.kind.name).find(kind_text) != std::string_view::npos) {
            entries.push_back(&e);
            if (e.all_ways) started.push_back(&e);
        }
    REQUIRE_FALSE(entries.empty());
    if (started.empty()) started = entries;
    std::printf("random calls: COLLS_TEST_SEED=%llu COLLS_TEST_CASES=%llu\n", static_cast<unsigned long long>(seed),
        static_cast<unsigned long long>(cases));
    std::fflush(stdout);

    std::uint64_t done = 0;
    std::map<std::string, std::uint64_t> tally;
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t batch = only == every ? 0 : only; done < cases; ++batch) {
        random_source random = stream(seed, batch);
        const int n = std::min(pick_size(random), most_ranks);
        const std::size_t calls = n > 60 ? 8 : n > 20 ? 24 : 64;
        const std::string again =
            "COLLS_TEST_SEED=" + std::to_string(seed) + " COLLS_TEST_BATCH=" + std::to_string(batch) +
            (kind_text ? std::string(" COLLS_TEST_KIND='") + kind_text + "'" : std::string()) + " ./random_test";
        std::deque<job<communicator>> jobs;
        std::vector<std::size_t> twins;  // jobs that repeat the one before them
        const pace how = pick_pace(random, n);
        const bool starts_most = how.in_flight > pace{}.in_flight;
        for (std::size_t i = 0; i < calls; ++i) {
            const auto& e = *random.pick(starts_most ? started : entries);
            const std::size_t count =
                passes_messages && n <= 8 && random.one_in(300) ? pick_count_beyond_slots(random, n, e.kind.size) : 0;
            call_plan plan =
                pick_plan(random, n, e, random.one_in(40) ? std::size_t{24} << 20 : std::size_t{1} << 20, count);
            if (starts_most && e.all_ways && !random.one_in(16)) plan.how = way::started;
            jobs.emplace_back(e, plan);
            if (e.kind.how == judged::bounded) {
                jobs.emplace_back(e, plan);
                twins.push_back(jobs.size() - 1);
            }
        }
        try {
            run_jobs(n, jobs, seed ^ batch, how);
        } catch (const std::exception& failure) {
            std::string all;
            for (const auto& j : jobs) all += "\n  " + j.describe();
            FAIL(failure.what() << "\nagain: " << again << "\nthe calls:" << all);
        }
        for (std::size_t i = 0; i < jobs.size(); ++i)
            if (const std::string wrong = jobs[i].wrong(); !wrong.empty())
                FAIL("call " << i << ": " << jobs[i].describe() << ": " << wrong << "\nagain: " << again);
        for (const std::size_t i : twins)
            if (const std::string differs = jobs[i].differs_from(jobs[i - 1]); !differs.empty())
                FAIL("call " << i << ": " << jobs[i].describe() << ": " << differs << "\nagain: " << again);
        done += jobs.size();
        for (const auto& j : jobs) ++tally[j.plan().schedule];
        if (only != every) break;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf("random calls: %llu in %.1f s;", static_cast<unsigned long long>(done), seconds);
    for (const auto& [name, times] : tally)
        std::printf(" %s %llu;", name.c_str(), static_cast<unsigned long long>(times));
    std::printf("\n");
    if (only == every) CHECK(done >= cases);
}
