// What a call takes of its rank, and gives back: its executor, of which a plan keeps its own, and memory; and memory
// from communicator::allocate.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/executor.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/perform/interface.hpp>
#include <colls/detail/request/request.hpp>

#include <atomic>
#include <memory>
#include <new>
#include <utility>

namespace colls::inline v1::detail {

/// What a plan keeps: a call, checked and with its schedule chosen. Its plan and the operation that it has started
/// share it.
struct prepared : std::enable_shared_from_this<prepared> {
    prepared(rank_context& self, request&& checked)
        : group(self.shared_from_this()), q(static_cast<request&&>(checked)) {}

    std::shared_ptr<rank_context> group;
    request q;
    schedule_choice blocking, started;
    std::shared_ptr<const void> op;  ///< the copy of the operator
    /// The call's own executor; null while it is in use. How many operations are in flight depends on time, so a run
    /// could find none idle.
    std::unique_ptr<executor> own;
    std::shared_ptr<prepared> held;  ///< the plan's share: this object itself
};

/// One that is idle, or a new one.
template <class Operation>
std::unique_ptr<Operation> take_idle(std::vector<std::unique_ptr<pending>>& idle, auto make) {
    std::unique_ptr<pending> o;
    if (idle.empty()) {
        o = make();
    } else {
        o = std::move(idle.back());
        idle.pop_back();
    }
    return std::unique_ptr<Operation>(static_cast<Operation*>(o.release()));
}
/// Takes back an executor that is not in use any more.
inline void give_collective(rank_context& self, std::unique_ptr<executor> o, prepared* of) {
    o->arguments.packed = {};
    o->is_prepared = of != nullptr && of->own == nullptr;
    if (o->is_prepared)
        of->own = std::move(o);
    else
        self.operations.idle_collectives.push_back(std::move(o));
}

/// An executor, with the call that it is to run: that of the persistent call `of`; without one, or where a hook runs
/// the call while it runs, any. Unless released it is given back at the end of the scope.
class taken_collective {
public:
    taken_collective(rank_context& self, const call& c, const schedule_choice& p, prepared* of)
        : self_(self), of_(of), o_(of != nullptr ? std::move(of->own) : nullptr) {
        if (!o_)
            o_ = take_idle<executor>(
                self.operations.idle_collectives, [&] { return self.backend->make_collective(self); });
        o_->arguments = c;
        o_->choose(p);
    }
    ~taken_collective() {
        if (o_) give_collective(self_, std::move(o_), of_);
    }
    executor& operator*() const { return *o_; }
    executor* operator->() const { return o_.get(); }
    executor& release() { return *o_.release(); }

private:
    rank_context& self_;
    prepared* of_;
    std::unique_ptr<executor> o_;
};

/// It keeps alive the backend, of which the memory is part.
struct allocation final : held_by_program {
    allocation(rank_context& self, std::size_t n)
        : from(self.backend), at(from->take_for_program(n)), bytes(n), born(self.born) {}
    void end() override {
        if (born != forks.load(std::memory_order_relaxed)) return;
        from->give(at, bytes);
        delete this;
    }
    const shared_backend from;
    std::byte* const at;
    const std::size_t bytes;
    const unsigned born;  ///< as rank_context::born
};
inline held_by_program* allocate(rank_context& self, std::size_t count, std::size_t element, std::byte*& at) {
    if (self.is_foreign()) refuse_progress(self);
    constexpr std::size_t most = std::size_t{1} << 56;  // no process has more addresses
    if (count > most / element) throw std::bad_array_new_length();
    auto* const a = new allocation(self, count * element);
    at = a->at;
    return a;
}
inline std::byte* take_kept(rank_context& self, std::size_t& bytes) {
    if (self.is_foreign()) refuse_progress(self);
    const progress_lock mine(self, progress_lock::quiet{});
    const memory_piece piece = self.scratch.take(*self.backend, bytes);
    if (piece.at != nullptr && !piece.populated) self.backend->populate(piece.at, piece.bytes);
    bytes = piece.bytes;
    return piece.at;
}
inline void give_kept(rank_context& self, std::byte* at, std::size_t bytes) {
    if (at == nullptr || self.is_foreign()) return;
    const progress_lock mine(self, progress_lock::quiet{});
    constexpr std::size_t most = 8;  // where many plans end, their memory goes back to the group
    if (self.scratch.pieces.size() < most)
        self.scratch.pieces.push_back({at, bytes, true});
    else
        self.backend->give(at, bytes);
}

}  // namespace colls::inline v1::detail
