// One transport made of two: `host` reaches the ranks of this host through memory, `network` reaches the others over
// the network.
//
// Each peer is reached by one of them, always the same, so the numbers of messages are those of that transport. Control
// messages of a peer count on either, and those of a shrink go over both, since the peer may have the network alone,
// where it could not find the host's memory; only `leave` must come on the transport of the peer's messages, since it
// is reported behind them. Both transports may see a peer's end, which is reported once.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/list.hpp>
#include <colls/detail/transport/vocabulary.hpp>
#include <colls/schedule.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

class routed_transport final : public message_transport {
public:
    /// `host_numbers` has for each rank of the group its number on `host`, or `none` if `network` reaches it. Numbers
    /// on `network` are those of the group. `rank` is this rank, which is on both. Throws std::bad_alloc.
    routed_transport(int rank, const std::vector<int>& host_numbers, std::unique_ptr<message_transport> host,
        std::unique_ptr<message_transport> network)
        : routes_(host_numbers.size()),
          host_(*this, std::move(host), host_numbers.size()),
          network_(*this, std::move(network), host_numbers.size()) {
        for (std::size_t r = 0; r < host_numbers.size(); ++r) {
            const bool on_host = host_numbers[r] != none;
            side& s = on_host ? host_ : network_;
            routes_[r].on = &s;
            routes_[r].number = on_host ? host_numbers[r] : static_cast<int>(r);
            s.peers += static_cast<int>(r) != rank;
            if (on_host) host_.ranks[static_cast<std::size_t>(host_numbers[r])] = static_cast<int>(r);
            network_.ranks[r] = static_cast<int>(r);
        }
    }
    /// Ends its transports one after the other, so it takes at most twice `linger`.
    ~routed_transport() override {
        host_.transport->linger = network_.transport->linger = linger;
        host_.transport.reset();
        network_.transport.reset();
    }

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        route& r = schedule(peer);
        const std::uint64_t number = r.on->transport->send(r.number, label, pieces, count);
        r.sends = number + 1;
        return number;
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        route& r = schedule(peer);
        const std::uint64_t number = r.on->transport->receive(r.number, label, pieces, count);
        r.receives = number + 1;
        return number;
    }
    void flush() override { network_.transport->flush(); }  // `host` keeps nothing back
    void request_completion(int peer) override { at(peer).on->transport->request_completion(at(peer).number); }
    std::uint64_t sent(int peer) const override { return at(peer).on->transport->sent(at(peer).number); }
    std::uint64_t received(int peer) const override { return at(peer).on->transport->received(at(peer).number); }
    bool offloads() const override { return network_.transport->offloads(); }
    std::string add_gpu_memory(std::byte* at, std::size_t bytes, int file, std::size_t offset) override {
        return network_.transport->add_gpu_memory(at, bytes, file, offset);
    }
    void abandon() override {
        abandoned_ = true;
        for (side* s : {&host_, &network_}) {
            s->transport->abandon();
            while (!s->busy.empty()) unschedule(*s, 0);
        }
    }

    bool tell(int peer, const control_message& what) override {
        if (what.what == control_kind::join && at(peer).on == &host_) network_.transport->tell(peer, what);
        return at(peer).on->transport->tell(at(peer).number, what);
    }
    void tell_all(const control_message& what) override {
        host_.transport->tell_all(what);
        network_.transport->tell_all(what);
    }

    /// While messages are expected from ranks of this host only, `network` makes progress less often: it costs as much
    /// as a small message.
    void progress() override {
        if (host_.peers > 0) progress(host_);
        if (network_.peers > 0 && (host_.busy.empty() || !network_.busy.empty() || ++calls_ % 16 == 0))
            progress(network_);
    }
    /// No event wakes a rank for both transports. Where both have peers, this yields at first, and then sleeps on
    /// `network`: for 50 us at most while something is to come on `host`, and for a millisecond otherwise.
    void idle(double seconds) override {
        if (host_.peers == 0) return network_.transport->idle(seconds);
        if (network_.peers == 0) {
            network_.transport->progress();
            return host_.transport->idle(seconds);
        }
        if (host_.busy.empty()) return network_.transport->idle(std::min(seconds, 1e-3));
        if (++idle_calls_ > 32) return network_.transport->idle(std::min(seconds, 50e-6));
        host_.transport->idle(std::min(seconds, 10e-6));
        if (!network_.busy.empty()) network_.transport->idle(0);
    }

private:
    /// One of the two transports, and its listener.
    struct side final : message_transport::listener {
        side(routed_transport& r, std::unique_ptr<message_transport>&& t, std::size_t n)
            : routed(r), transport(std::move(t)), ranks(n, none) {
            transport->listening = this;
            busy.reserve(n);
        }
        routed_transport& routed;
        std::unique_ptr<message_transport> transport;
        std::vector<int> ranks;  // of each number on this transport, the rank in the group
        list<int> busy;          // ranks to or from which messages are under way on this transport
        int peers = 0;           // ranks that are reached by this transport

        void heard(int number, const control_message& what) override {
            const int r = rank_of(number);
            if (r == none) return;
            if (what.what == control_kind::leave && (routed.at(r).on != this || !routed.mark_ended(r))) return;
            routed.idle_calls_ = 0;
            if (routed.listening) routed.listening->heard(r, what);
        }
        void lost(int number, const char* why) override {
            const int r = rank_of(number);
            if (r == none || !routed.mark_ended(r)) return;
            if (routed.listening) routed.listening->lost(r, why);
        }
        void failed(int number, const char* why) override {
            const int r = rank_of(number);
            if (r != none && routed.listening) routed.listening->failed(r, why);
        }
        void unexpected(int number, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
            std::size_t got_bytes) override {
            const int r = rank_of(number);
            if (r != none && routed.listening) routed.listening->unexpected(r, wanted, got, wanted_bytes, got_bytes);
        }
        int rank_of(int number) const {
            const auto i = static_cast<std::size_t>(number);
            return i < ranks.size() ? ranks[i] : none;
        }
    };
    struct route {
        side* on = nullptr;
        int number = none;                      // of the peer on that transport
        std::uint64_t sends = 0, receives = 0;  // posted
        bool scheduled = false;                 // in `busy`
        bool ended = false;                     // the peer has left or is lost, and the listener knows
    };

    route& at(int peer) { return routes_[static_cast<std::size_t>(peer)]; }
    const route& at(int peer) const { return routes_[static_cast<std::size_t>(peer)]; }
    route& schedule(int peer) {
        route& r = at(peer);
        if (!r.scheduled && !r.ended && !abandoned_) {
            r.scheduled = true;
            r.on->busy.push_back(peer);
        }
        return r;
    }
    // The peer has left or is lost. False: that is known already.
    bool mark_ended(int peer) { return !std::exchange(at(peer).ended, true); }
    void unschedule(side& s, std::size_t i) {
        at(s.busy[i]).scheduled = false;
        s.busy.drop(i);
    }
    void progress(side& s) {
        s.transport->progress();
        for (std::size_t i = 0; i < s.busy.size();) {
            const route& r = at(s.busy[i]);
            if (r.ended || (s.transport->sent(r.number) == r.sends && s.transport->received(r.number) == r.receives)) {
                unschedule(s, i);
                idle_calls_ = 0;
            } else {
                ++i;
            }
        }
    }

    std::vector<route> routes_;  // by rank
    side host_, network_;
    bool abandoned_ = false;
    unsigned calls_ = 0;       // of `progress`
    unsigned idle_calls_ = 0;  // since something last arrived
};

}  // namespace colls::inline v1::detail
