// Messages between ranks over TCP: one peer_connection for each rank of a group.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/peer_connection.hpp>

#include <vector>

namespace colls::inline v1::detail {

class tcp_transport final : private tcp_connection_owner, public stream_transport<peer_connection> {
public:
    /// `members`: where each rank of the group listens, by rank. The node outlives the transport. With
    /// `receives_always`, a posted receive alone is no reason to try to read: `peer(r).await` is. Never waits; throws
    /// std::bad_alloc.
    tcp_transport(tcp_node& node, std::uint64_t group, int rank, const std::vector<address>& members,
        bool receives_always = false)
        : stream_transport(
              rank, members.size(), static_cast<tcp_connection_owner&>(*this), node, group, receives_always) {
        for (int r = 0; r < size_; ++r) at(r).bind(shared_, r, members[static_cast<std::size_t>(r)]);
        node.add(*this);
    }
    ~tcp_transport() override {
        listening = nullptr;
        shared_.closing = true;
        shared_.node.poll_events();
        leave_all();
        shared_.node.poll_events();
        for (int r = 0; r < size_; ++r) at(r).release();
        shared_.node.remove(*this);
    }

    peer_connection& peer(int rank) { return at(rank); }
    /// How many connections have come from peers so far.
    unsigned accepted() const { return accepted_; }

    void progress() override {
        if (std::exchange(progressing_, true)) return;
        if (shared_.urgent || shared_.busy.empty() || ++calls_ % 32 == 0) shared_.node.poll_events();
        shared_.urgent = false;
        for (std::size_t i = 0; exhausted_ != 0 && i < shared_.busy.size(); ++i)
            if (at(shared_.busy[i]).is_urgent()) at(shared_.busy[i]).report_exhausted(std::exchange(exhausted_, 0));
        exhausted_ = 0;
        progress_busy();
        progressing_ = false;
    }
    /// An event of another transport of the node ends the sleep too; that transport's own `progress` handles it.
    void idle(double seconds) override {
        for (const int r : shared_.busy)
            if (at(r).prepare_idle(seconds)) return;
        shared_.node.wait(seconds);
    }

private:
    std::uint64_t group() const override { return shared_.group; }
    void accept_connection(const peer_hello& hello, channel&& from) override {
        if (hello.to != shared_.rank || hello.from >= size_) return;
        ++accepted_;
        at(hello.from).accept(std::move(from));
    }
    void socket_ready(watched_socket& s) override { at(s.peer).schedule(); }
    void connections_exhausted(int code) override { exhausted_ = code; }

    unsigned accepted_ = 0;  // connections
    int exhausted_ = 0;      // an errno: why connections of peers could not be accepted
};

}  // namespace colls::inline v1::detail
