// Messages from one rank to another through shared memory.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// A send waits until its receiver has copied the data. If the receiver can reach the sender's buffer, it copies
// straight out of that, which is one copy in all. Otherwise the data goes piece by piece through two pieces of scratch
// memory that the receiver can reach. Messages of one ordered pair of ranks match in order; one at a time is under way.
#pragma once

#include <colls/detail/execute/distance.hpp>
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

/// A message to or from another rank, which advances by pieces (now.chunk).
class memory_message final : public operation_state {
public:
    explicit memory_message(rank_context& self) : operation_state(self) {}

    void begin() override {}
    bool advance() override {
        const bool sends = kind == operation_kind::send;
        const int peer = site.peer;
        message_count& count = (sends ? self_.messages.sent : self_.messages.received)[peer];
        if (count.over != sequence) return false;  // another message of the pair comes first
        activate(self_);
        if (!(sends ? offer(self_.memory.pair(self_.rank, peer)) : take(self_.memory.pair(peer, self_.rank))))
            return false;
        ++count.over;
        return done = true;
    }

private:
    std::size_t bytes() const { return arguments.count * arguments.element; }

    /// Offers pieces as far as there is room for two; true when the receiver has taken all.
    bool offer(pair_line& l) {
        std::uint64_t posted = l.posted.load(std::memory_order_acquire);
        const std::uint64_t taken = l.taken.load(std::memory_order_acquire);
        const bool reached = bytes() == 0 || self_.access.has(arguments.in, bytes());
        if (now.chunk == 0) {
            l.bytes = bytes();
            l.type = arguments.signature;
            l.piece = reached || bytes() < message_piece_bytes ? bytes() : message_piece_bytes;
            if (!reached && scratch_.at == nullptr) take_scratch(2 * l.piece);
        }
        const std::size_t pieces = pieces_of(l, bytes());
        for (; now.chunk < pieces && posted < taken + 2; ++now.chunk) {
            const extent p = piece_of(l, bytes(), now.chunk);
            const std::byte* from = arguments.in + p.first;
            if (!reached) {
                std::byte* const copy = scratch_.at + posted % 2 * l.piece;
                streams_staged(self_, distance::is_near(self_, self_.direct.count)) ? stream_bytes(copy, from, p.count)
                                                                                    : copy_bytes(copy, from, p.count);
                from = copy;
            }
            l.data[posted % 2] = self_.access.to_offset(from);
            l.posted.store(++posted, std::memory_order_release);
            wake_sleepers(self_);
        }
        if (taken < posted) return false;  // so it is while pieces are left to offer
        give_scratch();
        return true;
    }
    /// Copies the pieces that have been offered; true when that were all.
    bool take(pair_line& l) {
        const std::uint64_t posted = l.posted.load(std::memory_order_acquire);
        std::uint64_t taken = l.taken.load(std::memory_order_acquire);
        while (taken < posted) {
            if (l.bytes != bytes() || l.type != arguments.signature)
                fail(self_, errc::mismatch, site,
                    error_text() << "expects " << bytes() << " bytes, rank " << site.peer << " sends " << l.bytes
                                 << (l.bytes == bytes() ? " of another type" : ""));
            const extent p = piece_of(l, bytes(), now.chunk);
            // Asked before the piece is given back: after the last one the sender may write the next message's line.
            const bool last = now.chunk + 1 == pieces_of(l, bytes());
            copy_bytes(arguments.out + p.first, self_.access.from_offset(l.data[taken % 2]), p.count);
            confirm(self_, site);
            l.taken.store(++taken, std::memory_order_release);
            wake_sleepers(self_);
            if (last) return true;
            ++now.chunk;
        }
        return false;
    }
};

}  // namespace colls::inline v1::detail
