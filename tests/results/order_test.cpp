// Operators that do not commute: the ranks' order is kept, or the call is refused. And sums that depend on the order:
// the same bits on every rank and in every run.
#include "catch.hpp"

#include "support/batch.hpp"

using namespace support;

namespace {

using communicator = colls::threads::communicator;

shape shape_of(verb c, int n, std::size_t count, int root) { return {c, n, rooted(c) ? root : 0, balanced(count, n)}; }

}  // namespace

TEST_CASE("an operator that does not commute is rejected with a schedule that does not keep rank order", "[order]") {
    int refused = 0, kept = 0;
    for (const int n : {2, 3, 4, 5, 8, 13, 16, 33})
        for (const row& r : all_schedules()) {
            if (!reduces(r.collective) || !r.supports(n)) continue;
            const bool keeps = keeps_order(r, n);
            for (const auto& e : common_kinds<communicator>()) {
                if (e.kind.how != judged::in_order) continue;
                call_plan p;
                p.shape = shape_of(r.collective, n, 3 * static_cast<std::size_t>(n) + 1, n - 1);
                p.chosen = &r.schedule;
                p.schedule = r.name;
                p.seed = 5;
                std::deque<job<communicator>> jobs;
                jobs.emplace_back(e, p);
                INFO(jobs[0].describe());
                bool thrown = false;
                try {
                    run_jobs(n, jobs, 1);
                } catch (const colls::error& failure) {
                    thrown = true;
                    CHECK(
                        (failure.code() == colls::errc::unsupported || failure.code() == colls::errc::wrong_schedule));
                    CHECK_FALSE(keeps);
                }
                if (thrown) {
                    ++refused;
                    break;
                }
                // What the serial run of the schedule finds out of order must not be accepted, nor come out right by
                // luck.
                CHECK(keeps);
                const std::string wrong = jobs[0].wrong();
                if (!wrong.empty()) FAIL(wrong);
                ++kept;
            }
        }
    CHECK(refused > 50);
    CHECK(kept > 50);
}

TEST_CASE("automatic keeps rank order at every size and root", "[order]") {
    for (const int n : awkward_sizes) {
        if ((sanitized && n > 17) || (!long_run && n > 17)) continue;
        random_source random(static_cast<std::uint64_t>(n));
        std::deque<job<communicator>> jobs;
        for (const verb c :
            {verb::reduce, verb::reduce_scatter, verb::all_reduce, verb::inclusive_scan, verb::exclusive_scan})
            for (const auto& e : common_kinds<communicator>()) {
                if (e.kind.how != judged::in_order) continue;
                const auto ranks = static_cast<std::size_t>(n);
                for (const std::size_t count :
                    {std::size_t{1}, ranks + 1, std::size_t{700}, std::size_t{n > 40 ? 1000u : 9000u}}) {
                    call_plan p;
                    p.shape = shape_of(c, n, count, random.between(0, n - 1));
                    p.in_place = random.one_in(2);
                    p.how = static_cast<way>(random.below(3));
                    p.seed = random.next();
                    jobs.emplace_back(e, p);
                }
            }
        run_jobs(n, jobs, random.next());
        for (const auto& j : jobs) {
            const std::string wrong = j.wrong();
            if (!wrong.empty()) FAIL(j.describe() << ": " << wrong);
        }
        CHECK(jobs.size() == 40);
    }
}

TEST_CASE("sums that depend on the order are bitwise the same in every run", "[order]") {
    const entry<communicator>* wild = nullptr;
    for (const auto& e : common_kinds<communicator>())
        if (e.kind.how == judged::bounded) wild = &e;
    REQUIRE(wild);
    for (const int n : {2, 3, 4, 7, 8, 16, 17}) {
        if (!long_run && n > 8) continue;
        random_source random(static_cast<std::uint64_t>(n));
        std::vector<const row*> rows = {nullptr};
        for (const row& r : all_schedules())
            if (reduces(r.collective) && r.supports(n)) rows.push_back(&r);
        std::deque<job<communicator>> jobs;
        for (const row* r : rows)
            for (const std::size_t count : {10u, 3001u, long_run ? 40'009u : 9'001u}) {
                if (sanitized && count > 5000 && n > 4) continue;  // an instrumented reference takes minutes
                call_plan p;
                p.shape = shape_of(r ? r->collective : verb::all_reduce, n, count, random.between(0, n - 1));
                p.seed = random.next();
                p.chosen = r ? &r->schedule : nullptr;
                p.schedule = r ? r->name : "automatic";
                // Thrice the same call on the same values; other ways and in place change no bit either.
                jobs.emplace_back(*wild, p);
                jobs.emplace_back(*wild, p);
                p.in_place = true;
                p.how = way::started;
                jobs.emplace_back(*wild, p);
            }
        run_jobs(n, jobs, random.next());
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            if (const std::string wrong = jobs[i].wrong(); !wrong.empty()) FAIL(jobs[i].describe() << ": " << wrong);
            if (i % 3 == 0) continue;
            if (i % 3 == 2 && !jobs[i].plan().chosen)
                continue;  // automatic may take another way where it may not block
            if (const std::string differs = jobs[i].differs_from(jobs[i - i % 3]); !differs.empty())
                FAIL(jobs[i].describe() << ": " << differs);
        }
        CHECK(jobs.size() == (sanitized && n > 4 ? 6 : 9) * rows.size());
    }
}
