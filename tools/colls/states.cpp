#include "states.hpp"

#include <colls/detail/prove/problem.hpp>
#include <colls/verify.hpp>
#include <colls/views.hpp>

#include <set>

namespace tool {

namespace {

/// What a slot holds, with the ranks whose contributions it combines.
struct held {
    int label = colls::none;
    std::set<int> ranks;
};

}  // namespace

std::vector<picture_state> states_of(const colls::any_schedule& s, int n) {
    const colls::detail::problem p(s, n);
    const bool barrier = p.kind == colls::collective::barrier, exchange = p.kind == colls::collective::all_to_all;
    const auto ranks = static_cast<std::size_t>(n), slots = static_cast<std::size_t>(p.slots);
    std::vector<std::vector<held>> now(ranks, std::vector<held>(slots));
    for (int r = 0; r < n; ++r)
        for (int slot = 0; slot < p.slots; ++slot)
            if (const int label = p.initial(r, slot); label >= 0)  // of all_to_all: the rank that it comes from
                now[static_cast<std::size_t>(r)][static_cast<std::size_t>(slot)] = {
                    exchange ? r : label, {p.contributor(r, label)}};

    std::vector<picture_state> all;
    const auto record = [&](bool last) {
        picture_state picture(ranks, std::vector<slot_state>(slots));
        for (int r = 0; r < n; ++r)
            for (int slot = 0; slot < p.slots; ++slot) {
                const held& h = now[static_cast<std::size_t>(r)][static_cast<std::size_t>(slot)];
                const colls::detail::wanted w = p.expected(r, slot);
                const bool done = exchange ? last && slot < p.blocks
                                           : w.label != colls::none && h.label == w.label &&
                                                 static_cast<int>(h.ranks.size()) == w.hi - w.lo;
                picture[static_cast<std::size_t>(r)][static_cast<std::size_t>(slot)] = {
                    h.label, static_cast<int>(h.ranks.size()), done};
            }
        all.push_back(std::move(picture));
    };
    record(p.rounds == 0);
    for (int k = 0; k < p.rounds; ++k) {
        // Sends read the state at the start of the round; copies come before reductions.
        auto next = now;
        for (const bool reducing : {false, true})
            for (const colls::views::transfer& t : colls::views::transfers(s, n, k, k + 1)) {
                if (reducing != (barrier || t.action == colls::action::reduce)) continue;
                const int size = barrier ? 1 : t.blocks.size();
                for (int i = 0; i < size; ++i) {
                    const auto from = static_cast<std::size_t>(barrier ? 0 : t.blocks[i]),
                               to = static_cast<std::size_t>(barrier ? 0 : t.stored[i]);
                    const held& sent = now[static_cast<std::size_t>(t.from)][from];
                    held& kept = next[static_cast<std::size_t>(t.to)][to];
                    if (!reducing) kept = {sent.label, {}};
                    kept.ranks.insert(sent.ranks.begin(), sent.ranks.end());
                }
            }
        now = std::move(next);
        record(k + 1 == p.rounds);
    }
    return all;
}

}  // namespace tool
