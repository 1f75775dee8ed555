// A message transport and a group backend that pass every call on to another one. Tests derive broken ones from them.
#pragma once

#include <colls/detail/group/group_backend.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/extend/message_transport.hpp>

#include <memory>

namespace support {

using namespace colls::extend;
using colls::detail::group_backend;
using colls::detail::list;
using colls::detail::pending;
using colls::detail::rank_context;
using colls::detail::shared_backend;
using colls::detail::wait_site;

/// Passes every call on to another message transport, and what that reports to its own listener.
class passing_transport : public message_transport, private message_transport::listener {
public:
    explicit passing_transport(std::unique_ptr<message_transport> to) : to_(std::move(to)) { to_->listening = this; }
    ~passing_transport() override { to_->linger = linger; }
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

/// Replaces the backend of a rank context and passes every call on to it.
class passing_backend : public group_backend {
public:
    explicit passing_backend(shared_backend to) : to_(std::move(to)) {}
    void look(rank_context& self, const wait_site* at, double seconds) override { to_->look(self, at, seconds); }
    void sleep(rank_context& self) override { to_->sleep(self); }
    void broke(rank_context& self) override { to_->broke(self); }
    void close() override { to_->close(); }
    void absent(rank_context& self, std::uint64_t group) override { to_->absent(self, group); }
    void refused(rank_context& self) override { to_->refused(self); }
    void ask_for_messages(rank_context& self) override { to_->ask_for_messages(self); }
    bool announced(rank_context& self, int rank) override { return to_->announced(self, rank); }
    void abandon(rank_context& self) override { to_->abandon(self); }
    std::unique_ptr<pending> make_collective(rank_context& self) override { return to_->make_collective(self); }
    std::unique_ptr<pending> make_message(rank_context& self) override { return to_->make_message(self); }
    bool has_room(rank_context& self) override { return to_->has_room(self); }
    bool dead(int rank) const override { return to_->dead(rank); }
    void pin() override { to_->pin(); }
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
