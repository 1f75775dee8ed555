// For the tests of a schedule of one's own, in any test framework or none:
//     const auto result = colls::testing::check_schedule<my_schedule>(64);
//     if (!result.ok) fail(result.text);
// (mutate.hpp breaks a right schedule in one place, to see that a test notices.)
#pragma once

#include <colls/algebra/reversed.hpp>
#include <colls/testing/mutate.hpp>
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
