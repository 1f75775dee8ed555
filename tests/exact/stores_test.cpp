// How results are stored: by which instructions depends on the size, on the distance of the cores, and on whether a
// call is in place. Each way, at the sizes between which it changes, with buffers that begin and end within a line.
#include "catch.hpp"

#include "support/guarded.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/detail/choose/choose.hpp>
#include <colls/transports/threads.hpp>

#include <array>
#include <atomic>

using namespace support;

namespace {

using policy = colls::detail::store_policy;

constexpr std::array limits = {policy::stream_far_from, policy::stream_result_below, policy::interleave_far_below,
    policy::stream_near_from, policy::stream_own_from, policy::stream_in_place_far_from};

std::uint32_t value(int rank, std::size_t i) {
    return static_cast<std::uint32_t>(i * 2654435761u) ^ static_cast<std::uint32_t>(rank * 977);
}

/// Makes the ranks count as near each other, or as far, until samples of the machine's own distance agree. False where
/// that did not succeed.
bool set_distance(colls::communicator& comm, bool near) {
    namespace detail = colls::detail;
    detail::rank_context& self = comm.context();
    std::vector<float> moved(600);  // by a schedule, whose operations have numbers
    for (int i = 0; i < 500 && detail::near_so_far(self) != near; ++i) {
        const double limit = self.backend->figures().near_below;
        if (comm.rank() == 0) detail::distance::take_sample(self, self.direct.count, near ? limit / 2 : 2 * limit);
        colls::all_reduce<colls::direct>(comm, moved, colls::sum);
    }
    return detail::near_so_far(self) == near;
}

/// Elements of `got`, from number `first` of the whole on, that are not the sum over the ranks; and guards that are
/// broken.
int count_wrong(guarded& buffer, std::size_t first, std::size_t count, int ranks) {
    int wrong = buffer.broken().empty() ? 0 : 1;
    const auto got = buffer.as<std::uint32_t>();
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, first + i);
        wrong += got[i] != sum;
    }
    return wrong;
}

/// all_reduce, in place and not, and reduce_scatter, of `count` elements; buffers begin `in_shift` and `out_shift`
/// bytes behind a line.
int wrong_at(colls::communicator& comm, std::size_t count, std::size_t in_shift, std::size_t out_shift) {
    const int n = comm.size(), rank = comm.rank();
    const colls::buffer_block own = colls::block_of(count, n, rank);
    guarded in(count * 4, in_shift), out(count * 4, out_shift), block(own.size * 4, out_shift);
    const auto fill = [&](guarded& b) {
        const auto x = b.as<std::uint32_t>();
        for (std::size_t i = 0; i < count; ++i) x[i] = value(rank, i);
    };
    fill(in);
    fill(out);
    colls::all_reduce(comm, out.as<std::uint32_t>(), colls::sum);
    int wrong = count_wrong(out, 0, count, n);
    std::memset(out.data(), 0, out.size());
    colls::barrier(comm);
    colls::all_reduce(comm, in.as<std::uint32_t>(), out.as<std::uint32_t>(), colls::sum);
    wrong += count_wrong(out, 0, count, n);
    colls::reduce_scatter(comm, in.as<std::uint32_t>(), block.as<std::uint32_t>(), colls::sum);
    return wrong + count_wrong(block, own.offset, own.size, n);
}

}  // namespace

TEST_CASE("stores: right results on both sides of each size at which the way changes", "[stores]") {
    for (const bool near : {false, true}) {
        std::atomic<int> wrong{0};
        CHECK_NOTHROW(colls::threads::run(2, [&](colls::communicator& comm) {
            for (const std::size_t limit : limits)
                for (const std::size_t count : {limit / 4 - 1, limit / 4, limit / 4 + 37}) {
                    wrong += !set_distance(comm, near);
                    wrong += wrong_at(comm, count, 0, 0);
                    if (limit < policy::stream_own_from) wrong += wrong_at(comm, count, 4, 0);
                    wrong += wrong_at(comm, count, 20, comm.rank() == 0 ? 44 : 8);
                }
        }));
        INFO((near ? "near" : "far"));
        CHECK(wrong == 0);
    }
}
