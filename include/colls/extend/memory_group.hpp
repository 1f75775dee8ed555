// Groups of ranks that load from and store to each other's memory: implement memory_group (memory_member.hpp), and make
// the first group with `join`. See docs/extending.md.
#pragma once

#include <colls/communicator.hpp>
#include <colls/extend/memory_member.hpp>

#include <utility>

namespace colls::inline v1::extend {

/// How much memory a group of `size` ranks needs for flags and small messages, in bytes. Pages of it that a group never
/// uses are never touched.
std::size_t control_bytes(int size);
/// Has that rank left the group whose memory this is?
bool has_left(std::byte* control, int size, int rank);
/// Has it completed this many operations of that group?
bool has_completed(std::byte* control, int size, int rank, std::uint64_t operations);

/// The communicator of rank `rank` of a group of `size` ranks. Not collective: each rank calls it with its own member.
/// Throws std::bad_alloc; colls::error where the environment holds an invalid value.
inline communicator join(memory_member&& member, int rank, int size) {
    return communicator(detail::join_by_memory(std::move(member), rank, size));
}

}  // namespace colls::inline v1::extend

#ifndef COLLS_SEPARATE
#include <colls/detail/backend/shared_memory_backend.hpp>
#include <colls/detail/perform/engine.hpp>
#include <colls/files/detail/call_tracer.hpp>
#include <colls/files/detail/tuning_file.hpp>
#include <colls/status/detail/own_record.hpp>
#endif
