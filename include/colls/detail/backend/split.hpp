// How a rank leaves a group, and how new groups are made of one: split, and shrink where the ranks share memory.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/execute/executor.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/extend/memory_member.hpp>
#include <colls/schedules/circulant.hpp>

#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

/// This rank is no member any more.
inline void end_membership(std::unique_ptr<rank_context> self) {
    self->memory.core(self->rank).store(0, std::memory_order_relaxed);  // it shares a core with no rank any more
    // Release: all that this rank did for the others is done.
    self->memory.state(self->rank).gone.store(1, std::memory_order_release);
    wake_sleepers(*self);
    if (const memory_piece& ring = self->scratch.ring.memory; ring.at != nullptr)
        self->backend->give_after(ring.at, ring.bytes, self->direct.count);
    self->backend->close();
}

/// From here on a communicator, operations, prepared calls and progress threads share the context. The communicator's
/// share is `held`.
inline rank_context& hold(std::unique_ptr<rank_context> self) {
    const std::shared_ptr<rank_context> shared(self.release(), [](rank_context* last) {
        const std::shared_ptr<group_cycle> cycle = last->operations.cycle;  // outlives the lock
        const progress_lock inside(*last, progress_lock::quiet{});
        end_membership(std::unique_ptr<rank_context>(last));
    });
    shared->held = shared;
    shared->show();
    return *shared;
}

/// For a communicator; of no group where self is null.
inline joined_group joined(std::unique_ptr<rank_context> self) {
    if (!self) return {};
    const int rank = self->rank, size = self->size;
    return {{&hold(std::move(self)), &own_engine()}, rank, size};
}

/// Called in a handler: breaks the old group, and throws the cause that is known there.
[[noreturn, gnu::cold]] inline void split_failed(rank_context& self, std::unique_ptr<rank_context> part) {
    if (part) {
        part->forming_from = nullptr;
        end_membership(std::move(part));
    }
    // The rank that caused the failure has told the old group, or it is dead, which is about to be found there.
    const auto& state = self.memory.poison().state;
    for (const double until = seconds_now() + 0.5;
        state.load(std::memory_order_acquire) == 0 && seconds_now() < until;) {
        self.backend->look(self, nullptr, 0);
        sched_yield();
        gate_lock::let_others_in();
    }
    const bool known = state.load(std::memory_order_acquire) != 0;
    call_threw(self, "split");
    if (!known) throw;
    const wait_site at{.what = "split"};
    throw_poison(self, &at);
}

/// Has another member broken the new group for a reason of its own? That member went on because it had heard from all
/// others; so all have come, this rank is a member, too, and its next call reports the reason.
inline bool broken_by_others(const rank_context& part) {
    const poison_state& p = part.memory.poison();
    return p.state.load(std::memory_order_acquire) == 2 && p.rank != part.rank &&
           report_in(p).find(origin_is_broken) == std::string_view::npos;
}

/// Every rank's `bytes` bytes, at most 56, to `all` on every rank, in rank order. Collective. By a schedule of its own:
/// COLLS_SCHEDULE is for the program's calls.
inline void exchange(rank_context& self, const void* own, std::size_t bytes, void* all) {
    call c{
        .what = collective::all_gather, .in = static_cast<const std::byte*>(own), .out = static_cast<std::byte*>(all)};
    c.count = bytes * static_cast<std::size_t>(self.size);
    c.signature = hash_text("split");
    const composite_call split{{.name = "split", .what = c.what}};
    const at_end restore{[&, before = std::exchange(self.log.part_of, &split)] { self.log.part_of = before; }};
    if (self.log.has_refused) tell_refusal(self, nullptr);
    if (!self.by_messages) return guarded(self, "split", [&] { eager_executor(self, c).run(); });
    constexpr auto s = schedule_of<collective::all_gather>(circulant<>{});
    static const any_schedule fixed(s, table_of<std::remove_const_t<decltype(s)>, true>, "circulant");
    schedule_choice p = resolve_given(self, c.what, fixed);
    p.name = "within split";
    const std::unique_ptr<pending> made = self.backend->make_collective(self);
    executor& o = static_cast<executor&>(*made);
    o.arguments = c;
    o.choose(p);
    guarded(self, split.name, [&] {
        o.begin();
        run_until_done(self, o);
    });
}

inline std::unique_ptr<rank_context> split_off(rank_context& self, int color, int key) {
    const progress_lock lock(self);
    const auto n = static_cast<std::size_t>(self.size);
    struct wish {
        int color, key;
    };
    const wish own{color, key};
    list<wish> wishes;
    wishes.resize(n);
    ++self.splits;
    exchange(self, &own, sizeof own, wishes.data());
    // The ranks of this rank's color, ordered by key, then by rank.
    list<int> members, spare;
    for (int r = 0; r < self.size; ++r)
        if (wishes[r].color == color) members.push_back(r);
    merge_sort(members, spare, [&](int a, int b) { return wishes[a].key < wishes[b].key; });
    int mine = 0;
    while (members[mine] != self.rank) ++mine;
    std::uint64_t made = 0;
    if (color >= 0 && mine == 0)
        guarded(self, "split", [&] { made = self.backend->create(static_cast<int>(members.size())); });
    list<std::uint64_t> places;
    places.resize(n);
    exchange(self, &made, sizeof made, places.data());
    if (color < 0) return nullptr;
    // No rank goes on before all members have come: from then on each of them hears of failures in the new group. Until
    // then a rank that fails is heard of in the old group, which all of them look at.
    std::unique_ptr<rank_context> part;
    try {
        part = self.backend->attach(self, places[members[0]], mine, members);
        part->forming_from = &self;
        const std::byte here{};
        list<std::byte> all;
        all.resize(members.size());
        exchange(*part, &here, 1, all.data());
    } catch (...) {
        if (!part || !broken_by_others(*part) || self.memory.poison().state.load(std::memory_order_relaxed) != 0)
            split_failed(self, std::move(part));
    }
    part->forming_from = nullptr;
    part->join(self);
    part->tie = self.tie;
    bool several = false;
    for (const wish& w : wishes) several = several || (w.color >= 0 && w.color != color);
    error_text label;
    label << self.label << "." << static_cast<std::size_t>(self.splits);
    if (several) label << ":" << color;
    put_label(*part, label);
    part->began = self.began;
    return part;
}

/// A rank that is left out is still in a call, and may write: this rank's memory from allocate becomes memory of the
/// new group's ranks alone. Groups with other ranks do not reach it any more, as if it were ordinary memory; where this
/// rank has operations in flight in such a group, it stays where it is.
[[gnu::cold]] inline void withdraw_from_others(rank_context& self, rank_context& left) {
    extend::memory_group& keeps = *left.backend->by_memory();
    bool stays = false;
    self.for_others([&](rank_context& x) {
        if (x.access.base == self.access.base && !x.backend->by_memory()->is_within(keeps))
            stays = stays || x.in_call() || !x.operations.in_flight.empty();
    });
    if (stays || !keeps.withdraw()) return;
    self.for_others([&](rank_context& x) {
        if (x.access.base == self.access.base) x.access.reach = x.backend->by_memory()->reach();
    });
}
/// Waits for the new group's other ranks to come so far, then calls f(rank). One that does not has died, or breaks it.
template <class F>
[[gnu::cold]] void meet_in_shrink(
    rank_context& self, rank_context& left, const list<int>& members, shrink_stage stage, F f) {
    self.memory.state(self.rank).shrinks.store(stage, std::memory_order_release);
    const double until = seconds_now() + self.env.timeout;
    for (int i = 0; i < left.size; ++i) {
        const int r = members[i];
        const auto has_come = [&] { return self.memory.state(r).shrinks.load(std::memory_order_acquire) >= stage; };
        while (!has_come() && !self.backend->dead(r) && seconds_now() < until) {
            self.backend->look(self, nullptr, 0);
            const gate_lock::open_gate others_may_come;
            call_hooks(self);
            sched_yield();
        }
        const bool came = has_come();
        if (self.backend->dead(r) || (came && f(i))) continue;
        const error_text why =
            error_text() << "colls: rank " << self.rank << " in shrink: rank " << r
                         << (came ? "'s memory cannot be mapped" : " has not come to its end within the deadline");
        const auto break_it = [&](rank_context& x) {
            poison(x.memory, came ? errc::unsupported : errc::timeout, x.rank, none, none, why.text());
        };
        break_it(left);
        self.for_others([&](rank_context& x) {
            if (x.access.base != self.access.base) return;
            if (x.backend->by_memory()->is_within(*left.backend->by_memory())) break_it(x);
        });
        return;
    }
}

/// Shrinks a group whose ranks share memory. Each rank says that it takes part, and waits until every other rank does
/// so, is dead, or has missed the deadline. Then it proposes the ranks that take part as members. The first proposal
/// stands, so that all ranks that return agree, whatever each of them has seen.
[[gnu::cold]] inline std::unique_ptr<rank_context> shrink_shared(rank_context& self) {
    const group_memory& m = self.memory;
    break_to_shrink(self);
    m.state(self.rank).shrinks.store(shrink_stage::begun, std::memory_order_release);
    const auto gone = [&](int r) {
        return self.backend->dead(r) || m.state(r).gone.load(std::memory_order_acquire) != 0;
    };
    const double until = seconds_now() + self.env.timeout;
    // Relaxed: nothing is read here but whether it is time to decide.
    for (bool missing = true;
        missing && m.decision().decided.load(std::memory_order_relaxed) == 0 && seconds_now() < until;) {
        missing = false;
        for (int r = 0; r < self.size; ++r)
            missing = missing || (m.state(r).shrinks.load(std::memory_order_relaxed) == 0 && !gone(r));
        self.backend->look(self, nullptr, 0);
        if (missing) {
            const gate_lock::open_gate others_may_come;
            call_hooks(self);
            sched_yield();
        }
    }
    if (m.decision().decided.load(std::memory_order_relaxed) == 0) {
        int count = 0;
        for (int r = 0; r < self.size; ++r) {
            const bool in = m.state(r).shrinks.load(std::memory_order_acquire) != 0 && !gone(r);
            m.members(self.rank)[r] = in;
            count += in;
        }
        const std::uint64_t place = m.proposal(self.rank).place = self.backend->create(count);
        std::uint32_t none_yet = 0;
        // Release: a rank that sees the decision sees the proposal.
        if (!m.decision().decided.compare_exchange_strong(
                none_yet, static_cast<std::uint32_t>(self.rank) + 1, std::memory_order_acq_rel))
            self.backend->discard(place, count);  // another was first
    }
    const int decider = static_cast<int>(m.decision().decided.load(std::memory_order_acquire)) - 1;
    list<int> members;
    int mine = none;
    for (int r = 0; r < self.size; ++r) {
        if (m.members(decider)[r] == 0) continue;
        if (r == self.rank) mine = static_cast<int>(members.size());
        members.push_back(r);
    }
    if (mine == none)
        throw_in_call(self.rank, "shrink", errc::peer_failed,
            error_text() << "the others, led by rank " << decider
                         << ", have shrunk the group without this rank, which came too late: leave, and start again",
            decider);
    std::unique_ptr<rank_context> left = self.backend->attach(self, m.proposal(decider).place, mine, members);
    if (self.access.is_whole()) return left;  // threads
    // Until the shrink is over, no thread of these ranks touches the memory of another one.
    meet_in_shrink(self, *left, members, shrink_stage::quiet, [](int) { return true; });
    for (int r = 0; r < self.size; ++r)
        if (m.members(decider)[r] == 0 && m.state(r).active.load(std::memory_order_seq_cst) != 0 && !gone(r)) {
            withdraw_from_others(self, *left);
            break;
        }
    meet_in_shrink(
        self, *left, members, shrink_stage::withdrawn, [&](int i) { return left->backend->by_memory()->follow(i); });
    return left;
}

}  // namespace colls::inline v1::detail
