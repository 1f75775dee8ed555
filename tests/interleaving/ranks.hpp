// The rank contexts of one group in the scheduler's memory.
#pragma once

#include "scheduler.hpp"

#include <colls/collectives.hpp>
#include <colls/detail/execute/direct_executor.hpp>
#include <colls/detail/execute/memory_message.hpp>
#include <colls/detail/group/group_memory.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/perform/engine.hpp>
#include <colls/files/detail/call_tracer.hpp>
#include <colls/files/detail/tuning_file.hpp>
#include <colls/status/detail/own_record.hpp>

#include <cstring>
#include <memory>

namespace interleaving {

using namespace colls::detail;
using colls::any_schedule;

/// All ranks are of this thread, and reach all memory of each other.
class backend final : public group_backend {
public:
    explicit backend(std::size_t first) : next_(first) {}
    std::byte* take(std::size_t bytes) override {
        std::byte* const at = memory().at + next_;
        next_ += (bytes + line - 1) / line * line;
        if (next_ > memory().bytes) throw std::bad_alloc();
        return at;
    }
    void give(std::byte*, std::size_t) noexcept override {}
    std::unique_ptr<pending> make_collective(rank_context& self) override {
        return std::make_unique<direct_executor>(self);
    }
    std::unique_ptr<pending> make_message(rank_context& self) override {
        return std::make_unique<memory_message>(self);
    }
    bool announced(rank_context&, int) override { return false; }
    std::uint64_t create(int) override { return 0; }
    std::unique_ptr<rank_context> attach(rank_context&, std::uint64_t, int, const list<int>&) override { return {}; }
    void discard(std::uint64_t, int) override {}
    std::unique_ptr<rank_context> shrink(rank_context&) override { return {}; }
    const machine& figures() override {
        static const machine some{.alpha = 2e-7, .beta = 2e-10, .gamma = 1.5e-10, .cores = 4, .message = 1e-6};
        return some;
    }

private:
    std::size_t next_;
};

/// A program whose ranks are those of a group.
class group_program : public program {
public:
    explicit group_program(int n) : program(n) {}
    void begin() override {
        for (auto& e : contexts_) e.reset();
        const group_memory m(memory().at, ranks);
        std::memset(memory().at, 0, group_memory::bytes(ranks));
        // How far the cores are from each other, which ranks measure by the clock.
        ignore({reinterpret_cast<std::byte*>(&m.distance()), sizeof(distance_state)});
        const auto shared = std::make_shared<backend>(first_free_byte());
        for (int r = 0; r < ranks; ++r) contexts_[r] = std::make_shared<rank_context>(r, ranks, m, shared);
    }

protected:
    rank_context& context(int rank) { return *contexts_[rank]; }
    /// Where the memory begins that the group does not use; what ranks allocate begins there.
    std::size_t first_free_byte() const { return (group_memory::bytes(ranks) + own_bytes_ + line - 1) / line * line; }
    /// Memory of the program's own, behind the group's.
    std::byte* own_memory(std::size_t bytes) {
        own_bytes_ = bytes + line;
        return memory().at + (group_memory::bytes(ranks) + line - 1) / line * line;
    }

private:
    std::shared_ptr<rank_context> contexts_[most_ranks];
    std::size_t own_bytes_ = 0;
};

}  // namespace interleaving
