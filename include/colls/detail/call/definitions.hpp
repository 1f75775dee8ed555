// The definitions of what perform.hpp declares.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Included with the calls; or compiled once, in src/calls.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/detail/call/allocation.hpp>
#include <colls/detail/call/group_calls.hpp>
#include <colls/detail/call/message_calls.hpp>
#include <colls/detail/call/perform_call.hpp>
#include <colls/detail/call/prepared_call.hpp>
#include <colls/detail/call/progress_worker.hpp>
#include <colls/detail/call/started_operation.hpp>
