// The operations of a rank: how a call takes one, and gives it back.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/perform/prepared.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// The operation of the persistent call `of`. Without one, or where a hook runs the call while it runs, an idle one, or
/// a new one.
inline operation_state* take_operation(rank_context& e, prepared* of) {
    operation_state* o = nullptr;
    if (of != nullptr && of->own != nullptr) {
        std::swap(o, of->own);
        return o;
    }
    if (e.idle.empty()) {
        o = new operation_state;
    } else {
        o = e.idle.back();
        e.idle.pop_back();
    }
    o->of = of;
    return o;
}
/// Takes back an operation that is not in use any more.
inline void give_operation(rank_context& e, operation_state& o) {
    if (o.of != nullptr && o.of->own == nullptr)
        o.of->own = &o;
    else
        e.idle.push_back(&o);
}

/// An operation, of the persistent call `of` if there is one. Unless released it is given back at the end of the scope.
class taken_operation {
public:
    taken_operation(rank_context& e, prepared* of) : e_(e), o_(take_operation(e, of)) {}
    taken_operation(const taken_operation&) = delete;
    taken_operation& operator=(const taken_operation&) = delete;
    ~taken_operation() {
        if (!o_) return;
        o_->request.packed = {};
        give_operation(e_, *o_);
    }
    operation_state& operator*() const { return *o_; }
    void release() { o_ = nullptr; }

private:
    rank_context& e_;
    operation_state* o_;
};

}  // namespace colls::inline v1::detail
