// Arenas that a process keeps for later groups of the same processes, or of some of them.
//
// An arena takes address space for all that its ranks may allocate, and a descriptor for each of them: groups that a
// program makes and drops by the thousand cannot have one each.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/detail/transport/shm/arena.hpp>

#include <algorithm>

namespace colls::inline v1::processes::detail {

/// The arenas that this process keeps. Entries stay until the process ends, so that all members of a group find the
/// same ones.
class kept_arenas {
public:
    static kept_arenas& of_process() {
        static kept_arenas* const all = new kept_arenas;  // never destroyed: threads may outlive main
        return *all;
    }
    void keep(std::shared_ptr<arena> a) {
        const std::lock_guard lock(mutex_);
        all_.push_back({std::move(a), count_forks()});
    }
    /// The arena of the lowest number that has all these processes as living ranks; null: there is none. A process
    /// that several ranks are in, as threads, has none.
    std::shared_ptr<arena> with(const std::vector<pid_t>& processes) const {
        const std::lock_guard lock(mutex_);
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
    mutable std::mutex mutex_;
    std::vector<entry> all_;
};

}  // namespace colls::inline v1::processes::detail
