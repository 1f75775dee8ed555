// What one rank's program says of values that other ranks make or pass on.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// A fold is marked where its result combines the contributions of all ranks. To count contributions, all slots of all
// ranks would have to be followed. The laws that the proof checks (verify.hpp) make that unnecessary: a result that
// stays in an output slot is complete (law complete); one that is folded further, here or by a rank that it is sent to,
// is not, since that fold adds a contribution that it lacks (law exactly_once). So only the ranks are read that receive
// it.
#pragma once

#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>
#include <colls/detail/prove/reader.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// The place of block x in the set, or none.
inline int index_in(const block_set& set, int x) {
    if (set.grain == 1 && set.reps == 1 && set.run == 1 && set.period == 1) {
        const int i = set.modulus > 0 ? mod(x - set.base - set.first, set.modulus) : x - set.base - set.first;
        return i >= 0 && i < set.count && set[i] == x ? i : none;
    }
    for (int i = 0; i < set.size(); ++i)
        if (set[i] == x) return i;
    return none;
}

/// Answers for one rank, that of the table. Questions come in the order of rounds.
class value_origins {
public:
    value_origins(const step_table& steps, const unit_map& units)
        : steps_(steps), units_(units), counts_(reduces(steps.what)) {
        if (counts_) find_outcomes();
    }

    /// How many contributions the slot holds after the round in which it receives, and folds, block i of the port: all
    /// (the size of the group), or some. 0: this is no reduction.
    int folded(int round, int port, int i) const {
        if (!counts_) return 0;
        const outcome o = outcome_of(round, port, i);
        const bool all = o == outcome::completes || (o == outcome::stays && expected(steps_.first) == steps_.size);
        return all ? steps_.size : 1;
    }

private:
    /// What becomes of a value that a slot holds.
    enum class outcome : std::uint8_t {
        lost,       ///< it is overwritten, and no rank has it in the end
        grows,      ///< it is folded further
        stays,      ///< it is in an output slot of this rank in the end
        completes,  ///< it has all contributions, and other ranks have it in the end
        copied      ///< other ranks have received it as a copy
    };
    struct copy {
        int rank = none, slot = none, round = none;  ///< the receiver, its slot, and when
    };

    /// Contributions that the collective promises in an output slot of the rank.
    int expected(int rank) const {
        return steps_.what == collective::inclusive_scan   ? rank + 1
               : steps_.what == collective::exclusive_scan ? rank
                                                           : steps_.size;
    }
    outcome outcome_of(int round, int port, int i) const {
        return outcomes_[static_cast<std::size_t>(begin_[long{round} * steps_.ports + port]) +
                         static_cast<std::size_t>(i)];
    }
    step step_of(int rank, int round, int port) const { return steps_.schedule.at(rank, steps_.size, round, port); }

    void find_outcomes();
    outcome follow(copy at) const;

    const step_table& steps_;
    const unit_map& units_;
    const bool counts_;
    // By block received: the outcome of the value that its slot holds after the round.
    list<outcome> outcomes_;
    list<long> begin_;  // by round and port
};

// Goes backwards through the rank's steps, so that the fate of a slot's value is known when the round is reached in
// which it was made.
inline void value_origins::find_outcomes() {
    const int rank = steps_.first;
    long blocks = 0;
    for (int k = 0; k < steps_.rounds; ++k)
        for (int p = 0; p < steps_.ports; ++p) {
            begin_.push_back(blocks);
            if (const receive_part& r = steps_.at(rank, k, p).recv; r.peer != none) blocks += r.blocks.size();
        }
    outcomes_.resize(static_cast<std::size_t>(blocks));
    struct fate {
        outcome what;
        copy first;  // of its copies that are not overwritten here
    };
    list<fate> fates;
    for (int s = 0; s < steps_.slots; ++s)
        fates.push_back({units_.output_unit(rank, s) == none ? outcome::lost : outcome::stays, {}});
    for (int k = steps_.rounds; k-- > 0;) {
        for (int p = 0; p < steps_.ports; ++p) {
            const receive_part& r = steps_.at(rank, k, p).recv;
            for (int i = 0; r.peer != none && i < r.blocks.size(); ++i) {
                const fate& f = fates[r.blocks[i]];
                outcomes_[begin_[long{k} * steps_.ports + p] + i] =
                    f.what == outcome::copied && r.action == action::reduce ? follow(f.first) : f.what;
            }
        }
        for (int p = 0; p < steps_.ports; ++p) {
            const receive_part& r = steps_.at(rank, k, p).recv;
            for (int i = 0; r.peer != none && i < r.blocks.size(); ++i)
                fates[r.blocks[i]] = {r.action == action::reduce ? outcome::grows : outcome::lost, {}};
        }
        for (int p = 0; p < steps_.ports; ++p) {
            const send_part& s = steps_.at(rank, k, p).send;
            if (s.peer == none || s.blocks.empty()) continue;
            const receive_part there = step_of(s.peer, k, p).recv;
            for (int i = 0; i < s.blocks.size(); ++i) {
                fate& f = fates[s.blocks[i]];
                if (there.action == action::reduce)
                    f = {outcome::grows, {}};
                else if (f.what == outcome::lost || f.what == outcome::copied)
                    f = {outcome::copied, {s.peer, there.blocks[i], k}};
            }
        }
    }
}

// The outcome of a value that a rank has received as a copy, and that has none yet: grows, completes or lost.
inline value_origins::outcome value_origins::follow(copy at) const {
    for (;;) {
        copy next;
        bool kept = true;
        for (int k = at.round + 1; k < steps_.rounds && kept; ++k)
            for (int p = 0; p < steps_.ports; ++p) {
                const step st = step_of(at.rank, k, p);
                if (st.send.peer != none)
                    if (const int i = index_in(st.send.blocks, at.slot); i != none) {
                        const receive_part there = step_of(st.send.peer, k, p).recv;
                        if (there.action == action::reduce) return outcome::grows;
                        next = {st.send.peer, there.blocks[i], k};
                    }
                if (st.recv.peer != none && index_in(st.recv.blocks, at.slot) != none) {
                    if (st.recv.action == action::reduce) return outcome::grows;
                    kept = false;
                }
            }
        if (kept && units_.output_unit(at.rank, at.slot) != none)
            return expected(at.rank) == steps_.size ? outcome::completes : outcome::grows;
        if (next.rank == none) return outcome::lost;
        at = next;
    }
}

}  // namespace colls::inline v1::detail
