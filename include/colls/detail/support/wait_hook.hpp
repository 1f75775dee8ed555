// The function that a program has the library call while a rank waits.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/config.hpp>

#include <atomic>

namespace colls::inline v1::detail {

using hook_function = void (*)(void* context);

struct wait_hook_state {
    std::atomic<hook_function> call{nullptr};
    std::atomic<void*> context{nullptr};
};
inline constinit wait_hook_state wait_hook_set;
/// This thread is in a hook: a wait within it does not call it again.
inline constinit thread_local bool in_wait_hook = false;

/// Calls `hook`, unless this thread is in a hook already.
inline void call_hook(hook_function hook, void* context) {
    if (in_wait_hook) return;
    struct within {
        within() { in_wait_hook = true; }
        ~within() { in_wait_hook = false; }
    };
    const within here;
    hook(context);
}
/// Calls the hook of the process; false where there is none.
inline bool call_wait_hook() {
    // Acquire: the context was stored before.
    const hook_function hook = wait_hook_set.call.load(std::memory_order_acquire);
    if (hook == nullptr) return false;
    call_hook(hook, wait_hook_set.context.load(std::memory_order_relaxed));
    return true;
}

}  // namespace colls::inline v1::detail
