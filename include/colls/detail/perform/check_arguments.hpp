// The checks of a collective's arguments, before anything moves.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/sizes.hpp>

namespace colls::inline v1::detail {

/// "root 7 is out of range: this group has ranks 0 to 3".
[[gnu::cold]] inline error_text out_of_range(const char* what, int rank, int size) {
    error_text text;
    text << what << " " << rank << " is out of range: this group has ";
    return size == 1 ? text << "rank 0 alone" : text << "ranks 0 to " << size - 1;
}

[[gnu::cold]] inline error_text longer_than_memory(std::size_t count, std::size_t element) {
    return error_text() << "a buffer of " << count << " elements of " << element
                        << (is_negative(count) ? " bytes: its count is negative"
                                               : " bytes is longer than 2^63 bytes: its count has overflowed");
}

/// True where two pieces of memory share a byte.
inline bool overlaps(const std::byte* a, std::size_t a_size, const std::byte* b, std::size_t b_size) {
    const auto address = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); };
    return a_size > 0 && b_size > 0 && address(a) < address(b) + b_size && address(b) < address(a) + a_size;
}

class argument_checker {
public:
    argument_checker(const rank_context& self, request& q) : self_(self), q_(q), c_(q.c), is_(traits_of(q.c.what)) {}

    /// Sets what the request leaves open in q.c (counts and offsets), or throws invalid_argument.
    [[gnu::noinline]] void run() {
        const auto n = static_cast<std::size_t>(self_.size), me = static_cast<std::size_t>(self_.rank);
        const bool root = c_.root == self_.rank;
        for (const std::size_t count : {q_.in_count, q_.out_count})
            if (capped_product(count, c_.element) > longest_memory) refuse(longer_than_memory(count, c_.element));
        if (is_.rooted() && (c_.root < 0 || c_.root >= self_.size)) refuse(out_of_range("root", c_.root, self_.size));
        // On other ranks than the root, a buffer that only the root reads or writes is not looked at.
        const bool writes = !is_.out_at_root || root, reads = !is_.in_at_root || !is_.owned() || root;
        if (reads && c_.in == nullptr && q_.in_count > 0)
            refuse(error_text() << "the input of " << q_.in_count << " elements is null");
        if (writes && c_.out == nullptr && q_.out_count > 0)
            refuse(error_text() << "the output of " << q_.out_count << " elements is null");
        if (q_.with_counts)
            check_with_counts(n, me, root);
        else
            check_without_counts(n, me, root);
        if (reads && writes) check_overlap();
    }

private:
    [[noreturn]] [[gnu::cold]] [[gnu::noinline]] void refuse(const error_text& why) const {
        error_text text;
        text << "colls: rank " << self_.rank << " in " << name_of(c_.what)
             << (q_.with_counts && c_.what != collective::redistribute ? "_v" : "") << ": " << why.text();
        throw error(errc::invalid_argument, text.text(), self_.rank);
    }
    void expect(const char* what, std::size_t got, std::size_t want) const {
        if (got != want)
            refuse(error_text() << "the " << what << " holds " << got << " elements, and should hold " << want);
    }
    /// Names both buffers, since either of them may be the wrong one.
    void expect_block(const char* all, std::size_t held, const char* block, std::size_t got, std::size_t want) const {
        if (got != want)
            refuse(error_text() << "the " << all << " holds " << held << " elements, of which this rank's block is "
                                << want << ", and the " << block << " holds " << got);
    }

    void check_without_counts(std::size_t n, std::size_t me, bool root) {
        if (is_.in == content::nothing || is_.in == content::layout) return;
        if (is_.owned()) {
            const std::size_t whole = gathers() ? q_.out_count : q_.in_count;
            const std::size_t own = gathers() ? q_.in_count : q_.out_count;
            if (is_.rooted()) {
                c_.own_count = own;
                c_.count_from_root = !root;
                if (!root) return;
            }
            c_.count = whole;
            return expect_block(all_blocks(), whole, own_block(), own, balanced(whole, n, me).count);
        }
        c_.count = is_.in_at_root ? q_.out_count : q_.in_count;  // a broadcast has one buffer
        if (!is_.out_at_root || root) expect("output", q_.out_count, c_.count);
        if (is_.result == contributors::each && c_.count % n != 0)
            refuse(
                error_text() << c_.count << " elements do not divide by " << n << " ranks (all_to_all_v takes counts)");
    }
    // Where blocks belong to ranks: of the two buffers, the one with all blocks, and the other with this rank's own.
    bool gathers() const { return is_.in == content::own_block; }
    const char* all_blocks() const { return gathers() ? "output" : "input"; }
    const char* own_block() const { return gathers() ? "input" : "output"; }
    /// Prefix sums of the counts, whose total must be the buffer's length.
    list<std::size_t> offsets(
        const list<std::size_t>& counts, std::size_t n, const char* buffer, std::size_t held) const {
        if (counts.size() != n)
            refuse(error_text() << counts.size() << " counts are given, and should be " << n << ", one for each rank");
        list<std::size_t> sums;
        std::size_t sum = 0;
        sums.push_back(0);
        for (const std::size_t k : counts) sums.push_back(sum = capped_sum(sum, k));
        if (sum > longest_memory)
            refuse(error_text() << "the counts add up to more than 2^63 elements: one has overflowed or is negative");
        expect(buffer, held, sum);
        return sums;
    }
    void check_with_counts(std::size_t n, std::size_t me, bool root) {
        if (q_.negative) refuse(error_text() << "a count is negative");
        const std::size_t whole = gathers() ? q_.out_count : q_.in_count;
        const std::size_t own = gathers() ? q_.in_count : q_.out_count;
        if (is_.owned() && !is_.rooted()) {
            q_.in_offsets = offsets(q_.sends, n, all_blocks(), whole);
            c_.count = q_.in_offsets[n];
            expect(own_block(), own, q_.sends[me]);
            for (const std::size_t k : q_.sends) c_.signature = hash_mix(c_.signature, k);
            c_.in_offsets = c_.out_offsets = q_.in_offsets.data();
        } else if (is_.owned()) {  // only the root needs the counts
            c_.own_count = own;
            c_.ragged = true;
            if (root) {
                q_.in_offsets = offsets(q_.sends, n, all_blocks(), whole);
                (gathers() ? c_.out_offsets : c_.in_offsets) = q_.in_offsets.data();
                c_.count = q_.in_offsets[n];
            }
            if (q_.sends.size() == n) expect(own_block(), own, q_.sends[me]);
        } else {  // of a redistribution, a count for each block of the schedule, 0 where this rank lacks it
            const bool layout = is_.in == content::layout;
            q_.in_offsets = offsets(q_.sends, layout ? q_.sends.size() : n, "input", q_.in_count);
            q_.out_offsets = offsets(q_.receives, layout ? q_.receives.size() : n, "output", q_.out_count);
            c_.in_offsets = q_.in_offsets.data();
            c_.out_offsets = q_.out_offsets.data();
            c_.count = q_.in_count;
            c_.ragged = true;
            for (std::size_t i = 0; !layout && c_.in == c_.out && c_.count > 0 && i < n; ++i)
                if (q_.sends[i] != q_.receives[i])
                    refuse(
                        error_text() << "in place, what is sent to a rank must be as long as what is received from it");
        }
    }

    /// In place the input and the output are the same buffer, or the one is this rank's own block within the other.
    /// Other buffers must not overlap.
    void check_overlap() const {
        const std::byte *in_place_in = c_.in, *in_place_out = c_.out;
        if (in_place_in == nullptr || in_place_out == nullptr) return;
        if (is_.owned()) {
            const auto n = static_cast<std::size_t>(self_.size), me = static_cast<std::size_t>(self_.rank);
            const std::size_t first =
                q_.in_offsets.size() == n + 1 ? q_.in_offsets[me] : balanced(c_.count, n, me).first;
            (gathers() ? in_place_out : in_place_in) += first * c_.element;
        }
        if (in_place_in == in_place_out && c_.what != collective::redistribute) return;
        if (overlaps(c_.in, q_.in_count * c_.element, c_.out, q_.out_count * c_.element))
            refuse(error_text() << "input and output overlap"
                                << (c_.what == collective::redistribute ? ""
                                       : is_.owned() ? " without being in place: in place, the one is this rank's own "
                                                       "block of the other"
                                                     : " without being in place: in place, they are the same buffer"));
    }

    const rank_context& self_;
    request& q_;
    call& c_;
    const collective_traits& is_;
};

}  // namespace colls::inline v1::detail
