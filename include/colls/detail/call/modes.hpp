// What becomes of a request: it is performed, started or prepared.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/call/perform.hpp>
#include <colls/operation.hpp>

namespace colls::inline v1::detail {

// `keeps`: the call uses its arguments after the statement that makes it.
struct blocking_mode {
    using result = void;
    static constexpr bool keeps = false;
    static void run(rank_context& e, request& q) { perform(e, q); }
};
struct start_mode {
    using result = operation;
    static constexpr bool keeps = true;
    static operation run(rank_context& e, request& q) { return {e, begin(e, q)}; }
};
struct prepare_mode {
    using result = plan;
    static constexpr bool keeps = true;
    static plan run(rank_context& e, request& q) { return plan(e, q); }
};

}  // namespace colls::inline v1::detail
