// The measured collectives: the sizes of their buffers, their input, and the check of their output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>

namespace bench {

enum class job : std::uint32_t {
    all_reduce,
    all_reduce_in_place,
    broadcast,
    all_gather,
    reduce_scatter,
    all_to_all,
    copy,
    quit
};
inline constexpr const char* job_names[] = {
    "all_reduce", "all_reduce_in_place", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "copy", "quit"};
inline const char* name_of(job j) { return job_names[static_cast<int>(j)]; }

/// How many calls a side that makes them back to back times as a whole.
inline std::uint32_t calls_in_run(std::size_t bytes) {
    return static_cast<std::uint32_t>(std::clamp<std::size_t>((1 << 20) / bytes, 4, 64));
}

/// Floats on pages of their own, first touched by the rank that uses them.
class buffer {
public:
    explicit buffer(std::size_t count)
        : data_(static_cast<float*>(std::aligned_alloc(4096, (count * sizeof(float) + 4095) / 4096 * 4096))) {
        if (!data_) throw std::bad_alloc();
        std::memset(data_, 0, count * sizeof(float));
    }
    ~buffer() { std::free(data_); }
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;
    std::span<float> first(std::size_t count) const { return {data_, count}; }

private:
    float* data_;
};

/// Elements of a rank's input and output for a size in bytes, the larger of the two buffers (as nccl-tests counts).
struct shape {
    std::size_t in, out;
};
inline shape shape_of(job j, std::size_t bytes, int ranks) {
    const std::size_t n = static_cast<std::size_t>(ranks), all = bytes / sizeof(float), block = all / n;
    switch (j) {
        case job::all_gather:
            return {block, block * n};
        case job::reduce_scatter:
            return {block * n, block};
        case job::all_to_all:
            return {block * n, block * n};
        default:
            return {all, all};
    }
}

// Small integers: their sums are exact in float, so that every element can be checked.
inline float value_at(std::size_t i, int rank, std::uint32_t call) {
    return static_cast<float>(static_cast<int>(i & 15) + rank + static_cast<int>(call & 7));
}
inline void rewrite(std::span<float> in, int rank, std::uint32_t call) {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value_at(i, rank, call);
}
/// Reads the whole output; returns how many elements are wrong.
inline std::uint32_t check(job j, std::span<const float> out, int rank, int n, std::uint32_t call) {
    std::uint32_t wrong = 0;
    // element i of a block that starts at `from` in the source's numbering
    const auto block = [&](std::span<const float> part, std::size_t from, float times, float add) {
        for (std::size_t i = 0; i < part.size(); ++i)
            wrong += part[i] != times * static_cast<float>(static_cast<int>((from + i) & 15)) + add;
    };
    const float c = static_cast<float>(call & 7), ranks = static_cast<float>(n), r = static_cast<float>(rank);
    const float sum = ranks * (ranks - 1) / 2 + ranks * c;
    const std::size_t part = out.size() / static_cast<std::size_t>(n);
    switch (j) {
        case job::all_reduce:
        case job::all_reduce_in_place:
            block(out, 0, ranks, sum);
            break;
        case job::reduce_scatter:
            block(out, static_cast<std::size_t>(rank) * out.size(), ranks, sum);
            break;
        case job::broadcast:
            block(out, 0, 1, c);
            break;
        case job::copy:
            block(out, 0, 1, r + c);
            break;
        case job::all_gather:
        case job::all_to_all:
            for (std::size_t b = 0; b < static_cast<std::size_t>(n); ++b)
                block(out.subspan(b * part, part), j == job::all_gather ? 0 : static_cast<std::size_t>(rank) * part, 1,
                    static_cast<float>(b) + c);
            break;
        case job::quit:
            break;
    }
    return wrong;
}

}  // namespace bench
