// The operations of a rank: how a call takes one, and gives it back.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/perform/prepared.hpp>

namespace colls::inline v1::detail {

/// The operation of the persistent call `of`; an idle one where the call is none, or has no operation yet; or a new
/// one.
inline operation_state* take_operation(rank_context& e, prepared* of) {
    if (of != nullptr) {
        if (operation_state* const own = of->own) {
            of->own = nullptr;
            return own;
        }
        e.in_flight.reserve(static_cast<std::size_t>(e.holders));  // all persistent calls are holders
    }
    operation_state* o = nullptr;
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
    if (o.of != nullptr)
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
