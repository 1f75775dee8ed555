// Groups of ranks on several hosts: messages over TCP, or RDMA, and through shared memory between ranks of one host.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/transport/shm/arena.hpp>
#include <colls/extend/message_group.hpp>
#include <colls/net/detail/connection/memory_transport.hpp>
#include <colls/net/detail/connection/socket.hpp>
#include <colls/net/detail/connection/trunk.hpp>
#include <colls/net/detail/node/routed_transport.hpp>

namespace colls::inline v1::detail::hosts {

using processes::detail::arena;

/// Where a rank of the world is.
struct site {
    address at;
    std::uint64_t host;  ///< equal for ranks that share memory
};

/// A way for messages between hosts other than TCP, which then carries the control messages: see transports/verbs.hpp,
/// ofi.hpp.
class inter_node_transport {
public:
    virtual ~inter_node_transport() = default;
    virtual std::unique_ptr<message_transport> over(std::unique_ptr<message_transport> control, int rank, int size) = 0;
    /// Sends a message to each rank of `to`, and waits for one from each of `from`, for `seconds` at most.
    /// Returns why that does not work; nothing if it does.
    virtual std::string try_out(std::unique_ptr<message_transport> control, int rank, int size,
        const std::vector<int>& to, const std::vector<int>& from, double seconds) = 0;
    /// Memory from which messages go best. Throws std::bad_alloc, colls::error.
    virtual std::byte* take(std::size_t bytes) = 0;
    virtual void give(std::byte* at, std::size_t bytes) noexcept = 0;
};
/// Opens it for a rank with that address and place among those of its host. Null: the program does not include
/// transports/verbs.hpp, or ofi.hpp.
using open_network = std::shared_ptr<inter_node_transport>(int rank, const address& own, int place);
inline open_network *open_verbs = nullptr, *open_ofi = nullptr;
/// A T, made for a rank that its errors name.
template <class T>
std::shared_ptr<inter_node_transport> open_as(int rank, const address& own, int place) {
    try {
        return std::make_shared<T>(own, place);
    } catch (const error& e) {
        throw_of_rank(rank, e.code(), error_text() << quoted(e.what()));
    }
}

inline std::shared_ptr<inter_node_transport> inter_node_transport_for(
    const environment& env, int rank, const address& own, int place) {
    if (!env.verbs && !env.ofi) return nullptr;
    open_network* const open = env.verbs ? open_verbs : open_ofi;
    const char* const name = env.verbs ? "verbs" : "ofi";
    if (open == nullptr)
        throw_of_rank(rank, errc::unsupported,
            error_text() << "COLLS_TRANSPORT asks for " << name << ", which this program does not have: include "
                         << "<colls/transports/" << name << ".hpp>, and link colls::" << name << for_clients);
    return open(rank, own, place);
}

/// What all groups of a process share: the node of its connections, where all ranks of the world are, and the memory of
/// its host.
struct process_context {
    process_context(descriptor&& listening, std::vector<site>&& all, std::uint64_t world, int own, const machine& m,
        std::shared_ptr<arena> a, std::shared_ptr<inter_node_transport> w)
        : node(std::move(listening), 300, world),
          sites(std::move(all)),
          number(world),
          rank(own),
          figures(m),
          host_memory(std::move(a)),
          network(std::move(w)) {}
    /// The connections of all groups but the first, made at the first split.
    trunk& shared_connections() {
        if (!shared_) shared_ = std::make_unique<trunk>(node, number + 4, rank, addresses());
        return *shared_;
    }
    /// For ranks that wait in one of those groups, or have left it, while this rank waits in the first one.
    void serve_shared() {
        if (shared_) shared_->progress();
    }
    std::vector<address> addresses() const {
        std::vector<address> all;
        for (const site& s : sites) all.push_back(s.at);
        return all;
    }
    tcp_node node;
    const std::vector<site> sites;
    const std::uint64_t number;  ///< of the world, divisible by 8
    const int rank;              ///< in the world
    const machine figures;
    const std::shared_ptr<arena> host_memory;       ///< null: no memory is shared
    std::shared_ptr<inter_node_transport> network;  ///< null: messages between hosts go over TCP; set before any go

private:
    std::unique_ptr<trunk> shared_;
};

/// Which ranks of a group are on which host.
struct neighbours {
    /// `members`: of each rank of the group, its number in the world.
    neighbours(const process_context& s, int rank, const std::vector<int>& members) {
        const auto host = [&](int w) { return s.sites[static_cast<std::size_t>(w)].host; };
        std::vector<int> host_of;  // of each rank, the first rank of the world on its host
        for (const int m : members) {
            host_of.push_back(0);
            while (host(host_of.back()) != host(m)) ++host_of.back();
        }
        const host_map all(host_of);
        if (all.hosts() > 1 && all.largest() > 1) hosts = all;
        share_memory = s.host_memory && all.largest() > 1;
        for (int r = 0; r < all.ranks(); ++r) {
            const bool same_host = all.host_of(r) == all.host_of(rank);
            number_here.push_back(same_host ? count++ : none);
            if (!same_host) continue;
            if (first == none) first = r;
            const int m = members[static_cast<std::size_t>(r)];
            in_arena.push_back(0);
            for (int w = 0; w < m; ++w) in_arena.back() += host(w) == host(m);
        }
    }
    std::vector<int> number_here;  ///< of each rank, its number among the group's ranks on this host, or `none`
    std::vector<int> in_arena;     ///< of each of those, its number in the host's arena
    int count = 0;                 ///< ranks of the group on this host
    int first = none;              ///< the first of them
    host_map hosts;                ///< where there are several hosts, and one of them has several ranks
    bool share_memory = false;     ///< on some host the group has several ranks
};

class hosts_group : public extend::message_group {
public:
    hosts_group(std::shared_ptr<process_context> s, std::vector<int>&& members)
        : process_(std::move(s)), members_(std::move(members)) {}

    /// What a rank brings into the group with that place, whose members are those of `world` that f.members names.
    static extend::message_member member_of(
        const std::shared_ptr<process_context>& s, const extend::message_formation& f, std::vector<int>&& members) {
        const neighbours here(*s, f.rank, members);
        const auto g = std::make_shared<hosts_group>(s, std::move(members));
        const auto member = [&](auto make) {
            extend::message_member m;
            m.group = g;
            m.collectives = make(0);
            m.messages = make(1);
            m.crowded = f.crowded;
            return m;
        };
        extend::message_member m;
        if (!here.share_memory) {
            m = member([&](unsigned which) { return g->across(f.place + which, f.rank); });
        } else {
            // The ranks of a host meet in memory of the first of them, which tells them over TCP where that is.
            const std::uint64_t own = here.first == f.rank && here.count > 1 ? g->lend_memory(here) : 0;
            std::vector<std::uint64_t> all(g->members_.size());
            bool known = true;
            try {
                f.exchange(member([&](unsigned which) { return g->tcp(f.place + which, f.rank); }), &own, sizeof own,
                    all.data());
            } catch (const error& x) {
                if (!f.forms_broken(x)) throw;
                known = false;
            }
            m = member([&](unsigned which) -> std::unique_ptr<message_transport> {
                auto network = g->across(f.place + 2 + which, f.rank);
                if (here.count == 1 || !known) return network;
                return std::make_unique<routed_transport>(f.rank, here.number_here,
                    g->within_host(all[static_cast<std::size_t>(here.first)], which, f.rank, here), std::move(network));
            });
            m.hosts = here.hosts;
        }
        m.number = f.place + 1;  // never 0
        return m;
    }

    /// A random number, divisible by 8: TCP tells groups apart by it and by the three numbers after it, the trunk of a
    /// world by the fourth, and its trial of RDMA by the fifth.
    std::uint64_t create(int) override { return random_id() & ~std::uint64_t{7}; }
    extend::message_member join(const extend::message_formation& f) override {
        std::vector<int> members;
        for (const int m : f.members) members.push_back(members_[static_cast<std::size_t>(m)]);
        return member_of(process_, f, std::move(members));
    }
    void look() override { process_->serve_shared(); }
    const machine& figures() const override { return figures_; }
    std::byte* allocate(std::size_t bytes) override {
        return process_->network ? process_->network->take(bytes) : message_group::allocate(bytes);
    }
    void deallocate(std::byte* at, std::size_t bytes) noexcept override {
        process_->network ? process_->network->give(at, bytes) : message_group::deallocate(at, bytes);
    }

private:
    std::unique_ptr<message_transport> tcp(std::uint64_t number, int rank) const {
        if (number >= process_->number && number < process_->number + 4)
            return std::make_unique<tcp_transport>(process_->node, number, rank, process_->addresses());
        return process_->shared_connections().join(number, rank, members_);
    }
    std::unique_ptr<message_transport> across(std::uint64_t number, int rank) const {
        auto over_tcp = tcp(number, rank);
        if (!process_->network) return over_tcp;
        return process_->network->over(std::move(over_tcp), rank, static_cast<int>(members_.size()));
    }
    /// Memory of this rank for the two transports of the group's ranks on this host; returns its place in the arena.
    std::uint64_t lend_memory(const neighbours& here) const {
        arena& a = *process_->host_memory;
        const std::size_t bytes = memory_transport::bytes(here.count);
        std::byte* const at = a.take(2 * bytes);
        for (const std::size_t which : {std::size_t{0}, bytes})
            std::memset(at + which, 0, memory_transport::zeroed_bytes(here.count));
        a.lend(at, 2 * bytes, [&a, at, bytes, ranks = here.in_arena] {
            for (std::size_t r = 0; r < ranks.size(); ++r) {
                const auto over = [&](std::size_t which) {
                    return memory_transport::over(at + which * bytes, static_cast<int>(r));
                };
                if (!a.dead(ranks[r]) && !(over(0) && over(1))) return false;
            }
            return true;
        });
        return static_cast<std::uint64_t>(at - a.base());
    }
    std::unique_ptr<message_transport> within_host(
        std::uint64_t place, unsigned which, int rank, const neighbours& here) const {
        // The arena finds ranks that have died: its ranks are those of the host.
        auto dead = [a = process_->host_memory, in_arena = here.in_arena](int r) {
            a->look();
            return a->dead(in_arena[static_cast<std::size_t>(r)]);
        };
        std::byte* const at = process_->host_memory->base() + place + which * memory_transport::bytes(here.count);
        return std::make_unique<memory_transport>(
            at, here.number_here[static_cast<std::size_t>(rank)], here.count, std::move(dead));
    }

    const std::shared_ptr<process_context> process_;
    const std::vector<int> members_;
    const machine figures_ = with_cores_of(process_->figures, members_.size(), process_->sites.size());
};

}  // namespace colls::inline v1::detail::hosts
