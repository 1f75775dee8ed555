// How a part of the library that has threads of its own forms groups for them: on connections that no other thread
// uses.
// IWYU pragma: private
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/communicator.hpp>
#include <colls/net/detail/connection/gpu_of_connections.hpp>

#include <atomic>

namespace colls::inline v1::detail {

/// bootstrap(), in programs that have it: those that call world() or bootstrap(), or link the library.
using group_maker = communicator (*)(int rank, int size, member_exchange&);
inline constinit std::atomic<group_maker> bootstrap_of_program{nullptr};
void bring_bootstrap();

}  // namespace colls::inline v1::detail
