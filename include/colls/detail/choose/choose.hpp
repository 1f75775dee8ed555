// The choice of a schedule for a call, and the execution plan that follows from it.
// IWYU pragma: private, include <colls/explain.hpp>
//
// All ranks choose alike: the choice depends on nothing but the call, the group, COLLS_SCHEDULE, and figures of the
// machine that are the same for all ranks.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/choose/candidates.hpp>
#include <colls/detail/choose/prediction.hpp>
#include <colls/detail/choose/selection.hpp>
#include <colls/detail/execute/distance.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/plan/slot_states.hpp>
#include <colls/detail/prove/examine.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/schedules/direct.hpp>

namespace colls::inline v1::detail {

/// direct::broadcast of n blocks instead of one. By single copies a receiver pulls all of them but one, which the root
/// pushes: so the root, which would be idle, takes an equal part in the work.
struct parted_broadcast : direct::all_pairs {
    static constexpr collective implements = collective::broadcast;
    static constexpr int blocks(int n) { return n; }
    static constexpr step at(int rank, int n, int, int port) {
        if (rank == 0) return {.send = {port + 1, block_range(0, n)}};
        if (rank == port + 1) return {.recv = {0, block_range(0, n)}};
        return {};
    }

    static const any_schedule& as_any() {
        static const any_schedule made(parted_broadcast{}, table_of<parted_broadcast, true>, "direct");
        return made;
    }
};

/// What the choice depends on.
struct demand {
    collective what{};
    double bytes = 0;           ///< of the whole buffer
    std::size_t posted = 0;     ///< bytes that one rank would post on the eager path, at most
    bool in_order = false;      ///< the operator does not commute: `direct` alone keeps the order of ranks
    bool only_direct = false;   ///< each rank knows its own counts only: `direct` alone passes nothing on
    bool eager = true;          ///< the eager path may be taken
    bool reproducible = false;  ///< all contributions are folded at once, in rank order
    int root = 0;               ///< of the call, where the choice depends on it
    bool near = false;          ///< the ranks are near each other
};
/// What each of n ranks posts on the eager path of `bytes` bytes.
constexpr std::size_t posted_of(collective what, std::size_t bytes, int n) {
    const auto ranks = static_cast<std::size_t>(n);
    return traits_of(what).in == content::own_block ? (bytes + ranks - 1) / ranks : bytes;
}

inline reach reached_by(const rank_context& self) { return self.by_messages ? reach::nothing : reach::buffers; }

/// Are the ranks near each other, as decided for the latest operation that this rank has begun? All ranks that make the
/// same calls agree on it.
inline bool near_so_far(const rank_context& self) {
    return self.direct.count > 0 && !self.by_messages ? distance::is_near(self, self.direct.count - 1)
                                                      : self.access.starts_near;
}
/// The figures of the machine; where the distance of the cores has changed since they were measured, with a usual time
/// of a line, and with the bytes' time as it changes with the distance.
inline machine figures_now(const rank_context& self, bool near) {
    machine m = self.backend->figures();
    if (near == (m.alpha < m.near_below)) return m;
    m.alpha = m.near_below * (near ? 0.55 : 2.4);
    m.beta *= near ? 0.4 : 2.5;
    m.gamma *= near ? 0.4 : 2.5;
    return m;
}

/// Processes plan each for itself. Where many of them share a core, that takes longer than what a plan of many blocks,
/// rounds or peers may save: at 128 ranks on two cores 4 s for direct, whose runs take as long as those of a tree.
inline bool takes_long_to_plan(const candidate& c, const rank_context& self) {
    constexpr int many_ranks = 16, many_blocks = 8, many_rounds = 24, many_steps = 48;
    if (self.by_messages || self.access.is_whole() || self.size <= many_ranks * self.backend->figures().cores)
        return false;
    const any_schedule& s = c.schedule;
    const int n = self.size;
    return s.blocks(n) > many_blocks || s.rounds(n) > many_rounds || all_steps(s, n) > double{many_steps} * n;
}
/// Can the candidate be proven and planned in this group, and its traffic be counted in reasonable time?
inline bool is_weighed(const candidate& c, const rank_context& self, reach within) {
    return is_countable(c, self.size, messages_between_hosts(self)) &&
           (!c.schedule.needs_proof() || proof_bytes(c.schedule, self.size, false) <= most_proof_bytes) &&
           too_large(c.schedule, self.size, within).empty();
}

/// Is the eager path the better choice? Whether buffers are out of reach, and a schedule thus staged, is known only
/// once all ranks have entered it. So where processes share memory the eager path is compared with the geometric mean
/// of both: then neither choice is far off.
constexpr bool eager_pays(double eager, double scheduled, double staged) {
    return eager * eager < scheduled * (staged > scheduled ? staged : scheduled);
}

/// The choice among `list`, and the eager path; or, for buffers out of reach, among `list` alone. A candidate that is
/// not weighed is chosen where no other fits.
[[gnu::cold]] inline prediction choose(
    const rank_context& self, const demand& d, const candidates& list, reach within) {
    bool only_short = false;  // what takes long to plan is left out, since there is something else
    const auto fits = [&](const candidate& c) {
        return c.schedule.supports(self.size) && ((!d.in_order && !d.only_direct) || c.name == "direct") &&
               (!d.reproducible || c.single_fold) && !(only_short && takes_long_to_plan(c, self));
    };
    const bool usual = within == reached_by(self);
    const machine figures = figures_now(self, d.near);
    const shared_machine m = model_of(figures, self.size);
    const auto prediction_of = [&](const candidate& c) {
        return usual ? predicted(c, self, m, d.bytes)
                     : predict_out_of_reach(c, self.size, m, d.bytes, within == reach::processes);
    };
    const bool eager = usual && d.eager;
    const auto weighed = [&](const candidate& c) { return is_weighed(c, self, within); };
    const std::string_view forced = forced_schedule(self.env.schedule, self.rank);
    const std::string_view name = forced.empty() ? tuned_for(d.what, self.size, d.bytes).name : forced;
    if (!name.empty() && !(name == eager_name && eager && d.only_direct)) {
        if (name == eager_name && eager) return {};
        if (const candidate* const c = named(list, name, fits))
            return weighed(*c) ? prediction_of(*c) : prediction{c, whole_unit_bytes, 0};
        if (!forced.empty() && self.rank == 0 && self.env.debug != debug_level::warn)
            say(error_text() << "colls: COLLS_SCHEDULE=" << name << " does not work for " << name_of(d.what) << " on "
                             << self.size << " ranks" << (d.in_order ? " with an operator that does not commute" : "")
                             << (d.reproducible ? " with reproducible bits" : "") << ": the library chooses");
    }
    for (int i = 0; i < list.count && !only_short; ++i)
        only_short = fits(list.first[i]) && !takes_long_to_plan(list.first[i], self);
    prediction best;
    bool found = take_least(best, false, list, fits, weighed, prediction_of);
    for (int i = 0; !found && best.of == nullptr && i < list.count; ++i)
        if (fits(list.first[i])) best = {&list.first[i], whole_unit_bytes, 0};
    if (!d.in_order && !d.only_direct)
        found = take_least(best, found, two_level_candidates(self, d.what, d.root), fits, weighed,
            [&](const candidate& c) { return predicted(c, self, m, d.bytes); });
    best.eager_first = eager && d.only_direct;
    if (!eager || d.only_direct) return best;
    const double eagerly = predict_eager(m, figures, d.what, self.size, static_cast<double>(d.posted));
    const double staged = found && !self.access.is_whole() ? choose(self, d, list, reach::scratch).seconds : 0;
    return found && !eager_pays(eagerly, best.seconds, staged) ? best : prediction{nullptr, 0, eagerly};
}
inline prediction choose(const rank_context& self, const demand& d, const candidates& list) {
    return choose(self, d, list, reached_by(self));
}

/// The choice where buffers are out of reach.
struct choice_out_of_reach {
    const any_schedule* schedule;
    reach within;
};
[[gnu::cold]] inline choice_out_of_reach choose_out_of_reach(
    const rank_context& self, const demand& d, const candidates& list) {
    if (copies_at(self, d.near) && !reduces(d.what)) {
        const any_schedule& s = choose(self, d, list, reach::processes).of->schedule;
        if (d.what == collective::broadcast && s.rounds(self.size) == 1 &&
            d.bytes >= static_cast<double>(single_copy_policy::parted_from) * self.size &&
            too_large(parted_broadcast::as_any(), self.size, reach::processes).empty())
            return {&parted_broadcast::as_any(), reach::processes};
        if (d.bytes >= static_cast<double>(single_copy_policy::from) * s.blocks(self.size))
            return {&s, reach::processes};
    }
    return {&choose(self, d, list, reach::scratch).of->schedule, reach::scratch};
}

/// The plan of a schedule that the caller has given. An error says in which call of which rank.
[[gnu::cold]] [[gnu::noinline]] inline const execution_plan* plan_of_given(
    const rank_context& self, collective what, const any_schedule& given) {
    try {
        return execution_plan_for(given, self.size, reached_by(self));
    } catch (const error& e) {
        error_text text;
        text << "colls: rank " << self.rank << " in " << self.log.name_of_call(what) << ": " << quoted(e.what());
        throw error(e.code(), text.text(), self.rank, e.peer(), e.round());
    }
}
inline schedule_choice resolve_given(rank_context& self, collective what, const any_schedule& given) {
    // No key of `resolve` has its highest bit set: roots are not negative.
    const std::uint64_t key = reinterpret_cast<std::uintptr_t>(given.name().data()) | std::uint64_t{1} << 63;
    const auto same = [&](const schedule_choice& p) { return p.plan->schedule == given; };
    if (const schedule_choice* const p = self.choices.find(key, same)) return *p;
    const schedule_choice p{.key = key, .plan = plan_of_given(self, what, given), .name = given.name()};
    self.choices.add(p);
    return p;
}

/// The execution plan of a call whose schedule the library chooses, or none for the eager path, which may be taken if
/// `eager`. The rank context keeps it: once there was a call of the kind there is no search among the candidates, and
/// no lock. `near`: are the ranks near each other? `for_sample`: a schedule instead of the eager path, with its bits,
/// that tells that.
inline schedule_choice resolve(rank_context& self, const call& c, bool eager, bool near, bool for_sample = false) {
    const bool unsized = is_unsized(c);
    const std::size_t bytes = unsized ? 0 : c.count * c.element, posted = unsized ? 0 : eager_bytes(c, self.size);
    const bool in_order = c.op && !c.op->commutative;
    eager = eager && !self.by_messages && c.what != collective::redistribute;
    const int root = self.layout.two_levels != nullptr && depends_on_root(self, c.what) ? c.root : 0;
    // Blocks of unlike lengths: the longest decides, too. A call with a root has no counts that all ranks know.
    const std::uint64_t also = c.in_offsets && !unsized ? size_class(posted) : static_cast<std::uint64_t>(root);
    const std::uint64_t key =
        size_class(bytes) | static_cast<std::uint64_t>(c.what) << 16 | std::uint64_t{in_order} << 20 |
        std::uint64_t{unsized} << 21 | std::uint64_t{eager} << 22 | std::uint64_t{posted <= eager_capacity} << 23 |
        std::uint64_t{c.reproducible} << 24 | std::uint64_t{near} << 25 | std::uint64_t{for_sample} << 26 | also << 32;
    if (const schedule_choice* const p = self.choices.find(key, [](const schedule_choice&) { return true; })) return *p;
    // The same for all calls of the class, since ranks may prepare them in unlike orders.
    const std::size_t most = c.in_offsets ? most_of_class(posted) : posted_of(c.what, most_of_class(bytes), self.size);
    const demand d{c.what, class_bytes(bytes), most, in_order, unsized, eager && posted <= eager_capacity,
        c.reproducible || (for_sample && c.op), root, near};
    const prediction best = choose(self, d, all_candidates_of(c.what));
    schedule_choice p{.key = key, .name = eager_name, .takes_sample = for_sample};
    if (best.of) {
        p.plan = execution_plan_for(best.of->schedule, self.size, reached_by(self));
        p.name = best.of->name;
        p.chunk_bytes = best.chunk;
        p.eager_first = best.eager_first;
    }
    if (best.of && !self.by_messages && !self.access.is_whole() && !unsized) {
        const auto [schedule, within] = choose_out_of_reach(self, d, all_candidates_of(c.what));
        p.staged = execution_plan_for(*schedule, self.size, within);
        p.staged_name = schedule->name();
    }
    self.choices.add(p);
    if (self.env.debug != debug_level::warn && self.rank == 0)
        say(error_text() << "colls: " << name_of(c.what) << " of about " << static_cast<std::size_t>(class_bytes(bytes))
                         << " bytes, " << self.size << " ranks"
                         << (c.reproducible  ? ", reproducible: "
                                : for_sample ? ", one call of 128, to tell the distance of the cores: "
                                             : ": ")
                         << p.name << ", predicted " << best.seconds * 1e6 << " us"
                         << (p.staged == nullptr                     ? ""
                                : p.staged->within == reach::scratch ? "; ordinary buffers staged: "
                                                                     : "; ordinary buffers by single copies: ")
                         << p.staged_name);
    return p;
}

}  // namespace colls::inline v1::detail
