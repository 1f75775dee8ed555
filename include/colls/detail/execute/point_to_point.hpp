// Messages from one rank to another through shared memory: send, recv, and the search for a sender that recv_any needs.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// A send waits until its receiver has copied the data. If the receiver can reach the sender's buffer, it copies
// straight out of that, which is one copy in all. Otherwise the data goes piece by piece through two pieces of scratch
// memory that the receiver can reach. Messages of one ordered pair of ranks match in order; one at a time is under way.
#pragma once

#include <colls/detail/execute/distance.hpp>
#include <colls/detail/execute/guarded.hpp>
#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/support/copy.hpp>

namespace colls::inline v1::detail {

/// Bytes of a piece, where the receiver cannot reach the sender's buffer.
inline constexpr std::size_t message_piece_bytes = std::size_t{128} << 10;

/// The pieces of the message that is under way between a pair of ranks. A message of no bytes has one piece.
inline std::size_t pieces_of(const pair_line& l, std::size_t bytes) {
    return l.piece < bytes ? (bytes + l.piece - 1) / l.piece : 1;
}
/// Where piece i of them lies in the message.
inline extent piece_of(const pair_line& l, std::size_t bytes, std::size_t i) {
    const std::size_t from = i * l.piece;
    return {from, bytes - from < l.piece ? bytes - from : l.piece};
}

/// Offers pieces as far as there is room for two; true when the receiver has taken all.
inline bool advance_send(rank_context& e, operation_state& o, pair_line& l) {
    const std::size_t bytes = o.request.count * o.request.element;
    std::uint64_t posted = l.posted.load(std::memory_order_acquire);
    const std::uint64_t taken = l.taken.load(std::memory_order_acquire);
    const bool reached = bytes == 0 || e.shares(o.request.in, bytes);
    if (o.chunk == 0) {
        l.bytes = bytes;
        l.type = o.request.signature;
        l.piece = reached || bytes < message_piece_bytes ? bytes : message_piece_bytes;
        if (!reached && o.scratch.at == nullptr) take_scratch(e, o, 2 * l.piece);
    }
    const std::size_t pieces = pieces_of(l, bytes);
    for (; o.chunk < pieces && posted < taken + 2; ++o.chunk) {
        const extent p = piece_of(l, bytes, o.chunk);
        const std::byte* from = o.request.in + p.first;
        if (!reached) {
            std::byte* const copy = o.scratch.at + posted % 2 * l.piece;
            streams_staged(e, distance::is_near(e, e.sequence)) ? stream_bytes(copy, from, p.count)
                                                                : copy_bytes(copy, from, p.count);
            from = copy;
        }
        l.data[posted % 2] = e.told(from);
        l.posted.store(++posted, std::memory_order_release);
    }
    if (taken < posted) return false;  // so it is while pieces are left to offer
    give_scratch(e, o);
    return true;
}

/// Copies the pieces that have been offered; true when that were all.
inline bool advance_receive(rank_context& e, operation_state& o, pair_line& l) {
    const std::size_t bytes = o.request.count * o.request.element;
    const std::uint64_t posted = l.posted.load(std::memory_order_acquire);
    std::uint64_t taken = l.taken.load(std::memory_order_acquire);
    while (taken < posted) {
        if (l.bytes != bytes || l.type != o.request.signature)
            fail(e, errc::mismatch, o.site,
                message() << "expects " << bytes << " bytes, rank " << o.site.peer << " sends " << l.bytes
                          << (l.bytes == bytes ? " of another type" : ""));
        const extent p = piece_of(l, bytes, o.chunk);
        // Asked before the piece is given back: after the last one the sender may write the next message's line.
        const bool last = o.chunk + 1 == pieces_of(l, bytes);
        copy_bytes(o.request.out + p.first, e.here<const std::byte>(l.data[taken % 2]), p.count);
        confirm(e, o.site);
        l.taken.store(++taken, std::memory_order_release);
        if (last) return true;
        ++o.chunk;
    }
    return false;
}

/// Moves a message as far as it gets without waiting; true when it is over.
inline bool advance_message(rank_context& e, operation_state& o) {
    const bool sends = o.kind == operation_kind::send;
    const int peer = o.site.peer;
    message_count& count = (sends ? e.sent : e.received)[peer];
    if (count.over != o.sequence) return false;  // another message of the pair comes first
    activate(e);
    if (!(sends ? advance_send(e, o, e.memory.pair(e.rank, peer)) : advance_receive(e, o, e.memory.pair(peer, e.rank))))
        return false;
    ++count.over;
    o.done = true;
    return true;
}

/// A rank that has begun to send a message to this one for which no receive has begun, while no other receive from it
/// is under way; or none. The search begins after the rank that was found last, so that each has its turn.
inline int find_sender(rank_context& e) {
    if (e.by_messages) e.backend->ask_for_messages(e);
    for (int i = 0; i < e.size; ++i) {
        const int r = (e.next_source + i) % e.size;
        if (!e.received.empty() && e.received[r].begun != e.received[r].over) continue;
        const pair_line& l = e.memory.pair(r, e.rank);
        if (e.by_messages ? !e.backend->announced(e, r)
                          : l.posted.load(std::memory_order_acquire) == l.taken.load(std::memory_order_relaxed))
            continue;
        e.next_source = (r + 1) % e.size;
        return r;
    }
    return none;
}
/// Waits until there is such a rank. Fails where all others have left the group and none of them has sent a message.
inline int wait_for_sender(rank_context& e) {
    const wait_site at{.what = "recv_any", .fingerprint = no_call};
    const auto alone = [&] {
        for (int r = 0; r < e.size; ++r)
            if (r != e.rank && e.memory.state(r).gone.load(std::memory_order_acquire) == 0) return false;
        return true;
    };
    int from = none;
    guarded(e, at.what, [&] {
        progress(e);  // this rank may be sending to itself
        backoff wait(e);
        for (unsigned turns = 1; (from = find_sender(e)) == none; ++turns) {
            // What a rank has sent it sent before it left: so one more look, now that all have left.
            if (turns % 64 == 0 && alone() && (from = find_sender(e)) == none)
                fail(e, errc::peer_failed, at,
                    message() << "all other ranks have left the group, and no message is on its way");
            if (from != none) break;
            wait(at);
        }
    });
    return from;
}

}  // namespace colls::inline v1::detail
