// class plan: a persistent call, checked once and run many times.
#pragma once

#include <colls/operation.hpp>

namespace colls::inline v1 {

/// A persistent collective, as prepare::... returns it: its arguments are checked and its schedule is chosen, so that
/// each run costs the collective alone.
///
/// The buffers of the call must outlive the plan; the operator and counts are copied. All ranks run and start their
/// plans in the same order. A plan holds the group, as an operation does.
class [[nodiscard]] plan {
public:
    /// For the library: checks the request and keeps it.
    plan(detail::rank_context& e, detail::request& q) : e_(&e), p_(detail::prepare_call(e, q)) {}
    plan(plan&& other) noexcept : e_(other.e_), p_(other.p_) { other.p_ = nullptr; }
    plan& operator=(plan&& other) noexcept {
        if (this != &other) {
            detail::drop_prepared(p_);
            e_ = other.e_;
            p_ = other.p_;
            other.p_ = nullptr;
        }
        return *this;
    }
    ~plan() { detail::drop_prepared(p_); }

    /// Makes the call and returns when it is over. Does not allocate memory from its second time on, except for
    /// scratch memory where more operations of this rank are in flight than ever before. Throws colls::error, with
    /// invalid_argument where the plan was moved from, or the operation of its last start() is not over.
    void run() { detail::run_prepared(p_); }
    /// Starts the call. The next run or start needs the operation to be over, which a test or wait must have found. The
    /// plan may be destroyed before the operation. Throws as run().
    operation start() {
        detail::operation_state* const o = detail::start_prepared(p_);  // throws where the plan was moved from
        return {*e_, o};
    }

private:
    detail::rank_context* e_;
    detail::prepared* p_;
};

}  // namespace colls::inline v1
