// What processes that form a group without a rendezvous tell each other first.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/bootstrap/detail/meeting.hpp>
#include <colls/bootstrap/member_exchange.hpp>
#include <colls/detail/group/rank_context.hpp>

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
std::vector<T> gather_from_members(member_exchange& way, const T& own, int size) {
    static_assert(sizeof(T) <= 64 && std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(size));
    way.all_gather(&own, sizeof own, all.data());
    return all;
}

/// Tells the others of this rank, and hears of them. Throws mismatch where the members do not fit together: all of them
/// do then.
inline std::vector<member_record> meet_members(
    member_exchange& way, int rank, int size, const environment& env, bool messages) {
    member_record own;
    own.host = rendezvous::host_identity();
    own.group = rendezvous::random_id();
    own.process = getpid();
    own.size = size;
    own.label = groups_made.fetch_add(1, std::memory_order_relaxed);
    own.messages = messages;
    own.verbs = env.verbs;
    std::vector<member_record> all = gather_from_members(way, own, size);
    const member_record& first = all[0];
    for (int r = 1; r < size; ++r) {
        const member_record& m = all[static_cast<std::size_t>(r)];
        const char* const what = m.library != first.library ? "version of the library"
                                 : m.size != first.size     ? "size of the group"
                                 : m.messages != first.messages || m.verbs != first.verbs
                                     ? "transport (COLLS_TRANSPORT)"
                                     : nullptr;
        if (what != nullptr)
            throw error(errc::mismatch,
                (message() << "colls: rank " << rank << ": ranks 0 and " << r << " of the new group have another "
                           << what << ": it must be the same on all of them")
                    .text(),
                rank, r);
    }
    return all;
}
inline bool all_on_one_host(const std::vector<member_record>& all) {
    for (const member_record& m : all)
        if (m.host != all[0].host) return false;
    return true;
}

}  // namespace colls::inline v1::detail
