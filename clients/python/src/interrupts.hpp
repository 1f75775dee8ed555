// Interrupts (Ctrl-C) of calls that wait. Python runs its handlers in the main thread, between two of its instructions,
// and a call of the library waits outside of Python until its deadline. So a thread of this module aborts the group of
// the call that the main thread is in; the call then ends, and Python raises KeyboardInterrupt.
//
// Calls pay two stores for this. Not chosen: to start each call and to look for signals between waits, since a started
// call has no eager path (8 B on two ranks: twice the time, and more under load); set_wakeup_fd, of which a program,
// such as one with asyncio, has one.
#pragma once

#include "core.hpp"

#include <functional>
#include <memory>
#include <string>

namespace colls_python::interrupts {

/// Python's main thread, by its identifier. In a forked child, too, whose watching thread has not come along.
void set_main(unsigned long thread);
bool is_main();
/// From now on interrupts end calls: starts the watching thread, where there is none.
void watch();

/// The main thread begins a call of the group. False: another thread, whose calls are not interrupted.
bool enter(colls_comm comm);
/// The main thread's call is over.
void leave();
/// Returns when the watching thread does not use the handle, which is to be freed.
void forget(colls_comm comm);

// Forming a group can wait long, too, and there is none yet to abort.

using form_group = std::function<colls_status(colls_comm*)>;
struct outcome {
    colls_status status = COLLS_INTERNAL;
    colls_comm comm = nullptr;
    std::string text;
    int rank = -1, peer = -1;
};
/// Forms a group in a thread of its own. If it is left before it is over, the thread goes on, and frees the group.
class forming {
public:
    explicit forming(form_group f);
    ~forming();
    forming(const forming&) = delete;
    forming& operator=(const forming&) = delete;
    /// Is it over, after at most so many seconds?
    bool wait(double seconds);
    /// The result, once it is over.
    outcome take();

private:
    struct shared;
    std::shared_ptr<shared> state_;
};

}  // namespace colls_python::interrupts
