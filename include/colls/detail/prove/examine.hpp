// The proof at run time, of a schedule whose type is erased: what an execution plan needs before it is made.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/verify.hpp>

namespace colls::inline v1::detail {

#ifndef COLLS_SEPARATE
COLLS_INLINE finding prove(const any_schedule& s, int n) {
    symbolic_execution e(s, n, reduces(s.implements));
    const report r = e.run();
    finding f{.right = r.ok(), .rank = r.rank, .round = r.round, .text = {}};
    f.order_preserving = r.ok() && e.in_rank_order();
    f.one_expression = r.ok() && e.folds().one_expression;
    if (!r.ok()) f.text << r.text();
    return f;
}
#endif

}  // namespace colls::inline v1::detail
