// Messages between ranks over TCP: one peer_connection for each rank of a group.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/tcp/peer_connection.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

class tcp_transport final : public message_transport, private tcp_connection_owner {
public:
    /// `members`: where each rank of the group listens, by rank. The node outlives the transport. With
    /// `receives_always`, a posted receive alone is no reason to try to read: `peer(r).await` is. Never waits; throws
    /// std::bad_alloc.
    tcp_transport(tcp_node& node, std::uint64_t group, int rank, const std::vector<address>& members,
        bool receives_always = false)
        : shared_{*this, *this, node, group, rank, receives_always},
          size_(static_cast<int>(members.size())),
          peers_(new peer_connection[members.size()]) {
        for (int r = 0; r < size_; ++r) at(r).bind(shared_, r, members[static_cast<std::size_t>(r)]);
        shared_.busy.reserve(members.size());
        node.add(*this);
    }
    tcp_transport(const tcp_transport&) = delete;
    tcp_transport& operator=(const tcp_transport&) = delete;
    /// Says `leave` to the peers that have not been told that the group is broken, and waits, at most `linger`, until
    /// all that was sent has reached its peers.
    ~tcp_transport() override;

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        return at(peer).send(label, pieces, count);
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        return at(peer).receive(label, pieces, count);
    }
    std::uint64_t sent(int peer) const override { return at(peer).sent(); }
    std::uint64_t received(int peer) const override { return at(peer).received(); }
    /// No message moves any more after this, neither those posted before nor later ones. Control messages do.
    void abandon() override {
        for (int r = 0; r < size_; ++r) at(r).abandon();
    }

    bool tell(int peer, const control_message& what) override { return at(peer).tell(what); }
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size_; ++r)
            if (at(r).has_socket()) at(r).queue_control(what);
    }

    peer_connection& peer(int rank) { return at(rank); }
    /// How many connections have come from peers so far.
    unsigned accepted() const { return accepted_; }

    void progress() override;
    /// An event of another transport of the node ends the sleep too; that transport's own `progress` handles it.
    void idle(double seconds) override;

private:
    std::uint64_t group() const override { return shared_.group; }
    void accept_connection(const peer_hello& hello, descriptor&& fd) override {
        if (hello.to != shared_.rank || hello.from >= size_) return;
        ++accepted_;
        at(hello.from).accept(std::move(fd));
    }
    void socket_ready(watched_socket& s) override { at(s.peer).schedule(); }
    void connections_exhausted(int code) override { exhausted_ = code; }

    peer_connection& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    const peer_connection& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }

    tcp_transport_state shared_;
    int size_;
    std::unique_ptr<peer_connection[]> peers_;
    unsigned accepted_ = 0;     // connections
    unsigned calls_ = 0;        // of `progress`
    int exhausted_ = 0;         // an errno: why connections of peers could not be accepted
    bool progressing_ = false;  // a listener may call `progress` again
};

inline void tcp_transport::progress() {
    if (progressing_) return;
    progressing_ = true;
    if (shared_.urgent || shared_.busy.empty() || ++calls_ % 32 == 0) shared_.node.poll_events();
    shared_.urgent = false;
    for (std::size_t i = 0; exhausted_ != 0 && i < shared_.busy.size(); ++i)
        if (at(shared_.busy[i]).is_urgent()) at(shared_.busy[i]).report_exhausted(std::exchange(exhausted_, 0));
    exhausted_ = 0;
    for (std::size_t i = 0; i < shared_.busy.size();) {
        if (at(shared_.busy[i]).progress())
            ++i;
        else
            shared_.busy.drop(i);
    }
    progressing_ = false;
}

inline void tcp_transport::idle(double seconds) {
    for (std::size_t i = 0; i < shared_.busy.size(); ++i)
        if (at(shared_.busy[i]).prepare_idle(seconds)) return;
    shared_.node.wait(seconds);
}

inline tcp_transport::~tcp_transport() {
    shared_.closing = true;
    listening = nullptr;
    shared_.node.poll_events();
    for (int r = 0; r < size_; ++r) at(r).begin_leaving();
    for (const double begin = seconds_now();;) {
        progress();
        bool waiting = false;
        for (int r = 0; r < size_; ++r) waiting = waiting || at(r).is_leaving();
        const double now = seconds_now();
        if (!waiting || now - begin > linger) break;
        idle(std::min((now - begin) / 4 + 1e-4, 0.02));  // no event tells that the last byte has been acknowledged
    }
    shared_.node.poll_events();
    for (int r = 0; r < size_; ++r) at(r).release();
    shared_.node.remove(*this);
}

}  // namespace colls::inline v1::detail
