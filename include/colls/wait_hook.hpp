// A function that the library calls while a rank waits, so that another library in the same process makes progress.
#pragma once

#include <colls/detail/support/wait_hook.hpp>

namespace colls::inline v1 {

/// Called with the context that was set with it. It must not throw.
using wait_hook = void (*)(void* context);

/// Sets the function that every rank of this process calls while it waits, in place of the one set before; null: none.
///
/// For a program where another library needs the processor to make progress: a rank that waits in a barrier of this
/// library advances, by the hook, the messages that other ranks of its process's other library wait for
/// (mpi::make_progress is such a hook).
///
/// - From which thread: the one that waits, while it waits; from several at the same time where several ranks of the
///   process wait, as threads do.
/// - In which waits: those of blocking calls, operation::wait, wait_for and destructors of operations, wait_all,
///   wait_any, split, shrink, and of ranks of one host that form their first group. Whatever the transport.
/// - How often: not in the first 0.2 ms of a wait, or less, in which a rank spins; then between any two yields or
///   sleeps. While a hook is set, a rank sleeps only where ranks outnumber cores, or another program takes its core,
///   and 0.1 ms at most.
/// - The hook may call this library with communicators of other groups than the one that waits and those split from the
///   same; waits within it do not call it again. With one of these, the call throws invalid_argument. It must not
///   throw, and should return soon: the wait goes on when it has returned.
///
/// Set it while no rank of the process waits. `context` must live as long as it is set.
inline void set_wait_hook(wait_hook hook, void* context = nullptr) {
    detail::wait_hook_set.call.store(nullptr, std::memory_order_relaxed);
    detail::wait_hook_set.context.store(context, std::memory_order_relaxed);
    detail::wait_hook_set.call.store(hook, std::memory_order_release);
}

}  // namespace colls::inline v1
