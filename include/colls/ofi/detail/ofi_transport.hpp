// The message transport over libfabric: one reliable endpoint (FI_EP_RDM) of a rank for all its peers in a group, or
// one a lane.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
//
// It is made at the first message; two ranks tell each other its address at their first one. Another transport
// (`control`) carries the control messages, those too, and reports processes that have ended.
//   provider.hpp   which provider and domain        endpoint.hpp   operations of the provider
//   protocol.hpp   what ranks send each other       peer.hpp       the messages to and from one peer
//   this file      all peers of a rank behind the interface `message_transport`
// An endpoint for each group and not one for the process: closing it is the only way to end what providers do to
// callers' memory, and messages of one group never wait for those of another.
#pragma once

#include <colls/net/detail/connection/polled_wait.hpp>
#include <colls/ofi/detail/peer.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

class ofi_transport final : public message_transport, private message_transport::listener {
public:
    /// For rank `rank` of a group of `size`. `control` connects the same ranks, and carries only control messages.
    /// Throws std::bad_alloc.
    ofi_transport(std::unique_ptr<message_transport> control, std::shared_ptr<ofi::provider> of, int rank, int size,
        const ofi_shape& shape = {})
        : control_(std::move(control)),
          own_{of, shape, listening, rank, static_cast<std::uint32_t>(static_cast<std::uint64_t>(seconds_now() * 1e9)),
              std::min<std::uint64_t>(shape.part_bytes, of->info().ep_attr->max_msg_size), nullptr} {
        control_->listening = this;
        for (int r = 0; r < size; ++r) peers_.push_back(std::make_unique<ofi::peer>(own_, r));
    }
    /// Waits, for `linger` seconds at most, until all that was sent has left; then `control` leaves the group.
    inline ~ofi_transport() override;

    std::uint64_t send(int to, const message_label& label, const piece* pieces, int count) override {
        ofi::peer& p = at(to);
        if (abandoned_ || p.lost) return p.skip_send();
        greet(p);
        add_work(p);
        return p.send(label, pieces, count);
    }
    std::uint64_t receive(int from, const message_label& label, const piece* pieces, int count) override {
        ofi::peer& p = at(from);
        if (abandoned_) return p.skip_receive();
        greet(p);
        add_work(p);
        return p.receive(label, pieces, count);
    }
    void flush() override {
        for (std::size_t i = 0; i < to_write_.size(); ++i) {
            at(to_write_[i]).has_work = false;
            at(to_write_[i]).write();
        }
        to_write_.clear();
    }
    std::uint64_t sent(int to) const override { return at(to).left(); }
    std::uint64_t received(int from) const override { return at(from).arrived(); }
    bool offloads() const override { return own_.of->progresses(); }
    void abandon() override {
        abandoned_ = true;
        to_write_.clear();
        own_.end.reset();
        for (const auto& p : peers_) {
            p->has_work = false;
            p->clear();
        }
    }

    bool tell(int to, const control_message& what) override { return control_->tell(to, what); }
    void tell_all(const control_message& what) override { control_->tell_all(what); }

    inline void progress() override;
    void idle(double seconds) override {
        idled_ = true;
        // Control messages, which are few, end no sleep on the queues, except while greetings are to come.
        using rest = ofi::provider::rest;
        const rest took = greeting_ == 0 ? own_.of->sleep(std::min(seconds, 1e-3)) : rest::unable;
        if (took == rest::slept) wait_.moved();
        restless_ = took == rest::none ? restless_ + 1 : 0;
        // Where the provider says again and again that there is something, it is not to be believed.
        if (took == rest::slept || (took == rest::none && restless_ < 64)) return;
        const auto moves = [this](int r) { return at(r).moves(); };
        const bool pumps = !offloads() && std::any_of(open_.begin(), open_.end(), moves);
        wait_.idle(*control_, seconds, pumps && seconds_now() - moved_at_ < 20e-3);
    }

    /// Bytes of long messages that this rank has copied.
    std::uint64_t copied() const { return own_.copied; }

private:
    ofi::peer& at(int r) { return *peers_[static_cast<std::size_t>(r)]; }
    const ofi::peer& at(int r) const { return *peers_[static_cast<std::size_t>(r)]; }
    void add_work(ofi::peer& p) {
        if (p.has_work) return;
        p.has_work = true;
        to_write_.push_back(p.rank);
    }
    inline void greet(ofi::peer& p);
    inline bool poll();
    void report(ofi::peer& p);

    // from `control`
    inline void heard(int from, const control_message& what) override;
    inline void lost(int peer, const char* why) override;
    void failed(int with, const char* why) override {
        if (listening) listening->failed(with, why);
    }
    void unexpected(int, const message_label&, const message_label&, std::size_t, std::size_t) override {}

    std::unique_ptr<message_transport> control_;
    ofi::rank_state own_;
    std::vector<std::unique_ptr<ofi::peer>> peers_;
    std::vector<int> open_;      // peers that have been greeted, or could not be
    std::vector<int> to_write_;  // peers that have work
    int greeting_ = 0;           // peers whose greetings have not come
    unsigned turn_ = 0;
    double moved_at_ = 0;
    polled_wait wait_;
    unsigned restless_ = 0;  // calls of `idle` that the provider has refused, in a row
    bool in_progress_ = false, idled_ = false, abandoned_ = false;
};

// Tells the peer where this rank is reached, once.
inline void ofi_transport::greet(ofi::peer& p) {
    if (p.state != ofi::peer::link::unknown || p.failed() || abandoned_ || p.rank == own_.rank) return;
    open_.push_back(p.rank);  // also where that fails, so that `progress` reports it
    try {
        if (!own_.end) own_.end = std::make_unique<ofi::endpoint>(own_.of, own_.shape.packet_bytes);
        own_.end->expect(own_.shape.slots + 2 * own_.shape.parts + 4);  // so that none is ever missing
        std::string text = own_.of->name();
        for (std::size_t k = 0; k < own_.end->lanes(); ++k) {
            const std::string next = ofi::greeting_text(own_.end->lane(k).address());
            k > 0 && text.size() + next.size() > 400 ? own_.end->keep(k) : void(text += next);
        }
        if (text.size() > 400) return p.fail("its provider's addresses are too long", true);
        control_->tell(p.rank, {control_kind::wiring, static_cast<std::uint64_t>(ofi::wiring::greeting), own_.key,
                                   own_.shape.packet_bytes, text.c_str()});
    } catch (const error& x) {
        return p.fail(quoted(x.what()), true);
    }
    p.state = ofi::peer::link::greeted;
    ++greeting_;
}

// Takes completions, of all lanes. Returns whether there were any. The listener may be told of a mismatch, and close
// the endpoint.
inline bool ofi_transport::poll() {
    ofi::completion all[32];
    bool any = false;
    for (std::size_t k = 0; own_.end && k < own_.end->lanes(); ++k)
        for (int round = 0; round < 8 && own_.end; ++round) {
            const int n = own_.end->lane(k).poll(all, 32);
            for (int i = 0; i < n && own_.end; ++i) {
                ofi::operation* const o = all[i].what;
                if (o && o->kind != ofi::operation::packet_in) {
                    at(o->peer).completed(*o, all[i].bytes, all[i].error, k);
                } else if (all[i].error == 0 && o) {
                    auto& p = static_cast<ofi::packet&>(*o);
                    const ofi::packet_header& h = *p.header;
                    const bool sound = all[i].bytes >= sizeof h && h.key == own_.key && h.from < peers_.size();
                    if (sound)
                        at(static_cast<int>(h.from)).take(p);
                    else
                        own_.end->give_to_receive(p);
                } else {  // whose it is cannot be known
                    for (const int r : open_)
                        at(r).fail(own_.of->text(o ? "fi_recv" : "fi_cq_read", all[i].error, k), false);
                }
            }
            if (n == 0 || !all[0].what) break;  // of a queue that fails nothing more is to be had
            any = true;
            if (n < 32) break;  // asking costs some providers a system call
        }
    if (any) {
        wait_.moved();
        moved_at_ = seconds_now();
    }
    return any;
}

inline void ofi_transport::progress() {
    if (in_progress_) return;
    in_progress_ = true;
    // Asking for control messages is a system call, as is asking some providers: so now and then while this rank does
    // nothing but poll, while greetings are to come, and after it has let others run, which may take long.
    if (++turn_ % 32 == 0 || greeting_ > 0 || std::exchange(idled_, false)) control_->progress();
    const double before = moved_at_;
    poll();
    if (moved_at_ - before > 20e-3) control_->progress();  // meanwhile a peer may have closed: it takes no credits
    for (std::size_t i = 0; i < open_.size(); ++i) {       // the listener may open more
        ofi::peer& p = at(open_[i]);
        if (own_.end) p.consume();  // what came before its receive
        if (p.has_to_write()) add_work(p);
        report(p);
    }
    in_progress_ = false;
    flush();
}

// ---- a peer that leaves, or fails -----------------------------------------------------------------------------------

// Tells the listener that the peer has left, or cannot be reached, when that is due.
inline void ofi_transport::report(ofi::peer& p) {
    using departure = ofi::peer::departure;
    if (p.leaving == departure::announced) {
        const bool all = p.dropping() || abandoned_ || (p.closing && p.arrived() >= p.messages_in_all);
        const bool no_more =
            p.failed() && seconds_now() - std::max(p.announced_at, p.failed_at) > own_.shape.failure_grace;
        if (all || no_more) {
            p.leaving = departure::reported;
            if (listening) listening->heard(p.rank, control_message{control_kind::leave});
        }
    }
    // A failure after the peer has left, or is lost, is a consequence of that.
    if (!p.failed() || p.leaving != departure::none || p.lost || abandoned_) return;
    if (p.take_failure() && listening) listening->failed(p.rank, p.why());
}

inline void ofi_transport::heard(int from, const control_message& what) {
    ofi::peer& p = at(from);
    using link = ofi::peer::link;
    using departure = ofi::peer::departure;
    if (what.what == control_kind::wiring) {
        if (what.a == static_cast<std::uint64_t>(ofi::wiring::closing)) {
            p.closing = true;
            p.messages_in_all = what.b;
            p.take_arrived(what.c);
        } else if (!abandoned_) {
            greet(p);
            if (p.state != link::greeted) return;
            --greeting_;
            if (!p.accept(what)) p.state = link::unknown;
            add_work(p);
        }
        return;
    }
    if (what.what == control_kind::leave) {
        if (p.leaving != departure::none) return;
        if (p.state == link::greeted) --greeting_;  // it never will
        if (p.state == link::known && !abandoned_) {
            p.leaving = departure::announced;
            p.announced_at = seconds_now();
            return;
        }
        p.leaving = departure::reported;
    } else if (what.what == control_kind::broken) {
        while (poll()) {}  // what it had sent before
    }
    if (listening) listening->heard(from, what);
}
inline void ofi_transport::lost(int peer, const char* why) {
    ofi::peer& p = at(peer);
    if (!p.lost) poll();  // what it had sent before
    if (!p.lost && p.state == ofi::peer::link::greeted) --greeting_;
    p.lost = true;
    if (listening) listening->lost(peer, why);
}

inline ofi_transport::~ofi_transport() {
    listening = nullptr;
    const double until = seconds_now() + linger;
    for (bool waiting = !abandoned_ && own_.end; waiting && seconds_now() < until;) {
        progress();
        waiting = false;
        for (const int r : open_) {
            const ofi::peer& p = at(r);
            const bool gone = p.failed() || p.lost || p.leaving != ofi::peer::departure::none;
            waiting = waiting || (!gone && !(p.all_left() && p.reached()));
        }
        if (waiting) idle(1e-4);
    }
    for (const int r : open_)
        control_->tell(r, {control_kind::wiring, static_cast<std::uint64_t>(ofi::wiring::closing),
                              abandoned_ ? 0 : at(r).left(), at(r).arrived(), ""});
    control_->linger = linger;
    control_.reset();
}

}  // namespace colls::inline v1::detail
