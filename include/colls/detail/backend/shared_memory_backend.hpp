// The backend of groups whose ranks share memory: adapts an extend::memory_group.
// IWYU pragma: private, include <colls/extend/memory_group.hpp>
#pragma once

#include <colls/detail/backend/split.hpp>
#include <colls/detail/execute/direct_executor.hpp>
#include <colls/detail/execute/memory_message.hpp>
#include <colls/detail/group/failure.hpp>
#include <colls/extend/memory_member.hpp>

#include <unistd.h>

namespace colls::inline v1::detail {

class shared_memory_backend final : public group_backend {
public:
    explicit shared_memory_backend(extend::memory_member&& m) : member_(std::move(m)) {}

    [[gnu::cold]] static std::unique_ptr<rank_context> context(extend::memory_member&& m, int rank, int size) {
        const group_memory memory(m.control, size);
        const auto b = std::make_shared<shared_memory_backend>(std::move(m));
        const extend::memory_member& own = b->member_;
        auto self = std::make_unique<rank_context>(rank, size, memory, b);
        self->crowded = own.crowded;
        self->waits = wait_policy(own.crowded, false, sleep_at_once(size, own.group->figures().cores));
        open_bell(*self);
        self->number = own.number;
        if (own.base == nullptr) return self;
        self->access.base = own.base;
        self->access.reach = own.bytes;
        self->access.copies_between = own.copies_between;
        self->access.copies_always = own.copies_always;
        self->access.copies_faster = own.copies_faster;
        self->access.streams = own.streams;
        memory.state(rank).process.store(getpid(), std::memory_order_relaxed);
        return self;
    }

    std::unique_ptr<pending> make_collective(rank_context& self) override {
        return std::make_unique<direct_executor>(self);
    }
    std::unique_ptr<pending> make_message(rank_context& self) override {
        return std::make_unique<memory_message>(self);
    }
    bool has_room(rank_context& self) override { return has_free_place(self, self.direct.count); }
    bool announced(rank_context& self, int rank) override {
        const pair_line& l = self.memory.pair(rank, self.rank);
        return l.posted.load(std::memory_order_acquire) != l.taken.load(std::memory_order_relaxed);
    }

    // Threads die together: there is nothing to look for.
    void look(rank_context& self, const wait_site*, double) override {
        if (member_.base == nullptr) return;
        member_.group->look();
        if (self.memory.poison().state.load(std::memory_order_relaxed) != 0) return;
        for (int r = 0; r < self.size; ++r)
            if (dead(r) && self.memory.state(r).gone.load(std::memory_order_acquire) == 0)
                poison(self.memory, errc::peer_failed, self.rank, r, none,
                    error_text() << "colls: rank " << r << " (process "
                                 << static_cast<long long>(self.memory.state(r).process.load(std::memory_order_relaxed))
                                 << ") has died");
    }
    bool dead(int rank) const override { return member_.base != nullptr && member_.group->dead(rank); }
    std::byte* take(std::size_t bytes) override { return member_.group->allocate(bytes); }
    std::byte* take_for_program(std::size_t bytes) override { return member_.group->allocate_for_program(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { member_.group->deallocate(at, bytes); }
    void give_after(std::byte* at, std::size_t bytes, std::uint64_t operations) override {
        member_.group->deallocate_after(at, bytes, operations);
    }
    void populate(std::byte* at, std::size_t bytes) override { member_.group->populate(at, bytes); }
    void pin() override { member_.group->retire_memory(); }
    [[gnu::cold]] std::uint64_t create(int n) override { return member_.group->create(n); }
    void discard(std::uint64_t place, int n) override { member_.group->discard(place, n); }
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        extend::formation f{place, rank, {members.data(), members.size()}, from.crowded};
        std::unique_ptr<rank_context> self = context(member_.group->join(f), rank, f.size());
        self->hook = from.hook;
        self->env.timeout = from.env.timeout;
        return self;
    }
    std::unique_ptr<rank_context> shrink(rank_context& from) override { return shrink_shared(from); }
    extend::memory_group* by_memory() override { return member_.group.get(); }
    const machine& figures() override { return member_.group->figures(); }

private:
    const extend::memory_member member_;
};

COLLS_INLINE joined_group join_by_memory(extend::memory_member&& member, int rank, int size) {
    return joined(shared_memory_backend::context(std::move(member), rank, size));
}

}  // namespace colls::inline v1::detail

namespace colls::inline v1::extend {

COLLS_INLINE std::size_t control_bytes(int size) { return detail::group_memory::bytes(size); }
COLLS_INLINE bool has_left(std::byte* control, int size, int rank) {
    return detail::group_memory(control, size).state(rank).gone.load(std::memory_order_acquire) != 0;
}
COLLS_INLINE bool has_completed(std::byte* control, int size, int rank, std::uint64_t operations) {
    return detail::group_memory(control, size).state(rank).completed.load(std::memory_order_acquire) >= operations;
}

}  // namespace colls::inline v1::extend
