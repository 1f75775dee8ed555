// The broadcast of large buffers by single copies.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/schedules/direct.hpp>

namespace colls::inline v1::detail {

/// direct::broadcast of n blocks instead of one. By single copies a receiver pulls all of them but one, which the root
/// pushes: so the root, which would be idle, takes an equal part in the work.
struct parted_broadcast : direct::all_pairs {
    static constexpr collective implements = collective::broadcast;
    static constexpr int blocks(int n) { return n; }
    static constexpr step at(int rank, int n, int, int port) {
        if (rank == 0) return {.send = {port + 1, block_range(0, n)}};
        if (rank == port + 1) return {.recv = {0, block_range(0, n)}};
        return {};
    }

    static const any_schedule& as_any() {
        static const any_schedule made(parted_broadcast{}, proven_table_of<parted_broadcast>, "direct");
        return made;
    }
};

}  // namespace colls::inline v1::detail
