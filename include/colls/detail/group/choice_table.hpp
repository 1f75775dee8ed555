// What `automatic` has chosen in a group so far, and the plans of schedules that callers have given.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>
#include <colls/detail/support/list.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace colls::inline v1::detail {

class execution_plan;

/// What `automatic` chose for one kind of call. Without a plan: the eager path.
struct schedule_choice {
    std::uint64_t key = 0;
    const execution_plan* plan = nullptr;
    std::size_t chunk_bytes = std::size_t{64} << 10;  ///< bytes of a unit per chunk
    /// Instead of `plan` where a rank's buffer is out of the others' reach; null: one of the same schedule.
    const execution_plan* staged = nullptr;
    std::string_view name = {}, staged_name = {};  ///< of the schedules, for texts
    bool tells_distance = false;  ///< taken once in a while instead of the eager path: a sample of the distance follows
};

/// Choices by their keys: a hash table, since a program may call with thousands of sizes, and each call looks one up.
class choice_table {
public:
    /// The choice with that key for which `is` is true; null: there is none.
    template <class F>
    const schedule_choice* find(std::uint64_t key, F is) const {
        if (slots_.empty()) return nullptr;
        for (std::size_t i = first_slot(key); slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
            const schedule_choice& p = all_[slots_[i] - 1];
            if (p.key == key && is(p)) return &p;
        }
        return nullptr;
    }
    /// `find` looks at choices with one key in the order in which they were added.
    void add(const schedule_choice& p) {
        all_.push_back(p);
        if (2 * all_.size() <= slots_.size()) {
            enter(all_.size());
            return;
        }
        std::size_t size = 64;
        while (size < 2 * all_.size()) size *= 2;
        slots_.clear();
        slots_.resize(size, 0);
        for (std::size_t number = 1; number <= all_.size(); ++number) enter(number);
    }

    void clear() { *this = choice_table(); }
    // All choices, in the order in which they were added.
    const schedule_choice* begin() const { return all_.begin(); }
    const schedule_choice* end() const { return all_.end(); }

private:
    // The product's highest bits depend on all bits of the key.
    std::size_t first_slot(std::uint64_t key) const {
        return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ull) >> 40) & (slots_.size() - 1);
    }
    void enter(std::size_t number) {
        std::size_t i = first_slot(all_[number - 1].key);
        while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = static_cast<std::uint32_t>(number);
    }

    list<schedule_choice> all_;
    list<std::uint32_t> slots_;  // numbers of choices, from 1; 0: none. Their count is a power of two
};

}  // namespace colls::inline v1::detail
