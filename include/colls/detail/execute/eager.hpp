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

#include <colls/detail/execute/call_description.hpp>
#include <colls/detail/execute/distance.hpp>
#include <colls/detail/execute/store_policy.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/support/copy.hpp>

#include <cstring>
#include <memory>

namespace colls::inline v1::detail {

/// The name of the eager path among those of schedules, in texts and in COLLS_SCHEDULE.
inline constexpr std::string_view eager_name = "eager";

/// Does every rank of the collective wait for every other?
constexpr bool waits_for_all(collective c) {
    return c == collective::all_reduce || c == collective::all_gather || c == collective::reduce_scatter ||
           c == collective::all_to_all || c == collective::barrier;
}

/// Bytes that the busiest rank posts.
constexpr std::size_t eager_bytes(const call& c, int n) {
    const bool own = c.what == collective::all_gather || c.what == collective::gather;
    return (own ? balanced(c.count, static_cast<std::size_t>(n), 0).count : c.count) * c.element;
}

/// Executes one call whose eager_bytes are eager_capacity at most.
class eager_executor {
public:
    eager_executor(rank_context& e, const call& c)
        : e_(e), c_(c), number_(e.eager_calls++), slot_(number_ % eager_slots) {
        const std::uint64_t call_number = e.calls;
        const std::uint64_t fingerprint =
            e.sign(c.what, hash_mix(hash_mix(c.signature, c.count), static_cast<std::uint64_t>(c.root)));
        flag_ = (number_ + 1) << 32 | fingerprint >> 32;  // zeroed memory is no flag: hence + 1
        record_call(e, c, eager_name, false);
        site_ = {none, none, name_of(c.what), eager_name, call_number, fingerprint};
    }

    void run() {
        const auto n = static_cast<std::size_t>(e_.size);
        const auto me = static_cast<std::size_t>(e_.rank);
        const std::size_t bytes = c_.count * c_.element;
        const auto block = [&](std::size_t r) { return balanced(c_.count, n, r); };
        const extent own = block(me);
        const std::size_t own_bytes = own.count * c_.element;
        if (e_.memory.poison().state.load(std::memory_order_acquire) != 0) throw_poison(e_);
        claim_slot();
        switch (c_.what) {
            case collective::barrier:
                post(nullptr, 0);
                for (int r = 0; r < e_.size; ++r) wait_for(r);
                break;
            case collective::all_reduce:
                post(c_.in, bytes);
                fold(0, e_.size, bytes, {0, c_.count}, c_.out);
                break;
            case collective::reduce_scatter:
                post(c_.in, bytes);
                fold(0, e_.size, bytes, own, c_.out);
                break;
            case collective::reduce:
                post(c_.in, bytes);
                if (e_.rank == c_.root) fold(0, e_.size, bytes, {0, c_.count}, c_.out);
                break;
            case collective::inclusive_scan:
                post(c_.in, bytes);
                fold(0, e_.rank + 1, bytes, {0, c_.count}, c_.out);
                break;
            case collective::exclusive_scan:
                post(c_.in, bytes);
                if (e_.rank > 0) fold(0, e_.rank, bytes, {0, c_.count}, c_.out);
                break;
            case collective::all_gather:
                post(c_.in, own_bytes);
                gather();
                break;
            case collective::gather:
                post(c_.in, own_bytes);
                if (e_.rank == c_.root) gather();
                break;
            case collective::broadcast:
                if (e_.rank == c_.root)
                    post(c_.in, bytes);
                else
                    copy_from(c_.root, bytes, 0, c_.out, bytes);
                break;
            case collective::scatter:
                if (e_.rank == c_.root) post(c_.in, bytes);
                if (e_.rank != c_.root)
                    copy_from(c_.root, bytes, own.first * c_.element, c_.out, own_bytes);
                else if (own_bytes > 0 && c_.out != c_.in + own.first * c_.element)
                    std::memcpy(c_.out, c_.in + own.first * c_.element, own_bytes);
                break;
            case collective::all_to_all:
                post(c_.in, bytes);
                for (std::size_t r = 0; r < n; ++r)
                    copy_from(static_cast<int>(r), bytes, own.first * c_.element, c_.out + block(r).first * c_.element,
                        block(r).count * c_.element);
                break;
            case collective::redistribute:  // has a schedule always, and never comes here
                break;
        }
        if (waits_for_all(c_.what))
            e_.last_full_eager = number_ + 1;
        else  // release: this rank has read what it needs of this call
            e_.memory.state(e_.rank).eager_sent.store(number_ + 1, std::memory_order_release);
    }

private:
    /// Waits until all ranks have read what this rank posted in this slot four calls ago.
    void claim_slot() {
        if (number_ < eager_slots || e_.last_full_eager + (eager_slots - 2) >= number_ ||
            e_.eager_by_all + (eager_slots - 1) >= number_)
            return;
        std::uint64_t least = ~std::uint64_t{0};
        for (int r = 0; r < e_.size; ++r) {
            backoff wait(e_);
            site_.peer = r;
            std::uint64_t seen;
            while (seen = e_.memory.state(r).eager_sent.load(std::memory_order_acquire),
                r != e_.rank && seen + (eager_slots - 1) < number_)
                wait(site_);
            if (r != e_.rank && seen < least) least = seen;
        }
        e_.eager_by_all = least;
    }
    /// Puts data into this rank's slot and raises its flag.
    void post(const std::byte* data, std::size_t bytes) {
        eager_line& own = e_.memory.eager(slot_, e_.rank);
        std::byte* const to = fits_line(bytes) ? own.data : e_.memory.eager_data(slot_, e_.rank);
        if (bytes >= store_policy::stream_eager_from && !e_.crowded && !distance::is_near(e_, e_.sequence))
            stream_bytes(to, data, bytes);
        else if (bytes > 0)
            std::memcpy(to, data, bytes);
        own.flag.store(flag_, std::memory_order_release);
    }
    void wait_for(int r) {
        const eager_line& theirs = e_.memory.eager(slot_, r);
        std::uint64_t seen = theirs.flag.load(std::memory_order_acquire);
        if (seen == flag_) return;
        backoff wait(e_);
        site_.peer = r;
        while ((seen = theirs.flag.load(std::memory_order_acquire)) != flag_) {
            if (seen >> 32 == flag_ >> 32) fail_mismatch(e_, site_, r, seen << 32);
            wait(site_);
        }
    }
    /// Does the data travel in the flag's line? That is aligned to 8 bytes, and a type of alignment 16 or more has a
    /// size that is a multiple of 16.
    bool fits_line(std::size_t bytes) const { return bytes <= eager_inline && c_.element % 16 != 0; }
    /// Waits for what a rank posts, `bytes` bytes in all, and returns where it lies. What this rank has posted it reads
    /// from its input: loads of lines that it has just stored in parts would wait until these lines have come from the
    /// cores that read them last.
    const std::byte* posted_by(int r, std::size_t bytes) {
        if (r == e_.rank) return c_.in;
        wait_for(r);
        return fits_line(bytes) ? e_.memory.eager(slot_, r).data : e_.memory.eager_data(slot_, r);
    }
    /// Copies `bytes` bytes, from byte `at` on, of the `posted` bytes that a rank posts.
    void copy_from(int from, std::size_t posted, std::size_t at, std::byte* to, std::size_t bytes) {
        const std::byte* data = posted_by(from, posted);
        if (bytes > 0 && to != data + at) std::memcpy(to, data + at, bytes);
    }
    void gather() {
        for (int r = 0; r < e_.size; ++r) {
            const extent b = balanced(c_.count, static_cast<std::size_t>(e_.size), static_cast<std::size_t>(r));
            const std::size_t bytes = b.count * c_.element;
            copy_from(r, bytes, 0, c_.out + b.first * c_.element, bytes);
        }
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
        if (c_.op->finish) c_.op->finish(to, part.count, e_.size, c_.op_value);
    }

    rank_context& e_;
    const call& c_;
    const std::uint64_t number_, slot_;
    std::uint64_t flag_ = 0;  ///< of this call, on all ranks that make the same calls
    wait_site site_;
};

}  // namespace colls::inline v1::detail
