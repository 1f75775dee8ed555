// How a rank idles that must poll for its messages, while a transport for its control messages can sleep.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/transport/vocabulary.hpp>

#include <sched.h>
#include <algorithm>
#include <utility>

namespace colls::inline v1::detail {

class polled_wait {
public:
    /// Something has moved.
    void moved() { idle_ = 0; }
    /// Yields at first, then sleeps for 50 us, and up to 800 us when called again and again. Control messages end a
    /// sleep. `pumps`: data move only while this rank polls, so it yields, or sleeps shortly.
    void idle(message_transport& control, double seconds, bool pumps = false) {
        if (const double now = seconds_now(); (++idle_ < 32 || pumps) && now >= yields_from_) {
            sched_yield();
            if (const double after = seconds_now(); after - now > 100e-6)
                yields_from_ = after + 20e-3;  // see memory_transport
            return;
        }
        const unsigned longer = idle_ < 32 || pumps ? 0 : std::min((idle_ - 32) / 64, 4u);
        control.idle(std::min(seconds, 50e-6 * (1 << longer)));
        has_slept_ = true;
    }
    /// Whether it has slept since the last call.
    bool take_slept() { return std::exchange(has_slept_, false); }

private:
    unsigned idle_ = 0;  // calls of `idle` since something has moved
    double yields_from_ = 0;
    bool has_slept_ = false;
};

}  // namespace colls::inline v1::detail
