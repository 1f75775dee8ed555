// Predictions of the time that a schedule takes, from its traffic and the figures of the machine.
// IWYU pragma: private, include <colls/explain.hpp>
//
// They serve to compare schedules. They are equal on all ranks of a group, since the figures of the machine are.
#pragma once

#include <colls/detail/choose/candidates.hpp>
#include <colls/detail/choose/selection.hpp>
#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/plan/plan_cache.hpp>

namespace colls::inline v1::detail {

/// The machine as n ranks share it, and what a call costs them beside waits and bytes.
struct shared_machine : model {
    int ranks = 1;
    double ranks_per_core = 1;
    double enter = 0.17e-6;  ///< seconds to describe an operation of the direct executor to the others, and to leave it
    bool sleeps = false;     ///< ranks that wait sleep most often
    double meet = 0;         ///< seconds to wait for all others once more than rounds tell
    double round = 0.07e-6;  ///< seconds of each of its rounds
    double eager = 0.08e-6;  ///< seconds of a call by the eager path
    double partial = 0;      ///< seconds of a byte of a partial result: its line is stored to while a peer has it

    /// How often a rank waits. Where ranks sleep, what counts is how often each of them does: in a tree most have a
    /// message or two.
    double waits_of(const cost& c) const {
        const double each = static_cast<double>(c.messages) / ranks;
        return sleeps && each < c.rounds ? each : c.rounds;
    }
};
/// Where ranks outnumber the cores, each rank has a share of a core, and a wait lasts until the other ranks of that
/// core have run.
inline shared_machine model_of(const machine& m, int n) {
    shared_machine shared{{m.alpha, m.beta, m.gamma}};
    shared.ranks = n;
    shared.partial = 0.13 * m.alpha / 64;
    if (n <= m.cores) return shared;
    // A switch by sched_yield between two ranks, or, where they are many, a sleep and what wakes it; and more of the
    // bytes' time, since a rank finds the caches of its core full of the other's data.
    shared.sleeps = n > 16 * m.cores;  // of fewer most are there after the yields before a sleep
    const double ranks_per_core = static_cast<double>(n) / m.cores, cold = 1.25,
                 switch_seconds = shared.sleeps ? 5e-6 : 0.6e-6;
    shared.alpha = (m.alpha + switch_seconds) * ranks_per_core;
    shared.beta = cold * m.beta * ranks_per_core;
    shared.gamma = cold * m.gamma * ranks_per_core;
    shared.ranks_per_core = ranks_per_core;
    shared.meet = switch_seconds * ranks_per_core;
    for (double* const own : {&shared.enter, &shared.round, &shared.eager, &shared.partial}) *own *= ranks_per_core;
    return shared;
}

/// Seconds of the direct executor for a buffer of `bytes` bytes in chunks of `chunk` bytes of a block: the first chunk
/// goes through all rounds, the others follow as fast as the busiest rank can handle them. To enter and to leave the
/// operation takes as long as a round and a half. `pulled`: copies are pulled.
inline double predict(const cost& c, bool pulled, const shared_machine& m, double bytes, double chunk) {
    const double block = c.blocks > 0 ? bytes / c.blocks : 0;
    const double chunks = block > chunk ? block / chunk : 1;
    const double rounds = m.waits_of(c);
    const double waits = m.alpha * (rounds + 1.5 + 0.1 * rounds * c.ports) + m.round * c.rounds;
    // A pull costs its receiver, not its sender; and twice as much where every rank pulls all blocks, since each line
    // is then fetched from the cache of its owner, which reads it, too.
    const double pull = m.gamma * (c.blocks > 0 && c.all_reduced >= static_cast<long>(c.blocks) * m.ranks ? 2 : 1);
    const auto work = [&](long sent, long reduced) {
        return m.beta * static_cast<double>(sent > reduced ? sent - reduced : 0) + pull * static_cast<double>(reduced);
    };
    // Where ranks share cores a rank that works while the others wait, as the root of a reduce, has a core to itself.
    const double average = work(c.all_sent, c.all_reduced) / m.ranks;
    const double partial = m.partial * static_cast<double>(c.all_partial) / m.ranks;
    const auto bytes_take = [&](long sent, long reduced) {
        const double alone = work(sent, reduced) / m.ranks_per_core;
        return ((alone > average ? alone : average) + partial) * block / chunks;
    };
    const double first =
        m.enter + waits + bytes_take(pulled ? c.critical_received : c.critical_sent, c.critical_reduced);
    const double next = 0.5 * waits + bytes_take(pulled ? c.blocks_received : c.blocks_sent, c.blocks_reduced);
    return first + (chunks - 1) * next;
}
/// Seconds of the message executor. Each message costs both its ranks some time; where ranks outnumber cores, the work
/// of all ranks together is shared by the cores.
inline double predict_messages(const cost& c, const machine& m, int n, double bytes) {
    constexpr auto chunk = static_cast<double>(message_policy::chunk);
    const double block = c.blocks > 0 ? bytes / c.blocks : 0, chunks = block > chunk ? block / chunk : 1;
    const double waits =
        m.alpha * c.rounds + m.message * 0.5 * static_cast<double>(c.critical_messages - 2L * c.rounds);
    const auto bytes_take = [&](long sent, long reduced) {
        return (m.beta * static_cast<double>(sent) + m.gamma * static_cast<double>(reduced)) * block / chunks;
    };
    const double alone = waits + bytes_take(c.critical_sent, c.critical_reduced) +
                         (chunks - 1) * (0.5 * m.message * static_cast<double>(c.critical_messages) +
                                            bytes_take(c.blocks_sent, c.blocks_reduced));
    if (n <= m.cores) return alone;
    // Messages that do not fit the caches beside those of the core's other ranks take up to twice as long.
    constexpr double small = 32 << 10, large = 1 << 20;
    const double size = c.messages > 0 ? static_cast<double>(c.all_sent) * block / static_cast<double>(c.messages) : 0;
    const double cold = 1 + (size < small ? 0 : size > large ? 1 : (size - small) / (large - small));
    const double work = m.message * static_cast<double>(c.messages) * chunks +
                        cold * m.beta * static_cast<double>(c.all_sent) * block +
                        m.gamma * static_cast<double>(c.all_reduced) * block;
    const double shared = work / m.cores + m.alpha * c.rounds;
    // Where a rank gets several messages in a round, the next is sent while one is received.
    const double overlapped = c.critical_messages > 2L * c.rounds
                                  ? 0.5 + static_cast<double>(c.rounds) / static_cast<double>(c.critical_messages)
                                  : 1;
    const double busiest = waits + overlapped * (alone - waits);
    return busiest > shared ? busiest : shared;
}
/// Bytes of other ranks' slots that a rank reads on the eager path, where each rank that posts posts `posted` bytes.
constexpr double eager_read_bytes(collective what, int n, double posted) {
    const collective_traits& is = traits_of(what);
    if (is.result == contributors::root) return is.out == content::own_block ? posted / n : posted;
    return posted * (n - 1) / (is.in == content::all_blocks ? n : 1);
}
/// Seconds of the eager path. Of so few bytes not enough lines are under way: each that is stored, and each that is
/// read, takes a part of a single line's time, but for the first 2 KB, which the store buffer hides. A broadcast has
/// twice as many hidden bytes, since one rank stores and the others read. (On two threads of one core a single line
/// takes 25 ns, and many take no less than between cores.) Where ranks outnumber cores, some of a rank's peers share
/// its caches. What is stored past the caches takes a quarter of that.
inline double predict_eager(const shared_machine& m, const machine& figures, collective what, int n, double posted) {
    const double hidden = what == collective::broadcast ? 4096 : 2048;
    const double read = eager_read_bytes(what, n, posted), moved = posted + read;
    const double line_seconds = figures.alpha < 50e-9 ? 50e-9 : figures.alpha;
    const double line_byte = 0.085 * line_seconds / 64;
    const bool streamed =
        posted >= store_policy::stream_eager_from && m.ranks_per_core <= 1 && figures.alpha >= figures.near_below;
    const double slow = streamed ? 0.25 * line_byte * moved : moved > hidden ? line_byte * (moved - hidden) : 0;
    const double fast = figures.beta * posted + figures.gamma * read;
    const double away = m.ranks_per_core > 1 ? 1 - 1.0 / figures.cores : 1;
    // A rank that sleeps does so once or twice; it looks at the flags of all.
    const double waits =
        m.sleeps ? 1.5 * m.alpha + 0.3 * figures.alpha * n * m.ranks_per_core : m.alpha * (1.5 + 0.1 * n);
    return waits + m.eager + (slow > fast ? slow : fast) * m.ranks_per_core * away;
}

/// Bytes of a unit: the chunks among which the best is chosen. The last one is more than any unit has.
inline constexpr std::size_t whole_unit_bytes = std::size_t{1} << 40;
inline constexpr std::size_t chunk_sizes[] = {std::size_t{32} << 10, std::size_t{128} << 10, whole_unit_bytes};

/// Where buffers are out of reach. By a staged plan a rank copies what it sends into scratch memory, once for all
/// receivers, and pulls what it receives; a round waits for the copies, and until they have been read. By single copies
/// a rank pulls what it receives; a message costs it a call of the kernel, and the pages to be found.
inline prediction predict_out_of_reach(
    const candidate& c, int n, const shared_machine& m, double bytes, bool single_copy) {
    const cost counted = traffic_of_candidate(c, n);
    const double block = counted.blocks > 0 ? bytes / counted.blocks : 0;
    const auto pulled = static_cast<double>(counted.critical_received);
    const double folded = 0.3 * m.gamma * static_cast<double>(counted.critical_reduced);
    if (single_copy)
        return {&c, 0,
            m.alpha * 4 * (counted.rounds + 1) + single_copy_policy::call_seconds * pulled +
                ((m.gamma + single_copy_policy::byte_seconds) * pulled + folded) * block};
    const auto copied =
        static_cast<double>(counted.blocks_sent < counted.blocks ? counted.blocks_sent : counted.blocks);
    return {&c, 0,
        m.enter + m.alpha * 4 * (m.waits_of(counted) + 1) + (m.beta * copied + m.gamma * pulled + folded) * block};
}
/// The figures of messages through shared memory, in a group whose figures are those of a network.
inline machine within_host(machine m) {
    m.alpha = 0.6e-6, m.beta = 1.2e-10, m.message = 0.4e-6;
    return m;
}
/// What an all_reduce of two ranks takes in the mean of in place and out of place, as a part of what it takes out of
/// place, since no rank knows which of them the other one does. In place the lines that the second round pushes are in
/// the cache already; one round alone has to copy first what it overwrites.
inline double in_place_or_not(const cost& c, const rank_context& self, collective what) {
    if (what != collective::all_reduce || self.size != 2 || self.crowded) return 1;
    return c.rounds == 1 ? 1.4 : 0.8;
}
/// For a candidate, with the chunk that is best for it.
inline prediction predicted(const candidate& c, const rank_context& self, const shared_machine& m, double bytes) {
    const int n = self.size;
    const machine& figures = self.backend->figures();
    if (const counted_messages between = messages_between_hosts(self); !between.all()) {
        counted_messages within = between;
        within.between = false;
        return {&c, whole_unit_bytes,
            predict_messages(traffic_of_candidate(c, n, between), figures, n, bytes) +
                predict_messages(traffic_of_candidate(c, n, within), within_host(figures), n, bytes)};
    }
    const cost counted = traffic_of_candidate(c, n);
    if (figures.message > 0) return {&c, whole_unit_bytes, predict_messages(counted, figures, n, bytes)};
    const double meet = rooted(c.schedule.implements) ? 0 : m.meet;
    prediction best;
    for (const std::size_t chunk : chunk_sizes) {
        // A chunk that goes through many rounds should stay in the cache between them.
        if (chunk == whole_unit_bytes && counted.rounds > 2) continue;
        const double t = meet + predict(counted, usual_copying(c.schedule.implements) == copying::pulled, m, bytes,
                                    static_cast<double>(chunk));
        if (best.of == nullptr || t < best.seconds) best = {&c, chunk, t};
    }
    best.seconds *= in_place_or_not(counted, self, c.schedule.implements);
    return best;
}

}  // namespace colls::inline v1::detail
