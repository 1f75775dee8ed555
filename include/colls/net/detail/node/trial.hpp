// Do the devices of ranks reach one another? A message tells.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/transport/vocabulary.hpp>
#include <colls/schedule.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace colls::inline v1::detail::hosts {

struct trial_listener final : message_transport::listener {
    std::string why;
    std::vector<int> gone;

    void heard(int peer, const control_message& what) override {
        if (what.what == control_kind::leave) gone.push_back(peer);
    }
    void lost(int peer, const char* reason) override {
        if (why.empty()) why = "to rank " + std::to_string(peer) + ": " + reason;
    }
    void unexpected(int peer, const message_label&, const message_label&, std::size_t, std::size_t) override {
        lost(peer, "its first message is another one");
    }
};

/// Sends a message of so many bytes to each rank of `to`, and waits for one from each of `from`, for `seconds` at most.
/// `memory`: for one more than come; null: the caller has none. Returns why one does not pass; nothing if all do. `t`
/// has had no call yet, and is used for nothing else.
inline std::string try_out(message_transport& t, const std::vector<int>& to, const std::vector<int>& from,
    double seconds, std::byte* memory = nullptr, std::size_t bytes = 8) {
    trial_listener heard;
    std::vector<std::byte> own(memory ? 0 : bytes * (from.size() + 1));
    if (!memory) memory = own.data();
    const auto place = [&](std::size_t i) { return piece{memory + i * bytes, bytes}; };
    t.listening = &heard;
    t.linger = std::min(seconds, 1.0);
    for (std::size_t i = 0; i < from.size(); ++i) {
        const piece p = place(i);
        t.receive(from[i], {}, &p, 1);
    }
    const piece sent = place(from.size());
    for (const int r : to) t.send(r, {}, &sent, 1);
    t.flush();
    for (const double until = seconds_now() + seconds; heard.why.empty(); t.idle(1e-3)) {
        t.progress();
        int missing = none;
        for (const int r : from)
            if (t.received(r) == 0) missing = r;
        for (const int r : to)
            if (t.sent(r) == 0) missing = r;
        if (missing == none) break;
        const bool gone = std::find(heard.gone.begin(), heard.gone.end(), missing) != heard.gone.end();
        if (gone || seconds_now() > until) heard.lost(missing, "no message passes between the devices");
    }
    if (!heard.why.empty()) t.abandon();
    t.listening = nullptr;
    return heard.why;
}

}  // namespace colls::inline v1::detail::hosts
