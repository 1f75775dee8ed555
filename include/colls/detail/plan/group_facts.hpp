// What all ranks must know alike of a schedule: found from the steps of all of them, as far as that takes no long time.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>
#include <colls/detail/support/hash.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// The steps of all ranks together.
inline double all_steps(const any_schedule& s, int n) { return static_cast<double>(n) * s.rounds(n) * s.ports(n); }

/// Of the schedule's type and steps: ranks that make different calls differ in it. In groups of more than 262,144
/// steps, of the steps of as many ranks as have about that many, evenly spaced, and of rank 0 always. (Schedules of one
/// type are one function of the group size, but for their state: what tells states apart shows in the steps of any
/// rank. Two layouts may differ in few steps, so all steps of a redistribution count.)
inline std::uint64_t fingerprint_of(const step_table& shape) {
    constexpr double most_steps = 1 << 18;
    const any_schedule& s = shape.schedule;
    const int n = shape.size;
    const double steps = all_steps(s, n);
    const int stride = steps <= most_steps || shape.what == collective::redistribute ? 1
                       : steps >= most_steps * n                                     ? n
                                                 : static_cast<int>(steps / most_steps) + 1;
    std::uint64_t h = hash_mix(hash_text(s.type()), static_cast<std::uint64_t>(shape.blocks));
    const auto mix = [&h](int a, int b) {
        h = hash_mix(h, static_cast<std::uint64_t>(static_cast<unsigned>(a)) << 32 | static_cast<unsigned>(b));
    };
    for (int r = 0; r < n; r += stride)
        for (int k = 0; k < shape.rounds; ++k)
            for (int p = 0; p < shape.ports; ++p) {
                const step st = s.at(r, n, k, p);
                const block_set &sent = st.send.blocks, &received = st.recv.blocks;
                mix(st.send.peer, st.recv.peer);
                mix(sent.size(), received.size());
                if (!sent.empty()) mix(sent[0], sent[sent.size() - 1]);
                if (!received.empty()) mix(received[0], static_cast<int>(st.recv.action));
            }
    return h;
}

/// Gathers and scatters: do ranks other than the root send and receive parts of their own block alone? Where it would
/// take more than 16 million steps to know, the answer is no: then the root tells all ranks how long blocks are.
inline bool moves_own_blocks_only(const step_table& shape, const unit_map& units) {
    const any_schedule& s = shape.schedule;
    const int n = shape.size;
    if (all_steps(s, n) > 1 << 24) return false;
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < shape.rounds && r != shape.root; ++k)
            for (int p = 0; p < shape.ports; ++p) {
                const step st = s.at(r, n, k, p);
                if (st.send.peer == r) continue;
                for (int i = 0; st.send.peer != none && i < st.send.blocks.size(); ++i)
                    if (const int slot = st.send.blocks[i];
                        !units.is_empty(slot) && !units.is_of(r, units.unit_of(slot)))
                        return false;
                if (st.recv.peer == none || st.recv.blocks.empty()) continue;
                const block_set sent = s.at(st.recv.peer, n, k, p).send.blocks;
                for (int i = 0; i < st.recv.blocks.size(); ++i)
                    if (!units.is_empty(sent[i]) && !units.is_of(r, units.unit_of(st.recv.blocks[i]))) return false;
            }
    return true;
}

/// Throws errc::unsupported where a rank both copies and reduces into one block in one round.
inline void expect_one_action_a_block(const any_schedule& s, int n) {
    const int rounds = s.rounds(n), ports = s.ports(n);
    list<long> copied;  // by slot: the round in which it was last copied into, counted over all ranks
    copied.resize(static_cast<std::size_t>(s.blocks(n)) + static_cast<std::size_t>(s.scratch(n)), -1);
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < rounds; ++k)
            for (const bool reducing : {false, true})
                for (int p = 0; p < ports; ++p) {
                    const receive_part to = s.at(r, n, k, p).recv;
                    if (to.peer == none || (to.action == action::reduce) != reducing) continue;
                    for (int i = 0; i < to.blocks.size(); ++i) {
                        long& last = copied[to.blocks[i]];
                        if (reducing && last == long{r} * rounds + k)
                            refuse_schedule(s, n, errc::unsupported, "one round copies and reduces into one block");
                        if (!reducing) last = long{r} * rounds + k;
                    }
                }
}

}  // namespace colls::inline v1::detail
