// What ranks tell each other about a measurement. By messages: a schedule that is being tested must not carry the
// verdict on itself.
#pragma once

#include <colls/collectives.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace perf {

/// The values of all ranks one after the other, on rank 0; elsewhere empty. As many on each rank. n - 1 messages.
template <class T>
std::vector<T> collect(colls::communicator& comm, std::span<const T> own) {
    if (comm.rank() != 0) {
        colls::send(comm, own, 0);
        return {};
    }
    std::vector<T> all(own.size() * static_cast<std::size_t>(comm.size()));
    std::copy(own.begin(), own.end(), all.begin());
    for (int r = 1; r < comm.size(); ++r)
        colls::recv(comm, std::span(all).subspan(static_cast<std::size_t>(r) * own.size(), own.size()), r);
    return all;
}
template <class T>
std::vector<T> collect(colls::communicator& comm, const T& own) {
    return collect(comm, std::span(&own, 1));
}

/// Rank 0's value, on all ranks. n - 1 messages.
template <class T>
T shared(colls::communicator& comm, T value) {
    const std::span<T> all(&value, 1);
    if (comm.rank() != 0)
        colls::recv(comm, all, 0);
    else
        for (int r = 1; r < comm.size(); ++r) colls::send(comm, all, r);
    return value;
}

}  // namespace perf
