// Comparing two steps.
// IWYU pragma: private, include <colls/testing/mutate.hpp>
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/step.hpp>

namespace colls::inline v1::testing::detail {

/// The same peers, the same action, and equal block sets.
inline bool same(const step& a, const step& b) {
    return a.send.peer == b.send.peer && a.recv.peer == b.recv.peer &&
           (a.send.peer == none || a.send.blocks == b.send.blocks) &&
           (a.recv.peer == none || (a.recv.blocks == b.recv.blocks && a.recv.action == b.recv.action));
}
/// The same blocks in the same order, be they named by different sets.
inline bool same_blocks(const block_set& a, const block_set& b) {
    if (v1::detail::size_of(a) != v1::detail::size_of(b)) return false;
    for (int i = 0; i < v1::detail::size_of(a); ++i)
        if (a[i] != b[i]) return false;
    return true;
}

}  // namespace colls::inline v1::testing::detail
