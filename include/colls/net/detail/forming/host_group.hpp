// Groups of processes that can exchange bytes: what they tell each other first and, where all are on one host, how they
// find the memory that they share already, or one of them makes it.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/transport/shm/kept_arenas.hpp>
#include <colls/net/detail/forming/hand_over.hpp>
#include <colls/net/detail/forming/meeting.hpp>
#include <colls/net/detail/forming/processes.hpp>

namespace colls::inline v1::detail {

/// A member, as it describes itself.
struct member_record {
    std::uint64_t host = 0;   ///< equal exactly for processes that can share memory
    std::uint64_t group = 0;  ///< a random number: that of rank 0 is the group's
    std::int64_t process = 0;
    std::uint32_t library = rendezvous::library_version;
    std::int32_t size = 0;      ///< of the group
    std::uint32_t label = 0;    ///< that of rank 0 numbers the group in texts
    std::uint8_t messages = 0;  ///< COLLS_TRANSPORT wants messages within a host
    std::uint8_t verbs = 0;     ///< and RDMA between hosts
};
static_assert(sizeof(member_record) <= 64);

template <class T>
std::vector<T> gather_from_members(member_exchange& exchange, const T& own, int size) {
    static_assert(sizeof(T) <= 64 && std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(size));
    exchange.all_gather(&own, sizeof own, all.data());
    return all;
}

/// Tells the others of this rank, and hears of them. Throws mismatch where the members do not fit together: all of them
/// do then.
[[gnu::cold]] inline std::vector<member_record> meet_members(
    member_exchange& exchange, int rank, int size, const environment& env, bool messages) {
    member_record own;
    own.host = rendezvous::host_identity();
    own.group = rendezvous::random_id();
    own.process = getpid();
    own.size = size;
    own.label = groups_made.fetch_add(1, std::memory_order_relaxed);
    own.messages = messages;
    own.verbs = env.verbs;
    std::vector<member_record> all = gather_from_members(exchange, own, size);
    const member_record& first = all[0];
    for (int r = 1; r < size; ++r) {
        const member_record& m = all[static_cast<std::size_t>(r)];
        const bool other_transport = m.messages != first.messages || m.verbs != first.verbs;
        if (const char* const what = m.library != first.library ? "version of the library"
                                     : m.size != first.size     ? "size of the group"
                                     : other_transport          ? "transport (COLLS_TRANSPORT)"
                                                                : nullptr)
            throw_of_rank(rank, errc::mismatch,
                error_text() << "ranks 0 and " << r << " of the new group have a different " << what
                             << ": it must be the same on all of them",
                r);
    }
    return all;
}
inline bool all_on_one_host(const std::vector<member_record>& all) {
    for (const member_record& m : all)
        if (m.host != all[0].host) return false;
    return true;
}

/// The memory of a host's ranks, made by the first of them. `group`: a number that is theirs alone. `check`, while it
/// waits and while they assemble: throws if a rank has failed.
[[gnu::cold]] inline std::shared_ptr<processes::detail::arena> host_memory(
    std::uint64_t group, int rank, const std::vector<int>& here, double timeout, const std::function<void()>& check) {
    using processes::detail::arena;
    const int n = static_cast<int>(here.size());
    const std::uint64_t socket = hash_mix(group, static_cast<std::uint64_t>(here[0]));  // named hosts may be one
    std::shared_ptr<arena> a;
    if (here[0] == rank) {
        a = std::make_shared<arena>(n);
        if (n > 1) hand_out(socket, a->file(), n - 1, timeout, rank, check);
    } else {
        a = std::make_shared<arena>(n, fetch(socket, timeout, rank, here[0], check));
    }
    a->check_others = check;
    a->become_rank(static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin()));
    return a;
}

/// The group, all of whose members are on one host. Of no group, on all ranks alike, where one of them cannot have the
/// memory; `why` says the reason on the rank that has it. `keeps`: it may be memory of an earlier group, and is kept
/// for later ones.
[[gnu::cold]] inline communicator group_of_host(member_exchange& exchange, int rank,
    const std::vector<member_record>& all, const environment& env, std::string& why, bool keeps = true) {
    using namespace processes::detail;
    const int n = static_cast<int>(all.size());
    std::vector<pid_t> processes;
    for (const member_record& m : all) processes.push_back(static_cast<pid_t>(m.process));
    const auto ok_everywhere = [&](bool ok) {
        const auto said = gather_from_members(exchange, static_cast<std::uint8_t>(ok), n);
        return std::find(said.begin(), said.end(), 0) == said.end();
    };
    // The members have an arena in common: rank 0 has made a place there.
    struct offer {
        std::uint64_t arena, place;
    } own{};
    std::shared_ptr<arena> a;
    if (keeps) a = kept_arenas::of_process().with(processes);
    const std::vector<int> ranks = a ? kept_arenas::ranks_of(*a, processes) : std::vector<int>();
    if (ranks.empty()) a.reset();  // a member has died meanwhile
    std::shared_ptr<processes_group> whole;
    if (a) {
        own.arena = a->number;
        whole = std::make_shared<processes_group>(a, a->whole().base(), ranks_to(a->ranks()));
        try {
            if (rank == 0) own.place = whole->create(n);
        } catch (const std::bad_alloc&) {
            own.arena = 0;
        }
    }
    const std::vector<offer> offers = gather_from_members(exchange, own, n);
    bool common = a != nullptr;
    for (const offer& o : offers) common = common && o.arena != 0 && o.arena == offers[0].arena;
    if (common)
        return extend::join(whole->join({offers[0].place, rank, {ranks.data(), ranks.size()}, a->crowded()}), rank, n);
    if (own.place != 0) whole->discard(own.place, n);

    // A new one. The first rank has the file before the others ask for it.
    a.reset();
    try {
        if (rank == 0) a = std::make_shared<arena>(n);
    } catch (const error& x) {
        why = x.what();
    }
    if (!ok_everywhere(rank != 0 || a)) return {};
    const std::uint64_t number = all[0].group;
    const std::vector<watched_process> watched(processes.begin(), processes.end());
    const auto check = [&] {
        exchange.look_for_failure();
        for (int r = 0; r < n; ++r)
            if (watched[static_cast<std::size_t>(r)].ended())
                throw_of_rank(rank, errc::peer_failed,
                    error_text() << "the group was not formed: rank " << r
                                 << " has ended before all ranks had formed it",
                    r);
    };
    try {
        if (rank == 0 && n > 1) hand_out(number, a->file(), n - 1, env.timeout, rank, check);
        if (rank != 0) a = std::make_shared<arena>(n, fetch(number, env.timeout, rank, 0, check));
    } catch (const error& x) {
        why = x.what();
        a.reset();
    }
    if (!ok_everywhere(a != nullptr)) return {};
    a->number = number;
    a->become_rank(rank);
    a->check_others = check;
    communicator comm = whole_group(a, env);
    if (keeps && !kept_arenas::ranks_of(*a, processes).empty()) kept_arenas::of_process().keep(a);
    return comm;
}

}  // namespace colls::inline v1::detail
