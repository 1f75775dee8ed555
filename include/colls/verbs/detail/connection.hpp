// The queue pair with one peer: its states, the chain of requests that is posted next, and credits.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/verbs/detail/rank_resources.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace colls::inline v1::detail::rdma {

/// States of a queue pair, and the events that change them.
enum class connection_state : std::uint8_t {
    unopened,   ///< no queue pair has been made
    opened,     ///< the queue pair exists, with memory and receives; the peer does not know its name
    greeted,    ///< this rank's greeting is sent; the peer's has not arrived
    connected,  ///< the queue pair is connected to the peer's, so the peer may write; this rank may not yet
    ready,      ///< the peer's queue pair is connected, too: this rank may write
    closed      ///< the queue pair is destroyed, and no other one will be made
};
enum class connection_event : std::uint8_t {
    open,     ///< the queue pair is made
    greet,    ///< the greeting is sent
    connect,  ///< the peer's greeting has arrived, and the queue pair is connected to the peer's
    confirm,  ///< the peer has said that its queue pair is connected
    close     ///< the queue pair is destroyed
};

/// All transitions. An event that has no meaning in a state does not change it.
constexpr connection_state state_after(connection_state s, connection_event e) {
    using enum connection_state;
    switch (e) {
        case connection_event::open:
            return s == unopened ? opened : s;
        case connection_event::greet:  // it may follow the peer's greeting: then it is `connected` already
            return s == opened ? greeted : s;
        case connection_event::connect:
            return s == opened || s == greeted ? connected : s;
        case connection_event::confirm:
            return s == connected ? ready : s;
        case connection_event::close:
            return s == unopened ? s : closed;
    }
    return s;
}
/// Whether a queue pair waits for the peer's.
constexpr bool is_connecting(connection_state s) {
    using enum connection_state;
    return s == opened || s == greeted || s == connected;
}

/// Whether the queue pair has failed, and what is known of the cause.
enum class failure_state : std::uint8_t {
    none,
    suspected,  ///< the cause may be a failure elsewhere, of which control messages are on their way
    certain,    ///< the cause is known
    reported    ///< the transport's listener has been told
};

class connection {
public:
    static constexpr std::uint32_t receive_batch = 16;     ///< receives are posted again in such batches
    static constexpr std::uint64_t most_unsignalled = 32;  ///< after so many requests an operation's last is signalled

    explicit connection(rank_resources& own) : own_(own) {}
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    connection_state state() const { return state_; }
    /// Whether requests may be posted.
    bool writable() const { return state_ == connection_state::ready && !failed(); }
    /// Whether completions may arrive.
    bool connected() const { return state_ == connection_state::connected || state_ == connection_state::ready; }
    bool has_queue() const { return queue_ != nullptr; }
    /// Whether the peer may have written something: the greeting has been sent, or the peer's has arrived.
    bool known_to_peer() const { return state_ != connection_state::unopened && state_ != connection_state::opened; }

    // ---- connecting and closing

    /// Makes the queue pair. False: that has failed, see `why`.
    bool open();
    /// Returns this rank's greeting, which the caller sends.
    greeting greet();
    /// Connects the queue pair to the peer's. Where that fails, see `why`.
    void accept(const char* greeting_text);
    /// The peer's queue pair is connected to this one.
    void confirm() { enter(connection_event::confirm); }
    /// Destroys the queue pair: the device reads and writes none of this rank's memory for the peer afterwards.
    /// `at_once`: without waiting for requests that the device still has.
    void close(bool at_once);

    bool failed() const { return failure_ != failure_state::none; }
    failure_state failure() const { return failure_; }
    double failed_at() const { return failed_at_; }
    const char* why() const { return why_; }
    /// The first cause stays, unless it was suspected and a certain one follows.
    void fail(const char* what, const char* status, bool certain);
    void report() { failure_ = failure_state::reported; }

    // ---- requests

    const queue_limits& limits() const { return limits_; }
    /// Whether the queue has room for so many more requests.
    bool room(std::uint64_t requests) const { return next_ - done_ + requests <= limits_.requests; }
    /// Appends to the chain a write to that offset of the peer's block, with an immediate; the caller adds the pieces.
    /// A reference is valid until the next call.
    write_request& add(std::size_t far_offset, write_kind what, std::uint64_t count, bool inlined);
    void add_piece(write_request& r, const std::byte* at, std::uint32_t bytes, std::uint32_t key) {
        pieces_.push_back({at, bytes, key});
        ++r.count;
    }
    /// The last request of the chain.
    write_request& latest() { return chain_.back(); }
    void signal(write_request& r) {
        r.signalled = true;
        signalled_ = r.id + 1;
    }
    /// The last request of the chain reads a caller's memory.
    void note_read() { reads_until_ = next_; }
    /// Whether a request reads a caller's memory, and neither it nor a later one is signalled.
    bool reads_unsignalled() const { return reads_until_ > signalled_; }
    /// Whether an operation's last request to the peer is to be signalled: where it, or one before, reads a caller's
    /// memory, and after many that are not signalled, so that only long operations need a signal in their middle, for
    /// room in the queue.
    bool needs_signal() const { return reads_unsignalled() || next_ - signalled_ >= most_unsignalled; }
    /// The next chain is to end with a signalled request.
    void want_signal() { signal_wanted_ = true; }
    void want_signal_if_needed() { signal_wanted_ = needs_signal(); }
    /// Posts the chain, with one doorbell. Before, appends the counters if they are owed or a signal is wanted that no
    /// request of the chain can carry.
    void post(bool owes_credits);
    /// Posts the counters, signalled, unless the last request is.
    void post_last_signal();
    /// Numbers of requests: of the next one, of the first that is not posted, of the first not known to be done.
    std::uint64_t next() const { return next_; }
    std::uint64_t posted() const { return posted_; }
    std::uint64_t done() const { return done_; }
    void completed(std::uint64_t id) { done_ = std::max(done_, id + 1); }

    int poll(completion* into, int most) { return queue_->poll(into, most); }
    void receive_used() { ++receives_used_; }
    /// Posts receives again, in batches: before credits for what took them go.
    void renew_receives();

    // ---- credits

    /// What this rank has taken out of its rings, and how many messages have arrived. The receiver counts.
    credits taken;
    /// The same of the peer, as last heard.
    const credits& returned() const { return returned_; }
    /// Returns `taken`, which the caller writes to the peer.
    credits tell_taken() { return told_ = taken; }
    /// `taken`, as last written to the peer.
    const credits& told() const { return told_; }
    void take_credits(const credits& c) {
        returned_.slots = std::max(returned_.slots, c.slots);
        returned_.notices = std::max(returned_.notices, c.notices);
        returned_.messages = std::max(returned_.messages, c.messages);
    }
    /// Takes the counters that the peer has written by themselves.
    void read_counters();
    bool slot_free() const { return slots_written_ - returned_.slots < own_.shape.slots; }
    bool notice_free() const { return notices_written_ - returned_.notices < own_.shape.notices; }
    /// Number of the next slot, and of the next notice.
    std::uint64_t slots_written() const { return slots_written_; }
    std::uint64_t notices_written() const { return notices_written_; }
    void slot_written() { ++slots_written_; }
    void notice_written() { ++notices_written_; }

    // ---- memory

    /// An offset in this rank's block: where the peer writes, and where this rank prepares what it writes there.
    const std::byte* inbound(std::size_t offset) const { return base_ + offset; }
    std::byte* outbound(std::size_t offset) { return base_ + own_.layout.half() + offset; }
    std::uint32_t local_key() const { return memory_.local; }

private:
    void enter(connection_event e) {
        const connection_state next = state_after(state_, e);
        own_.connecting += is_connecting(next) - is_connecting(state_);
        state_ = next;
    }
    void add_counters(bool signalled);
    void post_chain();

    rank_resources& own_;
    connection_state state_ = connection_state::unopened;
    failure_state failure_ = failure_state::none;
    char why_[200] = "";
    double failed_at_ = 0;

    std::unique_ptr<queue> queue_;
    queue_limits limits_;
    region memory_;
    std::byte* base_ = nullptr;
    std::uint64_t far_base_ = 0;
    std::uint32_t far_key_ = 0;

    std::vector<write_request> chain_;
    std::vector<gather> pieces_;
    std::uint64_t next_ = 0, posted_ = 0, done_ = 0;  // requests
    // The number behind the last request that is signalled, and that reads a caller's memory.
    std::uint64_t signalled_ = 0, reads_until_ = 0;
    bool signal_wanted_ = false;
    std::uint32_t receives_used_ = 0;
    credits told_, returned_;
    std::uint64_t slots_written_ = 0, notices_written_ = 0;
};

inline bool connection::open() {
    try {
        const std::uint32_t receives = own_.shape.slots + 2 * own_.shape.notices + receive_batch;
        queue_ = own_.registry->device().open(
            {.inlined = 512, .gathers = 16, .requests = 256, .receives = receives, .bytes = std::uint64_t{1} << 30});
        limits_ = queue_->limits();
        const std::size_t bytes = 2 * own_.layout.half();
        base_ = own_.registry->take(bytes);
        memory_ = own_.registry->find(base_, bytes);
        std::memset(base_, 0, bytes);
        if (const char* wrong = queue_->receive(static_cast<int>(receives)))
            fail("receives cannot be posted", wrong, true);
    } catch (const std::exception& x) {
        queue_.reset();
        fail(x.what(), nullptr, true);
        return false;
    }
    enter(connection_event::open);
    return true;
}

inline greeting connection::greet() {
    enter(connection_event::greet);
    greeting g{};
    g.magic = greeting::expected_magic;
    g.base = reinterpret_cast<std::uintptr_t>(base_);
    g.key = memory_.remote;
    g.slots = own_.shape.slots, g.slot_bytes = own_.shape.slot_bytes, g.notices = own_.shape.notices;
    g.name = queue_->name();
    return g;
}

inline void connection::accept(const char* greeting_text) {
    greeting g{};
    if (!decode(greeting_text, own_.shape, g))
        return fail("it has a different version of this protocol, or other ring sizes: run one version on all ranks",
            nullptr, true);
    far_base_ = g.base;
    far_key_ = g.key;
    if (const char* wrong = queue_->connect(g.name)) return fail("the queue pair cannot be connected", wrong, true);
    limits_ = queue_->limits();
    enter(connection_event::connect);
}

inline void connection::close(bool at_once) {
    if (!queue_) return;
    enter(connection_event::close);
    if (at_once) queue_->stop();
    queue_.reset();
    own_.registry->give(base_, 2 * own_.layout.half());
    base_ = nullptr;
}

inline void connection::fail(const char* what, const char* status, bool certain) {
    if (failure_ == failure_state::suspected ? !certain : failed()) return;
    if (!failed()) failed_at_ = seconds_now();
    failure_ = certain ? failure_state::certain : failure_state::suspected;
    if (status)
        std::snprintf(why_, sizeof why_, "%s: %s", what, status);
    else
        std::snprintf(why_, sizeof why_, "%s", what);
}

inline write_request& connection::add(std::size_t far_offset, write_kind what, std::uint64_t count, bool inlined) {
    chain_.push_back({next_++, far_base_ + far_offset, far_key_, static_cast<std::uint32_t>(pieces_.size()), 0,
        immediate_of(what, count), true, false, inlined});
    write_request& r = chain_.back();
    if (next_ - signalled_ >= limits_.requests / 2) signal(r);  // else the queue would never be known to have room
    return r;
}

inline void connection::add_counters(bool signalled) {
    const credits c = tell_taken();
    std::byte* const at = outbound(own_.layout.counters_at());
    // The device may still be reading the former counters: it gets the former or the new value of each word, and either
    // is right, since they only grow. Release: it may take a new value by an older request, and the peer then writes
    // into slots whose reads must be over.
    auto* const words = reinterpret_cast<std::uint64_t*>(at);
    std::atomic_ref(words[0]).store(c.slots, std::memory_order_release);
    std::atomic_ref(words[1]).store(c.notices, std::memory_order_release);
    std::atomic_ref(words[2]).store(c.messages, std::memory_order_release);
    write_request& r = add(own_.layout.counters_at(), write_kind::notice, 0, sizeof c <= limits_.inlined);
    r.announces = false;
    add_piece(r, at, sizeof c, memory_.local);
    if (signalled) signal(r);
}
inline void connection::read_counters() {
    // The device may write them meanwhile, word by word.
    auto* const words = reinterpret_cast<std::uint64_t*>(base_ + own_.layout.counters_at());
    take_credits({std::atomic_ref(words[0]).load(std::memory_order_acquire),
        std::atomic_ref(words[1]).load(std::memory_order_acquire),
        std::atomic_ref(words[2]).load(std::memory_order_acquire)});
}

inline void connection::post_chain() {
    if (chain_.empty()) return;
    const char* const wrong = queue_->post(chain_.data(), static_cast<int>(chain_.size()), pieces_.data());
    posted_ = next_;
    chain_.clear();
    pieces_.clear();
    if (wrong) fail("requests cannot be posted", wrong, true);
}
inline void connection::post(bool owes_credits) {
    if (signal_wanted_ && !needs_signal()) signal_wanted_ = false;
    if (signal_wanted_ && !chain_.empty()) {
        signal(chain_.back());
        signal_wanted_ = false;
    }
    if ((owes_credits || signal_wanted_) && room(1)) {
        add_counters(signal_wanted_);
        signal_wanted_ = false;
    }
    post_chain();
}
inline void connection::post_last_signal() {
    if (signalled_ == next_ || !room(1)) return;
    add_counters(true);
    post_chain();
}

inline void connection::renew_receives() {
    if (receives_used_ < receive_batch || failed()) return;
    if (const char* wrong = queue_->receive(static_cast<int>(receives_used_)))
        fail("receives cannot be posted", wrong, true);
    receives_used_ = 0;
}

}  // namespace colls::inline v1::detail::rdma
