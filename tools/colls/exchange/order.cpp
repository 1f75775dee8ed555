#include "order.hpp"

#include "index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <queue>
#include <tuple>

namespace exchange {

namespace {

using followers = std::vector<std::vector<int>>;

followers followers_of(const program& plan) {
    followers next(plan.events.size());
    for (const auto& [first, second] : plan.waits) next[at(first)].push_back(second);
    return next;
}

/// The steps of a cycle among the events that were never ready.
std::string cycle_of(const program& plan, const std::vector<int>& open) {
    std::vector<int> waits_for(plan.events.size(), -1);  // an event that is not ready either
    for (const auto& [first, second] : plan.waits)
        if (open[at(first)] > 0 && open[at(second)] > 0 && waits_for[at(second)] < 0) waits_for[at(second)] = first;
    int e = 0;
    while (open[at(e)] == 0) ++e;
    for (std::size_t i = 0; i < plan.events.size(); ++i) e = waits_for[at(e)];  // now it is on the cycle
    std::string text = words(plan.events[at(e)]);
    int shown = 0;
    for (int other = waits_for[at(e)]; other != e && shown < 8; other = waits_for[at(other)], ++shown)
        text += ", which waits for " + words(plan.events[at(other)]);
    return text + (shown < 8 ? ", which waits for the first" : ", and so on to the first");
}

}  // namespace

std::vector<int> positions_of(const program& plan) {
    std::vector<int> open(plan.events.size()), position(plan.events.size());
    for (const auto& [first, second] : plan.waits) ++open[at(second)];
    std::vector<char> writes(plan.events.size());
    for (const move& m : plan.moves) writes[at(m.written_at)] = 1;
    using entry = std::pair<int, int>;
    std::priority_queue<entry, std::vector<entry>, std::greater<>> ready;
    const auto add = [&](int e) { ready.emplace(writes[at(e)], e); };
    for (int e = 0; e < static_cast<int>(plan.events.size()); ++e)
        if (open[at(e)] == 0) add(e);
    const followers next = followers_of(plan);
    int done = 0;
    while (!ready.empty()) {
        const int e = ready.top().second;
        ready.pop();
        position[at(e)] = done++;
        for (const int f : next[at(e)])
            if (--open[at(f)] == 0) add(f);
    }
    if (done < static_cast<int>(plan.events.size())) throw refuted("the plan waits for ever: " + cycle_of(plan, open));
    return position;
}

const ordered_pair* unordered_pair(
    const program& plan, const std::vector<int>& positions, const std::vector<ordered_pair>& pairs) {
    const std::size_t count = plan.events.size();
    std::vector<int> event_at(count);
    for (std::size_t e = 0; e < count; ++e) event_at[at(positions[e])] = static_cast<int>(e);
    const followers next = followers_of(plan);
    std::vector<const ordered_pair*> sorted;
    for (const ordered_pair& p : pairs) sorted.push_back(&p);
    std::ranges::sort(sorted, {}, [](const ordered_pair* p) { return std::tuple(p->first, p->second, p->subject); });
    // Which of `width` first events each event waits for, by bits; then the next ones.
    constexpr int width = 1024;
    std::vector<std::uint64_t> reached;
    auto pair = sorted.begin();
    for (int base = 0; pair != sorted.end(); base += width) {
        auto last = std::find_if(pair, sorted.end(), [&](const ordered_pair* p) { return p->first >= base + width; });
        if (last == pair) continue;
        reached.assign(count * (width / 64), 0);
        for (std::size_t i = 0; i < count; ++i) {
            const int e = event_at[i];
            std::uint64_t* const own = &reached[at(e) * (width / 64)];
            if (e >= base && e < base + width) own[(e - base) / 64] |= std::uint64_t{1} << ((e - base) % 64);
            for (const int f : next[at(e)])
                for (int w = 0; w < width / 64; ++w) reached[at(f) * (width / 64) + at(w)] |= own[w];
        }
        for (; pair != last; ++pair) {
            const int bit = (*pair)->first - base;
            if ((reached[at((*pair)->second) * (width / 64) + at(bit / 64)] >> (bit % 64) & 1) == 0) return *pair;
        }
    }
    return nullptr;
}

}  // namespace exchange
