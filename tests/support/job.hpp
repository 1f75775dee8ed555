// One collective call by all ranks of a group: its buffers, the call, and the check of its results.
#pragma once

#include "matrix.hpp"

#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace support {

/// A call of a whole group.
struct call_plan {
    support::shape shape;
    bool variable = false;  ///< the v-variant
    bool in_place = false;
    bool same = false;          ///< all_reduce in place: the overload with one buffer
    bool idle_buffers = false;  ///< buffers where none is used (as `in` off the root of a scatter); must not change
    way how = way::blocking;
    const colls::any_schedule* chosen = nullptr;
    std::string schedule = "automatic";
    std::uint64_t seed = 0;
    std::size_t shift = 0;  ///< from a cache line to the buffers, in elements
};

template <class Comm>
class job {
public:
    job(const entry<Comm>& e, call_plan p) : entry_(&e), plan_(std::move(p)) { build(); }

    const call_plan& plan() const { return plan_; }

    /// Replaces a buffer, with its guards, by a copy in the communicator's memory or in memory of this process alone:
    /// the test's own buffers are shared by all its processes. `settle` copies back what was written.
    class stand_in {
    public:
        stand_in(Comm& comm, guarded& original, bool reached) : original_(original.whole()) {
            const std::size_t bytes = (original_.size() + 63) / 64 * 64;
            if (reached)
                given_.emplace(comm.template allocate<std::byte>(bytes));
            else
                own_ = std::shared_ptr<void>(std::aligned_alloc(64, bytes), &std::free);
            copy_ = reached ? given_->data() : static_cast<std::byte*>(own_.get());
            std::memcpy(copy_, original_.data(), original_.size());
        }
        template <class P>
        bool replaces(P*& p) {
            if (p < original_.data() || p >= original_.data() + original_.size()) return false;
            p = copy_ + (p - original_.data());
            return true;
        }
        void settle() { std::memcpy(original_.data(), copy_, original_.size()); }

    private:
        std::span<std::byte> original_;
        std::optional<colls::memory<std::byte>> given_;
        std::shared_ptr<void> own_;
        std::byte* copy_;
    };

    /// Makes the call on one rank. With `stand_ins`, the buffers are replaced by memory of the communicator (`reached`)
    /// or of this process alone, and the caller settles them when the call is complete.
    void run(Comm& comm, flight& in_flight, std::deque<stand_in>* stand_ins = nullptr, bool reached = true) {
        const auto r = static_cast<std::size_t>(comm.rank());
        rank_buffers& b = ranks_[r];
        arguments a;
        a.collective = plan_.shape.collective;
        a.variable = plan_.variable;
        a.same = plan_.same;
        a.chosen = plan_.chosen;
        a.root = plan_.shape.root;
        a.in = b.in_at;
        a.out = b.out_at;
        if (stand_ins)
            for (guarded* original : {&b.in, &b.out}) {
                if (original->size() == 0) continue;
                stand_in& s = stand_ins->emplace_back(comm, *original, reached);
                s.replaces(a.in);
                s.replaces(a.out);
            }
        a.in_count = b.in_count;
        a.out_count = b.out_count;
        a.counts = plan_.shape.counts;
        if (plan_.shape.collective == verb::all_to_all) {
            a.counts = a.counts.subspan(r * plan_.shape.size(), plan_.shape.size());
            a.receive_counts = b.receive_counts;
        }
        entry_->run(comm, a, plan_.how, in_flight);
    }

    /// When all ranks are done: empty, or what is wrong.
    std::string wrong() const {
        for (int r = 0; r < plan_.shape.n; ++r) {
            if (const std::string text = wrong_at(r); !text.empty()) return text;
            // Results that are the same on all ranks must have the same bits.
            const auto own = result_for_all(r), first = result_for_all(0);
            if (!own.empty() && std::memcmp(own.data(), first.data(), own.size()) != 0)
                return "rank " + std::to_string(r) + ": differs from rank 0 bit by bit";
        }
        return {};
    }
    /// The result of a rank, if all ranks must have the same bits; else empty.
    std::span<const std::byte> result_for_all(int rank) const {
        const rank_buffers& b = ranks_[static_cast<std::size_t>(rank)];
        if (plan_.shape.collective != verb::all_reduce) return {};
        return {b.out_at, b.want.size()};
    }
    /// What is wrong on one rank, or empty.
    std::string wrong_at(int r) const {
        const support::shape& s = plan_.shape;
        const kind& k = entry_->kind;
        const rank_buffers& b = ranks_[static_cast<std::size_t>(r)];
        const std::string where = "rank " + std::to_string(r) + ": ";
        for (const auto& [buffer, name] : {std::pair{&b.in, "in"}, std::pair{&b.out, "out"}})
            if (const std::string at = buffer->broken(); !at.empty())
                return where + "a byte was written " + at + " (" + name + ", " + std::to_string(buffer->size()) +
                       " bytes)";
        if (!plan_.in_place && s.collective != verb::broadcast && !same(b.in, b.in_before))
            return where + "the input was changed";
        if (!s.writes(r)) {
            // A reduce_scatter in place may overwrite the blocks of other ranks.
            if (!(plan_.in_place && s.collective == verb::reduce_scatter) && !same(b.out, b.out_before))
                return where + "a buffer that the call does not write was changed";
            return {};
        }
        if (plan_.in_place && s.collective == verb::scatter && r == s.root && !same(b.out, b.in_before))
            return where + "the input was changed";
        const byte_list& want = b.want;
        if (judged_by_bound()) {
            if (const std::string text = far(r); !text.empty()) return where + text;
        } else if (std::memcmp(b.out_at, want.data(), want.size()) != 0) {
            std::size_t i = 0;
            while (b.out_at[i] == want[i]) ++i;
            return where + "element " + std::to_string(i / k.size) + " of " + std::to_string(s.out_count(r)) +
                   " differs from the serial reference: got " + hex(b.out_at + i / k.size * k.size, k.size) +
                   ", want " + hex(want.data() + i / k.size * k.size, k.size);
        }
        return {};
    }

    /// The same call on the same input must give the same bits: empty, or where it did not.
    std::string differs_from(const job& other) const {
        for (int r = 0; r < plan_.shape.n; ++r)
            if (const std::string text = differs_at(r, other); !text.empty()) return text;
        return {};
    }
    std::string differs_at(int r, const job& other) const {
        const rank_buffers &a = ranks_[static_cast<std::size_t>(r)], &b = other.ranks_[static_cast<std::size_t>(r)];
        if (plan_.shape.writes(r) && std::memcmp(a.out_at, b.out_at, a.want.size()) != 0)
            return "rank " + std::to_string(r) + ": a second run of the same call gave other bits";
        return {};
    }

    std::string describe() const {
        const support::shape& s = plan_.shape;
        std::string text = std::string(name_of(s.collective)) + (plan_.variable ? "_v" : "") + ", " + plan_.schedule +
                           ", n " + std::to_string(s.n) + ", " + entry_->kind.name;
        if (s.collective != verb::all_to_all)
            text += ", count " + std::to_string(s.total());
        else
            text += ", rank 0 sends " + std::to_string(s.in_count(0));
        if (rooted(s.collective)) text += ", root " + std::to_string(s.root);
        if (plan_.in_place) text += plan_.same ? ", in place (one buffer)" : ", in place";
        text += plan_.how == way::blocking ? "" : plan_.how == way::started ? ", started" : ", prepared";
        if (plan_.idle_buffers) text += ", idle buffers";
        return text + ", shift " + std::to_string(plan_.shift);
    }

    /// Whether the call exists in place.
    static bool can_be_in_place(const support::shape& s, bool variable) {
        return s.collective != verb::barrier && s.collective != verb::broadcast &&
               !(variable && s.collective == verb::all_to_all);
    }

private:
    struct rank_buffers {
        guarded in, out;  // in place: only one of them has a size
        std::byte* in_at = nullptr;
        std::byte* out_at = nullptr;
        std::size_t in_count = 0, out_count = 0;
        byte_list in_before, out_before, want;
        std::vector<std::size_t> receive_counts;
    };

    static bool same(const guarded& now, const byte_list& before) {
        return before.empty() || std::memcmp(now.data(), before.data(), before.size()) == 0;
    }

    void build() {
        const support::shape& s = plan_.shape;
        const kind& k = entry_->kind;
        ranks_.resize(s.size());
        std::vector<byte_list> inputs(s.size());
        for (int r = 0; r < s.n; ++r) {
            const auto i = static_cast<std::size_t>(r);
            random_source random = stream(plan_.seed, i);
            inputs[i].resize(s.in_count(r) * k.size);
            k.fill(inputs[i].data(), s.in_count(r), 0, r, random);
        }
        std::vector<byte_list> want = expected(s, k, inputs);
        for (int r = 0; r < s.n; ++r) {
            const auto i = static_cast<std::size_t>(r);
            rank_buffers& b = ranks_[i];
            b.want = std::move(want[i]);
            b.in_before = std::move(inputs[i]);
            place(r, b);
            if (s.collective == verb::all_to_all)
                for (std::size_t from = 0; from < s.size(); ++from)
                    b.receive_counts.push_back(s.counts[from * s.size() + i]);
        }
    }

    void place(int r, rank_buffers& b) {
        const support::shape& s = plan_.shape;
        const kind& k = entry_->kind;
        const std::size_t shift = plan_.shift * k.align;
        const std::size_t in_bytes = s.in_count(r) * k.size, out_bytes = s.out_count(r) * k.size;
        const std::size_t idle_bytes = plan_.idle_buffers ? s.total() * k.size : 0;
        if (s.collective == verb::broadcast) {
            b.out = guarded(out_bytes, shift);
            if (in_bytes) std::memcpy(b.out.data(), b.in_before.data(), in_bytes);
            b.out_at = b.out.data();
            b.out_count = s.total();
        } else if (plan_.in_place) {
            // One buffer: `in` lies within `out` (all_gather, gather), `out` within `in` (scatter, reduce_scatter), or
            // both are the same.
            const bool off_root = rooted(s.collective) && r != s.root;
            std::size_t in_from = 0, out_from = 0;
            if (!off_root && (s.collective == verb::all_gather || s.collective == verb::gather))
                in_from = s.before(r) * k.size;
            if (!off_root && (s.collective == verb::reduce_scatter || s.collective == verb::scatter))
                out_from = s.before(r) * k.size;
            b.out = guarded(std::max(in_bytes, out_bytes), shift);
            if (in_bytes) std::memcpy(b.out.data() + in_from, b.in_before.data(), in_bytes);
            b.in_at = b.out.data() + in_from;
            b.out_at = b.out.data() + out_from;
            b.in_count = s.in_count(r);
            b.out_count = s.out_count(r);
        } else {
            const bool idle_in = s.collective == verb::scatter && r != s.root;
            const bool idle_out = (s.collective == verb::gather || s.collective == verb::reduce) && r != s.root;
            b.in = guarded(idle_in ? idle_bytes : in_bytes, shift);
            b.out = guarded(idle_out ? idle_bytes : out_bytes, shift / 2 / k.align * k.align);
            if (in_bytes) std::memcpy(b.in.data(), b.in_before.data(), in_bytes);
            if (idle_in) b.in_before.assign(b.in.data(), b.in.data() + b.in.size());
            b.in_at = b.in.data();
            b.out_at = b.out.data();
            b.in_count = b.in.size() / k.size;
            b.out_count = b.out.size() / k.size;
        }
        if (!s.writes(r)) b.out_before.assign(b.out.data(), b.out.data() + b.out.size());
    }

    bool judged_by_bound() const { return entry_->kind.far && reduces(plan_.shape.collective); }
    std::string far(int r) const {
        const support::shape& s = plan_.shape;
        const kind& k = entry_->kind;
        const rank_buffers& b = ranks_[static_cast<std::size_t>(r)];
        const std::size_t from = s.collective == verb::reduce_scatter ? s.before(r) * k.size : 0;
        std::vector<const std::byte*> parts;
        for (int p = 0; p < s.contributors_at(r); ++p)
            parts.push_back(ranks_[static_cast<std::size_t>(p)].in_before.data() + from);
        const std::ptrdiff_t i = k.far(b.out_at, parts, s.out_count(r));
        return i < 0 ? std::string()
                     : "element " + std::to_string(i) + " is further from the exact sum than rounding explains";
    }
    static std::string hex(const std::byte* p, std::size_t size) {
        std::string text;
        for (std::size_t i = 0; i < size && i < 24; ++i) {
            constexpr const char* digits = "0123456789abcdef";
            const auto x = std::to_integer<unsigned>(p[i]);
            text += {digits[x >> 4], digits[x & 15]};
        }
        return text;
    }

    const entry<Comm>* entry_;
    call_plan plan_;
    std::vector<rank_buffers> ranks_;
};

}  // namespace support
