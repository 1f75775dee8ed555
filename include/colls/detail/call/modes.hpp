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
    // Always inline: no frame of its own between a call and what it does.
    [[gnu::always_inline]] static void run(const rank_handle& rank, request& q) { rank.by->perform(*rank.self, q); }
    static void run_message(const rank_handle& rank, operation_kind kind, const call& c, int peer) {
        rank.by->perform_message(*rank.self, kind, c, peer);
    }
};
struct start_mode {
    using result = operation;
    static constexpr bool keeps = true, messages = true;
    static operation run(const rank_handle& rank, request& q) { return {rank, rank.by->begin(*rank.self, q)}; }
    static operation run_message(const rank_handle& rank, operation_kind kind, const call& c, int peer) {
        return {rank, rank.by->begin_message(*rank.self, kind, c, peer)};
    }
};
struct prepare_mode {
    using result = plan;
    static constexpr bool keeps = true, messages = false;
    static plan run(const rank_handle& rank, request& q) { return plan(rank, q); }
};

}  // namespace colls::inline v1::detail
