// The eager path: small messages without a schedule.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Every rank that contributes data copies it into a slot of its own and raises one flag. A rank that needs the data
// waits for the flag, reads, and reduces in rank order. That is one synchronisation, it keeps the order of operands,
// and every rank has the same bits. Up to 56 bytes travel in the flag's own cache line.
//
// A rank has four slots, used in turn, so a slot is written again four calls later. That is safe without an
// acknowledgement if in one of the three calls between every rank waited for every other: a rank raises its flag in
// that call only after it has read what the calls before have posted. Otherwise (in a run of broadcasts, say) the rank
// looks at the others' counters of calls that they have read.
#pragma once

#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/execute/distance.hpp>
#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/request/known_families.hpp>
#include <colls/detail/support/copy.hpp>

#include <cstring>
#include <memory>

namespace colls::inline v1::detail {

/// Where a rank's block lies in the whole, in elements; null: blocks are balanced.
constexpr extent eager_block(const call& c, int n, const std::size_t* offsets, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (offsets) return {offsets[r], offsets[r + 1] - offsets[r]};
    return balanced(c.count, static_cast<std::size_t>(n), r);
}
/// Bytes that the busiest rank posts.
constexpr std::size_t eager_bytes(const call& c, int n) {
    if (traits_of(c.what).in != content::own_block) return c.count * c.element;
    std::size_t longest = 0;
    for (int r = 0; r < (c.in_offsets ? n : 1); ++r)
        if (const std::size_t k = eager_block(c, n, c.in_offsets, r).count; k > longest) longest = k;
    return longest * c.element;
}

/// Executes one call whose eager_bytes are eager_capacity at most.
class eager_executor {
public:
    eager_executor(rank_context& self, const call& c, bool unsized = false)
        : self_(self),
          c_(c),
          number_(self.eager.count++),
          slot_(number_ % eager_slots),
          site_{none, none, self.log.name_of_call(c.what), eager_name, self.log.count,
              record_call(self, c,
                  hash_mix(hash_mix(c.signature, unsized ? ~std::uint64_t{c.ragged} : c.count),
                      static_cast<std::uint64_t>(c.root)),
                  eager_name, unsized)},
          flag_((number_ + 1) << 32 | site_.fingerprint >> 32) {
        if (self_.memory.poison().state.load(std::memory_order_acquire) != 0) throw_poison(self_);
        if (number_ >= eager_slots && self_.eager.last_full + (eager_slots - 2) < number_ &&
            self_.eager.by_all + (eager_slots - 1) < number_)
            claim_slot();
    }

    void run() {
        const collective_traits& is = traits_of(c_.what);
        const bool root = self_.rank == c_.root;
        const std::size_t posted = (is.in == content::own_block ? block(self_.rank).count : c_.count) * c_.element;
        if (!is.in_at_root || root) post(c_.in, posted);
        if (!is.out_at_root || root) receive(is, posted);
        end(is);
    }
    // A call whose lengths not all ranks know: in front of its blocks, a rank posts where each of them ends, or that
    // they are too long. Then the call goes on as an operation: of all ranks, but that a rank of a gather whose block
    // is short has posted it, and is not there.

    /// False: this rank knows that the call goes on.
    bool post_unsized() {
        const collective_traits& is = traits_of(c_.what);
        const bool root = self_.rank == c_.root, gathers = is.out_at_root;
        bool all_fit = true;
        if (is.rooted() && root != is.in_at_root) {
            for (int r = 0; gathers && r < self_.size; ++r)
                all_fit = all_fit && (r == self_.rank || fits(block_from(r).count));
            return all_fit;
        }
        const std::size_t count = gathers ? c_.own_count : c_.count;
        all_fit = fits(count);
        if (gathers && all_fit) pass_operation();
        post_blocks(count);
        return all_fit;
    }
    /// Waits until it is known whether the call goes on, and returns false if it does. `fits`: what post_unsized said.
    bool hear_unsized(bool fits) {
        for_senders([&](int r) { fits = (r == self_.rank || !is_long(r)) && fits; });
        return fits;
    }
    /// Takes what has been posted; if not `all` of it fits, what the operation, which is over, has left.
    void take_unsized(bool all) {
        const collective_traits& is = traits_of(c_.what);
        for_senders([&](int r) {
            if (all || (is.out_at_root && r != self_.rank && !is_long(r))) take_block(r);
        });
        if (all && is.out_at_root && self_.rank == c_.root) pass_operation();
        end(is);
    }

private:
    using word = std::uint32_t;
    /// The first word of what a rank posts in a call whose lengths not all ranks know.
    enum where : word { in_line, behind_it, nowhere };

    void end(const collective_traits& is) {
        if (is.synchronises()) {
            self_.eager.last_full = number_ + 1;
        } else {  // release: this rank has read what it needs of this call
            self_.memory.state(self_.rank).eager_sent.store(number_ + 1, std::memory_order_release);
            wake_sleepers(self_);
        }
    }
    /// How many ends precede the blocks, with the word before: in a gather a rank posts one block, else one for each.
    std::size_t words() const { return c_.what == collective::gather ? 2 : static_cast<std::size_t>(self_.size) + 1; }
    bool fits(std::size_t count) const {
        const std::size_t most = self_.access.is_whole() ? eager_unsized : eager_capacity;
        return words() * sizeof(word) + count * c_.element <= most;
    }
    // This rank's block for rank r, and the one that it wants from it.
    extent block_for(int r) const { return c_.what == collective::gather ? extent{0, c_.own_count} : block(r); }
    extent block_from(int r) const {
        return c_.what == collective::scatter ? extent{0, c_.own_count}
                                              : eager_block(c_, self_.size, c_.out_offsets, r);
    }
    void post_blocks(std::size_t count) {
        eager_line& own = self_.memory.eager(slot_, self_.rank);
        const std::size_t bytes = count * c_.element;
        const bool in_flag = words() * sizeof(word) + bytes <= eager_inline;
        word* const ends = as_words(in_flag ? own.data : self_.memory.eager_data(slot_, self_.rank));
        *as_words(own.data) = in_flag ? in_line : fits(count) ? behind_it : nowhere;
        for (std::size_t i = 1; fits(count) && i < words(); ++i) {
            const extent b = block_for(static_cast<int>(i) - 1);
            ends[i] = static_cast<word>(b.first + b.count);
        }
        if (fits(count) && bytes > 0) std::memcpy(ends + words(), c_.in, bytes);
        own.flag.store(flag_, std::memory_order_release);
        wake_sleepers(self_);
    }
    static word* as_words(std::byte* at) { return reinterpret_cast<word*>(at); }
    /// Calls f for each rank from which this one has a block, itself among them.
    template <class F>
    void for_senders(F f) {
        const collective_traits& is = traits_of(c_.what);
        if (is.out_at_root && self_.rank != c_.root) return;
        const int first = is.in_at_root ? c_.root : 0, last = is.in_at_root ? first : self_.size - 1;
        for (int r = first; r <= last; ++r) f(r);
    }
    bool is_long(int r) { return *as_words(line_of(r).data) == nowhere; }
    /// Copies this rank's block of what a rank has posted to where it belongs.
    void take_block(int r) {
        const extent to = block_from(r);
        extent from = block_for(r);
        const std::byte* data = c_.in;
        if (r != self_.rank) {
            std::byte* const its_line = line_of(r).data;
            const word* const ends =
                as_words(*as_words(its_line) == in_line ? its_line : self_.memory.eager_data(slot_, r));
            const int before = c_.what == collective::gather ? 0 : self_.rank;
            from.first = before == 0 ? 0 : ends[before];
            from.count = ends[before + 1] - from.first;
            data = reinterpret_cast<const std::byte*>(ends + words());
        }
        expect_length(self_, site_, r, from.count, self_.rank, to.count);
        data += from.first * c_.element;
        std::byte* const at = c_.out + to.first * c_.element;
        if (to.count > 0 && at != data) std::memcpy(at, data, to.count * c_.element);
    }
    /// Takes no part in the operation that the call may become.
    void pass_operation() {
        const std::uint64_t sequence = take_place(self_, site_);
        operation_line& own = self_.memory.operation(sequence % window, self_.rank);
        own.fingerprint = site_.fingerprint;
        own.in = own.out = own.scratch = own.in_offsets = own.out_offsets = self_.access.to_offset(nullptr);
        own.count = c_.own_count;
        own.progress.store((sequence + 1) << 24 | 0xffffff, std::memory_order_release);  // it has done all of it
        complete_operation(self_, sequence);
    }
    extent block(int r) const { return eager_block(c_, self_.size, c_.in_offsets, r); }
    /// Makes this rank's result of what the ranks post.
    void receive(const collective_traits& is, std::size_t posted) {
        const extent part = is.out == content::own_block ? block(self_.rank) : extent{0, c_.count};
        switch (is.result) {
            case contributors::root:  // what the root has already stays where it is
                return copy_from(c_.root, posted, part, 0);
            case contributors::owner:
                for (int r = 0; r < self_.size; ++r)
                    copy_from(r, block(r).count * c_.element, {0, block(r).count}, block(r).first);
                return;
            case contributors::each: {
                const std::size_t first = block(self_.rank).first;
                for (int r = 0; r < self_.size; ++r) copy_from(r, posted, {first, block(r).count}, block(r).first);
                return;
            }
            case contributors::all:
                if (is.out != content::nothing) return fold(0, self_.size, posted, part, c_.out);
                for (int r = 0; r < self_.size; ++r) posted_by(r, 0);
                return;
            case contributors::up_to:
                return fold(0, self_.rank + 1, posted, part, c_.out);
            case contributors::before:
                if (self_.rank > 0) fold(0, self_.rank, posted, part, c_.out);
                return;
        }
    }
    /// Where it is not known that all ranks have read what this rank posted in this slot four calls ago: waits for it.
    void claim_slot() {
        std::uint64_t least = ~std::uint64_t{0};
        for (int r = 0; r < self_.size; ++r) {
            backoff wait(self_);
            site_.peer = r;
            std::uint64_t seen;
            while (seen = self_.memory.state(r).eager_sent.load(std::memory_order_acquire),
                r != self_.rank && seen + (eager_slots - 1) < number_)
                wait(site_);
            if (r != self_.rank && seen < least) least = seen;
        }
        self_.eager.by_all = least;
    }
    /// Puts data into this rank's slot and raises its flag.
    void post(const std::byte* data, std::size_t bytes) {
        eager_line& own = self_.memory.eager(slot_, self_.rank);
        std::byte* const to = fits_line(bytes) ? own.data : self_.memory.eager_data(slot_, self_.rank);
        if (bytes >= store_policy::stream_eager_from && !self_.crowded && !distance::is_near(self_, self_.direct.count))
            stream_bytes(to, data, bytes);
        else if (bytes > 0)
            std::memcpy(to, data, bytes);
        own.flag.store(flag_, std::memory_order_release);
        wake_sleepers(self_);
        // While this rank waits: peers have read that line already. (With more lines to fetch, far cores lose by it.)
        if (fits_line(bytes)) prefetch_to_store(&self_.memory.eager((number_ + 1) % eager_slots, self_.rank));
    }
    /// Does the data travel in the flag's line? That is aligned to 8 bytes, and a type of alignment 16 or more has a
    /// size that is a multiple of 16.
    bool fits_line(std::size_t bytes) const { return bytes <= eager_inline && c_.element % 16 != 0; }
    /// Waits for what a rank posts, `bytes` bytes in all, and returns where it lies. What this rank has posted it reads
    /// from its input: loads of lines that it has just stored in parts would wait until these lines have come from the
    /// cores that read them last.
    const std::byte* posted_by(int r, std::size_t bytes) {
        if (r == self_.rank) return c_.in;
        const eager_line& theirs = line_of(r);
        return fits_line(bytes) ? theirs.data : self_.memory.eager_data(slot_, r);
    }
    /// That of another rank, once its flag is up.
    eager_line& line_of(int r) {
        eager_line& theirs = self_.memory.eager(slot_, r);
        if (theirs.flag.load(std::memory_order_acquire) != flag_) {
            backoff wait(self_);
            site_.peer = r;
            for (std::uint64_t seen; (seen = theirs.flag.load(std::memory_order_acquire)) != flag_; wait(site_))
                if (seen >> 32 == flag_ >> 32) fail_mismatch(self_, site_, r, seen << 32);
        }
        return theirs;
    }
    /// Copies a part, in elements, of the `posted` bytes that a rank posts to element `to` of the output.
    void copy_from(int from, std::size_t posted, extent part, std::size_t to) {
        const std::byte* const data = posted_by(from, posted) + part.first * c_.element;
        std::byte* const at = c_.out + to * c_.element;
        if (part.count > 0 && at != data) std::memcpy(at, data, part.count * c_.element);
    }
    /// Folds a part of what the ranks [first, last) post, `posted` bytes each, in the order of ranks.
    void fold(int first, int last, std::size_t posted, extent part, std::byte* to) {
        operand few[16];
        std::unique_ptr<operand[]> many;
        operand* x = few;
        if (last - first > 16) {
            many = std::make_unique<operand[]>(static_cast<std::size_t>(last - first));
            x = many.get();
        }
        for (int r = first; r < last; ++r) x[r - first] = {posted_by(r, posted) + part.first * c_.element};
        if (part.count == 0) return;
        c_.op->fold(to, x, last - first, part.count, c_.op_value);
        if (c_.op->finish) c_.op->finish(to, part.count, self_.size, c_.op_value);
    }

    rank_context& self_;
    const call& c_;
    const std::uint64_t number_, slot_;
    wait_site site_;
    const std::uint64_t flag_;  ///< of this call, on all ranks that make the same calls; zeroed memory is no flag
};

}  // namespace colls::inline v1::detail
