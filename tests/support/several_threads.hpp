// Calls of several threads of a rank, each with a group of its own.
#pragma once

#include <colls/colls.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace support {

/// Runs each function in a thread of its own, and throws what the first of them throws.
inline void in_threads(const std::vector<std::function<void()>>& all) {
    std::mutex of_failure;
    std::exception_ptr failure;
    std::vector<std::thread> threads;
    for (const auto& f : all)
        threads.emplace_back([&] {
            try {
                f();
            } catch (...) {
                const std::lock_guard lock(of_failure);
                if (!failure) failure = std::current_exception();
            }
        });
    for (std::thread& t : threads) t.join();
    if (failure) std::rethrow_exception(failure);
}

inline void check_call(bool right, const char* what) {
    if (!right) throw std::runtime_error(what);
}
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15u + b;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 29;
}

/// Calls of every kind on a group, the same on all its ranks, whose results are known. Element i of call k of rank r is
/// k + i + r.
inline void make_calls(colls::communicator& group, std::uint64_t seed, int calls) {
    const int n = group.size(), rank = group.rank();
    std::vector<int> prepared(777);
    auto plan = colls::prepare::all_reduce(group, prepared, colls::sum);
    for (int k = 0; k < calls; ++k) {
        const std::uint64_t h = mix(seed, static_cast<std::uint64_t>(k));
        const std::size_t count = h % 7 == 0 ? 0 : h % 5 == 0 ? 20'000 : h % 600;
        std::vector<int> x(count);
        const auto value = [&](std::size_t i, int r) { return k + static_cast<int>(i) + r; };
        const auto sum = [&](std::size_t i) { return n * value(i, 0) + n * (n - 1) / 2; };
        for (std::size_t i = 0; i < count; ++i) x[i] = value(i, rank);
        switch (h % 6) {
            case 0:
                colls::all_reduce(group, x, colls::sum);
                break;
            case 1:
                colls::start::all_reduce(group, x, colls::sum).wait();
                break;
            case 2: {
                auto started = colls::start::all_reduce(group, x, colls::sum);
                while (!started.test()) std::this_thread::yield();
                break;
            }
            case 3: {
                for (std::size_t i = 0; i < prepared.size(); ++i) prepared[i] = value(i, rank);
                plan.run();
                for (std::size_t i = 0; i < prepared.size(); ++i)
                    check_call(prepared[i] == sum(i), "a prepared call's result is wrong");
                continue;
            }
            case 4: {
                std::vector<int> theirs(count);
                colls::exchange(group, x, (rank + 1) % n, theirs, (rank + n - 1) % n);
                for (std::size_t i = 0; i < count; ++i)
                    check_call(theirs[i] == value(i, (rank + n - 1) % n), "a message is wrong");
                continue;
            }
            default:
                colls::barrier(group);
                continue;
        }
        for (std::size_t i = 0; i < count; ++i) check_call(x[i] == sum(i), "a sum is wrong");
    }
}

/// Ranks of a group of n that are in a part of it, in which they are in turn.
inline std::vector<colls::communicator> parts_of(colls::communicator& comm, std::uint64_t seed, int count) {
    std::vector<colls::communicator> parts;
    for (int i = 0; i < count; ++i) {
        const auto color =
            static_cast<int>(mix(seed, static_cast<std::uint64_t>(comm.rank())) % static_cast<std::uint64_t>(1 + i));
        parts.push_back(comm.split(color, i % 2 == 0 ? comm.rank() : -comm.rank()));
    }
    return parts;
}

/// Rounds in which three threads of each rank call with groups of their own, beside a progress thread or not.
inline void call_in_threads(colls::communicator& comm, int rounds, bool helped) {
    std::optional<colls::progress_thread> helper;
    if (helped) helper.emplace(comm);
    for (int round = 0; round < rounds; ++round) {
        const auto seed = static_cast<std::uint64_t>(100 * comm.size() + round);
        std::vector<colls::communicator> parts = parts_of(comm, seed, 3);
        std::vector<std::function<void()>> calls;
        for (std::size_t i = 0; i < parts.size(); ++i)
            calls.emplace_back([&, i] {
                make_calls(parts[i], mix(seed, i), 12);
                parts[i] = {};  // its thread leaves it
            });
        in_threads(calls);
        colls::barrier(comm);
    }
}

}  // namespace support
