// A transport as a user writes one: ranks are threads, and messages are copied through queues. It includes only what is
// there to be extended. docs/extending.md explains it.
#pragma once

#include <colls/extend/message_group.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace support {

namespace extend = colls::extend;

/// The queues between the ranks of one group. A message stays in the memory of its sender until its receiver copies it.
struct queue_network {
    struct message {
        extend::message_label label;
        std::vector<extend::piece> pieces;
    };
    struct control {
        extend::control_message what;
        std::string text;
    };
    struct channel {
        std::deque<message> messages;
        std::uint64_t taken = 0;  // messages
        std::deque<control> controls;
    };
    explicit queue_network(int ranks)
        : size(ranks),
          channels(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
          stirred(static_cast<std::size_t>(ranks)) {}
    channel& between(int from, int to) {
        return channels[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to)];
    }
    /// Wakes that rank. The caller holds the mutex.
    void stir(int rank) {
        stirred[static_cast<std::size_t>(rank)] = true;
        changed.notify_all();
    }
    const int size;
    std::mutex mutex;  // of all that follows
    std::vector<channel> channels;
    std::vector<bool> stirred;  // of each rank: something has changed for it since it last slept
    std::condition_variable changed;
};

class queue_transport : public extend::message_transport {
public:
    queue_transport(std::shared_ptr<queue_network> network, int rank)
        : network_(std::move(network)), rank_(rank), peers_(static_cast<std::size_t>(network_->size)) {}
    ~queue_transport() override {
        tell_all({extend::control_kind::leave});
        std::unique_lock lock(network_->mutex);
        network_->changed.wait_for(lock, std::chrono::duration<double>(linger), [&] { return nothing_queued(); });
        forget_messages();
    }

    std::uint64_t send(int to, const extend::message_label& label, const extend::piece* pieces, int count) override {
        const std::lock_guard lock(network_->mutex);
        if (!abandoned_) network_->between(rank_, to).messages.push_back({label, {pieces, pieces + count}});
        network_->stir(to);
        return peer_of(to).posted_sends++;
    }
    std::uint64_t receive(
        int from, const extend::message_label& label, const extend::piece* pieces, int count) override {
        peer& p = peer_of(from);
        if (!abandoned_) p.expected.push_back({label, {pieces, pieces + count}});
        return p.posted_receives++;
    }
    std::uint64_t sent(int to) const override {
        const std::lock_guard lock(network_->mutex);
        return network_->between(rank_, to).taken;
    }
    std::uint64_t received(int from) const override { return peers_[static_cast<std::size_t>(from)].received; }
    void abandon() override {
        const std::lock_guard lock(network_->mutex);
        abandoned_ = true;
        forget_messages();
        for (peer& p : peers_) p.expected.clear();
    }

    bool tell(int to, const extend::control_message& what) override {
        const std::lock_guard lock(network_->mutex);
        network_->between(rank_, to).controls.push_back({what, what.text});
        network_->stir(to);
        return true;
    }
    void tell_all(const extend::control_message& what) override {
        for (int r = 0; r < network_->size; ++r)
            if (r != rank_) tell(r, what);
    }

    void progress() override {
        for (int r = 0; r < network_->size; ++r) {
            if (r == rank_) continue;
            take_messages(r);
            take_controls(r);
        }
    }
    void idle(double seconds) override {
        const auto own = static_cast<std::size_t>(rank_);
        std::unique_lock lock(network_->mutex);
        const auto stirred = [&] { return network_->stirred[own]; };
        network_->changed.wait_for(lock, std::chrono::duration<double>(seconds), stirred);
        network_->stirred[own] = false;
    }

private:
    struct peer {
        std::uint64_t posted_sends = 0, posted_receives = 0, received = 0;
        std::deque<queue_network::message> expected;  // where the next messages go
        bool refused = false;                         // a message was not the one expected: no more of them land
    };
    peer& peer_of(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

    // Both with the mutex held.
    bool nothing_queued() {
        for (int r = 0; r < network_->size; ++r)
            if (!network_->between(rank_, r).messages.empty()) return false;
        return true;
    }
    void forget_messages() {
        for (int r = 0; r < network_->size; ++r) network_->between(rank_, r).messages.clear();
    }

    static std::size_t bytes_of(const queue_network::message& m) {
        std::size_t bytes = 0;
        for (const extend::piece& part : m.pieces) bytes += part.bytes;
        return bytes;
    }
    /// Copies pieces to pieces of the same length together, cut otherwise.
    static void copy(const queue_network::message& from, const queue_network::message& to) {
        std::size_t k = 0, used = 0;  // of to.pieces
        for (extend::piece part : from.pieces)
            while (part.bytes > 0) {
                while (used == to.pieces[k].bytes) ++k, used = 0;
                const std::size_t n = std::min(part.bytes, to.pieces[k].bytes - used);
                std::copy_n(part.data, n, to.pieces[k].data + used);
                used += n;
                part = {part.data + n, part.bytes - n};
            }
    }

    // example-begin take_messages
    void take_messages(int from) {
        peer& p = peer_of(from);
        while (!p.expected.empty() && !p.refused) {
            std::unique_lock lock(network_->mutex);
            queue_network::channel& c = network_->between(from, rank_);
            if (c.messages.empty()) return;
            const queue_network::message m = c.messages.front(), to = p.expected.front();
            if (m.label != to.label || bytes_of(m) != bytes_of(to)) {
                p.refused = true;
                lock.unlock();
                return listening->unexpected(from, to.label, m.label, bytes_of(to), bytes_of(m));
            }
            copy(m, to);
            p.expected.pop_front();
            c.messages.pop_front();
            ++c.taken;
            network_->stir(from);
            ++p.received;
        }
    }
    // example-end
    // The listener may answer, so the mutex is not held when it is called.
    void take_controls(int from) {
        for (;;) {
            std::unique_lock lock(network_->mutex);
            queue_network::channel& c = network_->between(from, rank_);
            if (c.controls.empty()) return;
            // That a rank leaves is reported after all of its messages.
            const bool leaves = c.controls.front().what.what == extend::control_kind::leave;
            if (leaves && !c.messages.empty() && !abandoned_ && !peer_of(from).refused) return;
            queue_network::control next = std::move(c.controls.front());
            c.controls.pop_front();
            lock.unlock();
            next.what.text = next.text.c_str();
            listening->heard(from, next.what);
        }
    }

    const std::shared_ptr<queue_network> network_;
    const int rank_;
    std::vector<peer> peers_;
    bool abandoned_ = false;
};

/// Puts a transport around each transport that a rank gets.
using transport_change =
    std::function<std::unique_ptr<extend::message_transport>(int rank, std::unique_ptr<extend::message_transport>)>;

class queue_group : public extend::message_group {
public:
    /// Where the ranks of a group meet.
    struct meeting_place {
        meeting_place(int n, transport_change c)
            : missing(n),
              change(std::move(c)),
              collectives(std::make_shared<queue_network>(n)),
              messages(std::make_shared<queue_network>(n)) {}
        std::atomic<int> missing;
        const transport_change change;
        const std::shared_ptr<queue_network> collectives, messages;
    };
    explicit queue_group(transport_change change) : change_(std::move(change)) {}

    /// What a rank brings into the group that meets there. The last rank to come deletes the place.
    static extend::message_member member_of(meeting_place* at, int rank) {
        const auto made = [&](const std::shared_ptr<queue_network>& network) {
            std::unique_ptr<extend::message_transport> plain = std::make_unique<queue_transport>(network, rank);
            return at->change ? at->change(rank, std::move(plain)) : std::move(plain);
        };
        extend::message_member m;
        m.crowded = at->collectives->size > static_cast<int>(std::thread::hardware_concurrency());
        m.group = std::make_shared<queue_group>(at->change);
        m.collectives = made(at->collectives);
        m.messages = made(at->messages);
        m.number = reinterpret_cast<std::uintptr_t>(at->collectives.get());
        if (at->missing.fetch_sub(1, std::memory_order_acq_rel) == 1) delete at;
        return m;
    }

    std::uint64_t create(int size) override {
        return reinterpret_cast<std::uintptr_t>(new meeting_place(size, change_));
    }
    extend::message_member join(const extend::message_formation& f) override {
        return member_of(reinterpret_cast<meeting_place*>(f.place), f.rank);
    }
    void discard(std::uint64_t place, int) override { delete reinterpret_cast<meeting_place*>(place); }
    const extend::machine& figures() const override {
        static const extend::machine some{.alpha = 2e-6,
            .beta = 2e-10,
            .gamma = 1.5e-10,
            .cores = static_cast<int>(std::thread::hardware_concurrency()),
            .message = 1e-6};
        return some;
    }

private:
    const transport_change change_;
};

using rank_function = std::function<void(colls::communicator&)>;

/// Calls f on n threads that pass messages. An exception of a rank breaks the group, and is thrown here at the end; one
/// that another rank's exception caused is thrown only if there is no other.
inline void run_by_messages(int n, const rank_function& f, const transport_change& change = {}) {
    std::mutex mutex;
    std::exception_ptr first;
    bool caused_by_other = true;
    auto* const place = new queue_group::meeting_place(n, change);
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            colls::communicator comm = extend::join(queue_group::member_of(place, r), r, n);
            try {
                f(comm);
            } catch (const std::exception& e) {
                const auto* const own = dynamic_cast<const colls::error*>(&e);
                const bool caused = own && own->code() == colls::errc::peer_failed;
                {
                    const std::lock_guard lock(mutex);
                    if (!first || (caused_by_other && !caused))
                        first = std::current_exception(), caused_by_other = caused;
                }
                comm.abort(std::string("its function threw: ") + e.what());
            }
        });
    for (std::thread& t : ranks) t.join();
    if (first) std::rethrow_exception(first);
}

}  // namespace support
