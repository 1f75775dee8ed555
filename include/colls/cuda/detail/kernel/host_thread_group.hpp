// A thread group of host threads: runs the executors of kernels without a GPU, for tests of their synchronisation.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/kernel/message_state.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// What the threads of one host_thread_group share.
class host_block {
public:
    explicit host_block(int threads)
        : threads_(threads), barrier_(threads), barriers_(static_cast<std::size_t>(threads)) {}
    int threads() const { return threads_; }

private:
    friend class host_thread_group;
    const int threads_;
    std::barrier<> barrier_;
    std::atomic<bool> votes_[3] = {};  // of consecutive barriers
    std::vector<unsigned> barriers_;   // that each thread has passed
    std::atomic<unsigned> fence_{0};
    block_state state_{};
    message_state messages_{};
};

/// One thread of a host_block.
class host_thread_group {
public:
    host_thread_group(host_block& block, int index) : block_(&block), index_(index) {}

    int index() const { return index_; }
    int size() const { return block_->threads_; }
    block_state& state() { return block_->state_; }
    message_state& messages() { return block_->messages_; }
    bool any(bool mine) {
        unsigned& passed = block_->barriers_[static_cast<std::size_t>(index_)];
        std::atomic<bool>& vote = block_->votes_[passed % 3];
        if (mine) vote.store(true, std::memory_order_relaxed);
        block_->barrier_.arrive_and_wait();
        const bool all = vote.load(std::memory_order_relaxed);
        // Clears the vote of the barrier before: every thread has read it, since all have come to this one.
        if (index_ == 0) block_->votes_[(passed + 2) % 3].store(false, std::memory_order_relaxed);
        ++passed;
        return all;
    }

    static std::uint64_t acquire(const std::uint64_t* w) { return word(w).load(std::memory_order_acquire); }
    static bool reached(const std::uint64_t* a, const std::uint64_t* b, std::uint64_t least) {
        return acquire(a) >= least && acquire(b) >= least;
    }
    static void release(std::uint64_t* w, std::uint64_t x) { word(w).store(x, std::memory_order_release); }
    static std::uint64_t relaxed(const std::uint64_t* w) { return word(w).load(std::memory_order_relaxed); }
    static std::uint32_t relaxed(const std::uint32_t* w) { return word(w).load(std::memory_order_relaxed); }
    static void put(std::uint64_t* w, std::uint64_t x) { word(w).store(x, std::memory_order_relaxed); }
    // The second word first: the executor must not depend on their order.
    static packet relaxed(const packet* from) {
        packet p;
        p.word[1] = relaxed(&from->word[1]);
        p.word[0] = relaxed(&from->word[0]);
        return p;
    }
    static void put(packet* to, const packet& p) {
        put(&to->word[1], p.word[1]);
        put(&to->word[0], p.word[0]);
    }
    static bool claim(std::uint32_t* w, std::uint32_t x) {
        std::uint32_t free = 0;
        return word(w).compare_exchange_strong(free, x);
    }
    void fence() { block_->fence_.fetch_add(1); }  // a read-modify-write: ThreadSanitizer does not follow fences
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
static_assert(thread_group<host_thread_group>);

}  // namespace colls::inline v1::cuda::detail
