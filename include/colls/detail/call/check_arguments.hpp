// The checks of a call's arguments: what is wrong is said before anything moves.
#pragma once

#include <colls/detail/call/call.hpp>
#include <colls/detail/group/backoff.hpp>

namespace colls::inline v1::detail {

class checker {
public:
    checker(const rank_context& e, request& q) : e_(e), q_(q), c_(q.c) {}

    /// Completes q.c, or throws invalid_argument.
    [[gnu::noinline]] void run() {
        const auto n = static_cast<std::size_t>(e_.size), me = static_cast<std::size_t>(e_.rank);
        const bool root = c_.root == e_.rank;
        if (rooted(c_.what) && (c_.root < 0 || c_.root >= e_.size))
            refuse(message() << "root " << c_.root << " of a group of " << e_.size << " ranks");
        // Off the root, what only the root has to give or to take does not matter.
        bool takes = true, gives = true;
        if (c_.what == collective::gather || c_.what == collective::reduce) takes = root;
        if (c_.what == collective::scatter) gives = root;
        if (gives && c_.in == nullptr && q_.in_count > 0)
            refuse(message() << "the input is null, of " << q_.in_count << " elements");
        if (takes && c_.out == nullptr && q_.out_count > 0)
            refuse(message() << "the output is null, of " << q_.out_count << " elements");
        if (q_.with_counts)
            with_counts(n, me, root);
        else
            without_counts(n, me, root);
        if (q_.two && gives && takes) overlap();
    }

private:
    [[noreturn]] [[gnu::cold]] [[gnu::noinline]] void refuse(const message& why) const {
        message text;
        text << "colls: rank " << e_.rank << " in " << name_of(c_.what) << (q_.with_counts ? "_v" : "") << ": "
             << why.text();
        throw error(errc::invalid_argument, text.text(), e_.rank);
    }
    void expect(const char* what, std::size_t got, std::size_t want) const {
        if (got != want)
            refuse(message() << "the " << what << " holds " << got << " elements, and should hold " << want);
    }
    /// Either of the two may be the wrong one.
    void expect_block(const char* all, std::size_t held, const char* block, std::size_t got, std::size_t want) const {
        if (got != want)
            refuse(message() << "the " << all << " holds " << held << " elements, of which this rank's block is "
                             << want << ", and the " << block << " holds " << got);
    }

    void without_counts(std::size_t n, std::size_t me, bool root) {
        switch (c_.what) {
            case collective::barrier:
                break;
            case collective::broadcast:
                c_.count = q_.out_count;
                break;
            case collective::all_reduce:
            case collective::inclusive_scan:
            case collective::exclusive_scan:
                c_.count = q_.in_count;
                expect("output", q_.out_count, c_.count);
                break;
            case collective::reduce:
                c_.count = q_.in_count;
                if (root) expect("output", q_.out_count, c_.count);
                break;
            case collective::all_to_all:
                c_.count = q_.in_count;
                expect("output", q_.out_count, c_.count);
                if (c_.count % n != 0)
                    refuse(message() << c_.count << " elements do not divide by " << n
                                     << " ranks (all_to_all_v takes counts)");
                break;
            case collective::all_gather:
                c_.count = q_.out_count;
                expect_block("output", c_.count, "input", q_.in_count, balanced(c_.count, n, me).count);
                break;
            case collective::reduce_scatter:
                c_.count = q_.in_count;
                expect_block("input", c_.count, "output", q_.out_count, balanced(c_.count, n, me).count);
                break;
            case collective::gather:
                c_.own_count = q_.in_count;
                c_.count_from_root = !root;
                if (root)
                    expect_block(
                        "output", c_.count = q_.out_count, "input", q_.in_count, balanced(q_.out_count, n, me).count);
                break;
            case collective::scatter:
                c_.own_count = q_.out_count;
                c_.count_from_root = !root;
                if (root)
                    expect_block(
                        "input", c_.count = q_.in_count, "output", q_.out_count, balanced(q_.in_count, n, me).count);
                break;
        }
    }
    // Prefix sums of counts; their total must be that of the buffer.
    list<std::size_t> table(
        const list<std::size_t>& counts, std::size_t n, const char* buffer, std::size_t held) const {
        if (counts.size() != n) refuse(message() << counts.size() << " counts for " << n << " ranks");
        list<std::size_t> sums;
        std::size_t sum = 0;
        sums.push_back(0);
        for (const std::size_t k : counts) sums.push_back(sum += k);
        expect(buffer, held, sum);
        return sums;
    }
    void with_counts(std::size_t n, std::size_t me, bool root) {
        if (q_.negative) refuse(message() << "a count is negative");
        switch (c_.what) {
            case collective::all_gather:
            case collective::reduce_scatter: {
                const bool gathers = c_.what == collective::all_gather;
                q_.in_offsets =
                    gathers ? table(q_.sends, n, "output", q_.out_count) : table(q_.sends, n, "input", q_.in_count);
                c_.count = q_.in_offsets[n];
                if (gathers)
                    expect("input", q_.in_count, q_.sends[me]);
                else
                    expect("output", q_.out_count, q_.sends[me]);
                for (const std::size_t k : q_.sends) c_.signature = hash_mix(c_.signature, k);
                c_.in_offsets = c_.out_offsets = q_.in_offsets.data();
                break;
            }
            case collective::gather:
            case collective::scatter: {  // the counts matter at the root; elsewhere they may be left out
                const bool gathers = c_.what == collective::gather;
                c_.own_count = gathers ? q_.in_count : q_.out_count;
                c_.ragged = true;
                if (root) {
                    q_.in_offsets =
                        gathers ? table(q_.sends, n, "output", q_.out_count) : table(q_.sends, n, "input", q_.in_count);
                    (gathers ? c_.out_offsets : c_.in_offsets) = q_.in_offsets.data();
                    c_.count = q_.in_offsets[n];
                }
                if (q_.sends.size() == n) expect(gathers ? "input" : "output", c_.own_count, q_.sends[me]);
                break;
            }
            default:
                q_.in_offsets = table(q_.sends, n, "input", q_.in_count);
                q_.out_offsets = table(q_.receives, n, "output", q_.out_count);
                c_.in_offsets = q_.in_offsets.data();
                c_.out_offsets = q_.out_offsets.data();
                c_.count = q_.in_count;
                c_.ragged = true;
                if (c_.in == c_.out && c_.count > 0)
                    for (std::size_t i = 0; i < n; ++i)
                        if (q_.sends[i] != q_.receives[i])
                            refuse(message()
                                   << "in place, what is sent to a rank must be as long as what is received from it");
        }
    }

    // In place means: the same buffer, or the own block within the whole. Anything else must not overlap.
    void overlap() const {
        const std::byte *in = c_.in, *out = c_.out;
        const std::size_t in_bytes = q_.in_count * c_.element, out_bytes = q_.out_count * c_.element;
        if (in_bytes == 0 || out_bytes == 0) return;
        const std::byte *in_place_in = in, *in_place_out = out;
        if (owned(c_.what)) {
            const auto n = static_cast<std::size_t>(e_.size), me = static_cast<std::size_t>(e_.rank);
            const std::size_t first =
                q_.in_offsets.size() == n + 1 ? q_.in_offsets[me] : balanced(c_.count, n, me).first;
            const bool gathers = c_.what == collective::gather || c_.what == collective::all_gather;
            (gathers ? in_place_out : in_place_in) += first * c_.element;
        }
        if (in_place_in == in_place_out) return;
        const auto address = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); };
        if (address(in) < address(out) + out_bytes && address(out) < address(in) + in_bytes)
            refuse(message() << "input and output overlap without being in place: "
                             << (owned(c_.what) ? "in place, the one is this rank's own block of the other"
                                                : "in place, they are the same buffer"));
    }

    const rank_context& e_;
    request& q_;
    call& c_;
};

}  // namespace colls::inline v1::detail
