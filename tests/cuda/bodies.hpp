// Kernel bodies on host threads: a group of ranks, each of several blocks of several threads, that play a list of
// calls.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/cuda/body.hpp>
#include <colls/detail/cuda/host_group.hpp>
#include <colls/detail/cuda/small.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace bodies {

using colls::collective;
namespace kernel = colls::cuda::detail;

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// A schedule whose collective alone is known to the compiler: one body serves for all families.
template <collective C>
struct erased {
    static constexpr collective implements = C;
    colls::any_schedule s;
    int rounds(int n) const { return s.rounds(n); }
    int ports(int n) const { return s.ports(n); }
    int blocks(int n) const { return s.blocks(n); }
    int scratch(int n) const { return s.scratch(n); }
    int root(int n) const { return s.root(n); }
    bool supports(int n) const { return s.supports(n); }
    int home(int n, int slot) const { return s.home(n, slot); }
    int input(int r, int n, int slot) const { return s.input(r, n, slot); }
    int output(int r, int n, int slot) const { return s.output(r, n, slot); }
    colls::step at(int r, int n, int round, int port) const { return s.at(r, n, round, port); }
};

/// Memory of a rank's workspace, aligned, all zero.
class space {
public:
    explicit space(std::size_t bytes)
        : bytes_(bytes), at_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{128}))) {
        std::memset(at_, 0, bytes);
    }
    space(space&& other) noexcept : bytes_(other.bytes_), at_(other.at_) { other.at_ = nullptr; }
    space(const space&) = delete;
    ~space() {
        if (at_ != nullptr) ::operator delete(at_, std::align_val_t{128});
    }
    std::byte* data() { return at_; }
    std::size_t size() const { return bytes_; }

private:
    std::size_t bytes_;
    std::byte* at_;
};

/// n ranks on the host.
class ranks {
public:
    ranks(int n, int blocks, int threads, std::size_t letter_bytes, std::size_t scratch_bytes, double seconds = 300)
        : n_(n), blocks_(blocks), threads_(threads), regions_(index(n)), reports_(index(n)) {
        sizes_.ranks = n;
        sizes_.blocks = blocks;
        sizes_.letter_bytes = letter_bytes;
        sizes_.scratch_bytes = scratch_bytes;
        for (int r = 0; r < n; ++r) spaces_.emplace_back(static_cast<std::size_t>(sizes_.bytes()));
        for (auto& s : spaces_) at_.push_back(s.data());
        for (int r = 0; r < n; ++r)
            teams_.push_back({.rank = r,
                .sizes = sizes_,
                .workspaces = at_.data(),
                .regions = regions_.data(),
                .region_count = 1,
                .status = &reports_[index(r)],
                .patience = static_cast<std::uint64_t>(seconds * 1e9)});
    }
    int size() const { return n_; }
    int blocks() const { return blocks_; }
    const kernel::layout& sizes() const { return sizes_; }
    const kernel::report& report(int r) const { return reports_[index(r)]; }
    const kernel::team& team(int r) const { return teams_[index(r)]; }

    /// `play(group, team, block)` by every thread of every block of every rank; true if none of them gave up. Group: of
    /// one thread, made from its block and its index.
    template <class Group = kernel::host_group, class Play>
    bool run(const Play& play) {
        std::vector<std::unique_ptr<kernel::host_block>> all;
        for (int i = 0; i < n_ * blocks_; ++i) all.push_back(std::make_unique<kernel::host_block>(threads_));
        std::atomic<int> failed{0};
        std::vector<std::thread> threads;
        for (int r = 0; r < n_; ++r)
            for (int b = 0; b < blocks_; ++b)
                for (int t = 0; t < threads_; ++t)
                    threads.emplace_back([&, r, b, t] {
                        Group g(*all[index(r * blocks_ + b)], t);
                        if (!play(g, teams_[index(r)], b)) ++failed;
                    });
        for (auto& t : threads) t.join();
        return failed == 0;
    }

private:
    const int n_, blocks_, threads_;
    kernel::layout sizes_;
    std::vector<space> spaces_;
    std::vector<std::byte*> at_;
    std::vector<std::uint64_t> regions_;
    std::vector<kernel::report> reports_;
    std::vector<kernel::team> teams_;
};

/// A buffer between guards, at any offset from 16 bytes.
template <class T>
class buffer {
public:
    buffer(std::size_t count, std::size_t offset)
        : count_(count), offset_(offset), all_(count * sizeof(T) + 2 * guard + 32, std::byte{0x5a}) {}
    T* data() { return reinterpret_cast<T*>(base() + offset_); }
    std::size_t size() const { return count_; }
    bool intact() {
        const std::byte* const from = reinterpret_cast<const std::byte*>(data());
        const std::byte* const to = from + count_ * sizeof(T);
        for (const std::byte* b = all_.data(); b < all_.data() + all_.size(); ++b)
            if ((b < from || b >= to) && *b != std::byte{0x5a}) return false;
        return true;
    }

private:
    static constexpr std::size_t guard = 64;
    std::byte* base() {
        const auto at = reinterpret_cast<std::uintptr_t>(all_.data() + guard);
        return all_.data() + guard + (16 - at % 16) % 16;
    }
    std::size_t count_, offset_;
    std::vector<std::byte> all_;
};

}  // namespace bodies
