// A transport as a user may write one: threads that pass messages through memory. And what breaks a transport on
// purpose: transports and links that pass everything on to others, but for what those derived from them do wrong.
#pragma once

#include <colls/detail/execute/messaging_backend.hpp>
#include <colls/detail/transport/shm/memory_transport.hpp>
#include <colls/detail/transport/threads/group.hpp>
#include <colls/transports/threads.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace support {

using namespace colls::detail;

/// Passes everything on.
class passing_transport : public message_transport, private message_transport::listener {
public:
    explicit passing_transport(std::unique_ptr<message_transport> to) : to_(std::move(to)) { to_->listening = this; }
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        return to_->send(peer, label, pieces, count);
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        return to_->receive(peer, label, pieces, count);
    }
    void flush() override { to_->flush(); }
    void request_completion(int peer) override { to_->request_completion(peer); }
    std::uint64_t sent(int peer) const override { return to_->sent(peer); }
    std::uint64_t received(int peer) const override { return to_->received(peer); }
    bool offloads() const override { return to_->offloads(); }
    void abandon() override { to_->abandon(); }
    bool tell(int peer, const control_message& what) override { return to_->tell(peer, what); }
    void tell_all(const control_message& what) override { to_->tell_all(what); }
    void progress() override { to_->progress(); }
    void idle(double seconds) override { to_->idle(seconds); }

protected:
    void heard(int peer, const control_message& what) override { listening->heard(peer, what); }
    void lost(int peer, const char* why) override { listening->lost(peer, why); }
    void failed(int peer, const char* why) override { listening->failed(peer, why); }
    void unexpected(int peer, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
        std::size_t got_bytes) override {
        listening->unexpected(peer, wanted, got, wanted_bytes, got_bytes);
    }
    const std::unique_ptr<message_transport> to_;
};

/// Puts a transport around each transport that a rank gets.
using transport_change =
    std::function<std::unique_ptr<message_transport>(int rank, std::unique_ptr<message_transport>)>;

class message_group : public messaging_backend {
public:
    /// Where a group meets: the memory of its two transports, until all members have come.
    struct place {
        place(int n, transport_change w)
            : missing(n),
              change(std::move(w)),
              bytes((memory_transport::bytes(n) + 4095) / 4096 * 4096),
              memory(new(page) std::byte[2 * bytes]{}, [](std::byte* p) { operator delete[](p, page); }) {}
        static constexpr std::align_val_t page{4096};
        std::atomic<int> missing;
        const transport_change change;
        const std::size_t bytes;
        const std::shared_ptr<std::byte> memory;
    };
    explicit message_group(const place& p) : change_(p.change), memory_(p.memory) {}

    static std::unique_ptr<rank_context> end_of(place* at, int rank, int n) {
        const auto g = std::make_shared<message_group>(*at);
        auto e = std::make_unique<rank_context>(rank, n, g->own_memory(n), g);
        e->by_messages = true;
        e->crowded = n > cores();
        const auto made = [&](std::size_t which) -> std::unique_ptr<message_transport> {
            auto plain = std::make_unique<memory_transport>(at->memory.get() + which * at->bytes, rank, n, nullptr);
            return at->change ? at->change(rank, std::move(plain)) : std::move(plain);
        };
        g->be(*e, made(0), made(1));
        if (at->missing.fetch_sub(1, std::memory_order_acq_rel) == 1) delete at;
        return e;
    }
    std::uint64_t create(int n) override { return reinterpret_cast<std::uintptr_t>(new place(n, change_)); }
    std::unique_ptr<rank_context> attach(rank_context&, std::uint64_t at, int rank, const list<int>& members) override {
        return end_of(reinterpret_cast<place*>(at), rank, static_cast<int>(members.size()));
    }
    void discard(std::uint64_t at, int) override { delete reinterpret_cast<place*>(at); }
    const machine& figures() override {
        static const machine some{.alpha = 2e-6, .beta = 2e-10, .gamma = 1.5e-10, .cores = cores(), .message = 1e-6};
        return some;
    }

private:
    const transport_change change_;
    const std::shared_ptr<std::byte> memory_;  // longer than the transports
};

using rank_function = std::function<void(colls::communicator&)>;

/// f on n threads that pass messages.
inline void run_by_messages(int n, const rank_function& f, const transport_change& change = {}) {
    colls::threads::detail::outcome how;
    auto* const at = new message_group::place(n, change);
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            colls::communicator comm = colls::detail::communicator_over(message_group::end_of(at, r, n));
            try {
                f(comm);
            } catch (...) {
                colls::threads::detail::tell(comm.context(), how);
            }
        });
    for (std::thread& t : ranks) t.join();
    how.rethrow();
}

/// Passes everything on. To be put in the place of an rank context's own link.
class passing_backend : public group_backend {
public:
    explicit passing_backend(shared_backend to) : to_(std::move(to)) {}
    void look(rank_context& e, const wait_site* at, double seconds) override { to_->look(e, at, seconds); }
    void idle(rank_context& e, double waited) override { to_->idle(e, waited); }
    void broke(rank_context& e) override { to_->broke(e); }
    void close() override { to_->close(); }
    void abandon(rank_context& e) override { to_->abandon(e); }
    void begin(rank_context& e, operation_state& o) override { to_->begin(e, o); }
    bool advance(rank_context& e, operation_state& o) override { return to_->advance(e, o); }
    bool dead(int rank) const override { return to_->dead(rank); }
    std::byte* take(std::size_t bytes) override { return to_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { to_->give(at, bytes); }
    std::uint64_t create(int n) override { return to_->create(n); }
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        return to_->attach(from, place, rank, members);
    }
    void discard(std::uint64_t place, int n) override { to_->discard(place, n); }
    std::unique_ptr<rank_context> shrink(rank_context& from) override { return to_->shrink(from); }
    const machine& figures() override { return to_->figures(); }

protected:
    const shared_backend to_;
};

}  // namespace support
