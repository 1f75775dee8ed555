// Calls as senders of std::execution (P2300), where the standard library has them, or stdexec is in the include path
// (https://github.com/NVIDIA/stdexec). Elsewhere this header declares nothing, and COLLS_SENDERS is 0.
//
//   auto sum = interop::as_sender([&] { return colls::start::all_reduce(comm, x, colls::sum); });
//   auto both = stdexec::when_all(sum, interop::as_sender([&] { return plan.start(); }));
//   interop::sync_wait(both | stdexec::then([&] { ... }));
//
// A sender starts its call when it is started, so a program starts the senders of a group in the same order on all
// ranks. It completes with set_value() when the operation is over, with set_error(std::exception_ptr) where the call
// was refused or has failed, and with set_stopped() where stop was requested before it started: then this rank has not
// made the call. What has started is not stopped, since the other ranks are in it.
#pragma once

#include <colls/interop/loop.hpp>

#if defined(__has_include)
#if __has_include(<execution>)
#include <version>
#endif
#endif
#if defined(__cpp_lib_senders)
#include <execution>
#define COLLS_SENDERS 1  ///< this header declares something
#elif defined(__has_include)
#if __has_include(<stdexec/execution.hpp>)
#include <stdexec/execution.hpp>
#define COLLS_SENDERS 1  ///< this header declares something
#endif
#endif
#ifndef COLLS_SENDERS
/// 1 where this header declares something.
#define COLLS_SENDERS 0
#endif

#if COLLS_SENDERS
#include <colls/interop/detail/sender_state.hpp>

namespace colls::inline v1 {
namespace interop {

/// A sender of the operation that `start()` returns, which is called when the sender is started; a sender that is
/// copied may be started several times.
///
/// Where a loop runs on the thread that starts it (loop.hpp, sync_wait below), other senders and coroutines of the
/// rank go on until the operation is over; elsewhere, as in stdexec::sync_wait, the thread waits for it.
template <class Start>
    requires std::is_same_v<std::invoke_result_t<Start&>, operation>
auto as_sender(Start start) {
    return detail::operation_sender<Start>(std::move(start));
}

/// Starts a sender and returns what it sends, as std::this_thread::sync_wait does: an optional tuple, which is empty
/// where it was stopped; it throws the sender's error. Runs the loop on this thread until the sender completes.
template <class Sender>
auto sync_wait(loop& in, Sender&& sender) {
    return detail::wait_for_sender(in, std::forward<Sender>(sender));
}
/// The same in a loop of its own, which completes senders in the order in which they were started.
template <class Sender>
auto sync_wait(Sender&& sender) {
    loop own;
    return detail::wait_for_sender(own, std::forward<Sender>(sender));
}

}  // namespace interop
}  // namespace colls::inline v1
#endif
