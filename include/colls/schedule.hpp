// The vocabulary: what a schedule is made of, and how the library reads one.
//
// A schedule says, for any rank of a group of n, who sends which blocks to whom in which round. It is a pure
// function of (rank, n, round, port): constexpr, no allocation, no virtual call. Everything else in the library
// (proof, cost, executors, kernels) interprets that one function.
#pragma once

#include <colls/detail/schedule/precondition.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1 {

enum class collective : unsigned char {
    broadcast,
    scatter,
    gather,
    all_gather,
    reduce,
    reduce_scatter,
    all_reduce,
    all_to_all,
    barrier,
    inclusive_scan,
    exclusive_scan
};
inline constexpr int collective_count = 11;

constexpr const char* name_of(collective c) {
    constexpr const char* names[] = {"broadcast", "scatter", "gather", "all_gather", "reduce", "reduce_scatter",
        "all_reduce", "all_to_all", "barrier", "inclusive_scan", "exclusive_scan"};
    return names[static_cast<int>(c)];
}

/// True for the collectives that combine contributions with an operator.
constexpr bool reduces(collective c) {
    return c == collective::reduce || c == collective::reduce_scatter || c == collective::all_reduce ||
           c == collective::inclusive_scan || c == collective::exclusive_scan;
}

/// True for the collectives with a root: written for root 0 (or `root(n)`), rotated by the library.
constexpr bool rooted(collective c) {
    return c == collective::broadcast || c == collective::scatter || c == collective::gather || c == collective::reduce;
}

/// True where a user block belongs to one rank, so that a slot has a `home`.
constexpr bool owned(collective c) {
    return c == collective::scatter || c == collective::gather || c == collective::all_gather ||
           c == collective::reduce_scatter;
}

/// What a receive does with what arrives: replace the block, or combine with it.
enum class action : unsigned char { copy, reduce };

/// No peer; no home.
inline constexpr int none = -1;

/// a mod n in [0, n), for any sign of a.
constexpr int mod(int a, int n) {
    const int r = a % n;
    return r < 0 ? r + n : r;
}
/// The least k with 2^k >= n (0 for n = 1).
constexpr int log2_ceil(int n) {
    int k = 0;
    while ((1LL << k) < n) ++k;
    return k;
}
constexpr bool is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }
constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
constexpr int lcm(int a, int b) { return a / gcd(a, b) * b; }

/// An ordered set of blocks in O(1) memory. Element i < count stands for `grain` consecutive blocks from
///     base + (first + (i / run) * period + i % run * grain) mod modulus        (modulus 0: no wrap)
/// and the whole is repeated `reps` times, `stride` apart. A cyclic interval (run 1, period 1) covers ring, halving,
/// circulant and trees; run and period cover Bruck and PAT; grain is what a refinement of the blocks needs, and
/// reps with stride what a level of a hierarchy needs.
struct block_set {
    int base = 0, first = 0, count = 0, run = 1, period = 1, modulus = 0, grain = 1, reps = 1, stride = 0;

    constexpr int size() const { return count * grain * reps; }
    constexpr bool empty() const { return count <= 0 || reps <= 0 || grain <= 0; }

    /// The j-th block, 0 <= j < size().
    constexpr int operator[](int j) const {
        const int rep = j / (count * grain), in_rep = j - rep * count * grain, i = in_rep / grain, of_run = i / run;
        int at = first + of_run * period + (i - of_run * run) * grain;
        if (modulus > 0) at = mod(at, modulus);
        return base + at + in_rep - i * grain + rep * stride;
    }

    /// Every block cut in u: block x becomes [x·u, x·u + u). Everything scales but count, run and reps.
    constexpr block_set refined(int u) const {
        return {base * u, first * u, count, run, period * u, modulus * u, grain * u, reps, stride * u};
    }
    /// Every block moved by b.
    constexpr block_set offset(int b) const {
        block_set s = *this;
        s.base += b;
        return s;
    }
    /// The set again, `times` times, `apart` apart. The copies must continue the set's own repetition if it has one.
    constexpr block_set repeated(int times, int apart) const {
        if (times == 1) return *this;
        block_set s = *this;
        if (reps == 1)
            s.stride = apart;
        else if (apart != reps * stride)
            detail::precondition_failed("block_set::repeated: the repetitions do not continue each other");
        s.reps = reps * times;
        return s;
    }
    friend constexpr bool operator==(const block_set&, const block_set&) = default;
};

/// One block.
constexpr block_set block(int b) { return {.first = b, .count = 1}; }
/// Blocks first, first + 1, ..., first + count - 1.
constexpr block_set block_range(int first, int count) { return {.first = first, .count = count}; }
/// The cyclic interval of `count` blocks from `first`, modulo `modulus`.
constexpr block_set block_range(int first, int count, int modulus) {
    return {.first = mod(first, modulus), .count = count, .modulus = modulus};
}

struct send_part {
    int peer = none;
    block_set blocks{};
};
struct receive_part {
    int peer = none;
    block_set blocks{};
    colls::action action = colls::action::copy;
};
/// What one rank does on one port in one round: at most one send and one receive. A peer equal to the rank itself is
/// a local transfer (sent and received on the same port; a reducing one takes the incoming operand on the left).
struct step {
    send_part send{};
    receive_part recv{};
};

namespace detail {
template <class S>
concept steps_without_port = requires(const S& s, int i) {
    { s.at(i, i, i) } -> std::same_as<step>;
};
template <class S>
concept steps_with_port = requires(const S& s, int i) {
    { s.at(i, i, i, i) } -> std::same_as<step>;
};
template <class S>
concept names_collective = requires {
    { std::remove_cvref_t<S>::implements } -> std::convertible_to<collective>;
};
template <class S>
concept counts_rounds = requires(const S& s, int n) {
    { s.rounds(n) } -> std::convertible_to<int>;
};
}  // namespace detail

/// A schedule: `implements`, `rounds(n)` and `at(rank, n, round)` or `at(rank, n, round, port)`. Members may be static
/// or const. Optional members, with their defaults:
///   blocks(n)        slots a rank works on         n; 1 for broadcast, reduce, barrier and scans
///   ports(n)         sends and receives a round    1
///   scratch(n)       further slots, blocks(n)...   0
///   supports(n)      legal group sizes             true
///   root(n)          of a rooted schedule          0
///   home(n, slot)    user block of a slot, or none slot / (blocks / n)
///   owner(rank, n)   inverse of home, one slot     rank
///   input, output(rank, n, slot)   all_to_all: destination (source) of what a slot holds before (after)    slot
template <class S>
concept schedule = detail::names_collective<S> && detail::counts_rounds<S> &&
                   (detail::steps_without_port<S> || detail::steps_with_port<S>) &&
                   std::is_trivially_copyable_v<std::remove_cvref_t<S>>;

// How the library reads a schedule: each member, or its default.

template <class S>
inline constexpr collective implemented_by = std::remove_cvref_t<S>::implements;

/// The same as a run-time value, also for a type-erased schedule.
template <class S>
constexpr collective collective_of(const S& s) {
    return s.implements;
}

template <class S>
constexpr bool supports(const S& s, int n) {
    if constexpr (requires { s.supports(n); })
        return n >= 1 && s.supports(n);
    else
        return n >= 1;
}
template <class S>
constexpr int ports_of(const S& s, int n) {
    if constexpr (requires { s.ports(n); })
        return s.ports(n);
    else
        return 1;
}
template <class S>
constexpr int blocks_of(const S& s, int n) {
    if constexpr (requires { s.blocks(n); })
        return s.blocks(n);
    else
        return owned(implemented_by<S>) || implemented_by<S> == collective::all_reduce ||
                       implemented_by<S> == collective::all_to_all
                   ? n
                   : 1;
}
template <class S>
constexpr int scratch_of(const S& s, int n) {
    if constexpr (requires { s.scratch(n); })
        return s.scratch(n);
    else
        return 0;
}
template <class S>
constexpr int root_of(const S& s, int n) {
    if constexpr (requires { s.root(n); })
        return s.root(n);
    else
        return 0;
}
template <class S>
constexpr step step_of(const S& s, int rank, int n, int round, int port) {
    if constexpr (detail::steps_with_port<S>)
        return s.at(rank, n, round, port);
    else
        return s.at(rank, n, round);
}
/// The user block (the rank) that a slot of an owned collective stands for, or none.
template <class S>
constexpr int home_of(const S& s, int n, int slot) {
    if constexpr (requires { s.home(n, slot); }) {
        return s.home(n, slot);
    } else if constexpr (requires { s.owner(n, n); }) {
        for (int r = 0; r < n; ++r)
            if (s.owner(r, n) == slot) return r;
        return none;
    } else {
        const int b = blocks_of(s, n);
        return b % n == 0 ? slot / (b / n) : none;
    }
}
template <class S>
constexpr int input_of(const S& s, int rank, int n, int slot) {
    if constexpr (requires { s.input(rank, n, slot); })
        return s.input(rank, n, slot);
    else
        return blocks_of(s, n) == n ? slot : slot / (blocks_of(s, n) / n);
}
template <class S>
constexpr int output_of(const S& s, int rank, int n, int slot) {
    if constexpr (requires { s.output(rank, n, slot); })
        return s.output(rank, n, slot);
    else
        return blocks_of(s, n) == n ? slot : slot / (blocks_of(s, n) / n);
}

}  // namespace colls::inline v1
