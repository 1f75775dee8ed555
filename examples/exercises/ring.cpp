// A ring all_reduce made of sends and receives alone: each rank counts the bytes that it sends, 2 S (n-1) / n, and the
// result equals colls::all_reduce<colls::ring> bit for bit.
//
// ranks: 5 3 2
#include "../common/program.hpp"

#include <colls/transports/threads.hpp>

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

// example-begin ring
/// Sums x over all ranks, in place. Block b starts at rank b + 1, collects a contribution at each rank of the ring, is
/// complete at rank b, and passes round once more. Returns the bytes that this rank has sent.
std::size_t ring_all_reduce(colls::communicator& comm, std::span<float> x) {
    const int n = comm.size(), next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
    const auto block = [&](int b) {
        const colls::buffer_block at = colls::block_of(x.size(), n, (b % n + n) % n);
        return x.subspan(at.offset, at.size);
    };
    std::vector<float> arrived(block(0).size());  // block 0 is a longest one
    std::size_t sent = 0;
    for (int k = 0; k < n - 1; ++k) {  // reduce_scatter
        const std::span<float> out = block(comm.rank() - 1 - k), sum = block(comm.rank() - 2 - k);
        const std::span<float> in = std::span(arrived).first(sum.size());
        colls::exchange(comm, out, next, in, previous);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += in[i];
        sent += out.size_bytes();
    }
    for (int k = 0; k < n - 1; ++k) {  // all_gather
        const std::span<float> out = block(comm.rank() - k);
        colls::exchange(comm, out, next, block(comm.rank() - 1 - k), previous);
        sent += out.size_bytes();
    }
    return sent;
}
// example-end

/// 2 S (n-1) / n where n divides the buffer. Otherwise blocks differ by one element: rank r sends every block but its
/// own once in the first half, and every block but that of rank r + 1 in the second.
std::size_t expected_bytes(std::size_t count, int n, int rank) {
    return (2 * count - colls::block_of(count, n, rank).size - colls::block_of(count, n, (rank + 1) % n).size) *
           sizeof(float);
}

struct outcome {
    std::size_t bytes = 0, expected = 0;
    bool same_bits = false, right_sum = false;
};

outcome run_once(colls::communicator& comm, std::size_t count) {
    std::mt19937_64 random(1);
    std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
    for (float& v : all) v = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
    const std::span<const float> own =
        std::span<const float>(all).subspan(count * static_cast<std::size_t>(comm.rank()), count);
    std::vector<float> by_hand(own.begin(), own.end()), by_library = by_hand;

    outcome o;
    o.bytes = ring_all_reduce(comm, by_hand);
    o.expected = expected_bytes(count, comm.size(), comm.rank());
    colls::all_reduce<colls::ring>(comm, by_library, colls::sum);
    o.same_bits = std::memcmp(by_hand.data(), by_library.data(), count * sizeof(float)) == 0;
    o.right_sum = true;
    for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r)
            sum += static_cast<double>(all[r * count + i]);
        o.right_sum &= std::abs(static_cast<double>(by_hand[i]) - sum) < 1e-6 * comm.size();
    }
    return o;
}

}  // namespace

int main(int argc, char** argv) {
    example::program program("A ring all_reduce by sends and receives alone, with its bytes counted.");
    std::size_t count = 100'000;
    program.options.add("--count", count, "floats of each rank");
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        const outcome here = run_once(comm, count);
        out.check(fmt::format("{} ranks: the sum is right", comm.size()), here.right_sum);
        out.check("the bits of colls::all_reduce<colls::ring>", here.same_bits);
        out.check("each rank sends the bytes of the formula", here.bytes == here.expected);

        // The same for groups of 2 to 32 threads, which rank 0 starts. 1003 divides by few of these sizes.
        bool right = true;
        if (comm.rank() == 0) {
            const std::size_t floats = 1003;
            const double buffer = static_cast<double>(floats * sizeof(float));
            example::table table({"ranks", "least sent, B", "most sent, B", "most / S", "2 (n-1)/n"});
            example::plot chart("A ring all_reduce: what a rank sends", {.label = "ranks"},
                {.label = "bytes sent by the busiest rank, in buffers of S bytes"});
            chart.says(
                "The counted bytes are those of the formula, 2 S (n-1)/n: less than two buffers on any number of "
                "ranks.");
            chart.thin("limit");
            for (const int n : {2, 3, 4, 5, 7, 8, 12, 16, 24, 32}) {
                if (out.quick() && n > 8) break;
                std::vector<outcome> ranks(static_cast<std::size_t>(n));
                colls::threads::run(n, [&](colls::communicator& group) {
                    ranks[static_cast<std::size_t>(group.rank())] = run_once(group, floats);
                });
                for (const outcome& o : ranks) right &= o.right_sum && o.same_bits && o.bytes == o.expected;
                const std::size_t least = std::ranges::min(ranks, {}, &outcome::bytes).bytes;
                const double most = static_cast<double>(std::ranges::max(ranks, {}, &outcome::bytes).bytes);
                table.add(
                    n, least, most, fmt::format("{:.4f}", most / buffer), fmt::format("{:.4f}", 2.0 * (n - 1) / n));
                chart.add("counted", n, most / buffer);
                chart.add("2 (n-1)/n", n, 2.0 * (n - 1) / n);
                chart.add("limit", n, 2);
            }
            out.print(table);
            if (!out.quick()) chart.mark(32, 2.0 * 31 / 32, "32 ranks: 1.94 buffers");
            out.draw(chart);
        }
        out.check("so for each size of the table", right);
    });
}
