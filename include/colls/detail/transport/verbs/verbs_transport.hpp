// Messages between ranks as RDMA writes: chains of work requests, one doorbell for all that goes to a peer at once.
//
// Two ranks have a queue pair from their first message on; another transport (`control`) carries the control messages,
// tells whose process has ended, and brings the queues together. Each rank gives the other a block of registered
// memory, in which the other writes:
//   slots     a ring: of each message of up to `slot_bytes` the header and the data, of other messages one part after
//   another notices   a ring: where a larger message that this rank expects is to land, so that it lands there and is
//   not copied counters  how many slots and notices have been used up, how many messages have arrived: credits
// The same three numbers go with whatever else is written; alone they go where one side only sends. Slots, notices and
// messages that land in place announce themselves by an immediate, and take a posted receive of the peer's each: there
// are always more receives than slots, notices and granted places together, so none is ever missing.
//
// A message's memory may change when the device has taken it along with the request (inlined), a later request of its
// queue is known to be done, or the peer says that the message has arrived. So few requests are signalled: the last of
// an operation that reads a caller's memory, one of many others, and, if somebody waits longer than a moment, one more.
// Of other messages the peer says so, with whatever it writes next, or by itself if that is nothing.
//
// A slot that no receive has been posted for stays, and all behind it: then credits run out, and the sender waits.
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/transport/piece_queue.hpp>
#include <colls/detail/transport/verbs/memory.hpp>

#include <sched.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace colls::inline v1::detail {

/// The same on all ranks.
struct verbs_shape {
    std::uint32_t slots = 32;            ///< of the ring, each way between two ranks
    std::uint32_t slot_bytes = 8 << 10;  ///< of data in each
    std::uint32_t notices = 32;
    double offer_after = 2e-3;  ///< seconds without a place, until a message says what it is
    double mark_after =
        30e-6;            ///< seconds of waiting for a message to have left, until a request is posted to learn it
    double grace = 0.25;  ///< seconds after a failure that may be another's consequence, of which control messages may
                          ///< be on their way
};

class verbs_transport final : public message_transport, private message_transport::listener {
public:
    /// What an immediate announces: its two highest bits. The next one: the sender waits to hear that the message has
    /// arrived. The others count slots, messages or notices.
    enum class kind : std::uint32_t { slot, direct, notice };
    static kind kind_of(std::uint32_t immediate) { return static_cast<kind>(immediate >> 30); }
    static constexpr std::uint32_t wants_word = 1u << 29, count_bits = wants_word - 1;

    /// Bytes that this rank has copied between callers' memory and slots.
    struct copies {
        std::uint64_t out = 0, in = 0;
    };

    /// `control` connects the same ranks, and carries nothing but control messages. Throws std::bad_alloc.
    verbs_transport(std::unique_ptr<message_transport> control, std::shared_ptr<rdma::memory_book> memory, int rank,
        int size, const verbs_shape& shape = {})
        : control_(std::move(control)),
          book_(std::move(memory)),
          shape_(shape),
          rank_(rank),
          size_(size),
          ends_(new end[static_cast<std::size_t>(size)]) {
        control_->listening = this;
        for (int r = 0; r < size_; ++r) with(r).peer = r;
    }
    verbs_transport(const verbs_transport&) = delete;
    verbs_transport& operator=(const verbs_transport&) = delete;
    /// Waits, at most `linger`, until all that was sent is in the peers' memory; then leaves as `control` does.
    ~verbs_transport() override;

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override;
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override;
    void flush() override {
        for (std::size_t i = 0; i < dirty_.size(); ++i) {
            end& e = with(dirty_[i]);
            e.dirty = false;
            go(e);
        }
        dirty_.clear();
    }
    void request_completion(int peer) override {
        end& e = with(peer);
        if (e.out.empty())
            e.settling = signals_at_end(e);  // nothing, or notices alone
        else
            e.out[e.out.size() - 1].last = true;
        note(e);
    }
    std::uint64_t sent(int peer) const override {
        end& e = ends_[static_cast<std::size_t>(peer)];
        if (e.sunk) return e.out_posted;
        e.asked = !e.flights.empty();
        return e.sent;
    }
    std::uint64_t received(int peer) const override { return ends_[static_cast<std::size_t>(peer)].received; }
    bool offloads() const override { return true; }
    void abandon() override {
        abandoned_ = true;
        dirty_.clear();
        for (int r = 0; r < size_; ++r) {
            with(r).dirty = false;
            forget(with(r));
            close(with(r));
        }
    }

    bool tell(int peer, const control_message& what) override { return control_->tell(peer, what); }
    void tell_all(const control_message& what) override { control_->tell_all(what); }

    void progress() override {
        if (inside_) return;
        inside_ = true;
        // Asking for control messages is a system call: so now and then while this rank does nothing but look, and
        // after each rest.
        if (++turns_ % 256 == 0 || forming_ > 0 || rested_) {
            rested_ = false;
            control_->progress();
        }
        for (std::size_t i = 0; i < open_.size(); ++i) serve(with(open_[i]));
        inside_ = false;
        flush();
    }
    /// Yields at first, then naps, of 50 us to a millisecond, from which control messages wake it.
    void idle(double seconds) override {
        if (++idle_ < 32) {
            sched_yield();
            return;
        }
        const unsigned longer = std::min((idle_ - 32) / 64, 4u);
        control_->idle(std::min(seconds, 50e-6 * (1 << longer)));
        rested_ = true;
    }

    const copies& copied() const { return copies_; }
    /// Queue pairs that are open.
    int queues() const {
        return static_cast<int>(std::count_if(
            open_.begin(), open_.end(), [this](int r) { return ends_[static_cast<std::size_t>(r)].queue != nullptr; }));
    }

private:
    struct credits {
        std::uint64_t slots, notices, messages;  // taken out of this rank's rings; arrived
    };
    struct header {
        std::uint64_t fingerprint, sequence;
        std::uint64_t number;  // of the message, in its direction
        std::uint64_t bytes;   // of all of it
        std::uint32_t part;
        std::uint32_t here;  // bytes of it in this slot
        credits own;
        message_label label() const { return {fingerprint, sequence, part}; }
    };
    static_assert(sizeof(header) == 64);
    struct place {
        std::uint64_t at, bytes;
        std::uint32_t key, unused;
    };
    enum class notice_kind : std::uint32_t {
        in_place,  // message `number` may be written straight to the places
        by_slots,  // it goes through the ring
        offer,     // backwards: that is what message `number` will be; it waits for one of the two
        nothing    // whatever the peer still sends is thrown away: it need not
    };
    static constexpr std::uint32_t most_places = 16;
    struct notice_record {
        header what;  // `here`: places
        notice_kind kind;
        std::uint32_t unused[3];
        place places[most_places];
        std::uint32_t bytes() const {
            return static_cast<std::uint32_t>(offsetof(notice_record, places) + what.here * sizeof(place));
        }
    };
    static_assert(sizeof(notice_record) <= 512);
    static constexpr std::size_t notice_stride = 512, counters_bytes = 64;
    static constexpr std::uint64_t some = 32;        // requests: after so many the last of an operation is signalled
    static constexpr std::uint32_t batch = 16;       // receives that are posted at once
    static constexpr std::size_t least_place = 512;  // shorter pieces go faster together, through slots

    struct outgoing {
        message_label label;
        std::uint64_t bytes;
        bool registered;  // large, and all of it
        bool last;        // of an operation
    };
    struct incoming {
        message_label label;
        std::uint64_t bytes;
        bool placed;  // the peer has been told where
    };
    struct flight {
        std::uint64_t end;  // the request behind its last
        bool reads;         // a caller's memory, while the device works
    };
    struct greeting {
        std::uint64_t magic, base;
        std::uint32_t key, slots, slot_bytes, notices;
        rdma::queue_name name;
    };
    static constexpr std::uint64_t greeting_magic = 0x3176'7362'7265'76;  // versioned, and of one byte order
    enum class wiring : std::uint64_t { greets, ready, closes };

    /// What this rank has of one peer.
    struct end {
        int peer = none;
        std::unique_ptr<rdma::queue> queue;
        rdma::queue_limits limits;
        rdma::region memory;
        std::byte* base = nullptr;
        std::uint64_t far_base = 0;
        std::uint32_t far_key = 0;
        bool greeted = false, connected = false, ready = false;  // told our name; queue connected; the peer's is
        bool dirty = false, gone = false, left = false, sunk = false, dropping = false;
        bool failed = false, reported = false, definite = false;
        char why[200] = "";
        double failed_at = 0;

        // what goes to it
        fifo<outgoing> out;
        piece_queue out_pieces;
        std::uint64_t out_posted = 0, lowered = 0, sent = 0, acknowledged = 0;  // messages
        std::uint64_t part_done = 0;  // bytes of the front message that are in requests
        bool cut_up = false, mismatched = false,
             reading = false;  // the front message: goes by slots; requests read it where it lies
        fifo<flight> flights;
        std::uint64_t slots_used = 0, slots_free = 0;  // written; taken by the peer
        std::uint64_t notices_used = 0, notices_free = 0;
        fifo<notice_record> due;      // notices
        fifo<notice_record> granted;  // by the peer
        std::uint64_t placed = 0;     // places granted to it, and not used yet
        bool settling = false;
        mutable bool asked = false;
        double asked_at = 0, waits_since = 0;
        bool waits = false, offered = false;

        // requests
        std::vector<rdma::request> chain;
        std::vector<rdma::gather> gathers;
        std::uint64_t next = 0, posted = 0, done = 0, signalled = 0, reads_until = 0;

        // what comes from it
        fifo<incoming> in;
        piece_queue in_pieces;
        std::uint64_t in_posted = 0, received = 0, landed = 0;
        std::uint64_t slots_came = 0, slots_taken = 0, notices_taken = 0;
        std::uint64_t told_slots = 0, told_notices = 0, told_messages = 0;
        std::uint64_t wanted = 0;  // messages, of which the peer waits to hear
        unsigned wanted_in = 0;    // since this turn
        std::uint32_t receives_used = 0;
        header offer{};
        bool has_offer = false;
        bool leaving = false, closed = false, heard_leave = false;  // its `leave` waits for what it has sent
        std::uint64_t to_come = 0;
        double leaving_at = 0;
    };

    end& with(int peer) { return ends_[static_cast<std::size_t>(peer)]; }
    void note(end& e) {
        if (e.dirty) return;
        e.dirty = true;
        dirty_.push_back(e.peer);
    }

    // where what lies in a block
    std::size_t stride() const { return sizeof(header) + shape_.slot_bytes; }
    std::size_t half() const { return shape_.slots * stride() + shape_.notices * notice_stride + counters_bytes; }
    std::size_t slot_at(std::uint64_t i) const { return i % shape_.slots * stride(); }
    std::size_t notice_at(std::uint64_t i) const {
        return shape_.slots * stride() + i % shape_.notices * notice_stride;
    }
    std::size_t counters_at() const { return shape_.slots * stride() + shape_.notices * notice_stride; }

    // connecting
    bool open(end& e);
    void greet(end& e);
    void wired(end& e, const control_message& what);
    bool take_greeting(end& e, const char* text);
    void close(end& e);
    void forget(end& e);

    // going out
    void go(end& e);
    void ring(end& e);
    bool room(const end& e, std::uint64_t requests) const { return e.next - e.done + requests <= e.limits.requests; }
    rdma::request& add(end& e, std::size_t far_offset, kind what, std::uint64_t count, bool inlined);
    void put_notices(end& e);
    bool lower(end& e);
    void put_slot(end& e, const outgoing& m, std::uint32_t bytes);
    bool put_direct(end& e, const outgoing& m, const notice_record& where);
    void put_credits(end& e, bool signalled);
    // Credits must go, for nothing else has carried them. What the peer waits to hear may go with what this turn
    // brings.
    bool owed(const end& e) const {
        return e.slots_taken - e.told_slots >= shape_.slots / 2 ||
               e.notices_taken - e.told_notices >= shape_.notices / 2 ||
               (e.told_messages < e.wanted && e.wanted <= e.received && e.wanted_in != turns_);
    }
    credits own_credits(end& e) {
        e.told_slots = e.slots_taken;
        e.told_notices = e.notices_taken;
        e.told_messages = e.received;
        return {e.slots_taken, e.notices_taken, e.received};
    }
    void signal(end& e, rdma::request& r) {
        r.signalled = true;
        e.signalled = r.id + 1;
    }
    // An operation's last request to a peer is signalled where it, or one before, reads a caller's memory, and after
    // many that are not: so that no operation has to do it in its midst, for room, unless it is a long one.
    static bool signals_at_end(const end& e) { return e.reads_until > e.signalled || e.next - e.signalled >= some; }
    void over(end& e, const outgoing& m);
    void count_sent(end& e);
    bool registered(const piece* pieces, int count) {
        for (int i = 0; i < count; ++i)
            if (pieces[i].bytes > 0 && book_->find(pieces[i].data, pieces[i].bytes).bytes == 0) return false;
        return true;
    }

    // The next bytes of these pieces are memory that this processor may use.
    bool native(piece_queue& pieces, std::uint64_t bytes) {
        for (std::size_t i = 0, found = 0; found < bytes; found += pieces[i++].bytes)
            if (!book_->native(pieces[i].data)) return false;
        return true;
    }
    static constexpr const char* foreign =
        "a message lies in memory of another device, and is too small or in too many pieces to go straight from and to "
        "it";

    // coming in
    void serve(end& e);
    void poll(end& e);
    void arrived(end& e, std::uint32_t immediate);
    void absorb(end& e, const credits& c) {
        e.slots_free = std::max(e.slots_free, c.slots);
        e.notices_free = std::max(e.notices_free, c.notices);
        e.acknowledged = std::max(e.acknowledged, c.messages);
    }
    void take_notice(end& e);
    void consume(end& e);
    void landed(end& e);
    void mismatch(end& e, const header& got);
    bool fits(const incoming& i, const header& h) const { return i.label == h.label() && i.bytes == h.bytes; }
    void trouble(end& e, const char* what, const char* status, bool definite);
    void judge(end& e);

    // from `control`
    void heard(int peer, const control_message& what) override;
    void lost(int peer, const char* why) override;
    void failed(int peer, const char* why) override {
        if (listening) listening->failed(peer, why);
    }
    void unexpected(int, const message_label&, const message_label&, std::size_t, std::size_t) override {}
    bool through(end& e);

    std::unique_ptr<message_transport> control_;
    const std::shared_ptr<rdma::memory_book> book_;
    const verbs_shape shape_;
    int rank_, size_;
    std::unique_ptr<end[]> ends_;
    std::vector<int> open_, dirty_;
    int forming_ = 0;  // queues that wait for their peer
    unsigned turns_ = 0, idle_ = 0;
    bool inside_ = false, rested_ = false, abandoned_ = false, closing_ = false;
    std::vector<rdma::gather> slot_pieces_;
    copies copies_;
};

// ---- queues ---------------------------------------------------------------------------------------------------------

// False: there is no way.
inline bool verbs_transport::open(end& e) {
    if (e.queue) return true;
    if (abandoned_ || e.gone || e.failed || e.greeted || e.peer == rank_) return false;
    try {
        const std::uint32_t receives = shape_.slots + 2 * shape_.notices + batch;
        e.queue = book_->of().open(
            {.inlined = 512, .gathers = 16, .requests = 256, .receives = receives, .bytes = std::uint64_t{1} << 30});
        e.limits = e.queue->limits();
        const std::size_t bytes = 2 * half();
        e.base = book_->take(bytes);
        e.memory = book_->find(e.base, bytes);
        std::memset(e.base, 0, bytes);
        if (const char* wrong = e.queue->receive(static_cast<int>(receives)))
            trouble(e, "receives cannot be posted", wrong, true);
    } catch (const std::exception& x) {
        e.queue.reset();
        trouble(e, x.what(), nullptr, true);
        open_.push_back(e.peer);  // to be reported
        return false;
    }
    open_.push_back(e.peer);
    ++forming_;
    return true;
}

inline void verbs_transport::greet(end& e) {
    if (e.greeted || !open(e)) return;
    e.greeted = true;
    greeting g{};
    g.magic = greeting_magic;
    g.base = reinterpret_cast<std::uintptr_t>(e.base);
    g.key = e.memory.remote;
    g.slots = shape_.slots, g.slot_bytes = shape_.slot_bytes, g.notices = shape_.notices;
    g.name = e.queue->name();
    char text[2 * sizeof g + 1];
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&g);
    for (std::size_t i = 0; i < sizeof g; ++i) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    text[2 * sizeof g] = '\0';
    control_->tell(e.peer,
        control_message{control_kind::wiring, static_cast<std::uint64_t>(wiring::greets), e.connected, 0, text});
}

inline bool verbs_transport::take_greeting(end& e, const char* text) {
    greeting g{};
    auto* const bytes = reinterpret_cast<unsigned char*>(&g);
    if (std::strlen(text) != 2 * sizeof g) return false;
    for (std::size_t i = 0; i < 2 * sizeof g; ++i) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        bytes[i / 2] = static_cast<unsigned char>(bytes[i / 2] << 4 | digit);
    }
    if (g.magic != greeting_magic || g.slots != shape_.slots || g.slot_bytes != shape_.slot_bytes ||
        g.notices != shape_.notices)
        return false;
    e.far_base = g.base;
    e.far_key = g.key;
    if (const char* wrong = e.queue->connect(g.name)) {
        trouble(e, "the queue pair cannot be connected", wrong, true);
        return true;
    }
    e.limits = e.queue->limits();
    e.connected = true;
    return true;
}

inline void verbs_transport::wired(end& e, const control_message& what) {
    switch (static_cast<wiring>(what.a)) {
        case wiring::greets: {
            if (e.connected || !open(e)) return;
            const bool before = e.greeted;
            if (!take_greeting(e, what.text)) trouble(e, "it speaks another version of this protocol", nullptr, true);
            if (!e.connected) return;
            if (before)
                control_->tell(
                    e.peer, control_message{control_kind::wiring, static_cast<std::uint64_t>(wiring::ready), 0, 0, ""});
            else
                greet(e);
            if (what.b == 0) return;
            [[fallthrough]];
        }
        case wiring::ready:
            if (!e.connected || e.ready || !e.queue) return;
            e.ready = true;
            --forming_;
            note(e);
            return;
        case wiring::closes:
            e.closed = true;
            e.to_come = what.b;
            e.acknowledged = std::max(e.acknowledged, what.c);
            count_sent(e);
            return;
    }
}

// The device reads and writes nothing of this rank's for the peer any more.
inline void verbs_transport::close(end& e) {
    if (!e.queue) return;
    if (!e.ready) --forming_;
    if (abandoned_ || e.failed || e.gone)
        e.queue->stop();  // what comes of it may take long, and others wait for this rank
    e.queue.reset();
    book_->give(e.base, 2 * half());
    e.base = nullptr;
    e.chain.clear();
    e.gathers.clear();
}
inline void verbs_transport::forget(end& e) {
    e.in.clear();
    e.in_pieces.clear();
    e.out.clear();
    e.out_pieces.clear();
    e.flights.clear();
    e.due.clear();
    e.granted.clear();
}

// ---- going out ------------------------------------------------------------------------------------------------------

inline std::uint64_t verbs_transport::send(int peer, const message_label& label, const piece* pieces, int count) {
    end& e = with(peer);
    const std::uint64_t number = e.out_posted++;
    if (abandoned_ || e.sunk || e.gone) return number;
    greet(e);
    const std::uint64_t bytes = sum_of(pieces, count);
    e.out.push({label, bytes,
        bytes > shape_.slot_bytes && bytes >= least_place * static_cast<std::uint64_t>(count) &&
            registered(pieces, count),
        false});
    e.out_pieces.push(pieces, count);
    note(e);
    return number;
}

// Whatever can go to the peer now, with one doorbell.
inline void verbs_transport::go(end& e) {
    if (!e.ready || !e.queue || e.failed) return;
    put_notices(e);
    while (!e.out.empty() && lower(e)) {}
    const bool owes = owed(e);
    if (e.settling && !signals_at_end(e)) e.settling = false;
    if (e.settling && !e.chain.empty()) {
        signal(e, e.chain.back());
        e.settling = false;
    }
    if ((owes || e.settling) && room(e, 1)) {
        put_credits(e, e.settling);
        e.settling = false;
    }
    ring(e);
    count_sent(e);
}
inline void verbs_transport::ring(end& e) {
    if (e.chain.empty()) return;
    const char* const wrong = e.queue->post(e.chain.data(), static_cast<int>(e.chain.size()), e.gathers.data());
    e.posted = e.next;
    e.chain.clear();
    e.gathers.clear();
    if (wrong) trouble(e, "requests cannot be posted", wrong, true);
}

inline rdma::request& verbs_transport::add(
    end& e, std::size_t far_offset, kind what, std::uint64_t count, bool inlined) {
    e.chain.push_back({e.next++, e.far_base + far_offset, e.far_key, static_cast<std::uint32_t>(e.gathers.size()), 0,
        static_cast<std::uint32_t>(what) << 30 | static_cast<std::uint32_t>(count & count_bits), true, false, inlined});
    rdma::request& r = e.chain.back();
    if (e.next - e.signalled >= e.limits.requests / 2) signal(e, r);  // or the queue would never be known to have room
    return r;
}
inline void verbs_transport::put_credits(end& e, bool signalled) {
    const credits c = own_credits(e);
    std::byte* const at = e.base + half() + counters_at();
    // The device may still be reading those before: each word is one or the other, and they only grow.
    auto* const words = reinterpret_cast<std::uint64_t*>(at);
    std::atomic_ref(words[0]).store(c.slots, std::memory_order_relaxed);
    std::atomic_ref(words[1]).store(c.notices, std::memory_order_relaxed);
    std::atomic_ref(words[2]).store(c.messages, std::memory_order_relaxed);
    rdma::request& r = add(e, counters_at(), kind::notice, 0, sizeof c <= e.limits.inlined);
    r.announces = false;
    r.count = 1;
    e.gathers.push_back({at, sizeof c, e.memory.local});
    if (signalled) signal(e, r);
}

inline void verbs_transport::put_notices(end& e) {
    for (; !e.due.empty() && e.notices_used - e.notices_free < shape_.notices && room(e, 1); e.due.pop()) {
        notice_record& n = e.due.front();
        if (n.kind == notice_kind::in_place || n.kind == notice_kind::by_slots) {
            if (n.what.number < e.received || (n.what.number == e.received && e.landed > 0))
                continue;  // it comes without
            if (n.kind == notice_kind::in_place) {
                if (e.placed == shape_.notices) return;
                ++e.placed;
                e.in[static_cast<std::size_t>(n.what.number - e.received)].placed = true;
            }
        }
        n.what.own = own_credits(e);
        const std::size_t at = notice_at(e.notices_used);
        std::memcpy(e.base + half() + at, &n, n.bytes());
        rdma::request& r = add(e, at, kind::notice, e.notices_used++, n.bytes() <= e.limits.inlined);
        r.count = 1;
        e.gathers.push_back({e.base + half() + at, n.bytes(), e.memory.local});
    }
}

// The front message, or as much of it as has a way. False: it is still there.
inline bool verbs_transport::lower(end& e) {
    const outgoing m = e.out.front();
    if (m.registered && !e.cut_up && !e.mismatched) {
        while (!e.granted.empty() && e.granted.front().what.number < e.lowered) e.granted.pop();
        if (e.granted.empty() || e.granted.front().what.number != e.lowered) {
            if (!e.waits) e.waits = true, e.offered = false, e.waits_since = 0;
            return false;
        }
        e.waits = false;
        const notice_record where = e.granted.front();
        e.mismatched = !(where.what.label() == m.label && where.what.bytes == m.bytes);  // the receiver will say so
        if (where.kind == notice_kind::in_place && !e.mismatched) {
            if (!put_direct(e, m, where)) return false;
            over(e, m);
            return true;
        }
        e.cut_up = true;
    }
    do {
        if (e.failed) return false;
        const auto bytes =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(m.bytes - e.part_done, shape_.slot_bytes));
        const std::uint64_t requests = (sizeof(header) + bytes + e.limits.bytes - 1) / e.limits.bytes;
        if (e.slots_used - e.slots_free >= shape_.slots || !room(e, requests)) return false;
        put_slot(e, m, bytes);
        e.cut_up = true;
    } while (e.part_done < m.bytes);
    over(e, m);
    return true;
}
inline void verbs_transport::over(end& e, const outgoing& m) {
    if (m.last) {
        if (signals_at_end(e)) signal(e, e.chain.back());
    } else if (e.reading) {
        e.chain.back().immediate |= wants_word;
    }
    e.flights.push({e.next, e.reading});
    e.out.pop();
    ++e.lowered;
    e.part_done = 0;
    e.cut_up = e.reading = false;
}

// So many bytes of the front message, or none of an empty one, into a slot: by one request, or as many as the device
// needs.
inline void verbs_transport::put_slot(end& e, const outgoing& m, std::uint32_t bytes) {
    const std::size_t at = slot_at(e.slots_used);
    std::byte* const own = e.base + half() + at;
    const header h{m.label.fingerprint, m.label.sequence, e.lowered, m.bytes, m.label.part, bytes, own_credits(e)};
    std::memcpy(own, &h, sizeof h);
    const std::size_t whole = sizeof h + bytes;
    const bool inlined = whole <= e.limits.inlined && whole <= e.limits.bytes && native(e.out_pieces, bytes);
    // From where it lies, if the device can read it there.
    auto& from = slot_pieces_;
    from.clear();
    from.push_back({own, sizeof h, e.memory.local});
    std::uint32_t found = 0;
    for (std::size_t i = 0; found < bytes && from.size() < e.limits.gathers; ++i) {
        const piece& p = e.out_pieces[i];
        const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(p.bytes, bytes - found));
        const rdma::region where = inlined ? rdma::region{} : book_->find(p.data, part);
        if (!inlined && where.bytes == 0) break;
        from.push_back({p.data, part, where.local});
        found += part;
    }
    const bool reads = found == bytes && !inlined && bytes > 0;
    if (found == bytes) {
        e.out_pieces.skip(bytes);
    } else {
        if (!native(e.out_pieces, bytes)) return trouble(e, foreign, nullptr, true);
        from.assign(1, {own, static_cast<std::uint32_t>(whole), e.memory.local});
        e.out_pieces.copy_out(own + sizeof h, bytes);
        copies_.out += bytes;
    }
    std::size_t i = 0;
    std::uint32_t used = 0;  // of from[i]
    for (std::size_t done = 0; done < whole;) {
        rdma::request& r = add(e, at + done, kind::slot, e.slots_used, inlined);
        const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(whole - done, e.limits.bytes));
        for (std::size_t taken = 0; taken < most; ++r.count) {
            const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(from[i].bytes - used, most - taken));
            e.gathers.push_back({from[i].at + used, part, from[i].local});
            taken += part, done += part, used += part;
            if (used == from[i].bytes) ++i, used = 0;
        }
        r.announces = done == whole;
    }
    ++e.slots_used;
    if (reads) e.reading = true, e.reads_until = e.next;
    e.part_done += bytes;
}

// The front message, or what the queue takes of it, from where it lies to where it belongs; its last request announces
// it.
inline bool verbs_transport::put_direct(end& e, const outgoing& m, const notice_record& where) {
    while (e.part_done < m.bytes) {
        if (!room(e, 1)) return false;
        // What one request takes is contiguous there, and lies in a few pieces here.
        std::uint64_t skip = e.part_done;
        std::uint32_t k = 0;
        for (; skip >= where.places[k].bytes; ++k) skip -= where.places[k].bytes;
        const place& to = where.places[k];
        rdma::request& r = add(e, 0, kind::direct, e.lowered, false);
        r.to = to.at + skip;
        r.remote = to.key;
        const std::uint64_t most = std::min(to.bytes - skip, e.limits.bytes);
        std::uint64_t bytes = 0;
        for (; r.count < e.limits.gathers && bytes < most; ++r.count) {
            const piece& p = e.out_pieces[r.count];
            const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(p.bytes, most - bytes));
            e.gathers.push_back({p.data, part, book_->find(p.data, part).local});
            bytes += part;
        }
        e.out_pieces.skip(bytes);
        e.part_done += bytes;
        r.announces = e.part_done == m.bytes;
        e.reading = true;
        e.reads_until = e.next;
    }
    return true;
}

inline void verbs_transport::count_sent(end& e) {
    while (!e.flights.empty()) {
        const flight& f = e.flights.front();
        if (!(f.reads ? f.end <= e.done || e.sent < e.acknowledged : f.end <= e.posted)) return;
        e.flights.pop();
        ++e.sent;
        e.asked_at = 0;
    }
    e.asked = false;
}

// ---- coming in ------------------------------------------------------------------------------------------------------

inline std::uint64_t verbs_transport::receive(int peer, const message_label& label, const piece* pieces, int count) {
    end& e = with(peer);
    const std::uint64_t number = e.in_posted++;
    if (abandoned_ || e.dropping) return number;
    greet(e);
    const std::uint64_t bytes = sum_of(pieces, count);
    e.in.push({label, bytes, false});
    e.in_pieces.push(pieces, count);
    note(e);
    if (bytes <= shape_.slot_bytes) return number;
    notice_record n{};
    n.what = {label.fingerprint, label.sequence, number, bytes, label.part, 0, {}};
    n.kind = notice_kind::in_place;
    for (int i = 0; i < count && n.kind == notice_kind::in_place; ++i) {
        if (pieces[i].bytes == 0) continue;
        const rdma::region where = book_->find(pieces[i].data, pieces[i].bytes);
        if (where.bytes == 0 || n.what.here == most_places || pieces[i].bytes < least_place)
            n.kind = notice_kind::by_slots;
        else
            n.places[n.what.here++] = {
                reinterpret_cast<std::uintptr_t>(pieces[i].data), pieces[i].bytes, where.remote, 0};
    }
    if (n.kind == notice_kind::by_slots) n.what.here = 0;
    e.due.push(n);
    return number;
}

inline void verbs_transport::serve(end& e) {
    if (e.queue && e.connected) {
        poll(e);
        if (!e.queue) return;
        // It may be written meanwhile, word by word.
        credits c{};
        auto* const words = reinterpret_cast<std::uint64_t*>(e.base + counters_at());
        c.slots = std::atomic_ref(words[0]).load(std::memory_order_acquire);
        c.notices = std::atomic_ref(words[1]).load(std::memory_order_acquire);
        c.messages = std::atomic_ref(words[2]).load(std::memory_order_acquire);
        absorb(e, c);
        count_sent(e);
        consume(e);
        if (!e.queue) return;
        if (!e.out.empty() || !e.due.empty() || owed(e)) note(e);
        if ((e.asked || e.waits) && turns_ % 8 == 0) {
            const double now = seconds_now();
            if (e.asked && e.reads_until > e.signalled && !e.flights.empty()) {
                if (e.asked_at == 0)
                    e.asked_at = now;
                else if (now - e.asked_at > shape_.mark_after)
                    e.settling = true, note(e);
            }
            if (e.waits && !e.offered && !e.out.empty()) {
                if (e.waits_since == 0)
                    e.waits_since = now;
                else if (now - e.waits_since > shape_.offer_after) {
                    const outgoing& m = e.out.front();
                    notice_record n{};
                    n.what = {m.label.fingerprint, m.label.sequence, e.lowered, m.bytes, m.label.part, 0, {}};
                    n.kind = notice_kind::offer;
                    e.due.push(n);
                    e.offered = true;
                    note(e);
                }
            }
        }
    }
    if (e.failed || e.leaving) judge(e);
}

inline void verbs_transport::poll(end& e) {
    rdma::completion all[32];
    for (int turns = 0; turns < 8; ++turns) {
        const int n = e.queue->poll(all, 32);
        if (n > 0) idle_ = 0;
        for (int i = 0; i < n; ++i) {
            const rdma::completion& c = all[i];
            switch (c.what) {
                case rdma::completion::sent:
                    e.done = std::max(e.done, c.id + 1);
                    break;
                case rdma::completion::arrived:
                    arrived(e, c.immediate);
                    break;
                case rdma::completion::failed:
                    trouble(e, "a work request ended with status", c.status, !c.secondary);
                    break;
            }
            if (!e.queue) return;
        }
        if (n < 32) break;
    }
    if (e.receives_used < batch || e.failed) return;
    if (const char* wrong = e.queue->receive(static_cast<int>(e.receives_used)))
        trouble(e, "receives cannot be posted", wrong, true);
    e.receives_used = 0;
}

inline void verbs_transport::arrived(end& e, std::uint32_t immediate) {
    ++e.receives_used;
    const auto is = [&](std::uint64_t count) { return (immediate & count_bits) == (count & count_bits); };
    bool right = false;
    switch (kind_of(immediate)) {
        case kind::slot:
            right = is(e.slots_came) && e.slots_came - e.slots_taken < shape_.slots;
            if (right) {
                header h;
                std::memcpy(&h, e.base + slot_at(e.slots_came++), sizeof h);
                absorb(e, h.own);
                if (immediate & wants_word) e.wanted = h.number + 1;
            }
            break;
        case kind::direct:
            consume(e);  // what came before
            if (!e.queue) return;
            right = e.dropping || (!e.in.empty() && is(e.received) && e.in.front().placed && e.landed == 0);
            if (right && !e.dropping) {
                if (immediate & wants_word) e.wanted = e.received + 1;
                e.in_pieces.skip(e.in.front().bytes);
                landed(e);
            }
            break;
        case kind::notice:
            right = is(e.notices_taken);
            if (right) take_notice(e);
            break;
    }
    if (!right && e.queue) trouble(e, "what it writes does not follow this protocol", nullptr, true);
}
inline void verbs_transport::landed(end& e) {
    if (e.in.front().placed) --e.placed;
    if (e.wanted > e.received) e.wanted_in = turns_;
    e.in.pop();
    e.landed = 0;
    ++e.received;
}

inline void verbs_transport::take_notice(end& e) {
    notice_record n;
    std::memcpy(&n, e.base + notice_at(e.notices_taken++), sizeof n);
    absorb(e, n.what.own);
    if (n.what.here > most_places) return trouble(e, "what it writes does not follow this protocol", nullptr, true);
    switch (n.kind) {
        case notice_kind::in_place:
        case notice_kind::by_slots:
            if (n.what.number >= e.lowered) e.granted.push(n);
            break;
        case notice_kind::offer:
            e.offer = n.what;
            e.has_offer = true;
            break;
        case notice_kind::nothing:
            e.sunk = true;
            e.out.clear();
            e.out_pieces.clear();
            e.waits = false;
            break;
    }
}

// What lies in slots, to where it belongs.
inline void verbs_transport::consume(end& e) {
    while (e.slots_taken < e.slots_came && (e.dropping || !e.in.empty())) {
        const std::byte* const at = e.base + slot_at(e.slots_taken);
        header h;
        std::memcpy(&h, at, sizeof h);
        if (!e.dropping) {
            const incoming& i = e.in.front();
            if (h.number != e.received || h.here > shape_.slot_bytes || h.here > h.bytes - e.landed)
                return trouble(e, "what it writes does not follow this protocol", nullptr, true);
            if (!fits(i, h)) {
                mismatch(e, h);
                if (!e.queue) return;
            } else {
                if (!native(e.in_pieces, h.here)) return trouble(e, foreign, nullptr, true);
                e.in_pieces.copy_in(at + sizeof h, h.here);
                copies_.in += h.here;
                e.landed += h.here;
                if (e.landed == i.bytes) landed(e);
            }
        }
        ++e.slots_taken;
    }
    if (!e.has_offer || e.dropping || e.offer.number >= e.in_posted) return;
    e.has_offer = false;
    if (e.offer.number >= e.received && !fits(e.in[static_cast<std::size_t>(e.offer.number - e.received)], e.offer)) {
        // The messages before it may still be on their way: that one says so itself when its turn has come.
        if (e.offer.number == e.received)
            mismatch(e, e.offer);
        else
            e.has_offer = true;
    }
}
inline void verbs_transport::mismatch(end& e, const header& got) {
    const incoming wanted = e.in.front();
    e.dropping = true;
    e.in.clear();
    e.in_pieces.clear();
    e.due.clear();
    notice_record n{};
    n.kind = notice_kind::nothing;
    e.due.push(n);
    note(e);
    const header h = got;
    if (listening)
        listening->unexpected(
            e.peer, wanted.label, h.label(), static_cast<std::size_t>(wanted.bytes), static_cast<std::size_t>(h.bytes));
}

// ---- the end of a peer ----------------------------------------------------------------------------------------------

inline void verbs_transport::trouble(end& e, const char* what, const char* status, bool definite) {
    if (e.failed && (e.definite || !definite)) return;
    if (!e.failed) e.failed_at = seconds_now();
    e.failed = true;
    e.definite = definite;
    if (status)
        std::snprintf(e.why, sizeof e.why, "%s: %s", what, status);
    else
        std::snprintf(e.why, sizeof e.why, "%s", what);
}

// Has all come that the peer has sent, as far as it ever will?
inline bool verbs_transport::through(end& e) {
    if (!e.greeted || e.dropping || abandoned_ || closing_) return true;
    return e.closed && e.received >= e.to_come;
}
inline void verbs_transport::judge(end& e) {
    // Where the queue has failed no more comes; but what is here already may lie in slots for as long as this rank
    // likes.
    const bool over = e.failed && e.slots_taken == e.slots_came && seconds_now() - e.leaving_at > shape_.grace;
    if (e.leaving && !e.heard_leave && (through(e) || over)) {
        e.heard_leave = true;
        if (listening) listening->heard(e.peer, control_message{control_kind::leave});
    }
    // What fails after the peer has left, or is lost, is no control messages.
    if (!e.failed || e.reported || e.left || e.gone || abandoned_ || closing_) return;
    if (!e.definite && seconds_now() - e.failed_at < shape_.grace) return;
    e.reported = true;
    if (listening) listening->failed(e.peer, e.why);
}

inline void verbs_transport::heard(int peer, const control_message& what) {
    end& e = with(peer);
    if (what.what == control_kind::wiring) return wired(e, what);
    if (what.what == control_kind::leave) {
        e.left = true;
        if (!e.greeted || e.heard_leave) {
            if (listening && !e.heard_leave) listening->heard(peer, what);
            e.heard_leave = true;
            return;
        }
        e.leaving = true;
        e.leaving_at = seconds_now();
        return;
    }
    if (listening) listening->heard(peer, what);
}
inline void verbs_transport::lost(int peer, const char* why) {
    end& e = with(peer);
    if (e.queue && e.connected && !e.gone) {  // what it wrote before
        poll(e);
        if (e.queue) consume(e);
    }
    e.gone = true;
    if (listening) listening->lost(peer, why);
}

inline verbs_transport::~verbs_transport() {
    listening = nullptr;
    if (!abandoned_) {
        const double until = seconds_now() + linger;
        for (bool waiting = true; waiting && seconds_now() < until;) {
            progress();
            waiting = false;
            for (const int r : open_) {
                end& e = with(r);
                if (!e.queue || e.failed || e.gone || e.left) continue;
                if (!e.out.empty()) waiting = true;
                if (!e.ready || e.next == e.done) continue;
                waiting = true;
                if (e.signalled < e.next && e.out.empty() && room(e, 1)) {
                    put_credits(e, true);
                    ring(e);
                }
            }
            if (waiting) idle(1e-4);
        }
    }
    closing_ = true;
    for (const int r : open_)
        control_->tell(r, control_message{control_kind::wiring, static_cast<std::uint64_t>(wiring::closes),
                              abandoned_ ? 0 : with(r).lowered, with(r).received, ""});
    control_->linger = linger;
    control_.reset();
    for (int r = 0; r < size_; ++r) close(with(r));
}

}  // namespace colls::inline v1::detail
