// The ways in which a law can be broken: what report::text() words.
// IWYU pragma: private, include <colls/verify/report.hpp>
#pragma once

namespace colls::inline v1::detail {

/// The faults of a law follow each other (law_of).
enum class fault : unsigned char {
    none,
    unsupported,             // the schedule does not support the group size
    extent,                  // rounds, blocks, ports or scratch is out of range
    root,                    // the root is no rank
    home,                    // the home of a slot is no rank
    homeless,                // a rank is the home of no slot
    exchange,                // input or output does not name each rank equally often
    contents,                // what a slot holds before or after is no block
    peer,                    // a peer is no rank
    block,                   // a block is no slot
    block_set,               // a set of blocks is malformed or too large
    barrier_blocks,          // a barrier names blocks
    sends_undefined,         // a slot that holds nothing is sent
    reduces_into_undefined,  // a slot that holds nothing is reduced into
    send_unmatched,          // the peer of a send does not receive
    receive_unmatched,       // the peer of a receive does not send
    sizes,                   // a send and its receive differ in the number of blocks
    twice,                   // a contribution is reduced a second time
    mixed,                   // contributions to different blocks are reduced
    copied_twice,            // two copies arrive in one slot in one round
    holds_nothing,           // a result is missing
    holds_other,             // a result is that of another block
    lacks_source,            // a result lacks a contribution
    foreign_source,          // a result has a contribution too many
    unheard,                 // after a barrier a rank does not depend on another
    stuck                    // a rank waits for ever
};

}  // namespace colls::inline v1::detail
