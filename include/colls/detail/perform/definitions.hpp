// The definitions of what perform.hpp declares.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Included with the calls; or compiled once, in src/calls.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/detail/perform/allocation.hpp>
#include <colls/detail/perform/group_calls.hpp>
#include <colls/detail/perform/message_calls.hpp>
#include <colls/detail/perform/perform_call.hpp>
#include <colls/detail/perform/prepared_call.hpp>
#include <colls/detail/perform/progress_worker.hpp>
#include <colls/detail/perform/started_operation.hpp>
