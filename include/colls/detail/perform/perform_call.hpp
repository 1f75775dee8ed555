// Blocking collectives: the checks, the choice of a schedule, the execution.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/detail/perform/check_arguments.hpp>
#include <colls/detail/perform/interface.hpp>
#include <colls/detail/perform/taken_collective.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/support/rank_error.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// What an operator makes of a rank's contribution before the first fold, which the call moves in place of the user's:
/// the rank makes it itself. So each rank may have an operator of its own (premul_sum's factor), and no fold needs to
/// know whose data it folds. It costs a pass over the input; for some collectives also memory of its size, which the
/// rank keeps for its calls.
class own_contribution final : public packed_arguments {
public:
    own_contribution(rank_context& self, const request& q)
        : self_(self), before_(q.c.packed), op_(q.c.op), value_(q.c.op_value), from_(q.c.in), count_(q.in_count) {
        const bool as_long = q.c.what == collective::all_reduce || q.c.what == collective::inclusive_scan;
        if (!as_long) kept_ = take_kept(self, bytes_ = count_ * q.c.element);
        to_ = as_long ? q.c.out : kept_;
    }
    ~own_contribution() override { give_kept(self_, kept_, bytes_); }

    const std::byte* data() const { return to_; }
    void pack() override {
        if (before_) before_->pack();
        op_->leaf(to_, from_, count_, value_);
    }
    void unpack() override {
        if (before_) before_->unpack();
    }

private:
    rank_context& self_;
    const shared_packing before_;
    const op_table* op_;
    const void* value_;
    const std::byte* from_;
    std::size_t count_, bytes_ = 0;
    std::byte *kept_ = nullptr, *to_ = nullptr;
};

/// After the checks, and once q.c.op_value lives as long as the call.
inline void change_own_contribution(rank_context& self, request& q) {
    if (q.c.op == nullptr || q.c.op->leaf == nullptr || q.in_count == 0) return;
    auto* const changed = new own_contribution(self, q);
    q.c.packed = shared_packing(changed);
    q.c.in = changed->data();
}

/// The execution plan of the schedule that a request gives, checked against what its operator needs.
inline schedule_choice resolve_given(rank_context& self, const request& q) {
    const call& c = q.c;
    const schedule_choice p = resolve_given(self, c.what, *q.given);
    const auto refuse = [&](const char* why) {
        throw_in_call(self.rank, name_of(c.what), errc::unsupported,
            error_text() << "at " << self.size << " ranks " << p.name << " " << why);
    };
    if (c.op && (!c.op->commutative || q.reproducible) && !p.plan->expressions_known)
        refuse(
            "has been proven by symmetry alone, which does not tell in which order it folds, as this call needs: take "
            "direct, or automatic");
    if (c.op && !c.op->commutative && !p.plan->order_preserving)
        refuse("does not keep the order of ranks, which this operator needs: take direct, or automatic");
    if (c.op && q.reproducible && !p.plan->one_expression)
        refuse(
            "does not compute all elements by one fold expression, so their bits would depend on the count and on how "
            "data are cut into calls, which colls::reproducible forbids: take direct, or colls::reproducible alone");
    return q.instead ? resolve_given(self, c.what, *q.instead) : p;
}

/// Is this a call that the eager path may be taken for between cores of one distance, and a schedule between those of
/// another? On all ranks alike.
inline bool depends_on_distance(const rank_context& self, const call& c) {
    if (self.by_messages || self.crowded || self.size == 1 || self.env.schedule) return false;
    if (is_unsized(c)) return false;
    const std::size_t posted = eager_bytes(c, self.size);
    return posted >= distance::eager_bytes_for_sample && posted <= eager_capacity;
}
/// The schedule of such a call that tells the distance. Its bits are those of the eager path.
[[gnu::cold]] [[gnu::noinline]] inline schedule_choice resolve_for_sample(rank_context& self, const call& c) {
    const bool near = near_so_far(self);
    const schedule_choice p = resolve(self, c, true, near);
    return p.plan ? p : resolve(self, c, false, near, true);
}

inline void refuse_call(rank_context& self, errc code, const char* why) {
    const progress_lock mine(self);
    tell_refusal(self, why);
    throw error(code, why, self.rank);
}
enum class call_time { at_once, in_flight, later };
/// Checks the arguments of a request and resolves its schedule. (Returned by value without a copy, which would be a
/// tenth of the time of a short call.)
inline schedule_choice check(rank_context& self, request& q, call_time when) {
    try {
        argument_checker(self, q).run();
        if (q.given) return resolve_given(self, q);
        if (q.c.op && (q.reproducible || self.env.reproducible)) {
            q.c.reproducible = true;
            q.c.signature = hash_mix(q.c.signature, hash_text("reproducible"));
        }
        if (when == call_time::at_once && q.c.count * q.c.element >= distance::eager_bytes_for_sample &&
            depends_on_distance(self, q.c) && ++self.eager.may_sample % distance::eager_calls_for_sample == 0)
            return resolve_for_sample(self, q.c);
        // Ranks prepare at unlike moments, so they go by the distance that was measured when the group formed.
        const bool near = when == call_time::later ? self.access.starts_near : near_so_far(self);
        return resolve(self, q.c, when != call_time::in_flight, near);
    } catch (const error& x) {
        tell_refusal(self, x.what());
        throw;
    }
}

inline void check_arguments(rank_context& self, request& q) {
    const progress_lock mine(self);
    try {
        argument_checker(self, q).run();
    } catch (const error& x) {
        tell_refusal(self, x.what());
        throw;
    }
}

inline const composite_call* set_composite(rank_context& self, const composite_call* whole) {
    return std::exchange(self.log.part_of, whole);
}
/// Executes a call whose lengths not all ranks know, by the eager path as far as that suffices. `by`: what it goes by.
inline void run_unsized(
    rank_context& self, const call& c, const schedule_choice& p, prepared* of, std::string_view& by) {
    by = eager_name;
    eager_executor e(self, c, true);
    const bool all_fit = e.post_unsized();
    const bool is_over = all_fit && e.hear_unsized(true);
    if (!is_over) {
        const taken_collective taken(self, c, p, of);
        executor& o = *taken;
        by = p.name;
        o.arguments.is_signed = true;
        o.begin();
        if (!all_fit) e.hear_unsized(false);
        run_until_done(self, o);
    }
    e.take_unsized(is_over);
}
inline void perform(rank_context& self, request& q) {
    const progress_lock mine(self);
    const schedule_choice p = q.of ? q.of->blocking : check(self, q, call_time::at_once);
    const call& c = q.c;
    if (self.log.has_refused) tell_refusal(self, nullptr);
    const double from = self.trace ? self.trace->begin() : 0;
    const std::uint64_t number = self.log.count;
    std::string_view name = p.name;
    try {
        if (!q.of && c.op && c.op->leaf) change_own_contribution(self, q);
        if (c.packed) c.packed->pack();
        if (p.eager_first) {
            run_unsized(self, c, p, q.of, name);
        } else if (p.plan == nullptr) {
            eager_executor(self, c).run();
        } else {
            const taken_collective taken(self, c, p, q.of);
            executor& o = *taken;
            o.begin();
            run_until_done(self, o);
        }
    } catch (...) {
        call_ended_by_error(self, name_of(c.what));
        if (from != 0) self.trace->end(c, {name_of(c.what), name, none, number, from, false, true});
        throw;
    }
    no_longer_active(self);
    if (from != 0) [[unlikely]]
        self.trace->end(c, {name_of(c.what), name, none, number, from, false, false});
    if (c.packed) c.packed->unpack();
}

}  // namespace colls::inline v1::detail
