// Messages between ranks through MPI's point-to-point calls, on a communicator of the library's own.
//
// A message is a header, which is compared before anything lands in a caller's memory, and its payload. Up to 8 KB both
// go in one MPI message, copied. A larger payload follows under a tag of its own, from place to place, in parts; both
// sides divide it alike, wherever its pieces lie. This relies on one promise of MPI's: messages of one tag between two
// ranks match in the order in which they were sent. Every 16th header is sent synchronously, so that a sender does not
// run far ahead of a receiver.
//
// MPI cannot take back a send. So a transport that has been told to abandon its messages goes on receiving what its
// peers still send it, and throws it away: their sends complete, and MPI no longer reads the senders' memory.
//
// Before it ends, each rank says `leave`, and how many messages it has sent. When all ranks have, and all messages have
// arrived, nothing is under way any more, and the communicator may be freed.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#include <colls/detail/transport/vocabulary.hpp>
#include <colls/mpi/detail/mpi_context.hpp>
#include <colls/mpi/detail/mpi_requests.hpp>

#include <sched.h>
#include <time.h>
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

class mpi_transport final : public message_transport {
public:
    static constexpr std::size_t packed_bytes = 8 << 10;  ///< a message of up to this many bytes is copied
    static constexpr std::size_t part_bytes = mpi_payload::part_bytes;

    /// Whether MPI takes the tags of that number.
    static bool has_tags(int number) { return number < mpi_highest_tag() / 3; }
    /// `number`, 0 or more, differs for each transport of a communicator, and is the same on all ranks: the transport
    /// uses the tags 3 * number to 3 * number + 2. Throws std::bad_alloc.
    mpi_transport(std::shared_ptr<mpi_context> context, int number)
        : context_(std::move(context)),
          comm_(context_->get()),
          first_tag_(3 * number),
          rank_(context_->rank()),
          size_(context_->size()),
          peers_(new peer_state[static_cast<std::size_t>(size_)]) {
        receive_control();
    }
    mpi_transport(const mpi_transport&) = delete;
    mpi_transport& operator=(const mpi_transport&) = delete;
    /// Says `leave`, and waits at most a second until nothing is under way and all peers have left. After that, MPI
    /// keeps what is still under way, its memory and the communicator.
    inline ~mpi_transport() override;

    inline std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override;
    inline std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override;
    std::uint64_t sent(int peer) const override { return at(peer).sent; }
    std::uint64_t received(int peer) const override { return at(peer).received; }
    /// Cancels receives. MPI cannot cancel sends: so this waits, at most a second, until the peers have taken what they
    /// read straight from a caller's memory. A peer that is in no call of this group for longer may still read such
    /// memory (of messages above 8 KB) when it comes back.
    inline void abandon() override;

    inline bool tell(int peer, const control_message& what) override;
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size_; ++r) tell(r, what);
    }

    void progress() override {
        if (!completing_) complete_some();
    }
    /// MPI has nothing to sleep on: this yields at first, and then sleeps for 50 us at a time.
    void idle(double seconds) override {
        if (completing_) return;
        if (++idle_calls_ < 64)
            sched_yield();
        else
            sleep(seconds);
    }

private:
    // As they travel.
    struct header {
        std::uint64_t fingerprint, sequence, bytes;
        std::uint32_t part, unused;
    };
    struct control {
        std::uint64_t a, b, c;
        std::uint64_t sent;  // messages to the same peer that had left before
        control_kind what;
        char text[401];
    };
    static constexpr std::size_t block_bytes = sizeof(header) + packed_bytes;
    static_assert(sizeof(control) <= block_bytes);
    static constexpr std::uint64_t synchronous = 16;

    struct incoming {
        message_label label;
        std::uint64_t bytes = 0;
        std::vector<piece> pieces;
        int under_way = 0;  // parts
    };
    /// Whether a peer's `leave` has been received and reported.
    enum class leave_of_peer : std::uint8_t {
        unheard,
        heard,    ///< messages that were sent before it have not arrived
        reported  ///< to the listener, behind all messages
    };
    struct peer_state {
        std::deque<int> out;      // messages that are not complete: how many requests each has under way
        std::deque<incoming> in;  // messages that have not arrived
        std::uint64_t to_send = 0, sent = 0, to_receive = 0, received = 0;
        std::uint64_t headers = 0;      // that have arrived
        std::uint64_t last_header = 0;  // how many will have arrived in all, once it has left
        bool header_awaited = false;    // a receive for the next one is posted
        bool mismatched = false;        // a message was not the one expected: no header is received until `abandon`
        bool lost = false;              // reported to the listener
        bool told_leave = false;        // this rank has said `leave`
        std::deque<control> held;       // `broken`, until the messages before it have arrived, and what follows it
        leave_of_peer leave = leave_of_peer::unheard;
    };
    /// It moves forward only.
    enum class phase : std::uint8_t {
        running,
        abandoned,  ///< what arrives is thrown away
        closing     ///< nothing is to arrive any more: no receive is posted
    };

    enum tag { message_tag, payload_tag, control_tag };
    int number_of(tag t) const { return first_tag_ + t; }
    peer_state& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    const peer_state& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
    bool discarding() const { return phase_ != phase::running; }
    static void sleep(double seconds) {
        const timespec t{0, static_cast<long>(std::min(seconds, 50e-6) * 1e9)};
        nanosleep(&t, nullptr);
    }
    // A request has been started, or could not be. `r` by reference: the call that sets it is another argument.
    void started(int code, const MPI_Request& r, const mpi_operation& o) {
        if (code == MPI_SUCCESS)
            requests_.add(r, o);
        else
            report_lost(o.peer, code);
    }
    void report_lost(int peer, int code);
    void receive_control();
    void receive_header(int peer);
    void discard_payload(int peer);
    bool complete_some();
    void completed(const mpi_requests::completion& c);
    void header_arrived(int peer, const std::byte* block);
    void control_arrived(int peer, const std::byte* block);
    void report_held(int peer);
    void count_arrived(int peer);
    void discard_messages();
    bool uses_callers_memory() const {
        for (const mpi_operation& o : requests_)
            if (o.uses_callers_memory()) return true;
        return false;
    }
    bool all_have_left();

    const std::shared_ptr<mpi_context> context_;
    const MPI_Comm comm_;
    const int first_tag_, rank_, size_;
    const std::unique_ptr<peer_state[]> peers_;
    block_pool blocks_{block_bytes};
    mpi_requests requests_;
    mpi_payload payload_;
    int idle_calls_ = 0;  // since something was completed
    phase phase_ = phase::running;
    bool completing_ = false;  // a listener may call `progress` again
    bool recheck_ = false;     // what is held or has been counted may have to be reported now
    bool abandoning_ = false;  // what arrives is reported by the next `progress`
};

// ---- messages -------------------------------------------------------------------------------------------------------

inline std::uint64_t mpi_transport::send(int peer, const message_label& label, const piece* pieces, int count) {
    peer_state& p = at(peer);
    if (discarding() || p.lost) return p.to_send;
    const std::uint64_t number = p.to_send++;
    std::uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += pieces[i].bytes;
    const bool packed = bytes <= packed_bytes;
    std::byte* const block = blocks_.take();
    const header h{label.fingerprint, label.sequence, bytes, label.part, 0};
    std::memcpy(block, &h, sizeof h);
    std::size_t length = sizeof h;
    for (int i = 0; packed && i < count; ++i) {
        if (pieces[i].bytes > 0) std::memcpy(block + length, pieces[i].data, pieces[i].bytes);
        length += pieces[i].bytes;
    }
    p.out.push_back(1);
    MPI_Request r = MPI_REQUEST_NULL;
    const auto start = number % synchronous == synchronous - 1 ? PMPI_Issend : PMPI_Isend;
    started(start(block, static_cast<int>(length), MPI_BYTE, peer, number_of(message_tag), comm_, &r), r,
        {mpi_operation::send, peer, number, block});
    if (!packed)
        payload_.for_each_part(pieces, count, [&](void* from, int n, MPI_Datatype type) {
            ++p.out.back();
            started(PMPI_Isend(from, n, type, peer, number_of(payload_tag), comm_, &r), r,
                {mpi_operation::send, peer, number, nullptr});
        });
    return number;
}

inline std::uint64_t mpi_transport::receive(int peer, const message_label& label, const piece* pieces, int count) {
    peer_state& p = at(peer);
    if (discarding()) return p.to_receive++;
    incoming& i = p.in.emplace_back();
    i.label = label;
    i.pieces.assign(pieces, pieces + count);
    for (const piece& part : i.pieces) i.bytes += part.bytes;
    receive_header(peer);
    return p.to_receive++;
}

// Posts a receive for the next header where a message is expected; after `abandon`, always.
inline void mpi_transport::receive_header(int peer) {
    peer_state& p = at(peer);
    if (peer == rank_ || p.header_awaited || p.lost || phase_ == phase::closing) return;
    if (!discarding() && (p.mismatched || p.headers - p.received >= p.in.size())) return;
    p.header_awaited = true;
    std::byte* const block = blocks_.take();
    MPI_Request r = MPI_REQUEST_NULL;
    started(PMPI_Irecv(block, static_cast<int>(block_bytes), MPI_BYTE, peer, number_of(message_tag), comm_, &r), r,
        {mpi_operation::receive_header, peer, 0, block});
}

inline void mpi_transport::header_arrived(int peer, const std::byte* block) {
    peer_state& p = at(peer);
    header h;
    std::memcpy(&h, block, sizeof h);
    const std::uint64_t number = p.headers++;
    const message_label label{h.fingerprint, h.sequence, h.part};
    incoming* const i = discarding() ? nullptr : &p.in[static_cast<std::size_t>(number - p.received)];
    if (i == nullptr || i->label != label || i->bytes != h.bytes) {
        for (std::uint64_t left = h.bytes; h.bytes > packed_bytes && left > 0;
            left -= std::min<std::uint64_t>(left, part_bytes))
            discard_payload(peer);
        if (i == nullptr) return;
        p.mismatched = recheck_ = true;
        if (listening)
            listening->unexpected(
                peer, i->label, label, static_cast<std::size_t>(i->bytes), static_cast<std::size_t>(h.bytes));
        return;
    }
    if (h.bytes <= packed_bytes) {
        const std::byte* from = block + sizeof h;
        for (const piece& part : i->pieces) {
            if (part.bytes > 0) std::memcpy(part.data, from, part.bytes);
            from += part.bytes;
        }
    } else {
        payload_.for_each_part(
            i->pieces.data(), static_cast<int>(i->pieces.size()), [&](void* to, int n, MPI_Datatype type) {
                ++i->under_way;
                MPI_Request r = MPI_REQUEST_NULL;
                started(PMPI_Irecv(to, n, type, peer, number_of(payload_tag), comm_, &r), r,
                    {mpi_operation::receive_payload, peer, number, nullptr});
            });
    }
    count_arrived(peer);
}

// Counts the messages that have arrived, in order. The peer's `leave` is reported behind them. The last header may be
// that of a message which was not the one expected: that one has not arrived.
inline void mpi_transport::count_arrived(int peer) {
    peer_state& p = at(peer);
    const std::uint64_t expected = p.headers - (p.mismatched ? 1 : 0);
    for (; p.received < expected && !p.in.empty() && p.in.front().under_way == 0; ++p.received) p.in.pop_front();
    report_held(peer);
    if (abandoning_ || p.leave != leave_of_peer::heard || (discarding() ? p.headers : p.received) < p.last_header)
        return;
    p.leave = leave_of_peer::reported;
    if (listening) listening->heard(peer, control_message{control_kind::leave});
}

// A part of a payload that no receive wants is written to memory of its own.
inline void mpi_transport::discard_payload(int peer) {
    auto* const memory = static_cast<std::byte*>(operator new(part_bytes, std::nothrow));
    if (memory == nullptr) return;
    MPI_Request r = MPI_REQUEST_NULL;
    started(PMPI_Irecv(memory, static_cast<int>(part_bytes), MPI_BYTE, peer, number_of(payload_tag), comm_, &r), r,
        {mpi_operation::discard_payload, peer, 0, memory});
}

// ---- control messages -----------------------------------------------------------------------------------------------

inline bool mpi_transport::tell(int peer, const control_message& what) {
    peer_state& p = at(peer);
    if (peer == rank_ || p.lost || p.told_leave) return what.what == control_kind::leave && p.told_leave;
    control c{what.a, what.b, what.c, p.sent, what.what, ""};
    if (what.what == control_kind::leave) {
        p.told_leave = true;
        c.a = p.to_send;
    }
    const std::size_t length = std::min(std::strlen(what.text), sizeof c.text - 1);
    std::memcpy(c.text, what.text, length);
    std::byte* const block = blocks_.take();
    std::memcpy(block, &c, sizeof c);
    MPI_Request r = MPI_REQUEST_NULL;
    started(PMPI_Isend(block, static_cast<int>(offsetof(control, text) + length + 1), MPI_BYTE, peer,
                number_of(control_tag), comm_, &r),
        r, {mpi_operation::send_control, peer, 0, block});
    return !p.lost;
}

inline void mpi_transport::receive_control() {
    std::byte* const block = blocks_.take();
    MPI_Request r = MPI_REQUEST_NULL;
    started(PMPI_Irecv(block, sizeof(control), MPI_BYTE, MPI_ANY_SOURCE, number_of(control_tag), comm_, &r), r,
        {mpi_operation::receive_control, rank_, 0, block});
}

inline void mpi_transport::control_arrived(int peer, const std::byte* block) {
    peer_state& p = at(peer);
    control c;
    std::memcpy(&c, block, sizeof c);
    c.text[sizeof c.text - 1] = '\0';
    if (c.what == control_kind::leave) {
        if (p.leave == leave_of_peer::unheard) p.leave = leave_of_peer::heard;
        p.last_header = c.a;
        count_arrived(peer);
    } else {
        p.held.push_back(c);
        report_held(peer);
    }
}

// Messages and control messages overtake each other: `broken` waits for those that had left before it and have a
// receive.
inline void mpi_transport::report_held(int peer) {
    for (peer_state& p = at(peer); !abandoning_ && !p.held.empty();) {
        const control c = p.held.front();
        const bool others_arrive = !p.in.empty() && p.received < c.sent && !p.mismatched && !p.lost && !discarding();
        if (c.what == control_kind::broken && others_arrive) return;
        p.held.pop_front();
        if (listening) listening->heard(peer, control_message{c.what, c.a, c.b, c.c, c.text});
    }
}

// ---- progress -------------------------------------------------------------------------------------------------------

inline void mpi_transport::report_lost(int peer, int code) {
    peer_state& p = at(peer);
    if (peer == rank_ || p.lost) return;
    p.lost = recheck_ = true;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (PMPI_Error_string(code, text, &length) != MPI_SUCCESS) std::snprintf(text, sizeof text, "MPI error %d", code);
    if (listening) listening->lost(peer, text);
}

// False: no request was complete.
inline bool mpi_transport::complete_some() {
    const auto& all = requests_.test();
    const bool recheck = recheck_ && !abandoning_;
    if (all.empty() && !recheck) return false;
    completing_ = true;
    idle_calls_ = 0;
    for (const mpi_requests::completion& c : all) completed(c);
    if (recheck) {
        recheck_ = false;
        for (int r = 0; r < size_; ++r) count_arrived(r);
    }
    completing_ = false;
    return true;
}

inline void mpi_transport::completed(const mpi_requests::completion& c) {
    const mpi_operation& o = c.operation;
    int cancelled = 0;
    if (discarding()) PMPI_Test_cancelled(&c.status, &cancelled);
    const bool good = c.error == MPI_SUCCESS && cancelled == 0;
    peer_state& p = at(o.peer);
    switch (o.what) {
        case mpi_operation::send:
            if (good) {
                --p.out[static_cast<std::size_t>(o.message - p.sent)];
                for (; !p.out.empty() && p.out.front() == 0; ++p.sent) p.out.pop_front();
            }
            break;
        case mpi_operation::receive_header:
            p.header_awaited = false;
            if (good) header_arrived(o.peer, o.memory);
            receive_header(o.peer);
            break;
        case mpi_operation::receive_payload:
            if (cancelled != 0) discard_payload(o.peer);
            if (good && !discarding()) {
                --p.in[static_cast<std::size_t>(o.message - p.received)].under_way;
                count_arrived(o.peer);
            }
            break;
        case mpi_operation::receive_control:
            if (good) control_arrived(c.status.MPI_SOURCE, o.memory);
            if (phase_ != phase::closing) receive_control();
            break;
        case mpi_operation::discard_payload:
        case mpi_operation::send_control:
            break;
    }
    if (c.error != MPI_SUCCESS && cancelled == 0)
        report_lost(o.what == mpi_operation::receive_control ? c.status.MPI_SOURCE : o.peer, c.error);
    if (o.what == mpi_operation::discard_payload)
        operator delete(o.memory);
    else if (o.memory)
        blocks_.give_back(o.memory);
}

// ---- the end --------------------------------------------------------------------------------------------------------

// From here on nothing lands in a caller's memory, as far as MPI can be stopped.
inline void mpi_transport::discard_messages() {
    if (discarding()) return;
    phase_ = phase::abandoned;
    recheck_ = true;
    requests_.cancel([](const mpi_operation& o) { return o.what == mpi_operation::receive_payload; });
    for (int r = 0; r < size_; ++r) {
        at(r).in.clear();
        receive_header(r);
    }
}

inline void mpi_transport::abandon() {
    discard_messages();
    if (completing_) return;
    abandoning_ = true;
    for (const double until = seconds_now() + 1; uses_callers_memory() && seconds_now() < until;)
        if (!complete_some()) sleep(50e-6);
    abandoning_ = false;
}

inline bool mpi_transport::all_have_left() {
    for (int r = 0; r < size_; ++r) {
        peer_state& p = at(r);
        p.lost = p.lost || context_->dead(r);
        if (r != rank_ && !p.lost && (p.leave == leave_of_peer::unheard || p.headers < p.last_header)) return false;
    }
    for (const mpi_operation& o : requests_)
        if (o.what != mpi_operation::receive_header && o.what != mpi_operation::receive_control && !at(o.peer).lost)
            return false;
    return true;
}

inline mpi_transport::~mpi_transport() {
    listening = nullptr;
    bool clean = false;
    if (mpi_runs()) {
        discard_messages();
        for (int r = 0; r < size_; ++r) tell(r, control_message{control_kind::leave});
        const double until = context_->begin_ending();
        complete_some();
        for (int i = 0; !(clean = all_have_left()) && seconds_now() < until; ++i)
            if (!complete_some()) {
                if (i < 200)
                    sched_yield();
                else
                    sleep(50e-6);
            }
        // Receives for which nothing will arrive any more.
        phase_ = phase::closing;
        requests_.cancel([](const mpi_operation& o) {
            return o.what == mpi_operation::receive_header || o.what == mpi_operation::receive_control;
        });
        for (int i = 0; i < 1000 && !requests_.empty() && (clean || i < 20); ++i)
            if (!complete_some()) sleep(50e-6);
        clean = clean && requests_.empty();
        for (int r = 0; r < size_; ++r) clean = clean && !at(r).lost;
    }
    if (!clean) context_->keep();  // and the blocks of what is under way are never freed
}

}  // namespace colls::inline v1::detail
