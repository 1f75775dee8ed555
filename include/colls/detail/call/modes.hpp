// What becomes of a request: it is performed, started or prepared.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/perform/interface.hpp>
#include <colls/operation.hpp>

namespace colls::inline v1::detail {

// `keeps`: the call uses its arguments after the statement that makes it. `messages`: send and recv have this form,
// too.
struct blocking_mode {
    using result = void;
    static constexpr bool keeps = false, messages = true;
    static constexpr auto& run = perform;
    static constexpr auto& run_message = perform_message;
};
struct start_mode {
    using result = operation;
    static constexpr bool keeps = true, messages = true;
    static operation run(rank_context& self, request& q) { return {self, begin(self, q)}; }
    static operation run_message(rank_context& self, operation_kind kind, const call& c, int peer) {
        return {self, begin_message(self, kind, c, peer)};
    }
};
struct prepare_mode {
    using result = plan;
    static constexpr bool keeps = true, messages = false;
    static plan run(rank_context& self, request& q) { return plan(self, q); }
};

}  // namespace colls::inline v1::detail
