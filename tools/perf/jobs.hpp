// What is timed: the collectives, how large their buffers are, and the factor from algorithm to bus bandwidth. Sizes,
// counts and factors are those of nccl-tests.
#pragma once

#include <colls/schedule.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

/// The collectives, in the order of colls::collective, and two further calls.
enum class job {
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
    exclusive_scan,
    all_to_all_v,  ///< each rank sends the more to a rank the farther it is ahead
    send_recv      ///< colls::exchange: each rank sends to the next one
};
inline constexpr int job_count = 13;

std::string_view name_of(job j);
/// From a name in any of the usual spellings (all_reduce, allreduce, AllReduce, all_reduce_perf, sendrecv).
std::optional<job> job_named(std::string_view name);
/// Those that `all` stands for: the collectives of colls::collective.
std::vector<job> all_jobs();

/// The collective whose schedules it takes; none for send_recv.
std::optional<colls::collective> collective_of(job j);
bool reduces(job j);
bool rooted(job j);
/// Its size is that of n blocks, one for each rank.
bool blocked(job j);
/// Input and output may be different buffers; broadcast has one buffer, barrier none.
bool runs_out_of_place(job j);
/// The output may be the input, or a block within it.
bool runs_in_place(job j);

/// Bus bandwidth over algorithm bandwidth, of a call on n ranks: what makes the bandwidth of a rank's link comparable
/// between collectives and numbers of ranks (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(job j, int n);

/// Bytes that each of n ranks copies at the least, over the size of the call: loads and stores that no schedule avoids,
/// shared by the ranks.
double least_copies(job j, int n);

/// The buffers of one call, in elements.
struct shape {
    std::size_t count = 0;    ///< as nccl-tests print it: elements of a block where there are blocks, else of the whole
    std::size_t whole = 0;    ///< elements of the larger buffer
    std::size_t in = 0;       ///< elements of the input
    std::size_t out = 0;      ///< elements of the output
    std::size_t element = 1;  ///< bytes of an element

    std::size_t bytes() const { return whole * element; }
};
/// The buffers of a call of about `bytes` bytes. Blocks are multiples of 16 bytes where they are as long as that, and
/// one element at least.
shape shape_of(job j, std::size_t bytes, std::size_t element, int n);

/// Elements that rank `from` sends to rank `to` in an all_to_all_v whose blocks have `count` elements on average.
std::size_t sent_by(int from, int to, int n, std::size_t count);

}  // namespace perf
