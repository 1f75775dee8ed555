// The arguments of a collective as its caller gave them, types erased and not yet checked.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/request/call.hpp>
#include <colls/detail/request/candidates.hpp>
#include <colls/detail/support/list.hpp>

namespace colls::inline v1::detail {

struct prepared;

struct request {
    call c;  ///< the caller sets what, in, out, element, op, op_value, root and signature; the checks set the rest
    std::size_t in_count = 0, out_count = 0;
    bool with_counts = false;
    list<std::size_t> sends, receives;          ///< counts of the v-variants
    bool negative = false;                      ///< one of these counts is negative
    list<std::size_t> in_offsets, out_offsets;  ///< prefix sums of the counts
    void* (*copy_op)(const void*) = nullptr;    ///< copies the operator for calls that outlive their arguments;
    void (*drop_op)(void*) = nullptr;           ///< destroys that copy. Both null: the operator has no state
    chooser how;
    prepared* of = nullptr;  ///< the persistent call that it belongs to, checked once; or null
};

}  // namespace colls::inline v1::detail
