// What is behind the calls of a group: compiled where groups are made.
// IWYU pragma: private, include <colls/communicator.hpp>
//
// That is in each unit that makes groups; or once, in src/calls.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/detail/choose/explanation.hpp>
#include <colls/detail/perform/group_calls.hpp>
#include <colls/detail/perform/interface.hpp>
#include <colls/detail/perform/message_calls.hpp>
#include <colls/detail/perform/perform_call.hpp>
#include <colls/detail/perform/started_operation.hpp>
#include <colls/detail/perform/taken_collective.hpp>

namespace colls::inline v1::detail {

COLLS_INLINE const engine& own_engine() {
    static constexpr engine all{
        .refuse_call = refuse_call,
        .set_composite = set_composite,
        .perform = perform,
        .perform_message = perform_message,
        .perform_exchange = perform_exchange,
        .perform_recv_any = perform_recv_any,
        .probe_any = probe_any,
        .begin = begin,
        .begin_message = begin_message,
        .begins_at_once = begins_at_once,
        .test_operation = test_operation,
        .wait_operation = wait_operation,
        .wait_operation_for = wait_operation_for,
        .finish_operation = finish_operation,
        .prepare_call = prepare_call,
        .check_arguments = check_arguments,
        .run_prepared = run_prepared,
        .start_prepared = start_prepared,
        .drop_prepared = drop_prepared,
        .split = split,
        .shrink = shrink,
        .leave_group = leave_group,
        .dump = dump,
        .abort_group = abort_group,
        .tie_parts = tie_parts,
        .set_timeout = set_timeout,
        .hosts_of = hosts_of,
        .allocate = allocate,
        .take_kept = take_kept,
        .give_kept = give_kept,
        .start_progress = start_progress,
        .model_of = group_model,
        .chosen = choice,
        .explain = explanation,
    };
    return all;
}

}  // namespace colls::inline v1::detail
