// The serial reference: the result of each collective at each rank, by plain loops in rank order over all inputs.
#pragma once

#include "guarded.hpp"
#include "kinds.hpp"

#include <numeric>
#include <string>
#include <vector>

namespace support {

/// The tests' own names for the collectives; the v-variants are those with explicit counts.
enum class what : unsigned char {
    broadcast,
    scatter,
    gather,
    all_gather,
    reduce,
    reduce_scatter,
    all_reduce,
    all_to_all,
    barrier,
    inclusive_scan,
    exclusive_scan
};
inline constexpr int what_count = 11;
inline const char* name_of(what c) {
    constexpr const char* names[] = {"broadcast", "scatter", "gather", "all_gather", "reduce", "reduce_scatter",
        "all_reduce", "all_to_all", "barrier", "inclusive_scan", "exclusive_scan"};
    return names[static_cast<int>(c)];
}
inline bool has_root(what c) {
    return c == what::broadcast || c == what::scatter || c == what::gather || c == what::reduce;
}
inline bool has_operator(what c) {
    return c == what::reduce || c == what::reduce_scatter || c == what::all_reduce || c == what::inclusive_scan ||
           c == what::exclusive_scan;
}
/// Cut into one block a rank: the collectives that have a v-variant.
inline bool has_blocks(what c) {
    return c == what::scatter || c == what::gather || c == what::all_gather || c == what::reduce_scatter ||
           c == what::all_to_all;
}

/// The balanced partition of `total` into n blocks.
inline std::vector<std::size_t> balanced(std::size_t total, int n) {
    const auto parts = static_cast<std::size_t>(n);
    std::vector<std::size_t> counts(parts, total / parts);
    for (std::size_t b = 0; b < total % parts; ++b) ++counts[b];
    return counts;
}

/// One collective call, as all ranks together see it. Counts are elements.
struct shape {
    what collective = what::barrier;
    int n = 1, root = 0;
    std::vector<std::size_t> counts;  ///< block per rank; all_to_all: from s to d at [s·n + d]

    std::size_t sum(std::size_t from, std::size_t number, std::size_t step = 1) const {
        std::size_t s = 0;
        for (std::size_t i = 0; i < number; ++i) s += counts[from + i * step];
        return s;
    }
    std::size_t size() const { return static_cast<std::size_t>(n); }
    std::size_t total() const { return sum(0, size()); }
    std::size_t before(int block) const { return sum(0, static_cast<std::size_t>(block)); }
    std::size_t block(int rank) const { return counts[static_cast<std::size_t>(rank)]; }

    /// Elements of in and out at a rank, where they are significant.
    std::size_t in_count(int rank) const {
        const auto r = static_cast<std::size_t>(rank);
        switch (collective) {
            case what::barrier:
                return 0;
            case what::broadcast:
                return rank == root ? total() : 0;
            case what::scatter:
                return rank == root ? total() : 0;
            case what::gather:
            case what::all_gather:
                return block(rank);
            case what::all_to_all:
                return sum(r * size(), size());
            default:
                return total();
        }
    }
    std::size_t out_count(int rank) const {
        const auto r = static_cast<std::size_t>(rank);
        switch (collective) {
            case what::barrier:
                return 0;
            case what::gather:
            case what::reduce:
                return rank == root ? total() : 0;
            case what::scatter:
            case what::reduce_scatter:
                return block(rank);
            case what::all_to_all:
                return sum(r, size(), size());
            default:
                return total();
        }
    }
    /// Does the call write the rank's out? (The first rank of an exclusive scan keeps what it has.)
    bool writes(int rank) const { return out_count(rank) > 0 && !(collective == what::exclusive_scan && rank == 0); }
    /// Ranks that contribute to an element of a rank's result, from rank 0 on.
    int contributors(int rank) const {
        return collective == what::inclusive_scan ? rank + 1 : collective == what::exclusive_scan ? rank : n;
    }
};

using byte_list = std::vector<std::byte>;

/// What each rank's out must hold, given each rank's in. For `bounded` kinds of the reducing collectives: the fold in
/// rank order, to be judged by kind::far.
inline std::vector<byte_list> expected(const shape& s, const kind& k, const std::vector<byte_list>& in) {
    std::vector<byte_list> out(s.size());
    const std::size_t size = k.size;
    for (int r = 0; r < s.n; ++r) out[static_cast<std::size_t>(r)].resize(s.out_count(r) * size);
    const auto copy = [&](int to, std::size_t to_at, int from, std::size_t from_at, std::size_t count) {
        if (count)
            std::memcpy(out[static_cast<std::size_t>(to)].data() + to_at * size,
                in[static_cast<std::size_t>(from)].data() + from_at * size, count * size);
    };
    byte_list fold;  // of ranks 0 .. r
    const auto join = [&](int r) {
        byte_list own = in[static_cast<std::size_t>(r)];
        const std::size_t count = s.total();
        if (k.before) k.before(own.data(), count);
        if (r == 0)
            fold = std::move(own);
        else
            k.fold(fold.data(), own.data(), count);
    };
    const auto result = [&](int r, std::size_t from, std::size_t count) {
        byte_list whole(fold.begin() + static_cast<std::ptrdiff_t>(from * size),
            fold.begin() + static_cast<std::ptrdiff_t>((from + count) * size));
        if (k.after) k.after(whole.data(), count, s.contributors(r));
        out[static_cast<std::size_t>(r)] = std::move(whole);
    };
    switch (s.collective) {
        case what::barrier:
            break;
        case what::broadcast:
            for (int r = 0; r < s.n; ++r) copy(r, 0, s.root, 0, s.total());
            break;
        case what::scatter:
            for (int r = 0; r < s.n; ++r) copy(r, 0, s.root, s.before(r), s.block(r));
            break;
        case what::gather:
            for (int r = 0; r < s.n; ++r) copy(s.root, s.before(r), r, 0, s.block(r));
            break;
        case what::all_gather:
            for (int to = 0; to < s.n; ++to)
                for (int r = 0; r < s.n; ++r) copy(to, s.before(r), r, 0, s.block(r));
            break;
        case what::all_to_all:
            for (int to = 0; to < s.n; ++to) {
                std::size_t at = 0;
                for (int from = 0; from < s.n; ++from) {
                    const std::size_t row = static_cast<std::size_t>(from) * s.size();
                    const std::size_t count = s.counts[row + static_cast<std::size_t>(to)];
                    copy(to, at, from, s.sum(row, static_cast<std::size_t>(to)), count);
                    at += count;
                }
            }
            break;
        case what::reduce:
        case what::all_reduce:
        case what::reduce_scatter:
            for (int r = 0; r < s.n; ++r) join(r);
            for (int r = 0; r < s.n; ++r) {
                if (s.collective == what::reduce_scatter)
                    result(r, s.before(r), s.block(r));
                else if (s.collective == what::all_reduce || r == s.root)
                    result(r, 0, s.total());
            }
            break;
        case what::inclusive_scan:
            for (int r = 0; r < s.n; ++r) {
                join(r);
                result(r, 0, s.total());
            }
            break;
        case what::exclusive_scan:
            for (int r = 0; r < s.n; ++r) {
                if (r > 0) result(r, 0, s.total());
                join(r);
            }
            break;
    }
    return out;
}

}  // namespace support
