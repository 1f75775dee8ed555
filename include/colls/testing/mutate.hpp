// Breaking a right schedule in one place: tests of tests.
#pragma once

#include <colls/verify/properties.hpp>

#include <cstdint>
#include <string>

namespace colls::inline v1::testing {

/// A schedule with one change, found by mutate(). It is a schedule value in its own right: verify(m, n) works on it.
template <class S>
class mutant;

/// One random change of s at group size n, the same for the same seed: a peer, a block, a count, the order of two
/// rounds, an action, or a port of one rank. At least one step of the result differs from s, unless s has no steps.
template <class S>
mutant<S> mutate(const S& s, int n, std::uint64_t seed);

// ---- implementation ----

namespace detail {

/// splitmix64: small, and the same everywhere.
class random {
public:
    explicit random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

private:
    std::uint64_t state_;
};

inline bool same(const step& a, const step& b) {
    return a.send.peer == b.send.peer && a.recv.peer == b.recv.peer &&
           (a.send.peer == none || a.send.blocks == b.send.blocks) &&
           (a.recv.peer == none || (a.recv.blocks == b.recv.blocks && a.recv.action == b.recv.action));
}
inline bool same_blocks(const block_set& a, const block_set& b) {
    if (v1::detail::size_of(a) != v1::detail::size_of(b)) return false;
    for (int i = 0; i < v1::detail::size_of(a); ++i)
        if (a[i] != b[i]) return false;
    return true;
}

}  // namespace detail

enum class mutation : unsigned char {
    send_peer,
    receive_peer,
    send_block,
    receive_block,
    send_count,
    receive_count,
    rounds,
    action,
    port,
    drop
};
inline constexpr int mutation_count = 10;

template <class S>
class mutant {
public:
    collective implements;

    mutant(const S& s, mutation kind, int rank, int round, int port, int value)
        : implements(collective_of(s)), s_(s), kind_(kind), rank_(rank), round_(round), port_(port), value_(value) {}

    int rounds(int n) const { return s_.rounds(n); }
    int blocks(int n) const { return view().blocks(n); }
    int ports(int n) const { return view().ports(n); }
    int scratch(int n) const { return view().scratch(n); }
    int root(int n) const { return view().root(n); }
    bool supports(int n) const { return view().supports(n); }
    int home(int n, int slot) const { return view().home(n, slot); }
    int input(int rank, int n, int slot) const { return view().input(rank, n, slot); }
    int output(int rank, int n, int slot) const { return view().output(rank, n, slot); }

    step at(int rank, int n, int round, int port) const {
        if (rank == rank_) {
            if (kind_ == mutation::rounds && round == round_) return original(rank, n, value_, port);
            if (kind_ == mutation::rounds && round == value_) return original(rank, n, round_, port);
            if (kind_ == mutation::port && round == round_ && port == port_) return original(rank, n, round, value_);
            if (kind_ == mutation::port && round == round_ && port == value_) return original(rank, n, round, port_);
        }
        step s = original(rank, n, round, port);
        if (rank != rank_ || round != round_ || port != port_) return s;
        switch (kind_) {
            case mutation::send_peer:
                s.send.peer = value_;
                break;
            case mutation::receive_peer:
                s.recv.peer = value_;
                break;
            case mutation::send_block:
                s.send.blocks = other_start(s.send.blocks, blocks(n) + scratch(n));
                break;
            case mutation::receive_block:
                s.recv.blocks = other_start(s.recv.blocks, blocks(n) + scratch(n));
                break;
            case mutation::send_count:
                s.send.blocks.count += value_;
                break;
            case mutation::receive_count:
                s.recv.blocks.count += value_;
                break;
            case mutation::action:
                s.recv.action = s.recv.action == action::copy ? action::reduce : action::copy;
                break;
            case mutation::drop:
                s = {};
                break;
            default:
                break;
        }
        return s;
    }

    /// The change in words.
    std::string text() const {
        static constexpr const char* names[] = {"peer sent to", "peer received from", "first block sent",
            "first block received", "count sent", "count received", "order of rounds", "action", "port",
            "step dropped"};
        return std::string(names[static_cast<int>(kind_)]) + " (" + std::to_string(value_) + ") of rank " +
               std::to_string(rank_) + " in round " + std::to_string(round_) + ", port " + std::to_string(port_);
    }

private:
    v1::detail::reader_of<S> view() const { return v1::detail::reader_of<S>(s_); }
    step original(int rank, int n, int round, int port) const { return step_of(s_, rank, n, round, port); }
    block_set other_start(block_set b, int slots) const {
        b.first = mod(b.first + value_, b.modulus > 0 ? b.modulus : slots);
        return b;
    }

    S s_;
    mutation kind_;
    int rank_, round_, port_, value_;
};

template <class S>
mutant<S> mutate(const S& s, int n, std::uint64_t seed) {
    const v1::detail::reader_of<S> view(s);
    detail::random random(seed);
    const int rounds = view.rounds(n), ports = view.ports(n), slots = view.blocks(n) + view.scratch(n);
    for (int tries = 0; tries < 1000 && rounds > 0; ++tries) {
        const auto kind = static_cast<mutation>(random.below(mutation_count));
        const int rank = random.below(n), round = random.below(rounds), port = random.below(ports);
        const step was = view.at(rank, n, round, port);
        int value = 0;
        switch (kind) {
            case mutation::send_peer:
            case mutation::receive_peer:
                value = random.below(n + 1) - 1;
                break;
            case mutation::send_block:
            case mutation::receive_block:
                value = 1 + random.below(slots > 1 ? slots - 1 : 1);
                break;
            case mutation::send_count:
            case mutation::receive_count:
                value = random.below(2) == 0 ? -1 : 1;
                break;
            case mutation::rounds:
                value = random.below(rounds);
                break;
            case mutation::port:
                value = random.below(ports);
                break;
            default:
                break;
        }
        const mutant<S> m(s, kind, rank, round, port, value);
        const step is = m.at(rank, n, round, port);
        if (!detail::same(was, is) &&
            !(was.send.peer == is.send.peer && was.recv.peer == is.recv.peer && was.recv.action == is.recv.action &&
                detail::same_blocks(was.send.blocks, is.send.blocks) &&
                detail::same_blocks(was.recv.blocks, is.recv.blocks)))
            return m;
    }
    return {s, mutation::drop, 0, 0, 0, 0};
}

}  // namespace colls::inline v1::testing
