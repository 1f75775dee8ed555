// What `automatic` takes in a group of GPUs: its candidates, and their predicted times on links of two kinds. Host
// code, without the runtime.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// The candidates are few: those that the simulator found to be needed for hosts of 1 to 8 GPUs, 1 to 8 of them, and any
// size (tests/cuda/cuda_automatic_test.cpp has the table). Within a host a switch joins all pairs, so direct and
// one_shot, whose rounds are the fewest, are the fastest but for large data from or to one rank, which pipelines move.
// Between hosts each byte crosses once for each host. All other families are candidates for COLLS_SCHEDULE alone.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/cuda/detail/kernel/slot_map.hpp>
#include <colls/detail/choose/selection.hpp>
#include <colls/detail/request/known_families.hpp>
#include <colls/extend/host_map.hpp>
#include <colls/extend/machine.hpp>
#include <colls/schedules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

using v1::detail::candidate;
using v1::detail::candidates;
using v1::detail::prediction;

/// How fast GPUs reach each other, within a host and between hosts. Not measured: all ranks must predict alike. A round
/// is what a kernel takes to prepare its passes, to publish and to wait; between hosts it also copies into a window and
/// back, and two proxies move that.
struct link_figures {
    extend::machine near{.alpha = 7.8e-6, .beta = 2.9e-12, .gamma = 6e-13, .message = 2e-7};
    extend::machine far = over_tcp();
    double launch = 6e-6;

    static extend::machine over_tcp() { return {.alpha = 45e-6, .beta = 2.8e-10, .gamma = 6e-13, .message = 3e-6}; }
    static extend::machine over_rdma() { return {.alpha = 15e-6, .beta = 5e-11, .gamma = 6e-13, .message = 5e-7}; }
};

/// How a kernel cuts a call into chunks, each of which goes through all rounds.
struct chunk_limits {
    int channels = 1;                 ///< of a rank
    std::uint64_t chunk = 256 << 10;  ///< bytes of a slot in a chunk, at most
    std::uint64_t scratch = 1 << 20;  ///< bytes in which all slots of a chunk have room, twice; 0: not needed
    std::uint64_t window = 0;  ///< bytes that a rank sends to other hosts in a round of a chunk; 0: no such hosts
    std::uint32_t pieces = 0;  ///< blocks of such a round, at most
};

/// Adds the schedule that `family` has for C, if it has one.
template <collective C, class Family>
void add_candidate(std::vector<candidate>& to, const Family& family, std::string_view name) {
    if constexpr (provides<Family, C>) {
        const auto s = schedule_of<C>(family);
        to.push_back({name, any_schedule(s, v1::detail::table_of<std::remove_const_t<decltype(s)>, true>, name),
            !reduces(C) || v1::detail::folds_once<Family>,
            v1::detail::rotates<Family> && !rooted(C) && !is_scan(C) ? 1 : 0});
    }
}
/// The same for host_hierarchy<Inter>.
template <collective C, class Inter>
void add_by_hosts(
    std::vector<candidate>& to, host_map hosts, int root, std::string_view name, const Inter& inter = {}) {
    add_candidate<C>(to, host_hierarchy<Inter>{.hosts = hosts, .root = root, .inter = inter}, name);
}

/// Segments of the pipelines that are weighed.
inline constexpr int pipeline_segments[] = {8, 16, 32};
inline constexpr std::string_view pipeline_names[] = {
    "pipelined_broadcast{8}", "pipelined_broadcast{16}", "pipelined_broadcast{32}"};
inline constexpr std::string_view host_pipeline_names[] = {"host_hierarchy<pipelined_broadcast{8}>",
    "host_hierarchy<pipelined_broadcast{16}>", "host_hierarchy<pipelined_broadcast{32}>"};

/// The candidates for calls of C in a group; `hosts`: where it has several. The first `weighed` of them are weighed.
template <collective C>
std::vector<candidate> gpu_candidates(host_map hosts, int root, int& weighed) {
    std::vector<candidate> all;
    constexpr bool from_one = C == collective::broadcast || C == collective::reduce;
    add_candidate<C>(all, direct{}, "direct");
    add_candidate<C>(all, one_shot{}, "one_shot");
    if constexpr (is_scan(C)) add_candidate<C>(all, recursive_doubling{}, "recursive_doubling");
    if constexpr (rooted(C)) add_candidate<C>(all, tree<4>{}, "tree<4>");
    if constexpr (from_one) {
        add_candidate<C>(all, tree<2>{}, "tree");
        add_candidate<C>(all, double_tree{}, "double_tree");
        add_candidate<C>(all, pipelined_broadcast{}, "pipelined_broadcast");
        for (std::size_t i = 0; i < std::size(pipeline_segments); ++i)
            add_candidate<C>(all, pipelined_broadcast{pipeline_segments[i]}, pipeline_names[i]);
    }
    if (hosts.known()) {
        add_by_hosts<C, direct>(all, hosts, root, "host_hierarchy<direct>");
        add_by_hosts<C, one_shot>(all, hosts, root, "host_hierarchy<one_shot>");
        add_by_hosts<C, circulant<>>(all, hosts, root, "host_hierarchy<circulant<>>");
        if constexpr (rooted(C)) add_by_hosts<C, tree<4>>(all, hosts, root, "host_hierarchy<tree<4>>");
        if constexpr (from_one) {
            add_by_hosts<C, double_tree>(all, hosts, root, "host_hierarchy<double_tree>");
            add_candidate<C>(all, host_hierarchy<direct>{.hosts = hosts, .lanes = 1, .root = root},
                "host_hierarchy<direct>, 1 lane");
            add_by_hosts<C, tree<2>>(all, hosts, root, "host_hierarchy<tree>");
            add_by_hosts<C, pipelined_broadcast>(all, hosts, root, "host_hierarchy<pipelined_broadcast>");
            for (std::size_t i = 0; i < std::size(pipeline_segments); ++i)
                add_by_hosts<C>(all, hosts, root, host_pipeline_names[i], pipelined_broadcast{pipeline_segments[i]});
        }
        if constexpr (!rooted(C))
            if (const int each = hosts.ranks_per_host(); each > 1) {
                add_candidate<C>(all, hierarchical<direct, direct>{.node = each}, "hierarchical<direct,direct>");
                if constexpr (is_scan(C))
                    add_candidate<C>(all, hierarchical<direct, recursive_doubling>{.node = each},
                        "hierarchical<direct,recursive_doubling>");
            }
    }
    weighed = static_cast<int>(all.size());
    v1::detail::known_families::for_each([&]<class Family>(const Family& family, std::string_view name) {
        for (const candidate& c : all)
            if (c.name == name) return;
        add_candidate<C>(all, family, name);
    });
    return all;
}

/// What a call of a group asks for.
struct gpu_demand {
    double bytes = 0;           ///< of the whole buffer
    bool reproducible = false;  ///< by one fold, in rank order
    std::string_view forced{};  ///< the schedule that COLLS_SCHEDULE names; empty: none
};

/// The candidates of one collective in a group, with what is counted of them once.
class gpu_choice {
public:
    /// `hosts`: known where the group has several. `root`: of the calls, where the collective has one.
    template <collective C>
    static gpu_choice of(int n, host_map hosts, int root, const link_figures& figures, const chunk_limits& limits) {
        gpu_choice made(C, n, hosts, root, figures, limits);
        int weighed = 0;
        made.list_ = gpu_candidates<C>(hosts, root, weighed);
        made.weighed_ = static_cast<std::size_t>(weighed);
        return made;
    }

    collective what() const { return what_; }
    int root() const { return root_; }

    /// The candidate for a call, the same on all ranks. Throws invalid_argument where COLLS_TUNE names a schedule that
    /// there is not.
    const candidate& choose(const gpu_demand& d) const {
        const prediction best = predicted(d);
        return best.of != nullptr ? *best.of : list_.front();
    }
    /// The same, with its predicted time.
    prediction predicted(const gpu_demand& d) const {
        const auto fits = [&](const candidate& c) { return is_possible(c) && suits(c, d); };
        std::string_view name = d.forced;
        if (name.empty()) name = tuned(d.bytes);
        if (!name.empty())
            if (const candidate* const c =
                    v1::detail::named({list_.data(), static_cast<int>(list_.size())}, name, fits))
                return {c, 0, seconds(*c, d.bytes)};
        prediction best;
        const candidates weighed{list_.data(), static_cast<int>(weighed_)};
        v1::detail::take_least(
            best, false, weighed, fits, [](const candidate&) { return true; },
            [&](const candidate& c) { return prediction{&c, 0, seconds(c, d.bytes)}; });
        return best;
    }
    /// Predicted seconds of a candidate of this list.
    double seconds(const candidate& c, double bytes) const { return seconds_of(counted_of(c), bytes); }

    /// A table of what is weighed. `marks`: the chosen one.
    std::string explain(const gpu_demand& d, bool marks = true) const {
        const prediction best = predicted(d);
        char row[200];
        std::string text;
        std::snprintf(row, sizeof row, "  %-40s %6s %6s %14s %14s %8s %12s\n", "schedule", "rounds", "far",
            "bytes near", "bytes far", "chunks", "predicted us");
        text += row;
        for (std::size_t i = 0; i < list_.size(); ++i) {
            const candidate& c = list_[i];
            if ((i >= weighed_ && &c != best.of) || !c.schedule.supports(n_)) continue;
            const counted& t = counted_of(c);
            const char* const mark = &c == best.of     ? (marks ? "  <- chosen" : "")
                                     : !is_possible(c) ? "  too large for a kernel"
                                     : !suits(c, d)    ? "  not in one fold"
                                                       : "";
            const double block = d.bytes / t.blocks;
            std::snprintf(row, sizeof row, "  %-40.*s %6d %6d %14.0f %14.0f %8.0f %12.2f%s\n",
                static_cast<int>(c.name.size()), c.name.data(), c.schedule.rounds(n_), t.far_rounds,
                static_cast<double>(t.near_sent) * block, static_cast<double>(t.far_sent) * block, chunks_of(t, block),
                seconds_of(t, d.bytes) * 1e6, mark);
            text += row;
        }
        return text;
    }

private:
    /// What a rank sends to another one in a round.
    struct transfer {
        std::int32_t from, to, blocks;
        bool is_far, folds;
    };
    /// The transfers of a candidate.
    struct counted {
        std::vector<transfer> all;      ///< by rounds
        std::vector<std::size_t> ends;  ///< of each round, in `all`
        int blocks = 1, slots = 1, far_rounds = 0;
        std::int64_t most_blocks = 0;              ///< that a rank sends in a round, if each port sends as many as any
        std::int64_t near_sent = 0, far_sent = 0;  ///< blocks of the rank that sends the most
        bool possible = false, done = false;
    };

    gpu_choice(
        collective what, int n, host_map hosts, int root, const link_figures& figures, const chunk_limits& limits)
        : what_(what), n_(n), hosts_(hosts), root_(root), figures_(figures), limits_(limits) {}

    /// Counts it at the first time.
    const counted& counted_of(const candidate& c) const {
        counted_.resize(list_.size());
        counted& t = counted_[static_cast<std::size_t>(&c - list_.data())];
        if (!t.done) t = count(c);
        t.done = true;
        return t;
    }
    bool is_possible(const candidate& c) const { return counted_of(c).possible; }
    static bool suits(const candidate& c, const gpu_demand& d) {
        return !d.reproducible || !reduces(c.schedule.implements) || c.name == "direct" || c.name == "one_shot";
    }
    std::string_view tuned(double bytes) const {
        const auto [name, path] = v1::detail::tuned_for(what_, n_, bytes, true);
        if (name.empty() || v1::detail::is_known_name(name)) return name;
        for (const candidate& c : list_)
            if (c.name == name) return name;
        v1::detail::error_text text;
        text << "colls: COLLS_TUNE: " << path << ": gpu_schedule " << name_of(what_) << " " << n_ << ": " << name
             << " is none of:";
        for (const candidate& c : list_) text << " " << c.name;
        throw error(errc::invalid_argument, text.text());
    }

    counted count(const candidate& c) const {
        counted t;
        const any_schedule& s = c.schedule;
        if (!s.supports(n_)) return t;
        const int rounds = s.rounds(n_), ports = s.ports(n_);
        t.blocks = std::max(s.blocks(n_), 1);
        t.slots = t.blocks + s.scratch(n_);
        // What has more steps has too many rounds or ports for the group.
        constexpr double most_steps = 1 << 22;
        if (ports > max_ports || (s.scratch(n_) > 0 && t.blocks > 1) ||
            static_cast<double>(n_) * rounds * ports > most_steps)
            return t;
        const host_map hosts = rooted(what_) && s.root(n_) != root_ ? hosts_of_roles() : hosts_;
        std::vector<std::int64_t> near(static_cast<std::size_t>(n_)), far(near);
        for (int k = 0; k < rounds; ++k) {
            bool some_far = false;
            for (int r = 0; r < n_; ++r)
                for (int p = 0; p < ports; ++p) {
                    const send_part sends = s.at(r, n_, k, p).send;
                    if (sends.peer == none) continue;
                    const int blocks = sends.blocks.size();
                    const bool is_far = hosts.known() && hosts.host_of(r) != hosts.host_of(sends.peer),
                               folds = s.at(sends.peer, n_, k, p).recv.action == action::reduce;
                    t.all.push_back({r, sends.peer, blocks, is_far, folds});
                    t.most_blocks = std::max(t.most_blocks, std::int64_t{ports} * blocks);
                    if (sends.peer != r) (is_far ? far : near)[static_cast<std::size_t>(r)] += blocks;
                    some_far = some_far || is_far;
                }
            t.far_rounds += some_far;
            t.ends.push_back(t.all.size());
        }
        t.near_sent = *std::max_element(near.begin(), near.end());
        t.far_sent = *std::max_element(far.begin(), far.end());
        constexpr std::uint64_t least_chunk = 2 << 10;
        t.possible = (limits_.window == 0 || (t.most_blocks <= limits_.pieces && window_of(t) >= least_chunk)) &&
                     (limits_.scratch == 0 || scratch_of(t) >= least_chunk);
        return t;
    }
    std::uint64_t window_of(const counted& t) const {
        return limits_.window / static_cast<std::uint64_t>(std::max<std::int64_t>(t.most_blocks, 1));
    }
    std::uint64_t scratch_of(const counted& t) const {
        return limits_.scratch / (2 * static_cast<std::uint64_t>(t.slots));
    }

    /// The hosts of the ranks from the root on, as schedules that are written for root 0 number them.
    host_map hosts_of_roles() const {
        if (!hosts_.known()) return hosts_;
        std::vector<int> of;
        for (int role = 0; role < n_; ++role) of.push_back(hosts_.host_of((role + root_) % n_));
        return host_map(of);
    }

    /// Chunks of a block of that many bytes.
    double chunks_of(const counted& t, double block) const {
        std::uint64_t chunk = limits_.chunk;
        if (limits_.scratch != 0) chunk = std::min(chunk, scratch_of(t));
        if (limits_.window != 0) chunk = std::min(chunk, window_of(t));
        const double chunks = block / (static_cast<double>(chunk) * limits_.channels);
        return chunks > 1 ? static_cast<double>(static_cast<std::int64_t>(chunks + 0.999)) : 1;
    }
    /// Until the last rank has ended its rounds with blocks of this many bytes. A transfer begins when both ranks have
    /// ended the round before, and takes what the busier one needs for all its transfers of the round; those within the
    /// host and those between hosts go at the same time.
    double rounds_take(const counted& t, double block) const {
        struct of_rank {
            double ended = 0, until = 0, folds = 0, takes[2] = {}, out[2] = {}, in[2] = {};
            int sends[2] = {}, receives[2] = {};
        };
        std::vector<of_rank> ranks(static_cast<std::size_t>(n_));
        const auto at = [&](int rank) -> of_rank& { return ranks[static_cast<std::size_t>(rank)]; };
        std::size_t begin = 0;
        for (const std::size_t end : t.ends) {
            for (std::size_t i = begin; i < end; ++i) {
                const transfer& x = t.all[i];
                const double bytes = block * x.blocks;
                if (x.folds) at(x.to).folds += figures_.near.gamma * bytes;
                if (x.from == x.to) continue;
                at(x.from).out[x.is_far] += bytes, ++at(x.from).sends[x.is_far];
                at(x.to).in[x.is_far] += bytes, ++at(x.to).receives[x.is_far];
            }
            for (of_rank& r : ranks) {
                double messages = 0;
                for (const bool is_far : {false, true})
                    messages +=
                        (is_far ? figures_.far : figures_.near).message * std::max(r.sends[is_far], r.receives[is_far]);
                for (const bool is_far : {false, true}) {
                    const extend::machine& m = is_far ? figures_.far : figures_.near;
                    r.takes[is_far] = messages + m.alpha + m.beta * std::max(r.out[is_far], r.in[is_far]);
                }
            }
            for (std::size_t i = begin; i < end; ++i) {
                const transfer& x = t.all[i];
                if (x.from == x.to) continue;
                of_rank &from = at(x.from), &to = at(x.to);
                const double until =
                    std::max(from.ended, to.ended) + std::max(from.takes[x.is_far], to.takes[x.is_far]);
                from.until = std::max(from.until, until), to.until = std::max(to.until, until);
            }
            for (of_rank& r : ranks) r = {.ended = std::max(r.ended, r.until) + r.folds};
            begin = end;
        }
        double last = 0;
        for (const of_rank& r : ranks) last = std::max(last, r.ended);
        return last;
    }
    /// The first chunk goes through all rounds; the others follow as fast as links or rounds let them, since channels
    /// wait at different times.
    double seconds_of(const counted& t, double bytes) const {
        const double block = bytes / t.blocks, chunks = chunks_of(t, block);
        const double first = rounds_take(t, block / chunks);
        if (chunks <= 1) return figures_.launch + first;
        const double waits = rounds_take(t, 0);
        return figures_.launch + first + (chunks - 1) * std::max(waits, first - waits);
    }

    collective what_;
    int n_;
    host_map hosts_;
    int root_;
    link_figures figures_;
    chunk_limits limits_;
    std::size_t weighed_ = 0;
    std::vector<candidate> list_;
    mutable std::vector<counted> counted_;  // of the list
};

}  // namespace colls::inline v1::cuda::detail
