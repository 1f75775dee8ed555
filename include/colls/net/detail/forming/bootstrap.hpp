// Groups of processes that exchange bytes by means of their own.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/bootstrap.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/net/detail/forming/apart.hpp>
#include <colls/net/detail/forming/host_group.hpp>
#include <colls/net/detail/forming/one_host.hpp>
#include <colls/net/detail/forming/world.hpp>

namespace colls::inline v1 {
namespace detail {

/// An exchange over a store: a key for each member and exchange.
class exchange_over_store final : public member_exchange {
public:
    exchange_over_store(key_value_store& store, std::string_view name, int rank, int size)
        : store_(store), name_(name), rank_(rank), size_(size) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto key = [&](int r) { return name_ + "/" + std::to_string(turn_) + "/" + std::to_string(r); };
        store_.set(key(rank_), own, bytes);
        for (int r = 0; r < size_; ++r) {
            void* const to = static_cast<std::byte*>(all) + static_cast<std::size_t>(r) * bytes;
            if (r == rank_)
                std::memcpy(to, own, bytes);
            else
                store_.get(key(r), to, bytes);
        }
        ++turn_;
    }

private:
    key_value_store& store_;
    const std::string name_;
    const int rank_, size_;
    int turn_ = 0;
};

/// Where the other members reach this one.
struct member_address {
    std::byte encoded[rendezvous::member_bytes] = {};
    std::uint8_t listens = 0;
};

/// Each member listens, and hears where the others do.
[[gnu::cold]] inline meeting meet_over_tcp(
    member_exchange& exchange, int rank, const std::vector<member_record>& all, const std::string& interface_name) {
    using namespace rendezvous;
    meeting m;
    m.rank = rank;
    m.size = static_cast<int>(all.size());
    m.group = all[0].group;
    m.exchange = &exchange;
    member_address own;
    std::string why;
    try {
        const bool given = !interface_name.empty(), alone = !given && all_on_one_host(all);
        address at = given ? interface_address(interface_name, AF_INET) : outward_address(AF_INET);
        if (const address other = outward_address(AF_INET6); !given && at.is_loopback() && !other.is_loopback())
            at = other;
        m.listening = alone ? listen_on_loopback() : listen_at(at);
        if (!m.listening) why = error_text() << "cannot listen at " << host_text(at) << ": " << system_text(errno);
    } catch (const error& x) {
        why = x.what();
    }
    if (m.listening) {
        encoder{own.encoded}(self(m.listening));
        own.listens = 1;
    }
    const std::vector<member_address> addresses = gather_from_members(exchange, own, m.size);
    if (!m.listening) throw_of_rank(rank, errc::invalid_argument, error_text() << why);
    for (const member_address& there : addresses) {
        decoder in(there.encoded);
        const int r = static_cast<int>(m.members.size());
        in(m.members.emplace_back());
        if (there.listens == 0 || !in.sound())
            throw_of_rank(rank, errc::peer_failed, error_text() << "rank " << r << " cannot listen for connections", r);
    }
    return m;
}

[[gnu::cold]] COLLS_INLINE communicator group_of_one_host(int rank, int size, member_exchange& exchange, bool wanted) {
    const environment env = environment::read();
    const bool messages = env.tcp || !wanted;
    const std::vector<member_record> all = meet_members(exchange, rank, size, env, messages);
    if (messages || !all_on_one_host(all)) return {};
    processes::detail::dump_on_signal();
    std::string why;
    communicator comm = group_of_host(exchange, rank, all, env, why);
    if (comm.size() > 0) label_group(comm.context(), all[0].label);
    return comm;
}

}  // namespace detail

[[gnu::cold]] COLLS_INLINE communicator bootstrap(
    int rank, int size, member_exchange& exchange, const bootstrap_options& how) {
    using namespace detail;
    bring_bootstrap();
    if (size < 1 || rank < 0 || rank >= size)
        throw error(errc::invalid_argument,
            error_text() << "colls: rank " << rank << " is out of range for a group of " << size << " ranks");
    environment env = environment::read();
    if (how.timeout > 0) env.timeout = how.timeout;
    processes::detail::dump_on_signal();
    const std::vector<member_record> all = meet_members(exchange, rank, size, env, env.tcp);
    communicator comm;
    std::string why;
    if (all_on_one_host(all) && !env.tcp) comm = group_of_host(exchange, rank, all, env, why, !how.own_memory);
    if (comm.size() == 0) {
        if (!why.empty() && env.debug != debug_level::warn)
            say(error_text() << "colls: rank " << rank << ": no shared memory, so TCP: " << why);
        std::string interface_name(how.interface_name);
        if (const char* const set = variable("COLLS_INTERFACE"); interface_name.empty() && set) interface_name = set;
        environment apart = env;
        apart.tcp = env.tcp || all_on_one_host(all);
        comm = group_of(meet_over_tcp(exchange, rank, all, interface_name), apart, "bootstrap");
    }
    label_group(comm.context(), all[0].label);
    return comm;
}
COLLS_INLINE communicator bootstrap(
    int rank, int size, key_value_store& store, std::string_view name, const bootstrap_options& how) {
    detail::exchange_over_store exchange(store, name, rank, size);
    return bootstrap(rank, size, exchange, how);
}

namespace detail {
/// Not an initialiser of the pointer: each unit that includes this would compile the network, which takes ten seconds.
COLLS_INLINE void bring_bootstrap() {
    bootstrap_of_program.store(
        [](int rank, int size, member_exchange& x) { return bootstrap(rank, size, x); }, std::memory_order_relaxed);
}
#ifdef COLLS_SEPARATE_SOURCE
inline const bool bootstrap_is_there = (bring_bootstrap(), true);
#endif
}  // namespace detail

}  // namespace colls::inline v1
