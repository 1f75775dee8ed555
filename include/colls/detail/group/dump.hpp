// The dump of a group: how far each of its ranks is, for a person who debugs a program that hangs.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/failure.hpp>

#include <cstdio>

namespace colls::inline v1::detail {

/// Appends for which rank a rank waits, and in what: " waits for rank 2 in recv".
[[gnu::cold]] inline void describe_wait(error_text& text, std::uint64_t word) {
    if (word == long_wait::unanswered) {
        text << " does not answer: it is in no call, or slow";
        return;
    }
    text << " waits for ";
    if (word == 0) {
        text << "no rank";
        return;
    }
    if (const int peer = long_wait::peer_in(word); peer != none)
        text << "rank " << peer;
    else
        text << "any rank";
    const std::uint64_t in = long_wait::call_in(word);
    text << " in " << (in == long_wait::send ? "send" : in == long_wait::recv ? "recv" : collective_in(in << 60));
}

/// Prints to stderr what this rank is doing, and what it knows of the others. `at`: where it waits; null: it does not.
[[gnu::cold]] inline void print_dump(const rank_context& self, const wait_site* at) {
    const auto print = [](const error_text& text) { std::fprintf(stderr, "%s\n", text.text()); };
    print(error_text() << "colls: rank " << self.rank << " of " << self.size << ": "
                       << static_cast<std::size_t>(self.log.count) << " calls begun, "
                       << self.operations.in_flight.size() << " operations in flight"
                       << (self.by_messages ? ", by messages" : ""));
    const pending* own = self.operations.current;
    if (own && !own->is_collective) own = nullptr;
    const auto wait_of = [&](int r) -> std::uint64_t {
        if (r == self.rank) return at ? long_wait::word_of(*at) : 0;
        return self.backend->dead(r) ? 0 : self.memory.state(r).waits.load(std::memory_order_relaxed);
    };
    if (at) {
        error_text text;
        text << "colls:   waits" << *at;
        if (at->peer != none) text << ", for rank " << at->peer;
        print(text);
    }
    if (self.log.count > 0) print(error_text() << "colls:   its latest calls:");
    for_latest_calls(self.log.recent, self.log.count,
        [&](const error_text& text) { print(error_text() << "colls:     " << text.text()); });
    for (const pending* o : self.operations.in_flight) {
        error_text text;
        text << "colls:   in flight:" << o->site;
        if (o->site.peer != none) text << ", waits for rank " << o->site.peer;
        print(text);
        if (o->is_collective && (!own || o->sequence < own->sequence)) own = o;
    }
    const poison_state& p = self.memory.poison();
    if (p.state.load(std::memory_order_acquire) == 2)
        print(error_text() << "colls:   the group is broken: " << std::string_view(p.text));
    for (int r = 0; r < self.size; ++r) {
        const rank_state& s = self.memory.state(r);
        error_text text;
        text << "colls:   rank " << r;
        if (const auto process = s.process.load(std::memory_order_relaxed); process != 0)
            text << " (process " << static_cast<long long>(process) << ")";
        text << ":";
        if (self.backend->dead(r))
            text << " has died";
        else if (s.gone.load(std::memory_order_acquire) != 0)
            text << " has left the group";
        else if (r == self.rank)
            text << " this one";
        else
            describe_wait(text, wait_of(r));
        if (own) own->describe(text, r);
        print(text);
    }
    // From this rank on, each waits for the next: the last one is where to look.
    if (!at || at->peer == none) return;
    error_text chain;
    chain << "colls:   rank " << self.rank;
    int last = self.rank;
    for (int links = 0;; ++links) {
        const int next = long_wait::peer_in(wait_of(last));
        if (next < 0 || next >= self.size) break;
        chain << (links == 0 ? " waits for rank " : ", which waits for rank ") << next;
        last = next;
        if (last == self.rank || links == 8) break;
    }
    if (last == self.rank)
        chain << ": none of them can go on";
    else if (self.backend->dead(last))
        chain << ", which has died";
    else if (const std::uint64_t word = wait_of(last); word == 0 || word == long_wait::unanswered)
        describe_wait(chain << ", which", word);
    print(chain);
}

}  // namespace colls::inline v1::detail
