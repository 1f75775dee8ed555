// Groups of ranks that pass messages: implement message_group (message_member.hpp) and message_transport, and make
// the first group with `join`. See docs/extending.md.
#pragma once

#include <colls/communicator.hpp>
#include <colls/extend/message_member.hpp>

#include <utility>

namespace colls::inline v1::extend {

/// The communicator of rank `rank` of a group of `size` ranks. Not collective: each rank calls it with its own member.
/// Throws std::bad_alloc; colls::error where the environment holds an invalid value.
inline communicator join(message_member&& member, int rank, int size) {
    return communicator(detail::join_by_messages(std::move(member), rank, size));
}

}  // namespace colls::inline v1::extend

#ifndef COLLS_SEPARATE
#include <colls/detail/perform/engine.hpp>
#include <colls/files/detail/call_tracer.hpp>
#include <colls/files/detail/tuning_file.hpp>
#include <colls/messages/detail/messaging_backend.hpp>
#include <colls/status/detail/own_record.hpp>
#endif
