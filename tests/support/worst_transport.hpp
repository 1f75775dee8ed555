// The worst transport that the contract of extend::message_transport allows, for all ranks of a group in one thread.
// The test moves the messages one by one. A message is read from its sender's memory when it arrives, and its sender
// hears that it has left as late as the test likes; the memory of a receive is overwritten as soon as it is posted.
#pragma once

#include <colls/extend/message_group.hpp>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// The messages between the ranks of one group.
class worst_network {
public:
    explicit worst_network(int ranks)
        : size_(ranks), channels_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)) {}

    /// A message arrives, or its sender learns that it has left.
    struct move {
        bool arrives;
        int from, to;
    };
    /// What can happen next.
    std::vector<move> moves() const {
        std::vector<move> all;
        for (int from = 0; from < size_; ++from)
            for (int to = 0; to < size_; ++to) {
                const channel& c = between(from, to);
                if (c.arrived < c.sent && c.arrived < c.received) all.push_back({true, from, to});
                if (c.left < c.arrived) all.push_back({false, from, to});
            }
        return all;
    }
    void make(const move& m) {
        channel& c = between(m.from, m.to);
        const auto behind = static_cast<std::size_t>(m.arrives ? c.arrived - c.left : 0);
        message& sent = c.messages[behind];
        if (bytes_of(sent) != sent.posted) say(m, "was changed by its sender before it had left");
        if (!m.arrives) {
            c.messages.pop_front();
            ++c.left;
            return;
        }
        const message& room = c.rooms.front();
        if (room.label != sent.label || size_of(room) != sent.posted.size())
            say(m, "is not the one that is received");
        else
            put(room, bytes_of(sent));
        c.rooms.pop_front();
        ++c.arrived;
    }
    /// For a rank whose calls are over: then its memory is the caller's again.
    void check_left(int rank) {
        for (int to = 0; to < size_; ++to)
            if (between(rank, to).left < between(rank, to).sent)
                faults_ += "rank " + std::to_string(rank) + " ended its call before its messages had left; ";
    }
    /// What the ranks did that the contract forbids, or empty.
    const std::string& faults() const { return faults_; }
    /// Sends and receives so far.
    std::uint64_t posts() const { return posts_; }

private:
    friend class worst_transport;
    using byte_list = std::vector<std::byte>;
    struct message {
        colls::extend::message_label label;
        std::vector<colls::extend::piece> pieces;
        byte_list posted;  // its bytes when it was posted
    };
    struct channel {
        std::deque<message> messages;  // that have not left
        std::deque<message> rooms;     // receives whose message has not arrived
        std::uint64_t sent = 0, received = 0, arrived = 0, left = 0;
    };
    channel& between(int from, int to) { return channels_[static_cast<std::size_t>(from * size_ + to)]; }
    const channel& between(int from, int to) const { return channels_[static_cast<std::size_t>(from * size_ + to)]; }

    static std::size_t size_of(const message& m) {
        std::size_t bytes = 0;
        for (const auto& p : m.pieces) bytes += p.bytes;
        return bytes;
    }
    static byte_list bytes_of(const message& m) {
        byte_list all;
        all.reserve(size_of(m));
        for (const auto& p : m.pieces) all.insert(all.end(), p.data, p.data + p.bytes);
        return all;
    }
    static void put(const message& m, const byte_list& bytes) {
        std::size_t at = 0;
        for (const auto& p : m.pieces) {
            std::memcpy(p.data, bytes.data() + at, p.bytes);
            at += p.bytes;
        }
    }
    void say(const move& m, const char* what) {
        const channel& c = between(m.from, m.to);
        faults_ += "message " + std::to_string(m.arrives ? c.arrived : c.left) + " from rank " +
                   std::to_string(m.from) + " to rank " + std::to_string(m.to) + " " + what + "; ";
    }

    const int size_;
    std::vector<channel> channels_;
    std::string faults_;
    std::uint64_t posts_ = 0;
};

/// One rank's end of it. Control messages are dropped: no rank fails, or waits in real time.
class worst_transport : public colls::extend::message_transport {
public:
    worst_transport(std::shared_ptr<worst_network> network, int rank) : network_(std::move(network)), rank_(rank) {}
    std::uint64_t send(
        int peer, const colls::extend::message_label& label, const colls::extend::piece* pieces, int count) override {
        worst_network::message m{label, {pieces, pieces + count}, {}};
        m.posted = worst_network::bytes_of(m);
        ++network_->posts_;
        worst_network::channel& c = network_->between(rank_, peer);
        c.messages.push_back(std::move(m));
        return c.sent++;
    }
    std::uint64_t receive(
        int peer, const colls::extend::message_label& label, const colls::extend::piece* pieces, int count) override {
        for (int i = 0; i < count; ++i) std::memset(pieces[i].data, 0xdd, pieces[i].bytes);
        ++network_->posts_;
        worst_network::channel& c = network_->between(peer, rank_);
        c.rooms.push_back({label, {pieces, pieces + count}, {}});
        return c.received++;
    }
    std::uint64_t sent(int peer) const override { return network_->between(rank_, peer).left; }
    std::uint64_t received(int peer) const override { return network_->between(peer, rank_).arrived; }
    void abandon() override {}
    bool tell(int, const colls::extend::control_message&) override { return true; }
    void tell_all(const colls::extend::control_message&) override {}
    void progress() override {}
    void idle(double) override {}

private:
    const std::shared_ptr<worst_network> network_;
    const int rank_;
};

class worst_group : public colls::extend::message_group {
public:
    std::uint64_t create(int) override { return 0; }
    colls::extend::message_member join(const colls::extend::message_formation&) override { return {}; }
    const colls::extend::machine& figures() const override {
        static const colls::extend::machine some{
            .alpha = 2e-6, .beta = 2e-10, .gamma = 1.5e-10, .cores = 1, .message = 1e-6};
        return some;
    }
};

/// A group whose ranks are all of this thread. Each starts its calls as operations, and run() completes them.
class worst_ranks {
public:
    explicit worst_ranks(int n) : network(std::make_shared<worst_network>(n)) {
        for (int r = 0; r < n; ++r) {
            colls::extend::message_member m;
            m.group = std::make_shared<worst_group>();
            m.collectives = std::make_unique<worst_transport>(network, r);
            m.messages = std::make_unique<worst_transport>(std::make_shared<worst_network>(n), r);
            all.push_back(colls::extend::join(std::move(m), r, n));
        }
    }
    /// Completes each rank's operation, which start(rank) begins. When no rank can go on, choose(moves) says which move
    /// happens. The rank `late` starts when the others cannot go on and no message can move. Returns what was wrong, or
    /// nothing.
    template <class Start, class Choose>
    std::string run(Start start, Choose choose, int late = colls::none) {
        std::vector<colls::operation> operations(all.size());
        for (int r = 0; r < static_cast<int>(all.size()); ++r)
            if (r != late) operations[static_cast<std::size_t>(r)] = start(r);
        bool over = false;
        while (network->faults().empty()) {
            for (std::uint64_t before = ~network->posts(); before != network->posts();) {
                before = network->posts();
                over = true;
                for (std::size_t r = 0; r < all.size(); ++r)
                    if (operations[r].test())
                        network->check_left(static_cast<int>(r));
                    else
                        over = false;
            }
            if (const auto moves = network->moves(); !moves.empty()) {
                network->make(choose(moves));
            } else if (late != colls::none) {
                operations[static_cast<std::size_t>(late)] = start(late);
                late = colls::none;
            } else {
                break;
            }
        }
        if (over && network->faults().empty()) return "";
        // What a rank still waits for may never come.
        for (std::size_t r = 0; r < all.size(); ++r) {
            all[r].abort("the test has failed");
            try {
                operations[r].test();
            } catch (const colls::error&) {}
        }
        return network->faults().empty() ? "a rank waits for ever" : network->faults();
    }

    const std::shared_ptr<worst_network> network;
    std::vector<colls::communicator> all;
};

}  // namespace support
