// A group of ranks that pass messages over TCP.
#pragma once

#include <colls/channel_link.hpp>
#include <colls/communicator.hpp>
#include <colls/machine.hpp>
#include <colls/net/rendezvous.hpp>
#include <colls/net/tcp_wire.hpp>

#include <sys/random.h>

namespace colls::inline v1::tcp {

namespace detail {

using colls::detail::address;
using colls::detail::endpoint;
using colls::detail::list;
using colls::detail::machine;

inline std::uint64_t random_number() {
    std::uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != static_cast<ssize_t>(sizeof x)) x = static_cast<std::uint64_t>(colls::detail::seconds_now() * 1e9) ^ static_cast<std::uint64_t>(getpid()) << 40;
    return x & ~std::uint64_t{1};   // the next number is the group's, too
}

/// Where a process listens, and how fast the net is.
struct station {
    station(colls::detail::descriptor&& listening, const machine& m) : node(std::move(listening)), figures(m) {}
    colls::detail::tcp_node node;
    machine figures;
};

/// A loopback, or a fast net. Not measured: all ranks of a group must predict alike, before they have a way to agree.
inline machine usual(bool crowded) {
    return {.alpha = 4.5e-6, .beta = 2.8e-10, .gamma = 1.5e-10, .cores = crowded ? colls::detail::cores() : 1 << 20, .message = 3e-6};
}

class group : public colls::detail::channel_link {
public:
    /// A rank's end of the group with this number, whose members listen there.
    static std::unique_ptr<endpoint> end_of(const std::shared_ptr<station>& s, std::uint64_t number, int rank, std::vector<address> members, bool crowded) {
        const auto g = std::make_shared<group>(s, number, std::move(members));
        const int n = static_cast<int>(g->members_.size());
        auto e = std::make_unique<endpoint>(rank, n, g->own_memory(n), g);
        e->by_messages = true;
        e->crowded = crowded;
        g->be(*e, std::make_unique<colls::detail::tcp_wire>(s->node, number, rank, g->members_),
              std::make_unique<colls::detail::tcp_wire>(s->node, number + 1, rank, g->members_));
        return e;
    }
    group(std::shared_ptr<station> s, std::uint64_t number, std::vector<address>&& members)
        : station_(std::move(s)), number_(number), members_(std::move(members)) {}

    std::uint64_t create(int) override { return random_number(); }
    std::unique_ptr<endpoint> attach(endpoint& from, std::uint64_t place, int rank, const list<int>& members) override {
        std::vector<address> there;
        for (const int m : members) there.push_back(members_[static_cast<std::size_t>(m)]);
        return end_of(station_, place, rank, std::move(there), from.crowded);
    }
    void discard(std::uint64_t) override {}
    const machine& figures() override { return station_->figures; }

private:
    const std::shared_ptr<station> station_;
    const std::uint64_t number_;
    const std::vector<address> members_;
};

}  // namespace detail
}  // namespace colls::inline v1::tcp
