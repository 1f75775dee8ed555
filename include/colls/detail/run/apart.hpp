// How a part of the library that has threads of its own forms groups for them: on connections that no other thread
// uses.
// IWYU pragma: private
#pragma once

#include <colls/bootstrap.hpp>
#include <colls/communicator.hpp>

#include <atomic>

namespace colls::inline v1::detail {

/// bootstrap(), in programs that have it: those that call world() or bootstrap(), or link the library.
using group_maker = communicator (*)(int rank, int size, member_exchange&);
inline constinit std::atomic<group_maker> bootstrap_of_program{nullptr};
/// Not an initialiser of the pointer: each unit that includes this would compile the network, which takes ten seconds.
inline bool bring_bootstrap() {
    bootstrap_of_program.store(
        [](int rank, int size, member_exchange& x) { return bootstrap(rank, size, x); }, std::memory_order_relaxed);
    return true;
}
#ifdef COLLS_SEPARATE_SOURCE
inline const bool bootstrap_is_there = bring_bootstrap();
#endif

}  // namespace colls::inline v1::detail
