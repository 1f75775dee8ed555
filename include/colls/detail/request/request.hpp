// A call without its types: a collective or a message as executors are handed it, where its schedule comes from, and
// the arguments as the caller gave them, not yet checked.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/blocks.hpp>
#include <colls/detail/support/list.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace colls::inline v1::detail {

/// Packed copies of a call's buffers, which the call moves in place of them. `pack` may throw what an operator throws.
class packed_arguments {
public:
    virtual void pack() = 0;
    virtual void unpack() = 0;

protected:
    packed_arguments() = default;
    packed_arguments(const packed_arguments&) = delete;
    virtual ~packed_arguments() = default;

private:
    friend class shared_packing;
    int holders_ = 0;
};

/// Shares packed arguments, or holds none: the call, the operation that runs it and the plan that keeps it need them.
/// (No std::shared_ptr: every unit that makes a call would include <memory>.)
class shared_packing {
public:
    shared_packing() = default;
    explicit shared_packing(packed_arguments* b) : b_(b) {
        if (b_) ++b_->holders_;
    }
    shared_packing(const shared_packing& other) : b_(other.b_) {
        if (b_) ++b_->holders_;
    }
    shared_packing& operator=(shared_packing other) {
        std::swap(b_, other.b_);
        return *this;
    }
    ~shared_packing() {
        if (b_ && --b_->holders_ == 0) delete b_;
    }

    explicit operator bool() const { return b_ != nullptr; }
    packed_arguments* operator->() const { return b_; }

private:
    packed_arguments* b_ = nullptr;
};

struct op_table;

enum class operation_kind : unsigned char { collective, send, recv };

/// Counts and offsets are in elements.
struct call {
    collective what{};
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t count = 0;      ///< of the whole layout: the blocks of all ranks
    std::size_t own_count = 0;  ///< of this rank's own block, where the collective has one
    std::size_t element = 1;    ///< bytes of an element
    const op_table* op = nullptr;
    const void* op_value = nullptr;
    int root = 0;
    const std::size_t* in_offsets = nullptr;  ///< blocks + 1 entries; null: balanced blocks
    const std::size_t* out_offsets = nullptr;
    bool ragged = false;           ///< each rank knows its own counts only
    bool count_from_root = false;  ///< this rank does not know `count`: the root tells it
    bool non_blocking = false;
    bool is_signed = false;       ///< by the eager path, which has passed it on: see eager_executor::post_unsized
    bool reproducible = false;    ///< chosen among schedules of a single fold, as the call or the environment asks
    std::uint64_t signature = 0;  ///< hash of the element type and the operator
    const std::string_view *type = nullptr, *op_type = nullptr;  ///< their names
    shared_packing packed{};  ///< buffers that `in` and `out` are packed copies of, or none
};

/// Do not all ranks know the size? Then no rank may choose by it. Of a gather or scatter a rank other than the root may
/// know its own block only.
inline bool is_unsized(const call& c) { return c.ragged || (traits_of(c.what).owned() && traits_of(c.what).rooted()); }

/// A schedule that `automatic` may choose.
struct candidate {
    std::string_view name;
    any_schedule schedule;
    bool single_fold = false;  ///< at every group size (fold_properties.hpp)
    int period = 0;            ///< rank r + period does the same as rank r, moved on by as much; 0: not known
};
struct candidates {
    const candidate* first = nullptr;
    int count = 0;
};

candidates all_candidates_of(collective what);

struct prepared;

struct request {
    // As an aggregate it would be cleared as a whole first, 7 ns a call.
    explicit request(collective what, int root = 0) {
        c.what = what;
        c.root = root;
    }

    call c;  ///< the caller sets what, in, out, element, op, op_value, root and signature; the checks set the rest
    std::size_t in_count = 0, out_count = 0;
    bool with_counts = false;
    list<std::size_t> sends, receives;          ///< counts of the v-variants
    bool negative = false;                      ///< one of these counts is negative
    list<std::size_t> in_offsets, out_offsets;  ///< prefix sums of the counts
    void* (*copy_op)(const void*) = nullptr;    ///< copies the operator for calls that outlive their arguments;
    void (*drop_op)(void*) = nullptr;           ///< destroys that copy. Both null: the operator has no state
    const any_schedule* given = nullptr;        ///< null: one of the candidates
    const any_schedule* instead = nullptr;      ///< runs in place of `given`, once that has been checked
    bool reproducible = false;                  ///< the call has the constraint colls::reproducible
    prepared* of = nullptr;                     ///< the persistent call that it belongs to, checked once; or null
};

}  // namespace colls::inline v1::detail
