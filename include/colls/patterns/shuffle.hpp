// The shuffle of MapReduce: every rank has a list for every rank.
#pragma once

#include <colls/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::inline v1 {

/// Sends lists[r] to rank r, for every r, and returns the lists that the ranks have sent to this one, in rank order.
/// Collective.
///
/// @param lists  one for each rank, of any length, even empty; elements are trivially copyable
/// @return       result[r]: the list from rank r
///
/// Throws invalid_argument where there are not as many lists as ranks, before anything moves, and what the calls throw.
/// Cost: two rounds of n - 1 messages a rank: the lengths by all_to_all (8 bytes each), then the lists by all_to_all_v.
template <class Comm, class T>
std::vector<std::vector<T>> shuffle(Comm& comm, const std::vector<std::vector<T>>& lists) {
    const auto n = static_cast<std::size_t>(comm.size());
    if (lists.size() != n)
        detail::refuse_call(
            comm.handle(), errc::invalid_argument, "colls: shuffle takes one list for each rank of the group");
    std::vector<std::int64_t> sent(n), received(n);
    std::vector<T> out, in;
    for (std::size_t r = 0; r < n; ++r) {
        sent[r] = static_cast<std::int64_t>(lists[r].size());
        out.insert(out.end(), lists[r].begin(), lists[r].end());
    }
    all_to_all(comm, sent, received);
    std::size_t total = 0;
    for (const std::int64_t count : received) total += static_cast<std::size_t>(count);
    in.resize(total);
    all_to_all_v(comm, out, in, sent, received);

    std::vector<std::vector<T>> result(n);
    auto at = in.begin();
    for (std::size_t r = 0; r < n; ++r) {
        result[r].assign(at, at + received[r]);
        at += received[r];
    }
    return result;
}

}  // namespace colls::inline v1
