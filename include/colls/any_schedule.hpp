// any_schedule: a schedule value whose type is erased. Executors are compiled against it, once, whatever the number of
// schedule types in the program; each of these adds two small functions.
#pragma once

#include <colls/detail/prove/schedule_table.hpp>
#include <colls/error.hpp>

#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace colls::inline v1 {

/// Holds any schedule of at most 64 bytes, by value. Every accessor of schedule.hpp works on it, with `implements` a
/// run-time value; the accessors are also its members: rounds(n), ports(n), blocks(n), scratch(n), root(n),
/// supports(n), home(n, slot), input(rank, n, slot), output(rank, n, slot) and at(rank, n, round, port).
class any_schedule final : public detail::schedule_reader {
public:
    /// Holds a copy of s.
    template <schedule S>
    explicit any_schedule(const S& s) : any_schedule(s, detail::table_of<S>, detail::written_name<S>()) {}
    /// `name`: as the user wrote the schedule, such as the family that it was derived from. It must outlive all copies.
    template <schedule S>
    any_schedule(const S& s, const detail::schedule_table& table, std::string_view name)
        : schedule_reader(implemented_by<S>), table_(&table), name_(name) {
        static_assert(sizeof(S) <= sizeof(state_) && alignof(S) <= alignof(std::max_align_t),
            "colls: a schedule value holds at most 64 bytes");
        if constexpr (!std::is_empty_v<S>) {
            size_ = sizeof(S);
            std::memcpy(state_, &s, sizeof(S));
        }
    }

    /// As its user wrote it.
    std::string_view name() const { return name_; }
    /// Its type, as the compiler spells it.
    std::string_view type() const { return table_->type; }
    step at(int rank, int n, int round, int port) const override { return table_->at(state_, rank, n, round, port); }

    /// True where `folded<S>` supports n ranks.
    bool folds(int n) const { return table_->folds && detail::folds_at(static_cast<const schedule_reader&>(*this), n); }

    /// False for schedules of the library's families, which its own tests prove.
    bool needs_proof() const { return table_->prove != nullptr; }
    /// Proves it for n ranks; only where it needs a proof.
    detail::finding prove(int n) const { return table_->prove(*this, n); }

    /// For the library: the same schedule, which is proven before it runs, as one of a user is. `table`, which it sets,
    /// must outlive it.
    any_schedule to_be_proven(detail::schedule_table& table) const {
        table = *table_;
        table.prove = &detail::prove;
        any_schedule s(*this);
        s.table_ = &table;
        return s;
    }

    /// True for the same type with the same state, whatever the name: the key of the plan cache.
    friend bool operator==(const any_schedule& a, const any_schedule& b) {
        return a.table_ == b.table_ && std::memcmp(a.state_, b.state_, a.size_) == 0;
    }

private:
    int ask(detail::question q, int rank, int n, int slot) const override {
        return table_->ask(state_, q, rank, n, slot);
    }

    const detail::schedule_table* table_;
    std::string_view name_;
    std::size_t size_ = 0;
    alignas(std::max_align_t) unsigned char state_[64] = {};
};

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/prove/examine.hpp>
#endif
