// The cores that a thread may run on, how many this process may use, and how many the ranks of a host have together.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/support/list.hpp>

#include <sched.h>
#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

/// The affinity of the calling thread.
struct affinity {
    // A set of the usual size is too small for a kernel that knows more than 1,024 cores, which is an error then.
    cpu_set_t set[8];
    int count = 0;  ///< 0: the system does not say

    affinity() {
        for (cpu_set_t& part : set) CPU_ZERO(&part);
        if (sched_getaffinity(0, sizeof set, set) == 0) count = CPU_COUNT_S(sizeof set, set);
    }
    void remove(int core) {
        if (core < 0 || !CPU_ISSET_S(static_cast<std::size_t>(core), sizeof set, set)) return;
        CPU_CLR_S(static_cast<std::size_t>(core), sizeof set, set);
        --count;
    }
    /// Makes it that of the calling thread, which moves if its core is not among them. False: the system refuses.
    bool apply() const { return sched_setaffinity(0, sizeof set, set) == 0; }
};

/// The number of cores that this process may use: those of its affinity, as far as the quotas of its cgroups go. It is
/// counted once, at the first call: threads that are pinned later, and quotas that are set later, do not change it.
int cores();

/// Cores for ranks that spin, of `allowed` ones and a quota. A part of a core is none: a rank that spins there is
/// stopped again and again.
inline int cores_within(int allowed, double quota) {
    if (allowed < 1) allowed = 1;
    if (quota >= allowed) return allowed;
    return quota < 1 ? 1 : static_cast<int>(quota);
}

/// What a process tells the others of its host. A launcher may have bound each of them to a core: so none of them knows
/// alone how many cores they have.
struct core_share {
    std::int32_t cores = 1;     ///< that the thread may use, by its affinity and the quota
    std::uint32_t set = 0;      ///< a hash of those by its affinity
    std::int32_t most = 1;      ///< of the host, within the quota
    std::int32_t launched = 0;  ///< processes of the job on this host, as the launcher says; 0: it does not say

    friend bool operator==(const core_share&, const core_share&) = default;
};
/// That of the calling thread.
core_share own_share();

/// Adds up the cores of ranks of one host, each of which has told its share.
class cores_together {
public:
    static constexpr int plenty = 1 << 20;  ///< more cores than ranks, on every host

    void add(const core_share& s) {
        ++ranks_;
        if (ranks_ == 1 || s.most < most_) most_ = s.most;
        if (s.launched > launched_) launched_ = s.launched;
        for (const std::uint32_t known : sets_)
            if (known == s.set) return;
        sets_.push_back(s.set);
        sum_ += s.cores;
    }
    /// The cores of all sets: sets that overlap in part count as apart. Where the job has more processes here than the
    /// host has cores, these ranks have their part of them.
    int cores() const {
        long all = sum_ < most_ ? sum_ : most_;
        if (const long part = launched_ > 0 ? static_cast<long>(ranks_) * most_ / launched_ : all;
            launched_ > most_ && part < all)
            all = part;
        return all < 1 ? 1 : static_cast<int>(all);
    }
    bool crowded() const { return ranks_ > cores(); }
    /// Cores of a group of n ranks, each of whose hosts is as crowded as this one; else `plenty`.
    int of_group(int n) const {
        if (!crowded()) return plenty;
        const long all = static_cast<long>(n) * cores() / ranks_;
        return all < 1 ? 1 : static_cast<int>(all);
    }

private:
    int ranks_ = 0;
    std::int32_t most_ = 1, launched_ = 0;
    long sum_ = 0;
    list<std::uint32_t> sets_;
};

/// May a measurement use a second core? Where a launcher has bound this process to one, other ranks have others.
bool second_core();

}  // namespace colls::inline v1::detail

#ifndef COLLS_SEPARATE

#include <colls/detail/support/cgroup_quota.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/process_lock.hpp>

#include <unistd.h>
#include <cstdlib>
#include <string_view>

namespace colls::inline v1::detail {

/// Processes of the job on this host; 0: no launcher says it.
[[gnu::cold]] inline int launched_here() {
    const auto number = [](const char* name) {
        const char* const value = std::getenv(name);
        char* end = nullptr;
        const long n = value != nullptr ? std::strtol(value, &end, 10) : 0;
        // Slurm: "4(x2)" on both of two hosts; "4(x2),3" does not say which host this is.
        const bool sound = end != nullptr && (*end == '\0' || *end == '(') &&
                           std::string_view(end).find(',') == std::string_view::npos;
        return sound && n > 0 && n < 1 << 20 ? static_cast<int>(n) : 0;
    };
    for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE",
             "LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE"})
        if (const int n = number(name)) return n;
    return 0;
}

COLLS_INLINE int cores() {
    const process_lock lock;
    static const int counted = cores_within(affinity().count, cgroup_quota().cores());
    return counted;
}

[[gnu::cold]] COLLS_INLINE core_share own_share() {
    const process_lock lock;
    static const double quota = cgroup_quota().cores();
    const affinity own;
    const int online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    std::uint64_t hash = 0;
    const auto* const words = reinterpret_cast<const unsigned char*>(own.set);
    for (std::size_t i = 0; i < sizeof own.set; ++i)
        if (words[i] != 0) hash = hash_mix(hash, i << 8 | words[i]);
    return {cores_within(own.count, quota), static_cast<std::uint32_t>(hash >> 32 ^ hash),
        cores_within(online > own.count ? online : own.count, quota), launched_here()};
}

COLLS_INLINE bool second_core() {
    if (cores() > 1) return true;
    const core_share own = own_share();
    return own.launched > 1 && own.most > 1;
}

}  // namespace colls::inline v1::detail

#endif
