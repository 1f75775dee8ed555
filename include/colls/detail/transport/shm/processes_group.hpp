// Groups of processes that share an arena.
// IWYU pragma: private, include <colls/transports/shm.hpp>
#pragma once

#include <colls/detail/transport/shm/arena.hpp>
#include <colls/extend/memory_group.hpp>

#include <memory>
#include <vector>

namespace colls::inline v1::processes::detail {

/// A group within an arena.
class processes_group : public extend::memory_group, public std::enable_shared_from_this<processes_group> {
public:
    processes_group(std::shared_ptr<arena> in, std::byte* control, std::vector<int>&& ranks)
        : arena_(std::move(in)), control_(control), ranks_(std::move(ranks)) {}

    extend::memory_member member() {
        return {.group = shared_from_this(),
            .control = control_,
            .base = arena_->base(),
            .bytes = reach(),
            .copies_between = arena_->copies_between(),
            .copies_always = arena_->copies_always(),
            .copies_faster = arena_->head().staging.single_copy,
            .streams = arena_->head().staging.streams,
            .crowded = arena_->crowded(),
            .number = arena_->number + static_cast<std::uint64_t>(control_ - arena_->base()) + 1};
    }

    void look() override { arena_->look(); }
    bool dead(int rank) const override { return arena_->dead(ranks_[static_cast<std::size_t>(rank)]); }
    std::byte* allocate(std::size_t bytes) override { return arena_->take(bytes); }
    std::byte* allocate_for_program(std::size_t bytes) override { return arena_->take(bytes, arena::use::program); }
    bool is_within(const memory_group& other) const override {
        return arena::is_within(ranks_, static_cast<const processes_group&>(other).ranks_);
    }
    bool withdraw() override { return arena_->withdraw(ranks_); }
    bool follow(int rank) override { return arena_->follow(ranks_[static_cast<std::size_t>(rank)]); }
    std::size_t reach() const override { return arena_->is_seen_by(ranks_) ? arena_->bytes() : 0; }
    void deallocate(std::byte* at, std::size_t bytes) noexcept override { arena_->give(at, bytes); }
    void deallocate_after(std::byte* at, std::size_t bytes, std::uint64_t operations) override {
        // This rank has left. Where `control` no longer says so all have left, and it has become memory of another use.
        const auto over = [a = arena_.get(), control = control_, ranks = ranks_, operations] {
            const int n = static_cast<int>(ranks.size());
            bool completed = true;
            for (int r = 0; r < n; ++r) {
                const int in_arena = ranks[static_cast<std::size_t>(r)];
                if (extend::has_left(control, n, r) || a->dead(in_arena)) continue;
                if (in_arena == a->rank()) return true;
                completed = completed && extend::has_completed(control, n, r, operations);
            }
            return completed;
        };
        if (over())
            arena_->give(at, bytes);
        else
            arena_->lend(at, bytes, over);
    }
    void populate(std::byte* at, std::size_t bytes) override { arena_->populate(at, bytes); }
    void retire_memory() override { arena_->pin(); }
    const extend::machine& figures() const override { return arena_->figures(); }

    std::uint64_t create(int n) override {
        const std::size_t bytes = extend::control_bytes(n);
        std::byte* const at = arena_->take(bytes);
        std::memset(at, 0, bytes);
        return static_cast<std::uint64_t>(at - arena_->base());
    }
    // The arena takes the group's memory back when all members have left, or are dead.
    extend::memory_member join(const extend::formation& f) override {
        std::vector<int> ranks;
        for (const int m : f.members) ranks.push_back(ranks_[static_cast<std::size_t>(m)]);
        std::byte* const control = arena_->base() + f.place;
        if (arena_->owns(control))
            arena_->lend(control, extend::control_bytes(f.size()), [a = arena_.get(), control, ranks] {
                const int n = static_cast<int>(ranks.size());
                for (int r = 0; r < n; ++r)
                    if (!extend::has_left(control, n, r) && !a->dead(ranks[static_cast<std::size_t>(r)])) return false;
                return true;
            });
        return std::make_shared<processes_group>(arena_, control, std::move(ranks))->member();
    }
    void discard(std::uint64_t place, int n) override {
        arena_->give(arena_->base() + place, extend::control_bytes(n));
    }

private:
    const std::shared_ptr<arena> arena_;
    std::byte* const control_;
    const std::vector<int> ranks_;  // of each member, its number in the arena
};

}  // namespace colls::inline v1::processes::detail
