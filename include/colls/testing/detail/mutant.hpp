// A schedule with one change, and how a change is drawn.
// IWYU pragma: private, include <colls/testing/mutate.hpp>
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/testing/detail/random.hpp>
#include <colls/testing/detail/same_step.hpp>
#include <colls/testing/mutate.hpp>

#include <cstdint>
#include <string>

namespace colls::inline v1::testing {

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
