// Groups of processes that can exchange bytes: what they tell each other first and, where all are on one host, how they
// find the memory that they share already, or one of them makes it.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/net/detail/forming/hand_over.hpp>
#include <colls/net/detail/forming/meeting.hpp>
#include <colls/net/detail/forming/processes.hpp>

#include <array>

namespace colls::inline v1 {

namespace processes::detail {

/// The arenas that this process keeps for later groups of the same processes, or of some of them: each takes address
/// space for all that its ranks may allocate, and a descriptor for each of them, so groups that a program makes and
/// drops by the thousand cannot have one each. Entries stay until the process ends, so that all members of a group find
/// the same ones.
class kept_arenas {
public:
    static kept_arenas& of_process() {
        static kept_arenas* const all = new kept_arenas;  // never destroyed: threads may outlive main
        return *all;
    }
    void keep(std::shared_ptr<arena> a) {
        const process_lock lock;
        all_.push_back({std::move(a), count_forks()});
    }
    /// The arena of the lowest number that has all these processes as living ranks; null: there is none. A process
    /// that several ranks are in, as threads, has none.
    std::shared_ptr<arena> with(const std::vector<pid_t>& processes) const {
        const process_lock lock;
        std::shared_ptr<arena> best;
        for (const entry& k : all_) {
            if (k.born != count_forks() || (best && best->number < k.memory->number)) continue;
            k.memory->look();
            const std::vector<int> ranks = ranks_of(*k.memory, processes);
            if (!ranks.empty() && k.memory->is_seen_by(ranks)) best = k.memory;
        }
        return best;
    }
    /// The rank of each process in the arena; empty: one is missing, or there twice.
    static std::vector<int> ranks_of(const arena& a, const std::vector<pid_t>& processes) {
        std::vector<int> ranks;
        for (const pid_t p : processes) {
            int found = none;
            for (int r = 0; r < a.ranks(); ++r)
                if (a.process(r) == p && !a.dead(r)) {
                    if (found != none) return {};
                    found = r;
                }
            if (found == none || std::find(ranks.begin(), ranks.end(), found) != ranks.end()) return {};
            ranks.push_back(found);
        }
        return ranks;
    }

private:
    struct entry {
        std::shared_ptr<arena> memory;
        unsigned born;  // a forked child is none of its ranks
    };
    std::vector<entry> all_;
};

}  // namespace processes::detail

namespace detail {

/// A member, as it describes itself.
struct member_record {
    std::uint64_t host = 0;   ///< equal exactly for processes that can share memory
    std::uint64_t group = 0;  ///< a random number: that of rank 0 is the group's
    std::int64_t process = 0;
    std::uint32_t library = rendezvous::library_version;
    std::int32_t size = 0;      ///< of the group
    std::uint32_t label = 0;    ///< that of rank 0 numbers the group in texts
    std::uint8_t messages = 0;  ///< COLLS_TRANSPORT wants messages within a host
    std::uint8_t network = 0;   ///< and between hosts 1: RDMA; 2: that where all members can take it; 3: libfabric
};
static_assert(sizeof(member_record) <= 64);

/// A group that is being formed, as one of its members sees it.
struct forming {
    member_exchange& exchange;
    const int rank, size;
    const environment env;
    bool tells = false;         ///< of what this member throws the others hear by look_for_failure
    bool keeps_memory = true;   ///< where all are on one host, it may be memory of an earlier group
    bool needs_memory = false;  ///< without it members on one host do not take TCP
    std::string_view source{};  ///< who says that the members belong together
    /// Makes the socket at which the others reach this member; `alone`: all are on this host.
    std::function<descriptor(bool alone)> listen{};
    // As it goes on.
    std::vector<member_record> all{};
    int who = none;     ///< the first member that cannot have what it needs
    std::string why{};  ///< on that member

    template <class T>
    std::vector<T> gather(const T& own) const {
        static_assert(sizeof(T) <= 64 && std::is_trivially_copyable_v<T>);
        std::vector<T> each(static_cast<std::size_t>(size));
        exchange.all_gather(&own, sizeof own, each.data());
        return each;
    }
    const member_record& own() const { return all[static_cast<std::size_t>(rank)]; }
    bool on_one_host() const {
        return std::all_of(all.begin(), all.end(), [&](const member_record& m) { return m.host == all[0].host; });
    }
    /// True where all members can do what they attempt; `waits`: in which they wait for each other.
    [[gnu::cold]] bool all_can(bool waits, auto&& attempt) {
        std::uint8_t can = 1;
        try {
            attempt();
        } catch (const error& x) {
            // At the deadline, or where one has failed, not all members would exchange.
            if ((waits && tells) || x.code() == errc::timeout || x.code() == errc::peer_failed) throw;
            why = x.what();
            can = 0;
        }
        const auto each = gather(can);
        const auto at = std::find(each.begin(), each.end(), 0);
        if (at == each.end()) return true;
        who = static_cast<int>(at - each.begin());
        return false;
    }
    /// Throws where a member cannot have what it needs, on that one with its own reason.
    [[noreturn, gnu::cold]] void throw_without() const {
        if (who == rank) throw error(errc::unsupported, why.c_str(), rank);
        throw_of_rank(rank, errc::peer_failed,
            error_text() << "the group was not formed: rank " << who
                         << " cannot have the memory, or the device, of its host",
            who);
    }
};

/// Tells the others of this rank, and hears of them. Throws mismatch where the members do not fit together: all of them
/// do then.
[[gnu::cold]] inline void meet_members(forming& f, bool messages) {
    member_record own;
    own.host = rendezvous::host_identity();
    own.group = random_id();
    own.process = getpid();
    own.size = f.size;
    own.label = groups_made.fetch_add(1, std::memory_order_relaxed);
    own.messages = messages;
    own.network = f.env.ofi                                                            ? 3
                  : f.env.verbs                                                        ? 1
                  : f.env.any_network && hosts::open_verbs != nullptr && !is_covered() ? 2
                                                                                       : 0;
    f.all = f.gather(own);
    const member_record& first = f.all[0];
    for (int r = 1; r < f.size; ++r) {
        const member_record& m = f.all[static_cast<std::size_t>(r)];
        const bool other_transport =
            m.messages != first.messages || (m.network != first.network && (m.network | first.network) != 2);
        if (const char* const what = m.library != first.library ? "version of the library"
                                     : m.size != first.size     ? "size of the group"
                                     : other_transport          ? "transport (COLLS_TRANSPORT)"
                                                                : nullptr)
            throw_of_rank(f.rank, errc::mismatch,
                error_text() << "ranks 0 and " << r << " of the new group have a different " << what
                             << ": it must be the same on all of them",
                r);
    }
}

/// A function that throws where a member has failed, as the exchange sees it, or one on this host has ended.
[[gnu::cold]] inline std::function<void()> failure_of_members(const forming& f) {
    using processes::detail::watched_process;
    std::vector<std::pair<int, std::shared_ptr<watched_process>>> watched;
    for (int r = 0; r < f.size; ++r)
        if (const member_record& m = f.all[static_cast<std::size_t>(r)]; m.host == f.own().host && r != f.rank)
            watched.emplace_back(r, std::make_shared<watched_process>(static_cast<pid_t>(m.process)));
    return [&f, watched = std::move(watched)] {
        f.exchange.look_for_failure();
        for (const auto& [r, process] : watched)
            if (process->ended())
                throw_of_rank(f.rank, errc::peer_failed,
                    error_text() << "the group was not formed: rank " << r
                                 << " has ended before all ranks had formed it",
                    r);
    };
}

/// The memory of this host's members, `here`, made by the first of them. Null, on all members of the group alike, where
/// one of them cannot have that of its host.
[[gnu::cold]] inline std::shared_ptr<processes::detail::arena> memory_of_host(
    forming& f, const std::vector<int>& here) {
    using processes::detail::arena;
    const int n = static_cast<int>(here.size()), rank = f.rank;
    const std::uint64_t socket =
        hash_mix(f.all[0].group, static_cast<std::uint64_t>(here[0]));  // named hosts may be one
    const auto check = failure_of_members(f);
    std::shared_ptr<arena> a;
    const auto make = [&] {
        if (here[0] == rank) a = std::make_shared<arena>(n);
    };
    const auto share = [&] {
        if (here[0] == rank && n > 1) hand_out(socket, std::array{a->file()}, n - 1, f.env.timeout, rank, check);
        if (here[0] != rank)
            a = std::make_shared<arena>(n, std::move(fetch(socket, 1, f.env.timeout, rank, here[0], check)[0]));
    };
    if (!f.all_can(false, make) || !f.all_can(true, share)) return nullptr;  // the file is there before others ask
    a->check_others = check;
    a->become_rank(static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin()));
    return a;
}

/// The group, all of whose members are on one host. Of no group, on all ranks alike, where one of them cannot have the
/// memory.
[[gnu::cold]] inline communicator group_of_host(forming& f) {
    using namespace processes::detail;
    std::vector<pid_t> processes;
    for (const member_record& m : f.all) processes.push_back(static_cast<pid_t>(m.process));
    // The members have an arena in common: rank 0 has made a place there.
    struct offer {
        std::uint64_t arena, place;
    } own{};
    std::shared_ptr<arena> a;
    if (f.keeps_memory) a = kept_arenas::of_process().with(processes);
    const std::vector<int> ranks = a ? kept_arenas::ranks_of(*a, processes) : std::vector<int>();
    if (ranks.empty()) a.reset();  // a member has died meanwhile
    std::shared_ptr<processes_group> whole;
    if (a) {
        own.arena = a->number;
        whole = std::make_shared<processes_group>(a, a->whole().base(), ranks_to(a->ranks()));
        try {
            if (f.rank == 0) own.place = whole->create(f.size);
        } catch (const std::bad_alloc&) {
            own.arena = 0;
        }
    }
    const std::vector<offer> offers = f.gather(own);
    bool common = a != nullptr;
    for (const offer& o : offers) common = common && o.arena != 0 && o.arena == offers[0].arena;
    if (common)
        return extend::join(
            whole->join({offers[0].place, f.rank, {ranks.data(), ranks.size()}, a->crowded()}), f.rank, f.size);
    if (own.place != 0) whole->discard(own.place, f.size);

    a = memory_of_host(f, ranks_to(f.size));
    if (!a) return {};
    a->number = f.all[0].group;
    communicator comm = whole_group(a, f.env);
    if (f.keeps_memory && !kept_arenas::ranks_of(*a, processes).empty()) kept_arenas::of_process().keep(a);
    return comm;
}

}  // namespace detail
}  // namespace colls::inline v1
