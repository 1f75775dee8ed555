// A schedule at one group size, read once: its shape, and the steps of all ranks or of some.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Planning looks at each step several times, and the functions behind any_schedule are compiled to be small, not fast.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/error.hpp>

#include <string_view>

namespace colls::inline v1::detail {

/// Throws the error of a schedule for which no plan can be made; `rank` and `round`: where the fault lies, if known.
[[noreturn]] inline void refuse_schedule(
    const any_schedule& s, int n, errc code, std::string_view why, int rank = none, int round = none) {
    error_text what;
    put_brief(what << "colls: ", s.name()) << " at " << n << " ranks: ";
    if (code == errc::wrong_schedule) what << "the proof rejects it: ";
    throw error(code, (what << why).text(), rank, none, round);
}

/// The steps of all ranks together.
inline double all_steps(const any_schedule& s, int n) { return static_cast<double>(n) * s.rounds(n) * s.ports(n); }

/// Calls f(block) for all blocks of a send or receive, in their order.
template <class Part, class F>
void each_block(const Part& part, F f) {
    for (int i = 0; part.peer != none && i < part.blocks.size(); ++i) f(part.blocks[i]);
}

class step_table {
public:
    /// The steps of the `count` ranks from `first` on. The schedule must support n ranks, and outlive the table. Throws
    /// errc::unsupported where it has scratch slots beside several blocks, which cannot be planned.
    step_table(const any_schedule& s, int n, int first_rank, int ranks)
        : schedule(s), size(n), first(first_rank), count(ranks) {
        if (slots > blocks && blocks > 1)
            refuse_schedule(s, n, errc::unsupported, "scratch slots need a schedule of one block");
        steps_.reserve(
            static_cast<std::size_t>(count) * static_cast<std::size_t>(rounds) * static_cast<std::size_t>(ports));
        for (int r = first; r < first + count; ++r)
            for (int k = 0; k < rounds; ++k)
                for (int p = 0; p < ports; ++p) steps_.push_back(s.at(r, n, k, p));
    }

    const any_schedule& schedule;
    const collective what = schedule.implements;
    const int size, rounds = schedule.rounds(size), ports = schedule.ports(size);
    const int blocks = schedule.blocks(size);                 ///< slots that hold data at the start or end
    const int slots = blocks + schedule.scratch(size);        ///< of a rank; the schedule's scratch slots come last
    const int root = rooted(what) ? schedule.root(size) : 0;  ///< 0 where there is none
    const int first, count;                                   ///< the ranks whose steps the table has

    const step& at(int rank, int round, int port) const {
        return steps_[(long{rank - first} * rounds + round) * ports + port];
    }
    /// The same of any rank: where the table does not have it, the schedule is asked.
    step of(int rank, int round, int port) const {
        return rank >= first && rank < first + count ? at(rank, round, port) : schedule.at(rank, size, round, port);
    }

private:
    list<step> steps_;
};

}  // namespace colls::inline v1::detail
