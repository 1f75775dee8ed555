// broadcast_spans: one broadcast of several spans, as of a model's initial weights.
#pragma once

#include <colls/collectives.hpp>
#include <colls/patterns/packed_spans.hpp>

#include <span>
#include <utility>
#include <vector>

namespace colls::inline v1 {

/// Copies the root's spans to every rank, by one broadcast. Collective.
///
/// @param spans  on the root the data; on every other rank as many spans of the same lengths, which it fills
/// @param root   the rank that has the data, the same on every rank
///
/// Throws as colls::broadcast does. Costs one broadcast of all elements; where the spans do not adjoin in memory, also
/// a buffer as long as all of them and a copy to it or from it.
template <class T>
void broadcast_spans(communicator& comm, std::vector<std::span<T>> spans, int root) {
    packed_spans<T> all(comm, std::move(spans));
    if (comm.rank() == root) all.pack();
    broadcast(comm, all.whole(), root);
    if (comm.rank() != root) all.unpack();
}

}  // namespace colls::inline v1
