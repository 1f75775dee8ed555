// The pick of a schedule: the candidates of each collective, their predicted times, and the choice, which is the same
// on every rank since it depends on nothing but the call and parameters measured once.
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/execute/direct_executor.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/prove/examine.hpp>
#include <colls/detail/request/candidates.hpp>
#include <colls/detail/request/known_families.hpp>

namespace colls::inline v1 {

namespace detail {

template <collective C>
candidates candidates_for() {
    static constexpr int count = known_families.count_of<C>;
    static const candidate* const all = [] {
        auto* const list = static_cast<candidate*>(operator new(sizeof(candidate) * std::size_t{count + 1}));
        candidate* to = list;
        known_families.for_each([&]<class Family>(const Family& family, std::string_view name) {
            if constexpr (provides<Family, C>) {
                const auto s = schedule_of<C>(family);
                new (to++) candidate{name, any_schedule(s, proven_table_of<std::remove_const_t<decltype(s)>>, name)};
            }
        });
        return list;
    }();
    return {all, count};
}

/// Traffic of a schedule at n ranks, counted once in the process: small n are cheap, but all ranks ask.
[[gnu::cold]] inline cost traffic_of_candidate(const any_schedule& s, int n, counted_messages counts = {}) {
    struct known {
        const any_schedule* schedule;
        int n;
        counted_messages counts;
        cost counted;
    };
    static std::mutex mutex;
    static list<known>& cache = *new list<known>;  // never destroyed: threads may outlive main
    const std::lock_guard lock(mutex);
    for (const known& k : cache)
        if (k.n == n && k.schedule == &s && k.counts.node == counts.node && k.counts.between == counts.between)
            return k.counted;
    cache.push_back({&s, n, counts, traffic(s, n, counts)});
    return cache.back().counted;
}

/// The machine, as the ranks of one group feel it: where they outnumber the cores, each has a share of one, and a wait
/// lasts until the others have had their turn.
inline model model_of(const machine& m, int n) {
    if (n <= m.cores) return {m.alpha, m.beta, m.gamma};
    const double share = static_cast<double>(n) / m.cores, change = 2e-6;  // of threads on a core
    return {(m.alpha + change) * share, m.beta * share, m.gamma * share};
}

/// Seconds of c for `bytes` in pieces of `chunk`: the first goes through all rounds, the others follow as fast as the
/// busiest rank can handle them. To enter and to leave takes as long as a round, and half; a message is a flag to look
/// at.
inline double predict(const cost& c, bool pulled, const model& m, double bytes, double chunk) {
    const double block = c.blocks > 0 ? bytes / c.blocks : 0;
    const double pieces = block > chunk ? block / chunk : 1;
    const double waits = m.alpha * (c.rounds + 1.5 + 0.1 * c.rounds * c.ports);
    // What is pulled, reduced or not, costs its receiver and not its sender.
    // Where every rank pulls everything, each line is fetched from under its owner, who reads it too.
    const double pull = m.gamma * (c.blocks > 0 && c.blocks_reduced >= c.blocks ? 2 : 1);
    const auto bytes_take = [&](long sent, long reduced) {
        return (m.beta * static_cast<double>(sent > reduced ? sent - reduced : 0) +
                   pull * static_cast<double>(reduced)) *
               block / pieces;
    };
    const double first = waits + bytes_take(pulled ? c.critical_received : c.critical_sent, c.critical_reduced);
    const double next = 0.5 * waits + bytes_take(pulled ? c.blocks_received : c.blocks_sent, c.blocks_reduced);
    return first + (pieces - 1) * next;
}
/// Where messages pass. Each costs its ends some time; where ranks outnumber cores, all work together is what counts.
inline double predict_messages(const cost& c, const machine& m, int n, double bytes) {
    constexpr double chunk = 512 << 10;
    const double block = c.blocks > 0 ? bytes / c.blocks : 0, pieces = block > chunk ? block / chunk : 1;
    const double waits = m.alpha * c.rounds + m.message * 0.5 * static_cast<double>(c.critical_messages - 2 * c.rounds);
    const auto bytes_take = [&](long sent, long reduced) {
        return (m.beta * static_cast<double>(sent) + m.gamma * static_cast<double>(reduced)) * block / pieces;
    };
    const double alone = waits + bytes_take(c.critical_sent, c.critical_reduced) +
                         (pieces - 1) * (0.5 * m.message * static_cast<double>(c.critical_messages) +
                                            bytes_take(c.blocks_sent, c.blocks_reduced));
    if (n <= m.cores) return alone;
    const double work = m.message * static_cast<double>(c.messages) * pieces +
                        m.beta * static_cast<double>(c.all_sent) * block +
                        m.gamma * static_cast<double>(c.blocks_reduced) * block * n;
    const double shared = work / m.cores + waits;
    return alone > shared ? alone : shared;
}
/// The eager path: each rank stores `posted` bytes, and reads those of all others.
inline double predict_eager(const model& m, int n, double posted) {
    return m.alpha * (1.5 + 0.1 * n) + (m.beta + m.gamma * (n - 1)) * posted;
}

inline constexpr std::size_t chunk_sizes[] = {std::size_t{32} << 10, std::size_t{128} << 10, std::size_t{1} << 40};

struct prediction {
    const candidate* of = nullptr;  ///< null: the eager path
    std::size_t chunk = 0;
    double seconds = 0;
};
/// Staged: whatever is sent is copied for others to read, whatever is received is pulled from there. A round waits for
/// the copy, and for its being read.
inline prediction predict_staged(const candidate& c, int n, const model& m, double bytes) {
    const cost counted = traffic_of_candidate(c.schedule, n);
    const double block = counted.blocks > 0 ? bytes / counted.blocks : 0;
    // What goes to several is copied once.
    const auto copied =
        static_cast<double>(counted.blocks_sent < counted.blocks ? counted.blocks_sent : counted.blocks);
    const double moved = m.beta * copied + m.gamma * static_cast<double>(counted.critical_received) +
                         0.3 * m.gamma * static_cast<double>(counted.critical_reduced);
    return {&c, 0, m.alpha * 4 * (counted.rounds + 1) + moved * block};
}
/// Through shared memory, as messages go; the rest as between hosts.
inline machine within_host(machine m) {
    m.alpha = 0.6e-6, m.beta = 1.2e-10, m.message = 0.4e-6;
    return m;
}
/// The best chunk for a candidate.
inline prediction predicted(const candidate& c, const rank_context& e, const model& m, double bytes) {
    const int n = e.size, node = e.ranks_per_host;
    const machine& figures = e.backend->figures();
    if (node > 0)
        return {&c, chunk_sizes[2],
            predict_messages(traffic_of_candidate(c.schedule, n, {node, true}), figures, n, bytes) +
                predict_messages(traffic_of_candidate(c.schedule, n, {node, false}), within_host(figures), n, bytes)};
    const cost counted = traffic_of_candidate(c.schedule, n);
    if (figures.message > 0) return {&c, chunk_sizes[2], predict_messages(counted, figures, n, bytes)};
    prediction best;
    for (const std::size_t chunk : chunk_sizes) {
        // What goes through many rounds should stay in the cache between them.
        if (chunk > chunk_sizes[1] && counted.rounds > 2) continue;
        const double t = predict(counted, pulls_copies(c.schedule.implements), m, bytes, static_cast<double>(chunk));
        if (best.of == nullptr || t < best.seconds) best = {&c, chunk, t};
    }
    return best;
}

/// What limits the choice.
struct demand {
    collective what{};
    double bytes = 0;          ///< of the whole buffer
    std::size_t posted = 0;    ///< by one rank, were it mail
    bool in_order = false;     ///< the operator does not commute
    bool only_direct = false;  ///< counts that other ranks do not know
    bool eager = true;
};

[[gnu::cold]] inline bool is_known_name(std::string_view name) {
    for (const std::string_view known : known_names)
        if (known == name) return true;
    return name == "mailbox";
}

/// The candidate that goes within hosts first; null where the group does not have hosts of equally many ranks, or the
/// collective has no such schedule.
inline const candidate* two_level_candidate(const rank_context& e, collective what) {
    return e.two_levels ? e.two_levels(what, e.ranks_per_host) : nullptr;
}

/// The choice among `list`.
[[gnu::cold]] inline prediction choose(
    const rank_context& e, const demand& d, const candidates& list, bool staged = false) {
    const auto fits = [&](const candidate& c) {
        return c.schedule.supports(e.size) && ((!d.in_order && !d.only_direct) || c.name == "direct");
    };
    const model m = model_of(e.backend->figures(), e.size);
    const bool eager = !staged && d.eager && !d.only_direct && d.posted <= eager_capacity;
    if (e.env.schedule) {
        const std::string_view name = e.env.schedule;
        if (!is_known_name(name)) {
            message text;
            text << "colls: COLLS_SCHEDULE is " << name << ", which is none of: mailbox";
            for (const std::string_view known : known_names) text << ", " << known;
            throw error(errc::invalid_argument, text.text(), e.rank);
        }
        if (name == "mailbox" && eager) return {};
        for (int i = 0; i < list.count; ++i)
            if (list.first[i].name == name && fits(list.first[i])) return predicted(list.first[i], e, m, d.bytes);
        if (e.rank == 0 && e.env.debug != debug_level::warn)
            say(message() << "colls: COLLS_SCHEDULE=" << name << " does not do for " << name_of(d.what) << " on "
                          << e.size << " ranks" << (d.in_order ? " with an operator that does not commute" : "")
                          << ": the library chooses");
    }
    const auto predicted_for = [&](const candidate& c) {
        return staged ? predict_staged(c, e.size, m, d.bytes) : predicted(c, e, m, d.bytes);
    };
    prediction best;
    best.seconds = eager ? predict_eager(m, e.size, static_cast<double>(d.posted)) : 0;
    bool any = eager;
    for (int i = 0; i < list.count; ++i)
        if (fits(list.first[i]))
            if (const prediction p = predicted_for(list.first[i]); !any || p.seconds < best.seconds) {
                best = p;
                any = true;
            }
    if (const candidate* two = two_level_candidate(e, d.what); two && !d.in_order && !d.only_direct)
        if (const prediction p = predicted(*two, e, m, d.bytes); p.seconds < best.seconds) best = p;
    return best;
}

/// Sizes are told apart to an eighth of a power of two: one pick for each class.
constexpr std::uint64_t size_class(std::size_t bytes) {
    if (bytes < 16) return bytes;
    int log = 0;
    while (bytes >> log >= 16) ++log;
    return static_cast<std::uint64_t>(log) * 8 + (bytes >> log);
}
/// A size that stands for its class, so that all ranks and all calls of a class predict alike.
constexpr double class_bytes(std::size_t bytes) {
    int log = 0;
    while (bytes >> log >= 16) ++log;
    return static_cast<double>(bytes >> log << log);
}

inline reach reached_by(const rank_context& e) { return e.by_messages ? reach::nothing : reach::buffers; }

/// The execution plan of a call, or none for the eager path. Cached by the rank context: no search, no lock, once a
/// kind of call has been seen.
inline pick resolve(rank_context& e, const call& c, const chooser& how, bool eager) {
    if (how.given) {
        for (const pick& p : e.picks)
            if (p.steps && p.key == ~std::uint64_t{0} && p.steps->schedule == *how.given &&
                p.name.data() == how.given->name().data())
                return p;
        pick p{~std::uint64_t{0}, execution_plan_for(*how.given, e.size, reached_by(e)), {}, nullptr, how.given->name(),
            {}};
        e.picks.push_back(p);
        return p;
    }
    // Where not all ranks know the size, none may choose by it.
    const bool unsized = c.ragged || (owned(c.what) && rooted(c.what));
    const std::size_t bytes = unsized ? 0 : c.count * c.element, posted = unsized ? 0 : eager_bytes(c, e.size);
    const bool in_order = c.op && !c.op->commutative;
    eager = eager && !unsized && !c.in_offsets;
    const std::uint64_t key = size_class(bytes) | static_cast<std::uint64_t>(c.what) << 16 |
                              std::uint64_t{in_order} << 20 | std::uint64_t{unsized} << 21 |
                              std::uint64_t{eager} << 22 | std::uint64_t{posted <= eager_capacity} << 23;
    for (const pick& p : e.picks)
        if (p.key == key) return p;
    const prediction best = choose(e, {c.what, class_bytes(bytes), posted, in_order, unsized, eager}, how.list());
    pick p{key, best.of ? execution_plan_for(best.of->schedule, e.size, reached_by(e)) : nullptr, {}};
    p.name = best.of ? best.of->name : std::string_view("mailbox");
    if (best.of) p.tuned.chunk = best.chunk;
    if (best.of && !e.by_messages && !e.shares_everything() && !unsized) {
        const candidate& staged =
            *choose(e, {c.what, class_bytes(bytes), posted, in_order, unsized, eager}, how.list(), true).of;
        p.staged = execution_plan_for(staged.schedule, e.size, reach::scratch);
        p.staged_name = staged.name;
    }
    e.picks.push_back(p);
    if (e.env.debug != debug_level::warn && e.rank == 0)
        say(message() << "colls: " << name_of(c.what) << " of about " << static_cast<std::size_t>(class_bytes(bytes))
                      << " bytes, " << e.size << " ranks: " << p.name << ", predicted " << best.seconds * 1e6 << " us");
    return p;
}

}  // namespace detail
}  // namespace colls::inline v1
