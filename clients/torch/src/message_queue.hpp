// class message_queue: the sends and receives of one process group.
#pragma once

#include "buffers.hpp"
#include "callbacks.hpp"
#include "doorbells.hpp"
#include "group.hpp"
#include "work.hpp"

#include <colls/collectives.hpp>
#include <colls/communicator.hpp>
#include <colls/dynamic.hpp>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/thread_name.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace colls_torch {

using std::chrono::microseconds;

/// How long a wait looks before it sleeps: a little longer than the latest waits took, where they were short. Where
/// they were long, as on a machine that computes besides, looking would be in vain: the system gives each program its
/// share of a core, and a rank that has used its share up waits for its next turn.
class patience {
public:
    using clock = std::chrono::steady_clock;
    static constexpr clock::duration most = microseconds(60);

    clock::duration limit() const { return usual_ < most ? 2 * usual_ + microseconds(5) : clock::duration::zero(); }
    /// A wait has taken so long.
    void over(clock::duration took) { usual_ += (std::min<clock::duration>(took, 16 * most) - usual_) / 4; }

private:
    clock::duration usual_ = most / 2;
};

/// Sends and receives have tags, and any number is under way at a time, in any order: they have two communicators of
/// their own. A message of torch is a packet with tag, length and a short message's data, and the data of a longer one
/// in chunks on the other communicator, so that it need not wait until the packet has been taken. A message whose tag
/// no receive waits for yet is taken into memory, so that those behind it can be received.
///
/// Chunks are copied to memory that all ranks of the host can reach, from where the receiver takes each without the
/// sender. So a send of one chunk is over once it has been copied.
///
/// Whichever thread waits for a message moves all of them on; while none waits the queue's own thread does.
class message_queue final : public driver {
public:
    /// Collective.
    message_queue(
        colls::communicator comm, membership who, milliseconds timeout, std::shared_ptr<const abort_hooks> hooks)
        : packets_((comm.set_timeout(timeout), std::move(comm))),
          data_(packets_.split(0, who.rank)),
          bells_(packets_),
          who_(std::move(who)),
          hooks_(std::move(hooks)),
          set_timeout_(timeout),
          timeout_(timeout) {
        const auto n = static_cast<std::size_t>(who_.size);
        arriving_.resize(n);
        kept_.resize(n);
        under_way_.resize(n);
        flows_.resize(n);
        const std::lock_guard lock(queues_mutex_);
        queues_.insert(this);
    }
    ~message_queue() override {
        {
            const std::lock_guard lock(queues_mutex_);
            queues_.erase(this);
        }
        stop();
    }

    /// Sends a plain tensor.
    void send(const work_pointer& w, const at::Tensor& t, int peer, int tag) {
        post([&] {
            outgoing& s = new_sends_.emplace_back();
            s.result = w, s.data = t, s.peer = peer, s.label = {tag, t.nbytes()};
        });
    }
    /// Receives into a tensor, plain or not. `source`: any_source or a rank.
    void receive(const work_pointer& w, const at::Tensor& t, int source, int tag) {
        incoming r{.result = w, .data = t, .source = source, .tag = tag, .of_caller = state_of_caller()};
        post([&] { new_receives_.push_back(std::move(r)); });
    }
    /// The deadline of all messages, from now on; also of those that are under way.
    void set_timeout(milliseconds timeout) {
        const std::lock_guard lock(mutex_);
        timeout_ = timeout;
        bells_.ring_own();
    }
    static constexpr int any_source = -1;

    bool wait(work& w, milliseconds timeout) override {
        const auto until = std::chrono::steady_clock::now() + timeout;
        const auto late = [&] { return timeout != kNoTimeout && std::chrono::steady_clock::now() > until; };
        std::unique_lock lock(mutex_);
        ++waiters_;
        looking look(*this, true);
        while (!w.over() && !late()) {
            if (busy_) {
                ++sleepers_;
                timeout == kNoTimeout ? changed_.wait(lock) : void(changed_.wait_until(lock, until));
                --sleepers_;
            } else if (!step(lock) && !w.over()) {
                look.rest(lock);
            } else {
                look.moved();
            }
        }
        --waiters_;
        call_worker();
        return w.over();
    }
    /// At the end of the program: waits until receivers have what was sent and not waited for, for a short while.
    static void finish_sends(milliseconds most) {
        const auto until = clock::now() + most;
        const std::lock_guard all(queues_mutex_);
        for (message_queue* const q : queues_) {
            if (getpid() != q->process_) continue;
            std::unique_lock lock(q->mutex_);
            q->finish_sends(lock, until);
        }
    }
    /// Ends what is under way by an error.
    void abort(std::string_view why) {
        std::unique_lock lock(mutex_);
        aborted_ = why;
        changed_.notify_all();
        bells_.ring_own();
        if (!busy_) step(lock);
    }
    /// Leaves the group for another one. Receivers have a short while for what was sent; what is not over by then ends
    /// by an error that says why.
    void leave(std::string_view why) {
        {
            std::unique_lock lock(mutex_);
            leaves_.store(true, std::memory_order_relaxed);
            finish_sends(lock, clock::now() + std::chrono::seconds(1));
            if (has_sends_ || has_receives_ || !new_sends_.empty() || !new_receives_.empty()) aborted_ = why;
        }
        stop();
    }
    /// Finishes sends that have been begun. Receives that are still open are ended by an error, on all ranks.
    void stop() {
        if (getpid() != process_) return;
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
            changed_.notify_all();
            wakes_worker_.notify_all();
            bells_.ring_own();
        }
        if (worker_.joinable()) worker_.get_id() == std::this_thread::get_id() ? worker_.detach() : worker_.join();
        std::unique_lock lock(mutex_);
        if (packets_.size() == 0) return;
        finish_sends(lock, clock::time_point::max());
        if (has_receives_ || !new_receives_.empty()) {
            if (aborted_.empty()) aborted_ = "its process group is destroyed while messages are under way";
            for (looking look(*this, true); has_receives_ || !new_receives_.empty();) advance_once(lock, look);
        }
        while (busy_) ++sleepers_, changed_.wait(lock), --sleepers_;
        spare_.clear();
        packets_ = {};
        data_ = {};
        lock.unlock();
        callbacks_.stop();
    }

private:
    using clock = std::chrono::steady_clock;
    static constexpr std::size_t most_inline = 1008, chunk = std::size_t{1} << 20;
    static constexpr std::size_t most_kept_of_peer = 4 * chunk;
    static constexpr std::size_t most_offered = 4;  ///< chunks of a send that are copied at a time
    static constexpr std::size_t most_spare = 16;   ///< buffers of chunks that are kept

    struct header {
        std::int64_t tag = 0;
        std::uint64_t bytes = 0;
    };
    struct packet {
        header label;
        char data[most_inline];
    };
    /// A chunk that is being sent, and its copy.
    struct offered_chunk {
        std::optional<colls::memory<char>> copy;
        colls::operation sent;
    };
    struct outgoing {
        work_pointer result{};
        at::Tensor data{};
        int peer = 0;
        header label{};
        packet first;  // not set to zero
        bool begun = false;
        std::size_t kept = 0;  ///< bytes that the queue has copied: the work is over
        colls::operation announced{};
        std::size_t offered = 0;  ///< bytes of the data
        std::deque<offered_chunk> chunks{};
    };
    /// The data of a long message, which comes in chunks.
    struct inflow {
        char* to = nullptr;
        std::size_t left = 0;
        int from = 0;
        colls::operation arrives{};
    };
    struct incoming {
        work_pointer result;
        at::Tensor data;
        int source, tag;
        at::ThreadLocalState of_caller;
        clock::time_point since = clock::now();
        at::Tensor landing{};  ///< where the data arrives: `data`, or bytes that are copied there
        inflow arrives{};
        std::uint64_t bytes = 0;  ///< of the message
        bool matched = false;     ///< with a message
        bool looked = false;      ///< for an early message
    };
    /// A message for which there was no receive.
    struct early_message {
        int source = 0;
        header label{};
        at::Tensor data{};
        inflow arrives{};
    };
    /// The packet that is being received from a rank.
    struct awaited_packet {
        std::unique_ptr<packet> into;
        colls::operation arrives{};
    };

    /// How one thread waits between its looks at the messages. Used with the lock.
    class looking {
    public:
        looking(message_queue& of, bool spins) : of_(of), spins_(spins) {}
        looking(const looking&) = delete;
        looking& operator=(const looking&) = delete;
        ~looking() {
            if (announced_) withdraw();
        }

        void moved() {
            if (announced_) withdraw();
            if (spins_ && rested_) of_.patience_.over(clock::now() - since_);
            rested_ = false;
            since_ = clock::now();
        }
        /// Nothing has moved: lets others run, for a short while, or until a peer rings.
        void rest(std::unique_lock<std::mutex>& lock) {
            const auto waited = clock::now() - since_;
            rested_ = true;
            if (spins_ && waited < of_.patience_.limit()) {
                lock.unlock();
                for (int i = 0; i < 16; ++i) pause();
                lock.lock();
                return;
            }
            if (!announced_) {
                announced_ = true;
                ++of_.announced_;
                rung_ = of_.bells_.announce(of_.reasons());
                return;
            }
            const auto most =
                of_.bells_.hears_all() ? milliseconds(10) : microseconds(waited < milliseconds(50) ? 50 : 500);
            ++of_.asleep_;
            lock.unlock();
            of_.bells_.sleep(rung_, most);
            lock.lock();
            --of_.asleep_;
            withdraw();
        }

    private:
        void withdraw() {
            announced_ = false;
            if (--of_.announced_ == 0) of_.bells_.withdraw();
        }
        static void pause() {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }

        message_queue& of_;
        const bool spins_;
        bool announced_ = false, rested_ = false;
        std::uint32_t rung_ = 0;
        clock::time_point since_ = clock::now();
    };

    template <class F>
    void post(F add) {
        std::unique_lock lock(mutex_);
        TORCH_CHECK(!stopped_, "colls: this process group has been destroyed");
        add();
        if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
        if (!busy_) step(lock);
        call_worker();
    }
    /// Moves messages on, or waits while another thread does.
    void advance_once(
        std::unique_lock<std::mutex>& lock, looking& look, clock::time_point until = clock::time_point::max()) {
        if (busy_) {
            ++sleepers_;
            until == clock::time_point::max() ? changed_.wait(lock) : void(changed_.wait_until(lock, until));
            --sleepers_;
        } else {
            step(lock) ? look.moved() : look.rest(lock);
        }
    }
    void finish_sends(std::unique_lock<std::mutex>& lock, clock::time_point until) {
        looking look(*this, true);
        while ((has_sends_ || !new_sends_.empty()) && clock::now() < until) {
            finishes_ = true;
            advance_once(lock, look, until);
        }
    }
    /// For what is under way without a thread that waits. Where the worker looks by itself soon it is not woken: most
    /// calls are waited for at once.
    void call_worker() {
        if (worker_rests_ && waiters_ == 0 && needs_driving()) wakes_worker_.notify_one();
        if (asleep_ > 0 && (wants_room_ || !new_sends_.empty() || !new_receives_.empty())) bells_.ring_own();
    }
    /// A send that is over for its caller needs it, too: over TCP it may wait for a connection, or for room in a
    /// socket. A receive that is open when the group ends does not: `stop` ends it.
    bool needs_driving() const {
        return !new_sends_.empty() || has_sends_ || (!stopped_ && (!new_receives_.empty() || has_receives_));
    }
    std::uint32_t reasons() const {
        return doorbells::message | (wants_room_ || stopped_ || finishes_ ? doorbells::room : 0);
    }
    void serve() {
        c10::setThreadName("colls_messages");
        // Most messages are waited for at once, by the thread that made the call: this one comes in where none does.
        // Not soon: where others compute, the thread that made the call may have lost its core for a while, and would
        // then wait for this one, which may lose it, too.
        constexpr microseconds shortest(2000), longest(8000);
        constexpr int most_idle = 20;  // naps without a look by any thread, after which it sleeps until it is called
        microseconds nap = shortest;
        std::uint64_t seen = 0;
        int idle = 0;
        std::unique_lock lock(mutex_);
        while (!stopped_ || needs_driving()) {
            const bool others_look = steps_ != seen;
            seen = steps_;
            idle = others_look ? 0 : idle + 1;
            if (waiters_ > 0 || !needs_driving() || (others_look && !stopped_)) {
                if (idle < most_idle) {
                    wakes_worker_.wait_for(lock, nap);
                    nap = std::min(2 * nap, longest);
                } else {
                    worker_rests_ = true;
                    wakes_worker_.wait(lock);
                    worker_rests_ = false;
                    nap = shortest;
                    idle = 0;
                }
                continue;
            }
            for (looking look(*this, false); waiters_ == 0 && needs_driving();) {
                if (busy_) {
                    ++sleepers_;
                    changed_.wait(lock);
                    --sleepers_;
                } else {
                    step(lock) ? look.moved() : look.rest(lock);
                }
            }
            nap = shortest;
            seen = steps_;
        }
    }

    /// One look at everything that is under way; true where something has moved. The lock is held where it is called
    /// and on return, but not meanwhile.
    bool step(std::unique_lock<std::mutex>& lock) {
        busy_ = true;
        ++steps_;
        sends_.splice(sends_.end(), new_sends_);
        receives_.splice(receives_.end(), new_receives_);
        const std::string aborted = aborted_;
        const milliseconds timeout = timeout_;
        lock.unlock();
        bool moved = false;
        try {
            if (broken_) std::rethrow_exception(broken_);
            const c10::AutoGradMode no_gradients(false);
            if (!aborted.empty()) {
                packets_.abort(aborted);
                data_.abort(aborted);
            }
            if (timeout != set_timeout_) {
                packets_.set_timeout(timeout);
                data_.set_timeout(timeout);
                set_timeout_ = timeout;
            }
            moved = move_all();
            if (!receives_.empty()) check_deadlines();
        } catch (...) {
            const std::exception_ptr why = broken_ ? broken_
                                           : leaves_.load(std::memory_order_relaxed)
                                               ? as_torch_error(who_)
                                               : as_failure_of_call(who_, *hooks_);
            if (breaks_group(why)) broken_ = why;
            fail_all(why);
            moved = true;
        }
        for (auto& [w, failed] : over_)
            if (w->end(std::move(failed))) callbacks_.run(std::move(w));
        over_.clear();
        lock.lock();
        busy_ = false;
        note_state();
        if (sleepers_ > 0) changed_.notify_all();
        if (moved && asleep_ > 0) bells_.ring_own();  // another thread's work may be over
        return moved;
    }
    /// What other threads may ask while one is in `step`.
    void note_state() {
        has_sends_ = !sends_.empty();
        has_receives_ = !receives_.empty();
        wants_room_ = std::any_of(sends_.begin(), sends_.end(),
            [&](const outgoing& s) { return s.kept == 0 || under_way_[static_cast<std::size_t>(s.peer)] > 1; });
    }

    bool move_all() {
        bool moved = false;
        blocked_.assign(arriving_.size(), false);
        for (auto s = sends_.begin(); s != sends_.end();) {
            moved |= begin(*s);
            const bool over = s->begun && offer(*s, moved);
            s = over ? (moved = true, end(s)) : std::next(s);
        }
        for (incoming& r : receives_)
            if (!r.looked) r.looked = true, moved |= take_early(r);
        // A rank from which a receive waits gets its next packet; for one from any rank the library is asked.
        wanted_.assign(arriving_.size(), false);
        bool any = false;
        for (const incoming& r : receives_) {
            if (r.matched) continue;
            r.source == any_source ? any = true : wanted_[static_cast<std::size_t>(r.source)] = true;
        }
        for (std::size_t r = 0; r < arriving_.size(); ++r) {
            awaited_packet& p = arriving_[r];
            const int rank = static_cast<int>(r);
            if (wanted_[r] && !flows_[r] && p.arrives.empty()) {
                if (!p.into) p.into = std::make_unique<packet>();
                p.arrives = colls::dynamic::start::recv(packets_, {p.into.get(), sizeof(packet)}, rank);
            }
            if (p.arrives.empty() || !p.arrives.test()) continue;
            accept(rank, *p.into);
            moved = true;
        }
        if (any) {
            const int r = colls::probe_any(packets_);
            if (r != colls::none && !flows_[static_cast<std::size_t>(r)]) {
                const auto p = std::make_unique<packet>();
                colls::dynamic::recv(packets_, {p.get(), sizeof(packet)}, r);  // it has been sent already
                accept(r, *p);
                moved = true;
            }
        }
        for (early_message& m : early_) moved |= advance(m.arrives);
        for (auto r = receives_.begin(); r != receives_.end();) {
            if (r->matched) moved |= advance(r->arrives);
            const bool over = r->matched && is_complete(r->arrives);
            if (over) finish(*r);
            r = over ? (moved = true, receives_.erase(r)) : std::next(r);
        }
        return moved;
    }
    /// The library has deadlines for packets and chunks. A receive waits for one packet after the other, or, from any
    /// rank, for none. The oldest one is first.
    void check_deadlines() {
        const incoming& r = receives_.front();
        const auto waited = std::chrono::duration_cast<milliseconds>(clock::now() - r.since);
        if (waited <= set_timeout_) return;
        const std::string text = "rank " + std::to_string(who_.rank) + " in recv, tag " + std::to_string(r.tag) + ": " +
                                 (r.matched                   ? "the message has not come whole from "
                                     : r.source == any_source ? "no message has come from any rank"
                                                              : "no message has come from ") +
                                 (r.source != any_source ? who_.name_of(r.source)
                                     : r.matched         ? who_.name_of(r.result->sourceRank())
                                                         : "") +
                                 " in " + std::to_string(waited.count()) + " ms";
        packets_.abort(text);
        data_.abort(text);
        C10_THROW_ERROR(DistBackendError, "colls: " + text + "; the timeout of the process group is over");
    }
    /// True where it has begun now. The library matches chunks in their order, so a message waits until all chunks of
    /// the one before it have been offered.
    bool begin(outgoing& s) {
        const auto peer = static_cast<std::size_t>(s.peer);
        if (s.begun || blocked_[peer]) return false;
        s.begun = true;
        const std::size_t bytes = s.label.bytes, counted = std::max<std::size_t>(bytes, sizeof(packet));
        const bool keeps = bytes <= chunk && kept_[peer] + counted <= most_kept_of_peer;
        s.first.label = s.label;
        std::size_t inlined = 0;
        if (bytes <= most_inline) {
            inlined = bytes;
            if (bytes > 0) std::memcpy(s.first.data, s.data.const_data_ptr(), bytes);
            s.offered = bytes;
            s.data.reset();
        } else if (keeps && !bells_.hears_all()) {
            s.data = s.data.clone();  // else a chunk is copied anyway
        }
        std::memset(s.first.data + inlined, 0, most_inline - inlined);
        ++under_way_[peer];
        s.announced = colls::dynamic::start::send(packets_, {&s.first, sizeof(packet)}, s.peer);
        bells_.ring(s.peer, doorbells::message);
        if (keeps) {
            bool moved = false;
            offer(s, moved);
            s.kept = counted;
            kept_[peer] += counted;
            over_.emplace_back(s.result, nullptr);
        }
        return true;
    }
    /// Offers chunks, as many as are to be on their way at a time; true when the receiver has taken all.
    bool offer(outgoing& s, bool& moved) {
        const std::size_t bytes = s.label.bytes;
        while (!s.chunks.empty() && s.chunks.front().sent.test()) {
            give_memory(s.chunks.front());
            s.chunks.pop_front();
            moved = true;
            if (!s.chunks.empty()) bells_.ring(s.peer, doorbells::message);  // the library has offered the next one
        }
        while (s.offered < bytes && s.chunks.size() < most_offered) {
            const std::size_t n = std::min(chunk, bytes - s.offered);
            const char* from = static_cast<const char*>(s.data.const_data_ptr()) + s.offered;
            offered_chunk c;
            if (bells_.hears_all()) {
                c.copy.emplace(take_memory(n));
                std::memcpy(c.copy->data(), from, n);
                from = c.copy->data();
            }
            c.sent = colls::dynamic::start::send(data_, {from, n}, s.peer);
            s.chunks.push_back(std::move(c));
            s.offered += n;
            moved = true;
            bells_.ring(s.peer, doorbells::message);
        }
        if (s.offered < bytes) blocked_[static_cast<std::size_t>(s.peer)] = true;
        return s.announced.test() && s.offered == bytes && s.chunks.empty();
    }
    /// New memory costs a fault for each page, which takes longer than the copy.
    colls::memory<char> take_memory(std::size_t bytes) {
        const std::size_t size = std::bit_ceil(bytes);
        const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const auto& m) { return m.size() == size; });
        if (found == spare_.end()) return data_.allocate<char>(size);
        colls::memory<char> m = std::move(*found);
        spare_.erase(found);
        return m;
    }
    void give_memory(offered_chunk& c) {
        if (!c.copy) return;
        if (spare_.size() == most_spare) spare_.erase(spare_.begin());
        spare_.push_back(std::move(*c.copy));
    }
    /// Receives chunks as they come; true where one has come. Until all have, no further packet of that rank is taken.
    bool advance(inflow& f) {
        bool moved = false;
        while (!is_complete(f)) {
            if (!f.arrives.empty()) {
                if (!f.arrives.test()) break;
                bells_.ring(f.from, doorbells::room);
                moved = true;
            }
            flows_[static_cast<std::size_t>(f.from)] = f.left > 0;
            if (f.left == 0) break;
            const std::size_t n = std::min(chunk, f.left);
            f.arrives = colls::dynamic::start::recv(data_, {f.to, n}, f.from);
            f.to += n;
            f.left -= n;
        }
        return moved;
    }
    static bool is_complete(const inflow& f) { return f.left == 0 && f.arrives.empty(); }
    /// The receiver has it all.
    std::list<outgoing>::iterator end(std::list<outgoing>::iterator s) {
        const auto peer = static_cast<std::size_t>(s->peer);
        kept_[peer] -= s->kept;
        if (s->kept == 0) over_.emplace_back(s->result, nullptr);
        if (--under_way_[peer] > 0) bells_.ring(s->peer, doorbells::message);  // the library has offered the next one
        return sends_.erase(s);
    }
    /// Receives the message that a packet announces, for the first receive that waits for it.
    void accept(int from, const packet& p) {
        const header& label = p.label;
        bells_.ring(from, doorbells::room);
        const auto land = [&](const at::Tensor& to, inflow& f) {
            if (label.bytes > most_inline) {
                f.to = static_cast<char*>(to.mutable_data_ptr());
                f.left = label.bytes;
                f.from = from;
                advance(f);
            } else if (label.bytes > 0) {
                std::memcpy(to.mutable_data_ptr(), p.data, label.bytes);
            }
        };
        for (incoming& r : receives_) {
            if (r.matched || r.tag != label.tag || (r.source != any_source && r.source != from)) continue;
            r.matched = true;
            r.result->came_from(from);
            r.bytes = label.bytes;
            const bool direct = is_plain(r.data) && r.data.nbytes() == label.bytes;
            r.landing = direct ? r.data : bytes_of(label.bytes);
            land(r.landing, r.arrives);
            return;
        }
        early_message& m = early_.emplace_back();
        m.source = from, m.label = label, m.data = bytes_of(label.bytes);
        land(m.data, m.arrives);
    }
    /// A receive for which the message has come already.
    bool take_early(incoming& r) {
        for (auto m = early_.begin(); m != early_.end(); ++m) {
            if (m->label.tag != r.tag || (r.source != any_source && r.source != m->source)) continue;
            r.matched = true;
            r.result->came_from(m->source);
            r.bytes = m->label.bytes;
            r.landing = std::move(m->data);
            r.arrives = std::move(m->arrives);
            early_.erase(m);
            return true;
        }
        return false;
    }
    void finish(incoming& r) {
        try {
            TORCH_CHECK(r.bytes == r.data.nbytes(), "colls: ", who_.name_of(r.result->sourceRank()), " sent ", r.bytes,
                " bytes with tag ", r.tag, ", but the receive is of ", r.data.nbytes(), " bytes");
            const at::ThreadLocalStateGuard as_caller(r.of_caller);
            if (!r.landing.is_same(r.data) && r.bytes > 0)
                r.data.copy_(r.landing.view(r.data.scalar_type()).view(r.data.sizes()));
            over_.emplace_back(r.result, nullptr);
        } catch (...) {
            over_.emplace_back(r.result, std::current_exception());
        }
    }
    static at::Tensor bytes_of(std::size_t bytes) {
        return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
    }
    void fail_all(const std::exception_ptr& why) {
        for (outgoing& s : sends_)
            if (s.kept == 0) over_.emplace_back(s.result, why);
        for (incoming& r : receives_) over_.emplace_back(r.result, why);
        sends_.clear();
        receives_.clear();
        early_.clear();
        std::fill(kept_.begin(), kept_.end(), 0);
        std::fill(under_way_.begin(), under_way_.end(), 0);
        flows_.assign(flows_.size(), false);
        for (awaited_packet& p : arriving_) p.arrives = {};
    }

    colls::communicator packets_, data_;
    const doorbells bells_;
    const membership who_;
    const std::shared_ptr<const abort_hooks> hooks_;
    // Used by the thread in `step` alone.
    std::vector<awaited_packet> arriving_;  ///< by rank
    std::vector<bool> wanted_;              ///< by rank: a packet
    std::vector<bool> blocked_;             ///< by rank: an earlier send has chunks left to offer
    std::vector<bool> flows_;               ///< by rank: chunks of a message are to come
    std::vector<std::size_t> kept_;         ///< by rank: bytes of sends that are over for their callers
    std::vector<std::size_t> under_way_;    ///< by rank: sends
    std::list<outgoing> sends_;
    std::list<incoming> receives_;
    std::list<early_message> early_;
    std::vector<std::pair<work_pointer, std::exception_ptr>> over_;
    std::exception_ptr broken_;  ///< why the group is: perhaps found where no work had to be told
    std::vector<colls::memory<char>> spare_;
    milliseconds set_timeout_;  ///< that the communicators have
    // Shared by all threads.
    std::mutex mutex_;
    std::condition_variable changed_, wakes_worker_;
    std::list<outgoing> new_sends_;
    std::list<incoming> new_receives_;
    std::string aborted_;
    milliseconds timeout_;
    bool busy_ = false, stopped_ = false;
    bool finishes_ = false;            ///< the program ends, or the group does
    std::atomic<bool> leaves_{false};  ///< no failure: no hook is to run
    bool has_sends_ = false, has_receives_ = false;
    bool wants_room_ = false;  ///< some send moves on only when a receiver has taken something
    bool worker_rests_ = false;
    int sleepers_ = 0;   ///< threads that wait for a change
    int waiters_ = 0;    ///< threads that wait for a work
    int announced_ = 0;  ///< threads that sleep until the bell rings, or are about to
    int asleep_ = 0;     ///< those that sleep
    std::uint64_t steps_ = 0;
    patience patience_;
    std::thread worker_;
    callbacks callbacks_;
    const pid_t process_ = getpid();
    static inline std::mutex queues_mutex_;
    static inline std::set<message_queue*> queues_;  ///< of the process
};

}  // namespace colls_torch
