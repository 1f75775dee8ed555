// A group of ranks that pass messages: over TCP, and through shared memory between those of one host.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/execute/messaging_backend.hpp>
#include <colls/detail/regroup/groups.hpp>
#include <colls/detail/support/socket.hpp>
#include <colls/detail/transport/routed/routed_transport.hpp>
#include <colls/detail/transport/shm/arena.hpp>
#include <colls/detail/transport/shm/memory_transport.hpp>
#include <colls/detail/transport/tcp/tcp_transport.hpp>

#include <sys/random.h>

namespace colls::inline v1::net {

using colls::detail::address;
using colls::detail::list;
using colls::detail::machine;
using colls::detail::message_transport;
using colls::detail::rank_context;

/// Where a rank of the world is.
struct site {
    address at;
    std::uint64_t host;  ///< equal for ranks that share memory
};

/// Another way for the messages between hosts than TCP, which then carries their control messages: see
/// transports/verbs.hpp.
class inter_node_transport {
public:
    virtual ~inter_node_transport() = default;
    virtual std::unique_ptr<message_transport> over(std::unique_ptr<message_transport> control, int rank, int size) = 0;
    /// Memory from which messages go best. Throws std::bad_alloc, colls::error.
    virtual std::byte* take(std::size_t bytes) = 0;
    virtual void give(std::byte* at, std::size_t bytes) noexcept = 0;
};
/// Opens it for a rank with that address. Null: the program does not include transports/verbs.hpp.
inline std::shared_ptr<inter_node_transport> (*open_verbs)(int rank, const address& own) = nullptr;

inline std::shared_ptr<inter_node_transport> inter_node_transport_for(
    const environment& env, int rank, const address& own) {
    if (!env.verbs) return nullptr;
    if (open_verbs == nullptr)
        throw error(errc::unsupported,
            (colls::detail::message() << "colls: rank " << rank
                                      << ": COLLS_TRANSPORT wants verbs, but this program is without them: "
                                         "include <colls/transports/verbs.hpp>, and link colls::verbs")
                .text(),
            rank);
    return open_verbs(rank, own);
}

/// What a process has for all its groups: the node of its connections, where all ranks are, and the memory of its host.
struct process_context {
    process_context(colls::detail::descriptor&& listening, std::vector<site>&& all, const machine& m,
        std::shared_ptr<processes::detail::arena> a, std::shared_ptr<inter_node_transport> w)
        : node(std::move(listening)), sites(std::move(all)), figures(m), near(std::move(a)), way(std::move(w)) {}
    colls::detail::tcp_node node;
    const std::vector<site> sites;
    const machine figures;
    const std::shared_ptr<processes::detail::arena> near;  ///< null: no memory is shared
    const std::shared_ptr<inter_node_transport> way;       ///< null: messages go over TCP
};

/// A number for a group; those up to three above are the group's, too.
inline std::uint64_t random_number() {
    std::uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != static_cast<ssize_t>(sizeof x))
        x = static_cast<std::uint64_t>(colls::detail::seconds_now() * 1e9) ^ static_cast<std::uint64_t>(getpid()) << 40;
    return x & ~std::uint64_t{3};
}

/// A loopback, or a fast net. Not measured: all ranks of a group must predict alike, before they have a way to agree.
inline machine usual(bool crowded) {
    return {.alpha = 4.5e-6,
        .beta = 2.8e-10,
        .gamma = 1.5e-10,
        .cores = crowded ? colls::detail::cores() : 1 << 20,
        .message = 3e-6};
}

/// hierarchical<direct, circulant<>> of a collective, for hosts of so many ranks: made when first asked for, and kept.
template <int... C>
const colls::detail::candidate* two_levels(collective what, int node, std::integer_sequence<int, C...>) {
    using colls::detail::candidate;
    struct known {
        collective what;
        int node;
        const candidate* made;
    };
    static std::mutex mutex;
    static std::vector<known>& all = *new std::vector<known>;  // never destroyed: as execution plans
    const std::lock_guard lock(mutex);
    for (const known& k : all)
        if (k.what == what && k.node == node) return k.made;
    const candidate* made = nullptr;
    const auto make = [&]<int c>(std::integral_constant<int, c>) {
        constexpr auto it = static_cast<collective>(c);
        using family = hierarchical<direct, circulant<>>;
        constexpr std::string_view name = colls::detail::written_name<family>();
        if constexpr (colls::provides<family, it>)
            if (what == it) {
                const auto s = colls::schedule_of<it>(family{.node = node});
                made = new candidate{
                    name, any_schedule(s, colls::detail::table_of<std::remove_const_t<decltype(s)>>, name)};
            }
    };
    (make(std::integral_constant<int, C>{}), ...);
    all.push_back({what, node, made});
    return made;
}
inline const colls::detail::candidate* two_levels(collective what, int node) {
    return two_levels(what, node, std::make_integer_sequence<int, collective_count>{});
}

class group : public colls::detail::messaging_backend {
public:
    group(std::shared_ptr<process_context> s, const list<int>& members) : process_(std::move(s)) {
        members_.append(members);
    }

    /// A rank's end of the group with this number, split off `from`, if from any. Collective, where memory is shared:
    /// members tell each other where.
    static std::unique_ptr<rank_context> end_of(const std::shared_ptr<process_context>& s, std::uint64_t number,
        int rank, const list<int>& members, bool crowded, rank_context* from) {
        const neighbours here(*s, rank, members);
        const auto numbered = [&](std::unique_ptr<rank_context> e) {
            e->number = number + 1;  // never 0
            return e;
        };
        if (!here.anywhere)
            return numbered(end_with(s, rank, members, crowded,
                [&](int which) { return across(*s, number + static_cast<unsigned>(which), rank, members); }));
        std::unique_ptr<rank_context> over_tcp = end_with(s, rank, members, crowded,
            [&](int which) { return tcp(*s, number + static_cast<unsigned>(which), rank, members); });
        over_tcp->forming_from = from;
        // The first of each host's members has memory for them.
        const std::size_t bytes = colls::detail::memory_transport::bytes(here.count);
        std::uint64_t own = 0;
        if (here.first == rank && here.count > 1) {
            std::byte* const at = s->near->take(2 * bytes);
            for (const std::size_t which : {std::size_t{0}, bytes})
                std::memset(at + which, 0, colls::detail::memory_transport::zeroed_bytes(here.count));
            own = static_cast<std::uint64_t>(at - s->near->base());
            s->near->lend(at, 2 * bytes, [a = s->near.get(), at, bytes, who = here.in_arena] {
                for (std::size_t r = 0; r < who.size(); ++r) {
                    const auto over = [&](std::size_t which) {
                        return colls::detail::memory_transport::over(at + which * bytes, static_cast<int>(r));
                    };
                    if (!a->dead(who[r]) && !(over(0) && over(1))) return false;
                }
                return true;
            });
        }
        list<std::uint64_t> all;
        all.resize(members.size());
        colls::detail::exchange(*over_tcp, &own, sizeof own, all.data());
        std::unique_ptr<rank_context> e =
            end_with(s, rank, members, crowded, [&](int which) -> std::unique_ptr<message_transport> {
                auto far = across(*s, number + 2 + static_cast<unsigned>(which), rank, members);
                if (here.count == 1) return far;
                // Who has died is seen by the arena: its ranks are the host's.
                auto dead = [a = s->near, in_arena = here.in_arena](int r) {
                    a->look();
                    return a->dead(in_arena[static_cast<std::size_t>(r)]);
                };
                return std::make_unique<colls::detail::routed_transport>(rank, here.near,
                    std::make_unique<colls::detail::memory_transport>(
                        s->near->base() + all[here.first] + static_cast<std::size_t>(which) * bytes,
                        here.near[static_cast<std::size_t>(rank)], here.count, std::move(dead)),
                    std::move(far));
            });
        e->ranks_per_host = here.ranks_per_host;
        // The families are compiled here, and not in a unit that only includes the front.
        if (here.ranks_per_host > 0) e->two_levels = &two_levels;
        colls::detail::communicator_over(std::move(over_tcp));  // says that it leaves
        return numbered(std::move(e));
    }

    std::uint64_t create(int) override { return random_number(); }
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        list<int> there;
        for (const int m : members) there.push_back(members_[m]);
        return end_of(process_, place, rank, there, from.crowded,
            from.memory.poison().state.load(std::memory_order_relaxed) == 0 ? &from : nullptr);
    }
    void discard(std::uint64_t, int) override {}
    const machine& figures() override { return process_->figures; }
    std::byte* take(std::size_t bytes) override {
        return process_->way ? process_->way->take(bytes) : messaging_backend::take(bytes);
    }
    void give(std::byte* at, std::size_t bytes) noexcept override {
        process_->way ? process_->way->give(at, bytes) : messaging_backend::give(at, bytes);
    }

private:
    /// Who of a group's members is on which host.
    struct neighbours {
        neighbours(const process_context& s, int rank, const list<int>& members) {
            const auto host = [&](std::size_t r) { return s.sites[static_cast<std::size_t>(members[r])].host; };
            const auto n = members.size();
            // Do hosts have equally many members, one after the other?
            int run = 0;
            bool equal = true;
            for (std::size_t r = 0; r < n; ++r) {
                ++run;
                if (r + 1 < n && host(r + 1) == host(r)) continue;
                if (ranks_per_host == 0) ranks_per_host = run;
                equal = equal && run == ranks_per_host;
                for (std::size_t q = r + 1; q < n; ++q) equal = equal && host(q) != host(r);
                run = 0;
            }
            if (!equal || ranks_per_host == static_cast<int>(n)) ranks_per_host = 0;
            for (std::size_t r = 0; s.near && r < n; ++r)
                for (std::size_t q = 0; q < r; ++q) anywhere = anywhere || host(q) == host(r);
            for (std::size_t r = 0; r < n; ++r) {
                const bool beside = host(r) == host(static_cast<std::size_t>(rank));
                near.push_back(beside ? count++ : none);
                if (!beside) continue;
                if (first == none) first = static_cast<int>(r);
                int at = 0;  // in the arena: among the host's ranks of the world
                for (int w = 0; w < members[r]; ++w) at += s.sites[static_cast<std::size_t>(w)].host == host(r);
                in_arena.push_back(at);
            }
        }
        std::vector<int> near, in_arena;
        int count = 0, first = none, ranks_per_host = 0;
        bool anywhere = false;  // somewhere two members share memory
    };

    static std::unique_ptr<message_transport> tcp(
        process_context& s, std::uint64_t number, int rank, const list<int>& members) {
        std::vector<address> there;
        for (const int m : members) there.push_back(s.sites[static_cast<std::size_t>(m)].at);
        return std::make_unique<colls::detail::tcp_transport>(s.node, number, rank, there);
    }
    static std::unique_ptr<message_transport> across(
        process_context& s, std::uint64_t number, int rank, const list<int>& members) {
        auto w = tcp(s, number, rank, members);
        return s.way ? s.way->over(std::move(w), rank, static_cast<int>(members.size())) : std::move(w);
    }
    template <class MakeWire>
    static std::unique_ptr<rank_context> end_with(
        const std::shared_ptr<process_context>& s, int rank, const list<int>& members, bool crowded, MakeWire make) {
        const auto g = std::make_shared<group>(s, members);
        const int n = static_cast<int>(members.size());
        auto e = std::make_unique<rank_context>(rank, n, g->own_memory(n), g);
        e->by_messages = true;
        e->crowded = crowded;
        g->be(*e, make(0), make(1));
        return e;
    }

    const std::shared_ptr<process_context> process_;
    list<int> members_;  // in the world
};

/// The group of all ranks.
inline communicator group_of_all(colls::detail::descriptor&& listening, std::vector<site>&& sites, std::uint64_t number,
    int rank, bool crowded, std::shared_ptr<processes::detail::arena> near,
    std::shared_ptr<inter_node_transport> way = nullptr) {
    list<int> all;
    for (std::size_t r = 0; r < sites.size(); ++r) all.push_back(static_cast<int>(r));
    const auto s = std::make_shared<process_context>(
        std::move(listening), std::move(sites), usual(crowded), std::move(near), std::move(way));
    return colls::detail::communicator_over(group::end_of(s, number & ~std::uint64_t{3}, rank, all, crowded, nullptr));
}

}  // namespace colls::inline v1::net
