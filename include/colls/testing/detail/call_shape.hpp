// What a collective demands, for a serial reference: how long each rank's buffers are, and whose elements each element
// of a result holds. It knows the collectives by their traits alone, and nothing of schedules, proofs or executors.
// IWYU pragma: private, include <colls/testing/transport.hpp>
#pragma once

#include <colls/schedule.hpp>

#include <cstddef>
#include <vector>

namespace colls::inline v1::detail::testing {

/// One collective call, as all ranks together see it. Counts are elements.
struct call_shape {
    v1::collective collective = v1::collective::barrier;
    int n = 1, root = 0;
    std::vector<std::size_t> counts;  ///< a block for each rank; all_to_all: from s to d at [s * n + d]

    std::size_t size() const { return static_cast<std::size_t>(n); }
    std::size_t sum(std::size_t first, std::size_t number, std::size_t step = 1) const {
        std::size_t all = 0;
        for (std::size_t i = 0; i < number; ++i) all += counts[first + i * step];
        return all;
    }
    std::size_t block(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
    std::size_t before(int rank) const { return sum(0, static_cast<std::size_t>(rank)); }
    std::size_t total() const { return sum(0, size()); }

    /// Elements of a rank's input and output; 0 where it has none.
    std::size_t in_count(int rank) const {
        return !traits().in_at_root || rank == root ? count(traits().in, rank, 1) : 0;
    }
    std::size_t out_count(int rank) const {
        return !traits().out_at_root || rank == root ? count(traits().out, rank, size()) : 0;
    }
    /// Does the call write the rank's output? (The first rank of an exclusive scan keeps what it has.)
    bool writes(int rank) const { return out_count(rank) > 0 && contributors_at(rank) > 0; }
    /// Ranks that contribute to each element of a rank's result, from rank 0 on, where the call reduces.
    int contributors_at(int rank) const { return traits().contributors_at(rank, n); }

    /// Elements [at, at + count) of the inputs of ranks [first, last), combined in rank order.
    struct source {
        int first, last;
        std::size_t at, count;
    };
    /// What element i of a rank's result, and those after it, hold.
    source source_of(int rank, std::size_t i) const {
        const std::size_t cut = traits().out == content::own_block ? before(rank) : 0;
        if (traits().result == contributors::root) return {root, root + 1, cut + i, out_count(rank) - i};
        if (traits().reduces()) return {0, contributors_at(rank), cut + i, out_count(rank) - i};
        const bool each = traits().result == contributors::each;  // a block of its own from each rank to each
        for (int from = 0;; ++from) {
            const std::size_t row = static_cast<std::size_t>(from) * size(), to = static_cast<std::size_t>(rank),
                              length = each ? counts[row + to] : block(from);
            if (i < length) return {from, from + 1, (each ? sum(row, to) : 0) + i, length - i};
            i -= length;
        }
    }

private:
    const collective_traits& traits() const { return traits_of(collective); }
    // all_to_all: a rank's input is a row of the counts, its output a column.
    std::size_t count(content of, int rank, std::size_t step) const {
        if (of == content::nothing) return 0;
        if (of == content::own_block) return block(rank);
        if (traits().result != contributors::each) return total();
        return sum(static_cast<std::size_t>(rank) * (step == 1 ? size() : 1), size(), step);
    }
};

}  // namespace colls::inline v1::detail::testing
