// The checks of check_schedule.
// IWYU pragma: private, include <colls/testing/schedule.hpp>
#pragma once

#include <colls/algebra/reversed.hpp>
#include <colls/cost.hpp>
#include <colls/testing/detail/same_step.hpp>
#include <colls/testing/mutate.hpp>
#include <colls/testing/schedule.hpp>
#include <colls/verify.hpp>

#include <cstdint>
#include <string>

namespace colls::inline v1::testing::detail {

template <class S>
class checker {
public:
    checker(const S& s, int max_n) : s_(s), max_n_(max_n) {}

    result run() {
        int last = 0;
        for (int n = 1; n <= max_n_ && out_.ok; ++n) {
            if (!v1::supports(s_, n)) continue;
            ++out_.sizes;
            last = n;
            expect(verify(s_, n));
            if (out_.ok) expect(play(s_, n, static_cast<std::uint64_t>(n)));
            if (out_.ok) homes(n);
            if (out_.ok) purity(n);
            if constexpr (v1::detail::reversible<S>)
                if (out_.ok) reversal(n);
            if (out_.ok && n > 1 && n <= 17) mutants(n);
        }
        if (out_.sizes == 0) fail(max_n_, "the schedule supports no group size from 1 to this");
        if (out_.ok) summary(last);
        return out_;
    }

private:
    void fail(int n, const std::string& what) {
        if (!out_.ok) return;
        out_.ok = false;
        out_.text = std::to_string(n) + " ranks: " + what;
    }
    void expect(const report& r, const char* of = "") {
        if (!r.ok()) fail(r.n, of + r.text());
    }
    void homes(int n) {
        if constexpr (requires(int i) {
                          s_.owner(i, i);
                          s_.home(i, i);
                      })
            for (int r = 0; r < n; ++r)
                if (s_.home(n, s_.owner(r, n)) != r)
                    fail(n, "home(" + std::to_string(n) + ", owner(" + std::to_string(r) + ", ...)) is not that rank");
    }
    void purity(int n) {
        for (int r = 0; r < n; ++r)
            for (int k = 0; k < s_.rounds(n); ++k)
                for (int p = 0; p < ports_of(s_, n); ++p)
                    if (!same(step_of(s_, r, n, k, p), step_of(s_, r, n, k, p)))
                        fail(n, "at() answers differently when asked again");
    }
    void reversal(int n) {
        const auto back = reversed_of(s_);
        expect(verify(back, n), "reversed: ");
        if (!out_.ok) return;
        const cost a = cost_of(s_, n), b = cost_of(back, n);
        if (a.rounds != b.rounds) fail(n, "reversed, it has a different number of rounds");
        if (a.blocks_sent != b.blocks_received || a.blocks_received != b.blocks_sent)
            fail(n, "reversed, it does not send what it receives");
        const auto again = reversed_of(back);
        for (int r = 0; r < n; ++r)
            for (int k = 0; k < a.rounds; ++k)
                for (int p = 0; p < a.ports; ++p)
                    if (!same(step_of(s_, r, n, k, p), step_of(again, r, n, k, p)))
                        fail(n, "reversed twice, it is a different schedule");
    }
    void mutants(int n) {
        if (s_.rounds(n) == 0) return;
        for (std::uint64_t i = 0; i < 20; ++i) {
            ++out_.mutants;
            if (!verify(mutate(s_, n, static_cast<std::uint64_t>(n) * 1000 + i), n).ok()) ++out_.killed;
        }
    }
    void summary(int n) {
        const properties p = properties_of(s_, n);
        out_.text = std::to_string(out_.sizes) + " group sizes proven, " + std::to_string(out_.killed) + " of " +
                    std::to_string(out_.mutants) + " single changes rejected; at " + std::to_string(n) + " ranks:";
        const auto add = [this](bool has, const char* name) {
            if (has) out_.text += std::string(" ") + name;
        };
        add(p.order_preserving, "order_preserving");
        add(p.rank_identical, "rank_identical");
        add(p.folds.one_expression, "one_expression");
        add(p.folds.single_fold, "single_fold");
        add(p.volume_optimal, "volume_optimal");
        add(p.round_optimal, "round_optimal");
        add(p.symmetric, "symmetric");
        add(p.keeps_slots, "keeps_slots");
    }

    const S& s_;
    const int max_n_;
    result out_;
};

}  // namespace colls::inline v1::testing::detail

namespace colls::inline v1::testing {

template <class S>
result check_schedule(int max_n, const S& s) {
    static_assert(schedule<S>,
        "colls: check_schedule<S>: S must be a schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` "
        "or "
        "`at(rank, n, round, port)` that returns a colls::step, const or static, in a trivially copyable type");
    if constexpr (schedule<S>)
        return detail::checker<S>(s, max_n).run();
    else
        return {};
}

}  // namespace colls::inline v1::testing
