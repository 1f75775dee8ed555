// The interface of a transport that passes messages: ordered, reliable messages between pairs of ranks, and short
// control messages.
//
// Implement message_transport, and a message_group that makes the transports of each group (message_group.hpp); then
// every schedule and every call runs over it. colls/testing/transport.hpp tests the result. docs/extending.md goes
// through it step by step.
//
// Contract, for one group:
// - One object is one rank's connections to all ranks of the group. One thread at a time uses it, and no call waits but
//   `idle` and the destructor.
// - Messages from one rank to another arrive in the order in which they were sent. They are numbered from 0, for each
//   peer and direction. A rank never sends to itself.
// - Sender and receiver may come in either order: a message that no receive has been posted for waits.
// - A message may have no pieces and no bytes. It is carried, compared and counted like any other.
// - Control messages do not wait for messages: they pass messages that no receive has been posted for. Between two
//   ranks they keep their order.
// - `leave` and `broken` come after the messages that the sender completed before it said so.
// - Failures are reported to the listener, from within `progress` alone; no call throws, except std::bad_alloc.
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace colls::inline v1::extend {

/// A part of the memory that a message comes from or goes to.
struct piece {
    std::byte* data;    ///< its first byte
    std::size_t bytes;  ///< its length
};

/// What sender and receiver both state about a message, so that no message is taken for another. The transport carries
/// it, and compares it for equality.
struct message_label {
    std::uint64_t fingerprint = 0;  ///< of the call and of all calls before it
    std::uint64_t sequence = 0;     ///< number of the call in this group
    std::uint32_t part = 0;         ///< hash of chunk, round and port
    friend bool operator==(const message_label&, const message_label&) = default;
};

/// What a control message is about. A transport carries them unread, except `leave` and `broken` (see the
/// contract above) and `wiring`, which is its own.
enum class control_kind : std::uint8_t {
    offer,   ///< send: a message is ready; `a` its number in its direction, `b` its bytes, `c` its type
    accept,  ///< recv: message `a` may come
    ask,     ///< recv: from now on the receiver of this wants an `offer` for each message that it has not accepted
    board,   ///< the sender waits in call `a`, whose fingerprint is `b`; `c` is 0 where it waits for the receiver
    broken,  ///< the group is broken: `a` error code, `b` (rank + 1) << 32 | (round + 1), `c` the rank that reports it;
             ///< the text says why
    leave,   ///< the sender leaves the group for good
    join,    ///< a line of the agreement on which ranks remain in a shrink
    wiring,  ///< from transport to transport, never passed to the listener
    inquire,  ///< the sender asks for the receiver's latest calls; with `a` 1, for a long wait that it is in
    told,     ///< one of the sender's calls: `a` its number, `b` its fingerprint; the text describes it
    refused,  ///< the sender has refused call `a` for an error on its own side, which the text describes: `a` as
              ///< refusal_state::call
    away,     ///< the sender shrinks the group of number `a` and makes no call of this group meanwhile; 0: it is back
    waits     ///< a long wait that the sender is in: `a` as rank_state::waits
};
/// The last of them: greater values are not valid.
inline constexpr control_kind last_control_kind = control_kind::waits;

/// A short message from this rank's library to a peer's, apart from those of calls.
struct control_message {
    control_kind what{};    ///< what it says
    std::uint64_t a = 0;    ///< as control_kind says for each kind
    std::uint64_t b = 0;    ///< likewise
    std::uint64_t c = 0;    ///< likewise
    const char* text = "";  ///< at most 400 characters; valid during the call only
};

/// The messages of one rank to its peers: what a transport of messages implements. Messages between two ranks keep
/// their order.
class message_transport {
public:
    /// Tells every peer that this rank leaves, and waits, for `linger` seconds at most, until what is queued has gone.
    virtual ~message_transport() = default;

    /// Posts one message to `peer`, after those posted before. The memory of the pieces must stay unchanged until the
    /// message has left; the array of pieces is copied. Returns the message's number.
    virtual std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) = 0;
    /// Posts where the next message from `peer` goes. It must have this label, and as many bytes as the pieces
    /// together. The array of pieces is copied. Returns the message's number.
    virtual std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) = 0;
    /// Posted messages may be held back, to go together, until `flush` or `progress` is called.
    virtual void flush() {}
    /// No message to `peer` follows in this operation (or, where none goes to it, no message from it): a transport that
    /// learns late that messages have left should now see to it that it learns so of the last one.
    virtual void request_completion(int /*peer*/) {}

    /// How many messages to `peer` have left: their memory may be changed, and they arrive though this rank may not
    /// call the transport again for long.
    virtual std::uint64_t sent(int peer) const = 0;
    /// How many messages from `peer` have arrived: their memory holds them.
    virtual std::uint64_t received(int peer) const = 0;
    /// Does a device move messages while this rank computes? All ranks of a group must give the same answer: the order
    /// in which they post messages depends on it.
    virtual bool offloads() const { return false; }
    /// Lets messages lie in memory of a GPU, which this processor may not reach: if all ranks have added some, and then
    /// at both ends, as a whole, in at most `most_gpu_pieces` pieces. `file`: a dma-buf that has it from `offset` on,
    /// or -1. The GPU may not see yet what is counted as received. The memory must outlive this object. Returns why
    /// that cannot be; empty: it can.
    virtual std::string add_gpu_memory(std::byte* /*at*/, std::size_t /*bytes*/, int /*file*/, std::size_t /*offset*/) {
        return "the processor copies its messages";
    }
    static constexpr int most_gpu_pieces = 16;  ///< of a message
    /// The group is broken: forgets all messages still to be sent or received, and those posted later. The memory of
    /// callers is not touched afterwards. Control messages continue.
    virtual void abandon() = 0;

    /// Sends a control message, which is queued if it cannot go at once. False where the peer cannot be reached.
    virtual bool tell(int peer, const control_message& what) = 0;
    /// Sends a control message to every rank to which there is a connection.
    virtual void tell_all(const control_message& what) = 0;

    /// Moves what can be moved without waiting. Reports to the listener come from here.
    virtual void progress() = 0;
    /// Sleeps until something may have arrived or left, for at most this many seconds.
    virtual void idle(double seconds) = 0;

    /// Implemented by the library. From within its functions it calls `tell` and `tell_all`, of this transport and of
    /// the group's other one: hold no lock that these need. The destructor must not call the listener.
    struct listener {
        virtual ~listener() = default;
        /// A control message from a peer.
        virtual void heard(int peer, const control_message& what) = 0;
        /// The peer's connection has ended, and the peer had not said `leave`: it has died.
        virtual void lost(int peer, const char* why) = 0;
        /// Messages to or from the peer cannot be moved any more, though the peer may live.
        virtual void failed(int peer, const char* why) { lost(peer, why); }
        /// The next message from the peer has another label or another size than its receive. Neither it nor any later
        /// message from that peer may land or be counted; it is reported once. Control messages continue.
        virtual void unexpected(int peer, const message_label& wanted, const message_label& got,
            std::size_t wanted_bytes, std::size_t got_bytes) = 0;
    };
    listener* listening = nullptr;  ///< set before the first call
    double linger = 1;              ///< seconds that the destructor waits at most; set before the first call
};

}  // namespace colls::inline v1::extend
