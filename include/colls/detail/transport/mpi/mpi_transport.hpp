// Messages between ranks through MPI's point-to-point calls, on a communicator of the library's own.
//
// A message is a header, which is compared before anything lands in a caller's memory, and its payload: up to 8 KB both
// in one message of MPI's, copied; above, the payload follows under a tag of its own, from place to place, in parts.
// Both sides divide it alike, wherever its pieces lie. What MPI promises, that messages of one tag between two ranks
// match in the order in which they were sent, is all that is needed. Every 16th header is sent synchronously: nobody
// runs further ahead of a receiver.
//
// MPI cannot take back a send. So a transport that has been told to abandon its messages goes on receiving what its
// peers still send it, and throws it away: their sends end, and with them MPI's use of the senders' memory.
//
// At the end each rank says `leave`, and how many messages it has sent: when all have, and all has come, nothing is
// under way any more, and the communicator may be freed.
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/transport/mpi/mpi_header.hpp>
#include <colls/detail/transport/vocabulary.hpp>

#include <sched.h>
#include <time.h>
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <vector>

namespace colls::inline v1::detail {

/// Is there an MPI to be called: initialised, and not finalised?
inline bool mpi_runs() {
    int begun = 0, over = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    return begun != 0 && over == 0;
}

/// A communicator of the library's own. Freed with its last user, unless others may still send something over it.
class mpi_context {
public:
    explicit mpi_context(MPI_Comm own) : comm_(own) {
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        MPI_Comm_rank(own, &rank_);
        MPI_Comm_size(own, &size_);
    }
    mpi_context(const mpi_context&) = delete;
    mpi_context& operator=(const mpi_context&) = delete;
    ~mpi_context() {
        if (!kept_ && mpi_runs()) MPI_Comm_free(&comm_);
    }
    MPI_Comm get() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    /// It stays until MPI is finalised.
    void keep() { kept_ = true; }
    /// Until when its transports may take to end: a second from the first question.
    double deadline() {
        if (deadline_ == 0) deadline_ = seconds_now() + 1;
        return deadline_;
    }

private:
    MPI_Comm comm_;
    int rank_ = 0, size_ = 1;
    bool kept_ = false;
    double deadline_ = 0;
};

class mpi_transport final : public message_transport {
public:
    static constexpr std::size_t packed_bytes = 8 << 10;  ///< up to here a message is copied
    static constexpr std::size_t part_bytes = 16 << 20;   ///< of a payload, at most: MPI counts in int

    /// `number`, 0 or more, is another one for each transport of a communicator, and the same on all ranks: the
    /// transport uses the tags 3 * number to 3 * number + 2. Throws std::bad_alloc.
    mpi_transport(std::shared_ptr<mpi_context> context, int number)
        : context_(std::move(context)),
          comm_(context_->get()),
          first_tag_(3 * number),
          rank_(context_->rank()),
          size_(context_->size()),
          ends_(new end[static_cast<std::size_t>(size_)]) {
        hear();
    }
    mpi_transport(const mpi_transport&) = delete;
    mpi_transport& operator=(const mpi_transport&) = delete;
    /// Says `leave`, and takes a second at most for what is under way and for the others to leave. What is under way
    /// then stays with MPI, its memory and the communicator too.
    ~mpi_transport() override;

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override;
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override;
    std::uint64_t sent(int peer) const override { return with(peer).sent; }
    std::uint64_t received(int peer) const override { return with(peer).received; }
    /// Receives are cancelled, sends are not, since MPI cannot: waits until the peers have taken what they read
    /// straight from a caller's memory, a second at most. A peer that has not even then, because it is in no call of
    /// this group for so long, may still read such memory (of messages above 8 KB) when it comes back.
    void abandon() override;

    bool tell(int peer, const control_message& what) override;
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size_; ++r) tell(r, what);
    }

    void progress() override {
        if (!inside_) turn();
    }
    /// MPI has nothing to sleep on: yields at first, then naps of 50 us.
    void idle(double seconds) override {
        if (inside_ || turn()) return;
        if (++idle_ < 64)
            sched_yield();
        else
            nap(seconds);
    }

private:
    struct header {
        std::uint64_t fingerprint, sequence, bytes;
        std::uint32_t part, unused;
    };
    struct control {
        std::uint64_t a, b, c;
        control_kind what;
        char text[401];
    };
    static constexpr std::size_t block_bytes = sizeof(header) + packed_bytes;
    static_assert(sizeof(control) <= block_bytes);
    static constexpr std::uint64_t synchronous = 16;

    enum class role : std::uint8_t {
        send,  ///< a header with what is packed behind it, from a block; or a part of a payload, from its place
        ask,   ///< a header is to come, into a block
        land,  ///< a part of a payload, into its place
        sink,  ///< likewise, into memory of its own, to be thrown away
        tell,
        hear
    };
    struct flight {
        role what;
        int peer;
        std::uint64_t number;  // of the message
        std::byte* memory;     // to be given back
    };
    struct landed {
        flight what;
        MPI_Status state;
        int error;
    };
    struct incoming {
        message_label label;
        std::uint64_t bytes = 0;
        std::vector<piece> pieces;
        int under_way = 0;  // parts
    };
    /// What this rank has of one peer.
    struct end {
        std::deque<int> out;      // messages that have not left: requests under way of each
        std::deque<incoming> in;  // messages that have not arrived
        std::uint64_t to_send = 0, sent = 0, to_receive = 0, received = 0;
        std::uint64_t came = 0;     // headers
        std::uint64_t to_come = 0;  // headers, in all, once it has left
        bool asking = false, stopped = false, lost = false, told_left = false, left = false, heard_left = false;
    };

    enum tag { of_messages, of_payloads, of_control };
    int number_of(tag t) const { return first_tag_ + t; }
    end& with(int peer) { return ends_[static_cast<std::size_t>(peer)]; }
    const end& with(int peer) const { return ends_[static_cast<std::size_t>(peer)]; }
    std::byte* take() {
        if (idle_blocks_.empty()) return static_cast<std::byte*>(operator new(block_bytes));
        std::byte* const b = idle_blocks_.back();
        idle_blocks_.pop_back();
        return b;
    }
    void give(std::byte* block) {
        if (block) idle_blocks_.push_back(block);
    }
    static void nap(double seconds) {
        const timespec t{0, static_cast<long>(std::min(seconds, 50e-6) * 1e9)};
        nanosleep(&t, nullptr);
    }
    // A request has been started, or could not be. By reference: it is an argument beside the call that sets it.
    void note(int code, const MPI_Request& r, const flight& f) {
        if (code == MPI_SUCCESS) {
            requests_.push_back(r);
            flights_.push_back(f);
        } else {
            failed(f.peer, code);
        }
    }
    void failed(int peer, int code);
    void hear();
    void ask(int peer);
    void sink(int peer);
    bool turn();
    void over(landed& l);
    void header_came(int peer, const std::byte* block);
    void heard(int peer, const std::byte* block);
    void conclude(int peer);
    void drop();
    bool uses_callers_memory() const {
        for (const flight& f : flights_)
            if (f.what == role::land || (f.what == role::send && f.memory == nullptr)) return true;
        return false;
    }
    bool all_over() const;
    template <class F>
    void by_parts(const piece* pieces, int count, F f);

    const std::shared_ptr<mpi_context> context_;
    const MPI_Comm comm_;
    const int first_tag_, rank_, size_;
    const std::unique_ptr<end[]> ends_;
    list<MPI_Request> requests_;  // under way ...
    list<flight> flights_;        // ... and what they are
    list<landed> landed_;
    list<int> at_, lengths_;
    list<MPI_Status> states_;
    list<MPI_Aint> places_;
    list<std::byte*> idle_blocks_;
    int idle_ = 0;
    bool inside_ = false, dropping_ = false, cancelling_ = false, closing_ = false;
};

// ---- messages -------------------------------------------------------------------------------------------------------

// f(address, count, datatype) for each part: of one place, or of several, by a datatype.
template <class F>
void mpi_transport::by_parts(const piece* pieces, int count, F f) {
    std::size_t filled = 0;
    std::byte* only = nullptr;
    const auto flush = [&] {
        if (filled == 0) return;
        if (places_.size() == 1) {
            f(static_cast<void*>(only), lengths_[0], MPI_BYTE);
        } else {
            MPI_Datatype scattered;
            MPI_Type_create_hindexed(
                static_cast<int>(places_.size()), lengths_.data(), places_.data(), MPI_BYTE, &scattered);
            MPI_Type_commit(&scattered);
            f(MPI_BOTTOM, 1, scattered);
            MPI_Type_free(&scattered);
        }
        places_.clear();
        lengths_.clear();
        filled = 0;
    };
    for (int i = 0; i < count; ++i) {
        std::byte* at = pieces[i].data;
        for (std::size_t left = pieces[i].bytes; left > 0;) {
            const std::size_t n = std::min(left, part_bytes - filled);
            MPI_Aint place;
            MPI_Get_address(at, &place);
            only = at;
            places_.push_back(place);
            lengths_.push_back(static_cast<int>(n));
            at += n;
            left -= n;
            filled += n;
            if (filled == part_bytes) flush();
        }
    }
    flush();
}

inline std::uint64_t mpi_transport::send(int peer, const message_label& label, const piece* pieces, int count) {
    end& e = with(peer);
    const std::uint64_t number = e.to_send++;
    if (dropping_ || e.lost) {
        --e.to_send;
        return number;
    }
    std::uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += pieces[i].bytes;
    const bool packed = bytes <= packed_bytes;
    std::byte* const block = take();
    const header h{label.fingerprint, label.sequence, bytes, label.part, 0};
    std::memcpy(block, &h, sizeof h);
    std::size_t length = sizeof h;
    for (int i = 0; packed && i < count; ++i) {
        if (pieces[i].bytes > 0) std::memcpy(block + length, pieces[i].data, pieces[i].bytes);
        length += pieces[i].bytes;
    }
    e.out.push_back(1);
    MPI_Request r = MPI_REQUEST_NULL;
    const auto begin = number % synchronous == synchronous - 1 ? MPI_Issend : MPI_Isend;
    note(begin(block, static_cast<int>(length), MPI_BYTE, peer, number_of(of_messages), comm_, &r), r,
        {role::send, peer, number, block});
    if (!packed)
        by_parts(pieces, count, [&](void* from, int n, MPI_Datatype type) {
            ++e.out.back();
            note(MPI_Isend(from, n, type, peer, number_of(of_payloads), comm_, &r), r,
                {role::send, peer, number, nullptr});
        });
    return number;
}

inline std::uint64_t mpi_transport::receive(int peer, const message_label& label, const piece* pieces, int count) {
    end& e = with(peer);
    if (dropping_) return e.to_receive++;
    incoming& i = e.in.emplace_back();
    i.label = label;
    i.pieces.assign(pieces, pieces + count);
    for (const piece& p : i.pieces) i.bytes += p.bytes;
    ask(peer);
    return e.to_receive++;
}

// A header is asked for where a message is expected; once all is to be thrown away, always.
inline void mpi_transport::ask(int peer) {
    end& e = with(peer);
    if (peer == rank_ || e.asking || e.lost || closing_) return;
    if (!dropping_ && (e.stopped || e.came - e.received >= e.in.size())) return;
    e.asking = true;
    std::byte* const block = take();
    MPI_Request r = MPI_REQUEST_NULL;
    note(MPI_Irecv(block, static_cast<int>(block_bytes), MPI_BYTE, peer, number_of(of_messages), comm_, &r), r,
        {role::ask, peer, 0, block});
}

inline void mpi_transport::header_came(int peer, const std::byte* block) {
    end& e = with(peer);
    header h;
    std::memcpy(&h, block, sizeof h);
    const std::uint64_t number = e.came++;
    const message_label label{h.fingerprint, h.sequence, h.part};
    incoming* const i = dropping_ ? nullptr : &e.in[static_cast<std::size_t>(number - e.received)];
    if (i == nullptr || i->label != label || i->bytes != h.bytes) {
        for (std::uint64_t left = h.bytes; h.bytes > packed_bytes && left > 0;
            left -= std::min<std::uint64_t>(left, part_bytes))
            sink(peer);
        if (i == nullptr) return;
        e.stopped = true;
        if (listening)
            listening->unexpected(
                peer, i->label, label, static_cast<std::size_t>(i->bytes), static_cast<std::size_t>(h.bytes));
        return;
    }
    if (h.bytes <= packed_bytes) {
        const std::byte* from = block + sizeof h;
        for (const piece& p : i->pieces) {
            if (p.bytes > 0) std::memcpy(p.data, from, p.bytes);
            from += p.bytes;
        }
    } else {
        by_parts(i->pieces.data(), static_cast<int>(i->pieces.size()), [&](void* to, int n, MPI_Datatype type) {
            ++i->under_way;
            MPI_Request r = MPI_REQUEST_NULL;
            note(MPI_Irecv(to, n, type, peer, number_of(of_payloads), comm_, &r), r,
                {role::land, peer, number, nullptr});
        });
    }
    conclude(peer);
}

// Counts what has arrived, in order. That the peer has left is heard behind its messages.
inline void mpi_transport::conclude(int peer) {
    end& e = with(peer);
    for (; e.received < e.came && !e.in.empty() && e.in.front().under_way == 0; ++e.received) e.in.pop_front();
    if (!e.left || e.heard_left || (dropping_ ? e.came : e.received) < e.to_come) return;
    e.heard_left = true;
    if (listening) listening->heard(peer, control_message{control_kind::leave});
}

// ---- control messages
// -----------------------------------------------------------------------------------------------------------

inline bool mpi_transport::tell(int peer, const control_message& what) {
    end& e = with(peer);
    if (peer == rank_ || e.lost || e.told_left) return what.what == control_kind::leave && e.told_left;
    control t{what.a, what.b, what.c, what.what, ""};
    if (what.what == control_kind::leave) {
        e.told_left = true;
        t.a = e.to_send;
    }
    const std::size_t length = std::min(std::strlen(what.text), sizeof t.text - 1);
    std::memcpy(t.text, what.text, length);
    std::byte* const block = take();
    std::memcpy(block, &t, sizeof t);
    MPI_Request r = MPI_REQUEST_NULL;
    note(MPI_Isend(block, static_cast<int>(offsetof(control, text) + length + 1), MPI_BYTE, peer, number_of(of_control),
             comm_, &r),
        r, {role::tell, peer, 0, block});
    return !e.lost;
}

inline void mpi_transport::hear() {
    std::byte* const block = take();
    MPI_Request r = MPI_REQUEST_NULL;
    note(MPI_Irecv(block, sizeof(control), MPI_BYTE, MPI_ANY_SOURCE, number_of(of_control), comm_, &r), r,
        {role::hear, rank_, 0, block});
}

inline void mpi_transport::heard(int peer, const std::byte* block) {
    end& e = with(peer);
    control t;
    std::memcpy(&t, block, sizeof t);
    t.text[sizeof t.text - 1] = '\0';
    if (t.what == control_kind::leave) {
        e.left = true;
        e.to_come = t.a;
        conclude(peer);
    } else if (listening) {
        listening->heard(peer, control_message{t.what, t.a, t.b, t.c, t.text});
    }
}

// ---- progress -------------------------------------------------------------------------------------------------------

inline void mpi_transport::failed(int peer, int code) {
    end& e = with(peer);
    if (peer == rank_ || e.lost) return;
    e.lost = true;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) std::snprintf(text, sizeof text, "MPI error %d", code);
    if (listening) listening->lost(peer, text);
}

// True: something moved.
inline bool mpi_transport::turn() {
    const std::size_t n = requests_.size();
    at_.resize(n);
    states_.resize(n);
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(n), requests_.data(), &count, at_.data(), states_.data());
    if (count == MPI_UNDEFINED || count <= 0) return false;
    inside_ = true;
    idle_ = 0;
    landed_.clear();
    for (int k = 0; k < count; ++k) {
        const int i = at_[k];
        landed_.push_back({flights_[i], states_[k], code == MPI_ERR_IN_STATUS ? states_[k].MPI_ERROR : code});
        flights_[i].peer = none;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (flights_[i].peer == none) continue;
        requests_[kept] = requests_[i];
        flights_[kept++] = flights_[i];
    }
    requests_.resize(kept);
    flights_.resize(kept);
    for (landed& l : landed_) over(l);
    inside_ = false;
    return true;
}

inline void mpi_transport::over(landed& l) {
    const flight& f = l.what;
    int cancelled = 0;
    if (cancelling_) MPI_Test_cancelled(&l.state, &cancelled);
    const bool good = l.error == MPI_SUCCESS && cancelled == 0;
    end& e = with(f.peer);
    switch (f.what) {
        case role::send:
            if (good) {
                --e.out[static_cast<std::size_t>(f.number - e.sent)];
                for (; !e.out.empty() && e.out.front() == 0; ++e.sent) e.out.pop_front();
            }
            break;
        case role::ask:
            e.asking = false;
            if (good) header_came(f.peer, f.memory);
            ask(f.peer);
            break;
        case role::land:
            if (cancelled != 0) sink(f.peer);
            if (good && !dropping_) {
                --e.in[static_cast<std::size_t>(f.number - e.received)].under_way;
                conclude(f.peer);
            }
            break;
        case role::hear:
            if (good) heard(l.state.MPI_SOURCE, f.memory);
            if (!closing_) hear();
            break;
        default:
            break;
    }
    if (l.error != MPI_SUCCESS && cancelled == 0) failed(f.what == role::hear ? l.state.MPI_SOURCE : f.peer, l.error);
    if (f.what == role::sink)
        operator delete(f.memory);
    else
        give(f.memory);
}

// ---- the end --------------------------------------------------------------------------------------------------------

// A part of a payload that nobody wants. It is written nowhere but here.
inline void mpi_transport::sink(int peer) {
    auto* const memory = static_cast<std::byte*>(operator new(part_bytes, std::nothrow));
    if (memory == nullptr) return;
    MPI_Request r = MPI_REQUEST_NULL;
    note(MPI_Irecv(memory, static_cast<int>(part_bytes), MPI_BYTE, peer, number_of(of_payloads), comm_, &r), r,
        {role::sink, peer, 0, memory});
}

// From here on nothing lands in a caller's memory, as far as MPI can be stopped.
inline void mpi_transport::drop() {
    if (dropping_) return;
    dropping_ = cancelling_ = true;
    for (std::size_t i = 0; i < flights_.size(); ++i)
        if (flights_[i].what == role::land) MPI_Cancel(&requests_[i]);
    for (int r = 0; r < size_; ++r) {
        with(r).in.clear();
        ask(r);
        conclude(r);
    }
}

inline void mpi_transport::abandon() {
    drop();
    if (inside_) return;
    for (const double until = seconds_now() + 1; uses_callers_memory() && seconds_now() < until;)
        if (!turn()) nap(50e-6);
}

inline bool mpi_transport::all_over() const {
    for (int r = 0; r < size_; ++r)
        if (const end& e = with(r); r != rank_ && !e.lost && (!e.left || e.came < e.to_come)) return false;
    for (const flight& f : flights_)
        if (f.what != role::ask && f.what != role::hear && !with(f.peer).lost) return false;
    return true;
}

inline mpi_transport::~mpi_transport() {
    listening = nullptr;
    bool clean = false;
    if (mpi_runs()) {
        drop();
        for (int r = 0; r < size_; ++r) tell(r, control_message{control_kind::leave});
        const double until = context_->deadline();
        turn();
        for (int i = 0; !(clean = all_over()) && seconds_now() < until; ++i)
            if (!turn()) {
                if (i < 200)
                    sched_yield();
                else
                    nap(50e-6);
            }
        // Receives that nothing will come for any more.
        closing_ = true;
        for (std::size_t i = 0; i < flights_.size(); ++i)
            if (flights_[i].what == role::ask || flights_[i].what == role::hear) MPI_Cancel(&requests_[i]);
        for (int i = 0; i < 1000 && !requests_.empty() && (clean || i < 20); ++i)
            if (!turn()) nap(50e-6);
        clean = clean && requests_.empty();
        for (const end* e = &ends_[0]; e != &ends_[0] + size_; ++e) clean = clean && !e->lost;
    }
    if (!clean) context_->keep();  // and the blocks of what is under way
    for (std::byte* const block : idle_blocks_) operator delete(block);
}

}  // namespace colls::inline v1::detail
