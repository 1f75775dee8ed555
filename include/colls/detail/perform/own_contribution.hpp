// What an operator does to a rank's contribution before the first fold: the rank does it itself, before the call.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// So each rank may have an operator of its own (premul_sum's factor), and no fold needs to know whose data it folds. It
// costs a pass over the input; for some collectives also memory of its size, which the rank keeps for its calls.
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/perform/allocation.hpp>
#include <colls/detail/perform/interface.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/request/request.hpp>

namespace colls::inline v1::detail {

/// The changed contribution, which the call moves in place of the user's.
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

}  // namespace colls::inline v1::detail
