// What ranks know of one another's calls, so that an error can say how they differ. Each rank records its own calls,
// and publishes the latest of them when it has waited for long, or is asked for them.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/group_memory.hpp>
#include <colls/detail/support/composite_call.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>

#include <algorithm>

namespace colls::inline v1::detail {

/// One call of a rank: what its fingerprint is made from.
struct call_record : named_call {
    static constexpr std::uint64_t kept = 64;  ///< more than any rank can be ahead
    std::uint64_t fingerprint = 0;             ///< of it and of all before
    std::string_view schedule;
    bool non_blocking = false, reproducible = false;
};

/// The name of a type or an operator, for a text.
inline std::string_view without_namespace(std::string_view name) {
    constexpr std::string_view own = "colls::v1::";
    if (name.starts_with(own)) name.remove_prefix(own.size());
    return name.substr(0, 40);
}

inline const char* name_of(const call_record& c) { return c.name ? c.name : name_of(c.what); }

/// The parts of a call in the order of call_parts, each followed by a bar.
[[gnu::cold]] inline error_text parts_of(const call_record& c) {
    error_text text;
    const auto put = [&](std::string_view name) { text << without_namespace(name) << "|"; };
    put(name_of(c));
    if (c.own_lengths)
        put("each rank's own");
    else
        text << c.count << "|";
    put(c.type ? *c.type : "none");
    put(c.op ? *c.op : "none");
    if (rooted(c.what))
        text << c.root << "|";
    else
        put("none");
    put(c.schedule);
    text << (c.non_blocking ? "started" : "blocking") << (c.reproducible ? ", reproducible|" : "|");
    return text;
}
/// Calls f with a line for each of a rank's latest calls, the latest last; equal ones in a row share a line.
template <class F>
[[gnu::cold]] void for_latest_calls(const call_record* recent, std::uint64_t calls, F f) {
    const auto same = [&](std::uint64_t i, std::uint64_t j) {
        const call_record &a = recent[i % call_record::kept], &b = recent[j % call_record::kept];
        return static_cast<const named_call&>(a) == b && a.schedule == b.schedule && a.non_blocking == b.non_blocking &&
               a.reproducible == b.reproducible;
    };
    for (std::uint64_t i = calls > call_record::kept ? calls - call_record::kept : 0, end; i < calls; i = end) {
        for (end = i + 1; end < calls && same(i, end);) ++end;
        const call_record& c = recent[i % call_record::kept];
        error_text text;
        text << "call " << static_cast<std::size_t>(i);
        if (end - i > 1) text << " to " << static_cast<std::size_t>(end - 1);
        text << ": " << name_of(c);
        if (c.own_lengths)
            text << " of each rank's own count";
        else if (c.type)
            text << " of " << c.count;
        if (c.type) text << " " << without_namespace(*c.type);
        if (c.op) text << ", " << without_namespace(*c.op);
        if (rooted(c.what)) text << ", root " << c.root;
        put_brief(text << ", by ", c.schedule);
        if (c.non_blocking) text << ", started";
        if (c.reproducible) text << ", reproducible";
        f(text);
    }
}

inline constexpr std::string_view call_parts[] = {
    "the collective", "the count", "the element type", "the operator", "the root", "the schedule", "the call"};

[[gnu::cold]] inline void tell_call(told_call& to, std::uint64_t number, std::uint64_t fingerprint, const char* text) {
    to.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new words does not see the old number
    to.fingerprint.store(fingerprint, std::memory_order_relaxed);
    to.text.store(text);
    to.number.store(number + 1, std::memory_order_release);
}
/// The number of the first call, of this many, that is published.
constexpr std::uint64_t first_told(std::uint64_t calls) {
    return calls > told_call::kept ? calls - told_call::kept : 0;
}
/// Publishes a rank's latest calls.
[[gnu::cold]] inline void tell_calls(
    const group_memory& memory, int rank, const call_record* recent, std::uint64_t calls) {
    for (std::uint64_t i = first_told(calls); i < calls; ++i) {
        const call_record& c = recent[i % call_record::kept];
        tell_call(memory.told(rank, i), i, c.fingerprint, parts_of(c).text());
    }
}
inline bool has_told(const group_memory& memory, int rank, std::uint64_t number) {
    return memory.told(rank, number).number.load(std::memory_order_acquire) == number + 1;
}

/// Appends in which call, of those up to `last`, a peer's calls begin to differ from this rank's, and how. False where
/// that is not known.
[[gnu::cold]] inline bool say_difference(
    error_text& text, const group_memory& memory, int rank, int peer, const call_record* recent, std::uint64_t last) {
    for (std::uint64_t i = first_told(last + 1); i <= last; ++i) {
        const told_call& told = memory.told(peer, i);
        if (!has_told(memory, peer, i)) continue;
        const std::uint64_t fingerprint = told.fingerprint.load(std::memory_order_relaxed);
        char theirs[decltype(told.text)::most + 1];
        told.text.load(theirs);
        std::atomic_thread_fence(std::memory_order_acquire);  // the words are loaded before the number is checked
        if (!has_told(memory, peer, i) || fingerprint == recent[i % call_record::kept].fingerprint) continue;
        const error_text ours = parts_of(recent[i % call_record::kept]);
        std::string_view a = ours.text(), b = theirs;
        int differ = 0;
        for (const std::string_view part : call_parts) {
            const std::string_view x = a.substr(0, a.find('|')), y = b.substr(0, b.find('|'));
            a.remove_prefix(std::min(a.size(), x.size() + 1));
            b.remove_prefix(std::min(b.size(), y.size() + 1));
            if (x == y) continue;
            if (differ++ == 0) text << "call " << i << " of this group differs";
            text << (differ == 1 ? ": " : ", ") << part << " is " << x << " on rank " << rank << " and " << y
                 << " on rank " << peer;
            if (part == call_parts[0]) break;  // the rest follows from it
        }
        return differ > 0;
    }
    return false;
}

}  // namespace colls::inline v1::detail
