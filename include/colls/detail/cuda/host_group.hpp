// A thread group of host threads: the kernel body without a GPU, for tests of its synchronisation. No simulation of
// speed.
#pragma once

#include <colls/detail/cuda/board.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace colls::inline v1::cuda {

namespace detail {

/// What the threads of a host group share: one of these a block.
class host_block {
public:
    explicit host_block(int threads)
        : threads_(threads), barrier_(threads), turns_(static_cast<std::size_t>(threads)) {}
    int threads() const { return threads_; }

private:
    friend class host_group;
    const int threads_;
    std::barrier<> barrier_;
    std::atomic<bool> votes_[3] = {};
    std::vector<unsigned> turns_;  // of each thread
    std::atomic<unsigned> fence_{0};
    blackboard board_{};
};

/// One thread of a host block.
class host_group {
public:
    host_group(host_block& block, int index) : block_(&block), index_(index) {}

    int index() const { return index_; }
    int size() const { return block_->threads_; }
    blackboard& board() { return block_->board_; }
    bool any(bool mine) {
        unsigned& turn = block_->turns_[static_cast<std::size_t>(index_)];
        std::atomic<bool>& vote = block_->votes_[turn % 3];
        if (mine) vote.store(true, std::memory_order_relaxed);
        block_->barrier_.arrive_and_wait();
        const bool all = vote.load(std::memory_order_relaxed);
        // The one after the next: everyone has read it since the barrier before this one.
        if (index_ == 0) block_->votes_[(turn + 2) % 3].store(false, std::memory_order_relaxed);
        ++turn;
        return all;
    }

    static std::uint64_t acquire(const std::uint64_t* w) { return word(w).load(std::memory_order_acquire); }
    static void release(std::uint64_t* w, std::uint64_t x) { word(w).store(x, std::memory_order_release); }
    static std::uint64_t relaxed(const std::uint64_t* w) { return word(w).load(std::memory_order_relaxed); }
    static std::uint32_t relaxed(const std::uint32_t* w) { return word(w).load(std::memory_order_relaxed); }
    static void put(std::uint64_t* w, std::uint64_t x) { word(w).store(x, std::memory_order_relaxed); }
    static bool claim(std::uint32_t* w, std::uint32_t x) {
        std::uint32_t free = 0;
        return word(w).compare_exchange_strong(free, x);
    }
    void fence() { block_->fence_.fetch_add(1); }  // ThreadSanitizer knows no other
    static quad load(const quad* from) {
        quad q;
        std::memcpy(&q, __builtin_assume_aligned(from, sizeof q), sizeof q);
        return q;
    }
    static void store(quad* to, const quad& q) { std::memcpy(__builtin_assume_aligned(to, sizeof q), &q, sizeof q); }
    static std::uint64_t now() {
        return static_cast<std::uint64_t>(
            std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
    }
    static void pause() { std::this_thread::yield(); }

private:
    template <class W>
    static std::atomic_ref<W> word(const W* w) {
        return std::atomic_ref<W>(*const_cast<W*>(w));
    }
    host_block* block_;
    int index_;
};
static_assert(thread_group<host_group>);

}  // namespace detail
}  // namespace colls::inline v1::cuda
