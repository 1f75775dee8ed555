// How many cores this process may use.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

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

}  // namespace colls::inline v1::detail

#ifndef COLLS_SEPARATE

#include <colls/detail/support/cgroup_quota.hpp>

#include <sched.h>

namespace colls::inline v1::detail {

COLLS_INLINE int cores() {
    static const int counted = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
        return cores_within(n, cgroup_quota().cores());
    }();
    return counted;
}

}  // namespace colls::inline v1::detail

#endif
