// The definitions behind perform.hpp. Included with the calls, or compiled once, in src/calls.cpp, for units that
// define COLLS_SEPARATE.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/call/allocation.hpp>
#include <colls/detail/call/group_calls.hpp>
#include <colls/detail/call/message_calls.hpp>
#include <colls/detail/call/perform_call.hpp>
#include <colls/detail/call/prepared_call.hpp>
#include <colls/detail/call/progress_worker.hpp>
#include <colls/detail/call/started_operation.hpp>
