// The proof at run time, of a type-erased schedule: what a call asks before it uses it.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/verify.hpp>

namespace colls::inline v1::detail {

class any_reader final : public schedule_reader {
public:
    explicit any_reader(const any_schedule& s) : s_(s) {}
    collective kind() const override { return s_.implements; }
    bool supports(int n) const override { return n >= 1 && s_.supports(n); }
    int rounds(int n) const override { return s_.rounds(n); }
    int blocks(int n) const override { return s_.blocks(n); }
    int ports(int n) const override { return s_.ports(n); }
    int scratch(int n) const override { return s_.scratch(n); }
    int root(int n) const override { return s_.root(n); }
    int home(int n, int slot) const override { return s_.home(n, slot); }
    int input(int rank, int n, int slot) const override { return s_.input(rank, n, slot); }
    int output(int rank, int n, int slot) const override { return s_.output(rank, n, slot); }
    step at(int rank, int n, int round, int port) const override { return s_.at(rank, n, round, port); }

private:
    const any_schedule& s_;
};

#ifndef COLLS_SEPARATE
COLLS_INLINE finding prove(const any_schedule& s, int n) {
    const any_reader reader(s);
    symbolic_execution e(reader, n, reduces(s.implements));
    const report r = e.run();
    finding f{
        .right = r.ok(), .order_preserving = r.ok() && e.in_rank_order(), .rank = r.rank, .round = r.round, .text = {}};
    if (!r.ok()) f.text << r.text();
    return f;
}
#endif

}  // namespace colls::inline v1::detail
