// The scratch slots of the ranks while they are planned: which are free, and how many each rank needs.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/plan/dependencies.hpp>
#include <colls/detail/plan/per_rank.hpp>
#include <colls/detail/plan/rank_program.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/support/list.hpp>

namespace colls::inline v1::detail {

class scratch_slots {
public:
    scratch_slots(const step_table& steps, per_rank<rank_program>& programs, const dependencies& accesses)
        : programs_(programs), accesses_(accesses), free_(steps.count, steps.first) {}

    /// A slot of `owner` that `writer` may overwrite without a wait: a free one, or a new one.
    location take(int writer, int owner) {
        list<int>& free = free_[owner];
        for (std::size_t i = 0; i < free.size(); ++i) {
            const location l{owner, free[i], place::scratch};
            if (!accesses_.is_free(writer, l)) continue;
            free.drop(i);
            return l;
        }
        return {owner, programs_[owner].scratch++, place::scratch};
    }
    void give_back(int owner, int index) { free_[owner].push_back(index); }

private:
    per_rank<rank_program>& programs_;
    const dependencies& accesses_;
    per_rank<list<int>> free_;
};

}  // namespace colls::inline v1::detail
