// A schedule as a table of steps, so that one kernel runs any schedule, also one that `automatic` chooses at run time,
// or whose own code is long.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A kernel asks a schedule for the steps of its own rank, and for what the rank from which it receives sends in the
// same round on the same port. Both are in the rows of the table that are for that rank.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/cuda/detail/kernel/thread_group.hpp>
#include <colls/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// A schedule for C whose type is erased.
template <collective C>
struct erased_schedule {
    static constexpr collective implements = C;
    any_schedule s;
    int rounds(int n) const { return s.rounds(n); }
    int ports(int n) const { return s.ports(n); }
    int blocks(int n) const { return s.blocks(n); }
    int scratch(int n) const { return s.scratch(n); }
    int root(int n) const { return s.root(n); }
    bool supports(int n) const { return s.supports(n); }
    int home(int n, int slot) const { return s.home(n, slot); }
    int input(int r, int n, int slot) const { return s.input(r, n, slot); }
    int output(int r, int n, int slot) const { return s.output(r, n, slot); }
    step at(int r, int n, int round, int port) const { return s.at(r, n, round, port); }
};

struct stored_step {
    step mine;
    block_set sent;  ///< by the rank from which `mine` receives
};

/// The steps of a rank (the role of a rank, with rooted schedules), by round and port.
template <class S>
std::vector<stored_step> steps_of(const S& s, int rank, int n) {
    std::vector<stored_step> all;
    for (int k = 0; k < s.rounds(n); ++k)
        for (int p = 0; p < ports_of(s, n); ++p) {
            stored_step x{step_of(s, rank, n, k, p), {}};
            if (x.mine.recv.peer != none) x.sent = step_of(s, x.mine.recv.peer, n, k, p).send.blocks;
            all.push_back(x);
        }
    return all;
}

/// Where such a table is stored: of one rank, or of each in turn.
struct stored_table {
    const stored_step* steps = nullptr;
    std::int32_t me = none;  ///< whose it is; none: of all
    std::int32_t all_rounds = 0, all_ports = 1, first = 0;
};

/// That table as a schedule for C, as far as a kernel asks.
template <collective C>
struct stored_schedule : stored_table {
    static constexpr collective implements = C;

    COLLS_HOST_DEVICE constexpr int rounds(int) const { return all_rounds; }
    COLLS_HOST_DEVICE constexpr int ports(int) const { return all_ports; }
    COLLS_HOST_DEVICE constexpr int root(int) const { return first; }
    COLLS_HOST_DEVICE constexpr step at(int rank, int, int round, int port) const {
        const stored_step& x = steps[((me == none ? rank : 0) * all_rounds + round) * all_ports + port];
        if (me == none || rank == me) return x.mine;
        return {{me, x.sent}, {}};
    }
};

/// The schedule of the table that steps_of has made, wherever it is stored.
template <collective C, class S>
stored_schedule<C> stored(const S& s, const stored_step* steps, int rank, int n) {
    return {{steps, rank, s.rounds(n), ports_of(s, n), root_of(s, n)}};
}

}  // namespace colls::inline v1::cuda::detail
