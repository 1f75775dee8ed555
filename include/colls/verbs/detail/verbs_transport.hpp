// The message transport over verbs: messages are RDMA writes, in chains with one doorbell for all that goes to a peer.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// Two ranks connect their queue pairs at their first message. Another transport (`control`) carries the control
// messages, those that connect the queue pairs, too, and reports processes that have ended.
//   protocol.hpp     what is written into the peer's memory, and what connects two queue pairs
//   connection.hpp   the queue pair with one peer: its states, the chain of requests, credits
//   sender.hpp, receiver.hpp   messages to and from one peer      peer.hpp   all of these
//   this file        all peers of a rank behind the interface `message_transport`
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/net/detail/connection/piece_queue.hpp>
#include <colls/net/detail/connection/polled_wait.hpp>
#include <colls/verbs/detail/memory_registry.hpp>
#include <colls/verbs/detail/peer.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace colls::inline v1::detail {

class verbs_transport final : public message_transport, private message_transport::listener {
public:
    /// For rank `rank` of a group of `size`. `control` connects the same ranks, and carries only control messages;
    /// `memory` has the device, and the memory that is registered with it. Makes no queue pair yet. Throws
    /// std::bad_alloc.
    verbs_transport(std::unique_ptr<message_transport> control, std::shared_ptr<rdma::memory_registry> memory, int rank,
        int size, const verbs_shape& shape = {})
        : control_(std::move(control)), own_(std::move(memory), shape, listening), rank_(rank) {
        control_->listening = this;
        for (int r = 0; r < size; ++r) peers_.push_back(std::make_unique<rdma::peer>(own_, r));
    }
    /// Waits, for `linger` seconds at most, until all that was sent is in the peers' memory; then `control` leaves the
    /// group.
    inline ~verbs_transport() override;

    std::uint64_t send(int to, const message_label& label, const piece* pieces, int count) override {
        rdma::peer& p = at(to);
        const std::uint64_t number = p.out.take_number();
        if (abandoned_ || p.out.discarded() || p.lost) return number;
        greet(p);
        p.out.push(label, pieces, count);
        add_work(p);
        return number;
    }
    std::uint64_t receive(int from, const message_label& label, const piece* pieces, int count) override {
        rdma::peer& p = at(from);
        const std::uint64_t number = p.in.take_number();
        if (abandoned_ || p.in.dropping()) return number;
        greet(p);
        p.in.push(number, label, pieces, count);
        add_work(p);
        return number;
    }
    void flush() override {
        for (std::size_t i = 0; i < to_write_.size(); ++i) {
            rdma::peer& p = at(to_write_[i]);
            p.has_work = false;
            p.write();
        }
        to_write_.clear();
    }
    void request_completion(int with) override {
        at(with).out.request_completion();
        add_work(at(with));
    }
    std::uint64_t sent(int to) const override { return at(to).out.left(); }
    std::uint64_t received(int from) const override { return at(from).in.arrived(); }
    bool offloads() const override { return true; }
    std::string add_gpu_memory(std::byte* at, std::size_t bytes, int file, std::size_t offset) override {
        try {
            own_.gpu_memory.reserve(own_.gpu_memory.size() + 1);
            const rdma::region r = own_.registry->device().add_gpu(at, bytes, file, offset);
            own_.gpu_memory.push_back(r);
            own_.registry->insert(r);
        } catch (const error& e) {
            return quoted(e.what());
        }
        return {};
    }
    void abandon() override {
        abandoned_ = true;
        to_write_.clear();
        for (const auto& p : peers_) {
            p->has_work = false;
            p->clear();
            close(*p);
        }
    }

    bool tell(int to, const control_message& what) override { return control_->tell(to, what); }
    void tell_all(const control_message& what) override { control_->tell_all(what); }

    inline void progress() override;
    void idle(double seconds) override { wait_.idle(*control_, seconds); }

    const rdma::copied_bytes& copied() const { return own_.copied; }
    /// Number of queue pairs that are open.
    int queue_pairs() const {
        return static_cast<int>(
            std::count_if(open_.begin(), open_.end(), [this](int r) { return at(r).queue_pair.has_queue(); }));
    }

private:
    rdma::peer& at(int r) { return *peers_[static_cast<std::size_t>(r)]; }
    const rdma::peer& at(int r) const { return *peers_[static_cast<std::size_t>(r)]; }
    void add_work(rdma::peer& p) {
        if (p.has_work) return;
        p.has_work = true;
        to_write_.push_back(p.number);
    }

    bool open(rdma::peer& p);
    void greet(rdma::peer& p) {
        if (!p.queue_pair.known_to_peer() && open(p)) send_greeting(p);
    }
    void send_greeting(rdma::peer& p);
    void tell_wiring(
        rdma::peer& p, rdma::wiring step, std::uint64_t b = 0, std::uint64_t c = 0, const char* text = "") {
        control_->tell(p.number, control_message{control_kind::wiring, static_cast<std::uint64_t>(step), b, c, text});
    }
    void take_wiring(rdma::peer& p, const control_message& what);
    void close(rdma::peer& p) { p.queue_pair.close(abandoned_ || p.queue_pair.failed() || p.lost); }

    void report(rdma::peer& p);
    bool all_arrived(const rdma::peer& p) const;

    // from `control`
    inline void heard(int from, const control_message& what) override;
    inline void lost(int peer, const char* why) override;
    void failed(int with, const char* why) override {
        if (listening) listening->failed(with, why);
    }
    void unexpected(int, const message_label&, const message_label&, std::size_t, std::size_t) override {}

    std::unique_ptr<message_transport> control_;
    rdma::rank_resources own_;
    const int rank_;
    std::vector<std::unique_ptr<rdma::peer>> peers_;
    std::vector<int> open_;      // peers for which a queue pair has been made, or could not be
    std::vector<int> to_write_;  // peers that have work
    polled_wait wait_;
    bool in_progress_ = false, abandoned_ = false;
};

inline void verbs_transport::progress() {
    if (in_progress_) return;
    in_progress_ = true;
    // Asking for control messages is a system call: so now and then while this rank does nothing but poll, while queue
    // pairs are being connected, and after each sleep.
    if (++own_.turn % 256 == 0 || own_.connecting > 0 || wait_.take_slept()) control_->progress();
    for (std::size_t i = 0; i < open_.size(); ++i) {  // the listener may open more
        rdma::peer& p = at(open_[i]);
        if (p.queue_pair.connected()) {
            if (p.serve()) wait_.moved();
            if (!p.queue_pair.has_queue()) continue;
            const bool late = p.check_clock();
            if (late || p.has_to_write()) add_work(p);
        }
        report(p);
    }
    in_progress_ = false;
    flush();
}

// ---- queue pairs ----------------------------------------------------------------------------------------------------

// Makes the queue pair if it does not exist. False: there is none.
inline bool verbs_transport::open(rdma::peer& p) {
    const rdma::connection& c = p.queue_pair;
    if (c.has_queue()) return true;
    if (abandoned_ || p.lost || c.failed() || c.state() != rdma::connection_state::unopened || p.number == rank_)
        return false;
    open_.push_back(p.number);  // also where that fails, so that `progress` reports it
    return p.queue_pair.open();
}
inline void verbs_transport::send_greeting(rdma::peer& p) {
    const bool connected = p.queue_pair.connected();
    tell_wiring(p, rdma::wiring::greeting, connected, 0, rdma::encode(p.queue_pair.greet()).text);
}
inline void verbs_transport::take_wiring(rdma::peer& p, const control_message& what) {
    rdma::connection& c = p.queue_pair;
    switch (static_cast<rdma::wiring>(what.a)) {
        case rdma::wiring::greeting: {
            if (c.connected() || !open(p)) return;
            const bool greeted = c.known_to_peer();
            c.accept(what.text);
            if (!c.connected()) return;
            if (greeted)
                tell_wiring(p, rdma::wiring::ready);
            else
                send_greeting(p);
            if (what.b == 0) return;
            [[fallthrough]];
        }
        case rdma::wiring::ready:
            c.confirm();
            if (c.state() == rdma::connection_state::ready) add_work(p);
            return;
        case rdma::wiring::closing:
            p.take_closing(what.b, what.c);
            return;
    }
}

// ---- a peer that leaves, or fails -----------------------------------------------------------------------------------

// Whether all messages have arrived that the peer has sent, or no more will.
inline bool verbs_transport::all_arrived(const rdma::peer& p) const {
    if (p.in.dropping() || abandoned_) return true;
    return p.closing && p.in.arrived() >= p.messages_in_all;
}
// Tells the listener that the peer has left, or that its queue pair has failed, when that is due.
inline void verbs_transport::report(rdma::peer& p) {
    rdma::connection& c = p.queue_pair;
    const double grace = own_.shape.failure_grace;
    if (p.leaving == rdma::departure::announced) {
        // Where the queue pair has failed no more arrives. What has arrived may stay in slots until this rank calls
        // `receive`.
        const bool no_more = c.failed() && p.in.slots_empty() && seconds_now() - p.announced_at > grace;
        if (all_arrived(p) || no_more) {
            p.leaving = rdma::departure::reported;
            if (listening) listening->heard(p.number, control_message{control_kind::leave});
        }
    }
    // A failure after the peer has left, or is lost, is a consequence of that.
    if (!c.failed() || p.leaving != rdma::departure::none || p.lost || abandoned_) return;
    if (c.failure() == rdma::failure_state::reported) return;
    if (c.failure() == rdma::failure_state::suspected && seconds_now() - c.failed_at() < grace) return;
    c.report();
    if (listening) listening->failed(p.number, c.why());
}

inline void verbs_transport::heard(int from, const control_message& what) {
    rdma::peer& p = at(from);
    if (what.what == control_kind::wiring) return take_wiring(p, what);
    if (what.what != control_kind::leave) {
        if (listening) listening->heard(from, what);
        return;
    }
    if (p.leaving == rdma::departure::reported) return;
    if (p.closing && p.queue_pair.known_to_peer()) {  // else the peer has made no queue pair: nothing is to come
        p.leaving = rdma::departure::announced;
        p.announced_at = seconds_now();
        return;
    }
    p.leaving = rdma::departure::reported;
    if (listening) listening->heard(from, what);
}
inline void verbs_transport::lost(int peer, const char* why) {
    rdma::peer& p = at(peer);
    if (p.queue_pair.connected() && !p.lost) {  // take what it wrote before
        if (p.poll()) wait_.moved();
        if (p.queue_pair.has_queue()) p.in.consume();
    }
    p.lost = true;
    if (listening) listening->lost(peer, why);
}

inline verbs_transport::~verbs_transport() {
    listening = nullptr;
    if (!abandoned_) {
        const double until = seconds_now() + linger;
        for (bool waiting = true; waiting && seconds_now() < until;) {
            progress();
            waiting = false;
            for (const int r : open_) {
                rdma::peer& p = at(r);
                rdma::connection& c = p.queue_pair;
                if (!c.has_queue() || c.failed() || p.lost || p.leaving != rdma::departure::none) continue;
                if (!p.out.empty()) waiting = true;
                if (!c.writable() || c.next() == c.done()) continue;
                waiting = true;
                if (p.out.empty()) c.post_last_signal();
            }
            if (waiting) idle(1e-4);
        }
    }
    for (const int r : open_)
        tell_wiring(at(r), rdma::wiring::closing, abandoned_ ? 0 : at(r).out.lowered(), at(r).in.arrived());
    control_->linger = linger;
    control_.reset();
    for (const auto& p : peers_) close(*p);
}

}  // namespace colls::inline v1::detail
