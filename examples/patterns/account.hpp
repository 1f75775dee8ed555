// What a rank holds and sends: bytes of memory by purpose, and bytes of the calls, counted from their schedules.
#pragma once

#include <colls/colls.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace example {

/// Bytes in use for each purpose, and in total, with their peaks. Buffers of class counted report to it.
class memory_account {
public:
    void add(const std::string& purpose, std::size_t bytes) {
        for (use* u : {&uses_[purpose], &total_}) {
            u->now += bytes;
            u->peak = std::max(u->peak, u->now);
        }
    }
    void remove(const std::string& purpose, std::size_t bytes) {
        for (use* u : {&uses_[purpose], &total_}) u->now -= bytes;
    }
    /// The most bytes in use at a time for that purpose.
    std::size_t peak(const std::string& purpose) const {
        const auto at = uses_.find(purpose);
        return at == uses_.end() ? 0 : at->second.peak;
    }
    /// The most bytes in use at a time for all purposes together.
    std::size_t peak() const { return total_.peak; }

private:
    struct use {
        std::size_t now = 0, peak = 0;
    };
    std::map<std::string, use> uses_;
    use total_;
};

/// A buffer whose bytes an account counts as long as it lives, aligned as Eigen likes it. Elements start as T().
template <class T>
class counted {
public:
    counted() = default;
    counted(memory_account& account, std::string purpose, std::size_t size)
        : account_(&account), purpose_(std::move(purpose)), data_(size) {
        account.add(purpose_, size * sizeof(T));
    }
    counted(counted&& other) noexcept { swap(other); }
    counted& operator=(counted&& other) noexcept {
        counted taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~counted() {
        if (account_) account_->remove(purpose_, size() * sizeof(T));
    }

    T* data() { return data_.data(); }
    const T* data() const { return data_.data(); }
    std::size_t size() const { return data_.size(); }
    std::span<T> all() { return data_; }
    std::span<const T> all() const { return data_; }

private:
    void swap(counted& other) noexcept {
        std::swap(account_, other.account_);
        std::swap(purpose_, other.purpose_);
        std::swap(data_, other.data_);
    }
    memory_account* account_ = nullptr;
    std::string purpose_;
    std::vector<T, Eigen::aligned_allocator<T>> data_;
};

/// The elements that `rank` sends in a call by the family's schedule for collective C, where block r of the whole
/// buffer has counts[r] elements: counted from the schedule's steps. For schedules that have a block for each rank.
template <class Family, colls::collective C>
std::size_t elements_sent(std::span<const std::size_t> counts, int rank) {
    const auto schedule = colls::schedule_of<C>(Family{});
    const int n = static_cast<int>(counts.size());
    std::size_t sent = 0;
    for (int round = 0; round < schedule.rounds(n); ++round)
        for (int port = 0; port < colls::ports_of(schedule, n); ++port) {
            const colls::send_part send = colls::step_of(schedule, rank, n, round, port).send;
            if (send.peer == colls::none || send.peer == rank) continue;
            for (int i = 0; i < send.blocks.size(); ++i)
                sent += counts[static_cast<std::size_t>(colls::home_of(schedule, n, send.blocks[i]))];
        }
    return sent;
}
/// Likewise of a call without counts, on `count` elements.
template <class Family, colls::collective C>
std::size_t elements_sent(std::size_t count, int n, int rank) {
    std::vector<std::size_t> counts;
    for (const colls::buffer_block block : colls::blocks_of(count, n)) counts.push_back(block.size);
    return elements_sent<Family, C>(counts, rank);
}

/// The calls of a rank: counts the bytes that it sends, and the time that it spends in calls, which computation does
/// not hide. A rate emulates a network: a call is not over before its bytes, and those of all calls that were started
/// before it, have passed at that rate.
class link {
public:
    struct call {
        colls::operation operation;
        std::chrono::steady_clock::time_point over{};
    };

    /// bytes_a_second: 0 for as fast as the machine is.
    explicit link(double bytes_a_second = 0) : rate_(bytes_a_second) {}

    /// f() starts and returns the operation, in which this rank sends that many bytes.
    template <class F>
    void start(call& c, std::size_t bytes, F f) {
        const auto begin = std::chrono::steady_clock::now();
        c.operation = f();
        sent_ += bytes;
        if (rate_ > 0) {
            const std::chrono::duration<double> takes(static_cast<double>(bytes) / rate_);
            free_ = std::max(free_, begin) + std::chrono::duration_cast<std::chrono::nanoseconds>(takes);
            c.over = free_;
        }
        exposed_ += std::chrono::steady_clock::now() - begin;
    }
    void wait(call& c) {
        const auto begin = std::chrono::steady_clock::now();
        c.operation.wait();
        if (rate_ > 0) std::this_thread::sleep_until(c.over);
        exposed_ += std::chrono::steady_clock::now() - begin;
    }

    std::size_t bytes_sent() const { return sent_; }
    double exposed() const { return exposed_.count(); }

private:
    double rate_;
    std::size_t sent_ = 0;
    std::chrono::steady_clock::time_point free_{};
    std::chrono::duration<double> exposed_{};
};

}  // namespace example
