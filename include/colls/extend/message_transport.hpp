// What a transport that passes messages does for a group: ordered, reliable messages between pairs of ranks. The
// executor of channel.hpp needs nothing else.
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::inline v1::extend {

/// Memory that a message comes from or goes to.
struct piece {
    std::byte* data;
    std::size_t bytes;
};

/// What both sides say about a message, so that no message is taken for another.
struct message_label {
    std::uint64_t fingerprint = 0;  ///< of the call, and of all before
    std::uint64_t sequence = 0;     ///< of the call, in this group
    std::uint32_t part = 0;         ///< of the call: chunk, round and port, hashed
    friend bool operator==(const message_label&, const message_label&) = default;
};

/// Short control messages between ranks, outside the order of messages. What they mean is the executor's affair.
enum class control_kind : std::uint8_t {
    offer,   ///< send: `a` the message's number in its direction, `b` its bytes, `c` its type
    accept,  ///< recv: message `a` may come
    ask,     ///< recv: from now on each message is to be offered that has not been accepted
    board,   ///< a rank waits in call `a`, whose fingerprint is `b`; `c` 0: for the one that it tells
    broken,  ///< the group is broken: `a` error code, `b` (rank + 1) << 32 | (round + 1), `c` the rank that reports it;
             ///< with a text
    leave,   ///< the sender leaves the group for good
    join,    ///< shrink: `a`, `b`, `c` as shrink.hpp says
    wiring,  ///< between transports, of which no listener hears: how the peers' devices reach each other; see the
             ///< transport
    inquire,  ///< the sender would like to know the receiver's latest calls
    told,     ///< one of the sender's calls: `a` its number, `b` its fingerprint; the text its parts
    refused,  ///< the sender does not make call `a` - 1, for what is wrong there; the text says what; 0: it has made it
              ///< by now
    away      ///< the sender shrinks the group of number `a`, and comes to no call of this one meanwhile; 0: it is back
};
inline constexpr control_kind last_control_kind = control_kind::away;
struct control_message {
    control_kind what{};
    std::uint64_t a = 0, b = 0, c = 0;
    const char* text = "";  ///< at most 400 characters
};

/// One rank's connections. Used by one thread at a time. Numbers of messages count from 0, for each peer and direction.
/// Failures are reported to the rank context (poison, `gone`), never thrown, unless it says so.
class message_transport {
public:
    virtual ~message_transport() = default;

    /// Offers one message, which follows those that were sent to `peer` before. The pieces' memory stays as it is until
    /// the message has left; the array of pieces is copied. Returns the message's number. Never waits.
    virtual std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) = 0;
    /// Says where the next message from `peer` goes; it must be of the label given and of as many bytes as the pieces.
    /// Returns its number. Never waits.
    virtual std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) = 0;
    /// What was sent may wait for others, to go together, until this is called or `progress`.
    virtual void flush() {}
    /// No message to `peer` follows in this operation, or, where none goes to it, none from it: the transport should
    /// come to know soon, by itself, that the last has left.
    virtual void request_completion(int /*peer*/) {}
    /// Messages to `peer` that have left (their memory may change), messages from it that have arrived.
    virtual std::uint64_t sent(int peer) const = 0;
    virtual std::uint64_t received(int peer) const = 0;
    /// Does a device move messages while this rank computes? The same at all ranks of a group: their order depends on
    /// it.
    virtual bool offloads() const { return false; }
    /// Forgets what is still to be sent or received: the group is broken. No memory of a caller is touched after.
    virtual void abandon() = 0;

    /// A short message outside the order of the others; queued if it cannot go at once. False where there is no way to
    /// the peer.
    virtual bool tell(int peer, const control_message& what) = 0;
    /// To everyone to whom there is a connection.
    virtual void tell_all(const control_message& what) = 0;

    /// Moves whatever can be moved without waiting. News that arrive go to `listening`.
    virtual void progress() = 0;
    /// Sleeps until something may have arrived or left, at most so long.
    virtual void idle(double seconds) = 0;

    /// Called from `progress`: control messages from a peer; the peer's end is gone without having said `leave`; a
    /// message that is not the one expected.
    struct listener {
        virtual ~listener() = default;
        virtual void heard(int peer, const control_message& what) = 0;
        virtual void lost(int peer, const char* why) = 0;
        /// Messages to or from the peer cannot be moved any more, though it may live.
        virtual void failed(int peer, const char* why) { lost(peer, why); }
        virtual void unexpected(int peer, const message_label& wanted, const message_label& got,
            std::size_t wanted_bytes, std::size_t got_bytes) = 0;
    };
    listener* listening = nullptr;
    /// For how many seconds at most its end waits for peers that have not taken in yet what was sent to them.
    double linger = 1;
};

}  // namespace colls::inline v1::extend
