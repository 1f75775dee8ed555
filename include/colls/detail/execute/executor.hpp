// The base of both executors, whichever way data moves between ranks.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// It gives an operation its number and fingerprint, finds this rank's program in the plan, and knows where units and
// chunks lie. Plans of rooted collectives are written for roles, not ranks: the role of the schedule's root is played
// by the root of the call, and all other roles are rotated along with it.
#pragma once

#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/detail/reduce/fold.hpp>

namespace colls::inline v1::detail {

class executor : public operation_state {
public:
    /// By which plan it runs.
    void choose(const schedule_choice& p) {
        choice_ = p;
        plan_ = p.plan;
        schedule = p.name;
    }

protected:
    explicit executor(rank_context& self) : operation_state(self, true) {}

    /// Gives the operation its number in the order of calls, and the fingerprint by which ranks compare their calls.
    void sign_call() {
        const call& c = arguments;
        const bool own_lengths = is_unsized(c);
        number = self_.log.count - c.is_signed;
        if (c.is_signed) {
            fingerprint_ = self_.log.of(number).fingerprint;
            self_.log.of(number).schedule = schedule;
        } else {
            fingerprint_ = record_call(self_, c,
                hash_mix(hash_mix(hash_mix(c.signature, own_lengths ? c.ragged : c.count), plan_->fingerprint),
                    static_cast<std::uint64_t>(c.root) * 2 + c.non_blocking),
                schedule, own_lengths);
        }
        set_wait_site();
    }

    /// Where the operation waits while it runs by its plan: peer and round are filled in on the way. (Written member by
    /// member: a copy of the whole would wait until the members have left the store buffer, 20 ns a call.)
    void set_wait_site() {
        const call& c = arguments;
        site.peer = site.round = none;
        site.what = self_.log.name_of_call(c.what);
        site.schedule = plan_ == choice_.staged ? choice_.staged_name : schedule;
        site.call = number;
        site.fingerprint = fingerprint_;
        site.blocks = &say_blocks;
        site.blocks_of = &plan_->schedule;
        site.rank = self_.rank;
        site.size = self_.size;
        site.shift = traits_of(c.what).rooted() ? c.root - plan_->root : 0;
    }

    /// From now on the operation runs by this plan.
    void follow(const execution_plan& plan) {
        plan_ = &plan;
        program_ = &plan.program_of(
            traits_of(arguments.what).rooted() ? mod(self_.rank - arguments.root + plan.root, self_.size) : self_.rank);
    }

    int rank_of(int role) const {
        if (!traits_of(arguments.what).rooted()) return role;
        const int r = role - plan_->root + arguments.root;
        return r < 0 ? r + self_.size : r >= self_.size ? r - self_.size : r;
    }

    /// Takes the whole count of a gather or scatter, as the root has told it; fails where this rank's block does not
    /// have the length that follows from it.
    void take_count_of_root(std::size_t count) {
        call& c = arguments;
        site.peer = c.root;
        c.count = count;
        const std::size_t own =
            balanced(count, static_cast<std::size_t>(self_.size), static_cast<std::size_t>(self_.rank)).count;
        if (self_.rank != c.root && own != c.own_count)
            fail(self_, errc::mismatch, site,
                error_text() << "this rank's block has " << c.own_count << " elements, and should have " << own
                             << ", since the buffer of rank " << c.root << ", the root, has " << count);
    }

    /// Bytes of the input that an operation needs a copy of: of an all_to_all in place, whose output overwrites it.
    std::size_t copied_input() const {
        const call& c = arguments;
        return c.what == collective::all_to_all && c.in == c.out ? c.count * c.element : 0;
    }

    /// Elements of the longest unit of a buffer, as far as this rank knows lengths.
    std::size_t longest_unit() const {
        const call& c = arguments;
        std::size_t longest = 0;
        if (const std::size_t* offsets = c.in_offsets ? c.in_offsets : c.out_offsets) {
            for (int b = 0; b < plan_->blocks; ++b)
                if (offsets[b + 1] - offsets[b] > longest) longest = offsets[b + 1] - offsets[b];
        } else {
            longest = balanced(c.count, static_cast<std::size_t>(plan_->blocks), 0).count;
        }
        return longest_part(longest);
    }
    /// Elements of the longest unit of a block of this many elements.
    std::size_t longest_part(std::size_t block) const {
        return balanced(block, static_cast<std::size_t>(plan_->fewest_parts), 0).count;
    }

    /// Where a unit lies in an input or output, in elements. `offsets` are those of the blocks; without them blocks are
    /// balanced, or, if `alone`, there is one block only, of `own` elements.
    extent unit_at(buffer_kind where, int unit, const std::size_t* offsets, bool alone, std::size_t own) const {
        const call& c = arguments;
        const collective_traits& is = traits_of(c.what);
        auto parts = static_cast<std::size_t>(plan_->parts);
        auto block = static_cast<std::size_t>(unit);
        std::size_t part = 0;
        if (parts > 1) part = block % parts, block /= parts;  // a division takes longer than the rest of it
        if (!plan_->parts_of.empty()) parts = static_cast<std::size_t>(plan_->parts_of[block]);
        if (is.owned()) block = static_cast<std::size_t>(rank_of(static_cast<int>(block)));
        extent whole;
        if (offsets)
            whole = {offsets[block], offsets[block + 1] - offsets[block]};
        else if (alone)
            whole = {0, own};
        else
            whole = balanced(c.count, static_cast<std::size_t>(plan_->blocks), block);
        if ((where == buffer_kind::input ? is.in : is.out) == content::own_block) whole.first = 0;  // it holds no other
        if (parts > 1) {
            const extent piece = balanced(whole.count, parts, part);
            return {whole.first + piece.first, piece.count};
        }
        return whole;
    }
    /// The current chunk of a unit, in elements; it may be empty.
    extent chunk_of(const extent& unit) const {
        const std::size_t skip = now.chunk * layout_.count;
        if (unit.count <= skip) return {unit.first + unit.count, 0};
        const std::size_t remaining = unit.count - skip;
        return {unit.first + skip, remaining < layout_.count ? remaining : layout_.count};
    }

    /// The operand with which a fold begins. A fold of all ranks' contributions takes them in the order of ranks, also
    /// where the root is not rank 0, not in the order of roles.
    int first_operand(const instruction& i) const {
        return i.count == self_.size && traits_of(arguments.what).rooted()
                   ? mod(plan_->root - arguments.root, self_.size)
                   : 0;
    }
    /// After a fold: the operator's last step, where the fold is complete.
    void finish_fold(const instruction& i, std::byte* to, std::size_t count) const {
        const call& c = arguments;
        if (i.finish && c.op->finish) c.op->finish(to, count, self_.size, c.op_value);
    }

    /// While it lives a copy or a fold is made, which says by moved_ how many bytes it made, for the trace.
    class recorded_work {
    public:
        recorded_work(executor& x, traced_part::kind what, const instruction& i, int peer)
            : x_(x), what_(what), peer_(peer), round_(i.round), from_(x.self_.trace ? seconds_now() : 0) {
            x.moved_ = 0;
        }
        recorded_work(const recorded_work&) = delete;
        recorded_work& operator=(const recorded_work&) = delete;
        ~recorded_work() {
            if (x_.self_.trace && x_.moved_ > 0)
                x_.self_.trace->add({from_, seconds_now(), x_.moved_, peer_, round_, what_});
        }

    private:
        executor& x_;
        const traced_part::kind what_;
        const int peer_, round_;
        const double from_;
    };

    schedule_choice choice_;
    const execution_plan* plan_ = nullptr;   ///< which the operation follows
    const rank_program* program_ = nullptr;  ///< this rank's part of it
    std::uint64_t fingerprint_ = 0;
    chunk_layout layout_;
    list<operand> operands_;  ///< room for those of the fold that is being done
    std::size_t moved_ = 0;   ///< bytes that the last copy or fold has made
};

}  // namespace colls::inline v1::detail
