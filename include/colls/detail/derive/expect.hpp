// The compile error for what is neither a schedule nor a family.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/family.hpp>

namespace colls::inline v1::detail {

/// Says in words what S lacks where a call or a proof is given it. False: what follows is not compiled.
template <class S>
constexpr bool expect_schedule_or_family() {
    constexpr bool is = schedule<S> || family<S>;
    static_assert(is,
        "colls: this is not a schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` or `at(rank, n, "
        "round, port)` "
        "that returns a colls::step, const or static, in a trivially copyable type; or it is a family, which names "
        "such types");
    return is;
}

}  // namespace colls::inline v1::detail
