// For the tests of a schedule of one's own, in any test framework or none:
//     const auto result = colls::testing::check_schedule<my_schedule>(64);
//     if (!result.ok) fail(result.text);
// and mutate(), which breaks a right schedule in one place, to see that a test notices.
#pragma once

#include <colls/algebra/reversed.hpp>
#include <colls/verify.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::testing {

/// Law 5, played: every rank runs on its own, posts the sends of a round before it waits for what it receives, and
/// every channel (source, destination, port) holds one message. Ranks take turns in an order drawn from `seed`, each
/// going as far as it can. ok() where all ranks come to their end; otherwise some rank that waits for ever. The laws
/// in_range and matched imply it (verify.hpp); this looks at it from the executor's side, and needs neither.
template <class S>
report play(const S& s, int n, std::uint64_t seed = 0);

/// A schedule with one change, found by mutate(). It is a schedule value in its own right: verify(m, n) works on it.
template <class S>
class mutant;

/// One random change of s at group size n, the same for the same seed: a peer, a block, a count, the order of two
/// rounds, an action, or a port of one rank. At least one step of the result differs from s, unless s has no steps.
template <class S>
mutant<S> mutate(const S& s, int n, std::uint64_t seed);

struct result {
    bool ok = true;
    std::string text;  ///< the first failure, or a summary of what was found
    int sizes = 0;     ///< group sizes checked
    int mutants = 0;   ///< changed schedules tried
    int killed = 0;    ///< and found wrong
};

/// Everything the library can say about a schedule, at every group size from 1 to max_n that it supports:
///   - the laws of the proof (verify), and the played exchange (play);
///   - homes: where `owner` and `home` are both given, that they are inverse;
///   - purity: asked twice, it answers the same;
///   - if it can be reversed: that the reverse is right, has as many rounds, sends what this one receives, and that its
///     reverse has the steps of this one.
/// Then, at sizes up to 17, single changes by mutate(), counted; a change that is not noticed may well be harmless, and
/// is no failure. The summary gives the derived properties at the largest size.
template <class S>
result check_schedule(int max_n, const S& s = S{});

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

class player {
public:
    player(const v1::detail::schedule_reader& s, int n, std::uint64_t seed)
        : s_(s),
          n_(n),
          rounds_(s.rounds(n)),
          ports_(s.ports(n)),
          random_(seed),
          where_(size(n)),
          full_(size(n) * size(n) * size(ports_)) {}

    report run() {
        std::vector<int> waiting(where_.size());
        for (int r = 0; r < n_; ++r) waiting[size(r)] = r;
        for (bool moved = true; moved && !waiting.empty();) {
            moved = false;
            for (std::size_t left = waiting.size(); left > 0; --left) {
                const auto turn = size(random_.below(static_cast<int>(left)));
                const int r = waiting[turn];
                std::swap(waiting[turn], waiting[left - 1]);
                while (advance(r)) moved = true;
            }
            std::erase_if(waiting, [this](int r) { return where_[size(r)].round == rounds_; });
        }
        return waiting.empty() ? report{.n = n_} : stuck(waiting.front());
    }

private:
    struct position {
        int round = 0, port = 0;
        bool receiving = false;
    };
    static std::size_t size(int i) { return static_cast<std::size_t>(i); }
    /// The channel's state, or null where there is no such rank.
    std::vector<bool>::reference channel(int from, int to, int port) {
        return full_[(size(from) * size(n_) + size(to)) * size(ports_) + size(port)];
    }
    bool exists(int peer) const { return peer >= 0 && peer < n_; }

    // One post or one receipt; false where the rank must wait, or has come to its end.
    bool advance(int r) {
        position& at = where_[size(r)];
        if (at.round == rounds_) return false;
        const step st = s_.at(r, n_, at.round, at.port);
        const int peer = at.receiving ? st.recv.peer : st.send.peer;
        if (peer != none) {
            if (!exists(peer)) return false;
            const int from = at.receiving ? peer : r, to = at.receiving ? r : peer;
            if (channel(from, to, at.port) != at.receiving) return false;
            channel(from, to, at.port) = !at.receiving;
        }
        if (++at.port == ports_) {
            at.port = 0;
            if (at.receiving) ++at.round;
            at.receiving = !at.receiving;
        }
        return true;
    }
    report stuck(int r) const {
        const position& at = where_[size(r)];
        const step st = s_.at(r, n_, at.round, at.port);
        report out{.law = law::live, .kind = v1::detail::fault::stuck, .n = n_, .rank = r, .round = at.round};
        out.port = at.port;
        out.peer = at.receiving ? st.recv.peer : st.send.peer;
        return out;
    }

    const v1::detail::schedule_reader& s_;
    const int n_, rounds_, ports_;
    random random_;
    std::vector<position> where_;
    std::vector<bool> full_;
};

}  // namespace detail

template <class S>
report play(const S& s, int n, std::uint64_t seed) {
    return detail::player(v1::detail::reader_of<S>(s), n, seed).run();
}

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

namespace detail {

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
        if (out_.sizes == 0) fail(max_n_, "the schedule supports no group size up to this");
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
        if (a.rounds != b.rounds) fail(n, "reversed, it has another number of rounds");
        if (a.blocks_sent != b.blocks_received || a.blocks_received != b.blocks_sent)
            fail(n, "reversed, it does not send what it receives");
        const auto again = reversed_of(back);
        for (int r = 0; r < n; ++r)
            for (int k = 0; k < a.rounds; ++k)
                for (int p = 0; p < a.ports; ++p)
                    if (!same(step_of(s_, r, n, k, p), step_of(again, r, n, k, p)))
                        fail(n, "reversed twice, it is another schedule");
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
        add(p.volume_optimal, "volume_optimal");
        add(p.round_optimal, "round_optimal");
        add(p.symmetric, "symmetric");
        add(p.keeps_slots, "keeps_slots");
    }

    const S& s_;
    const int max_n_;
    result out_;
};

}  // namespace detail

template <class S>
result check_schedule(int max_n, const S& s) {
    static_assert(schedule<S>, "colls: check_schedule<S>: S must be a schedule");
    return detail::checker<S>(s, max_n).run();
}

}  // namespace colls::inline v1::testing
