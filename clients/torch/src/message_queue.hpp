// class message_queue: the sends and receives of one process group.
#pragma once

#include "group.hpp"
#include "work.hpp"

#include <colls/collectives.hpp>
#include <colls/dynamic.hpp>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/thread_name.h>

#include <unistd.h>

#include <condition_variable>
#include <list>
#include <thread>

namespace colls_torch {

/// Sends and receives have tags, and any number is under way at a time, in any order: they have a communicator of their
/// own. A message of torch is two messages of the library: a header with tag and length, and the data. A message whose
/// tag no receive waits for yet is taken into memory, so that those behind it can be received.
///
/// Whichever thread waits for a message moves all of them on; while none waits the queue's own thread does.
class message_queue final : public driver {
public:
    message_queue(colls::communicator comm, membership who, milliseconds timeout)
        : comm_(std::move(comm)), who_(std::move(who)) {
        comm_.set_timeout(timeout);
        headers_.resize(static_cast<std::size_t>(who_.size));
    }
    ~message_queue() override { stop(); }

    /// Sends a contiguous tensor.
    void send(const work_pointer& w, const at::Tensor& t, int peer, int tag) {
        post([&] { new_sends_.push_back({.result = w, .data = t, .peer = peer, .label = {tag, t.nbytes()}}); });
    }
    /// Receives into a tensor, contiguous or not. `source`: any_source or a rank.
    void receive(const work_pointer& w, const at::Tensor& t, int source, int tag) {
        post([&] { new_receives_.push_back({.result = w, .data = t, .source = source, .tag = tag}); });
    }
    static constexpr int any_source = -1;

    bool wait(work& w, milliseconds timeout) override {
        const auto until = std::chrono::steady_clock::now() + timeout;
        std::unique_lock lock(mutex_);
        while (!w.over()) {
            if (!busy_) {
                drive(lock,
                    [&] { return w.over() || (timeout != kNoTimeout && std::chrono::steady_clock::now() > until); });
            } else {
                ++sleepers_;
                timeout == kNoTimeout ? changed_.wait(lock) : void(changed_.wait_until(lock, until));
                --sleepers_;
            }
            if (timeout != kNoTimeout && !w.over() && std::chrono::steady_clock::now() > until) return false;
        }
        return true;
    }
    /// Ends what is under way by an error.
    void abort(std::string_view why) {
        std::unique_lock lock(mutex_);
        aborted_ = why;
        changed_.notify_all();
        if (!busy_) drive(lock, [] { return true; });
    }
    /// Finishes sends that have been begun. Receives that are still open are ended by an error, on all ranks.
    void stop() {
        if (getpid() != process_) {
            if (worker_.joinable()) worker_.detach();
            return;
        }
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
            changed_.notify_all();
        }
        if (worker_.joinable()) worker_.get_id() == std::this_thread::get_id() ? worker_.detach() : worker_.join();
        std::unique_lock lock(mutex_);
        if (comm_.size() == 0) return;
        if (!idle()) aborted_ = "its process group is destroyed while messages are under way";
        if (!idle()) drive(lock, [] { return true; });
        comm_ = {};
    }

private:
    struct header {
        std::int64_t tag = 0;
        std::uint64_t bytes = 0;
    };
    struct outgoing {
        work_pointer result;
        at::Tensor data;
        int peer;
        header label;
        bool begun = false;
        colls::operation announced{}, sent{};
    };
    struct incoming {
        work_pointer result;
        at::Tensor data;
        int source, tag;
        at::Tensor landing{};  ///< where the data arrives: `data`, or bytes that are copied there
        colls::operation arrives{};
        std::uint64_t bytes = 0;  ///< of the message
        bool matched = false;     ///< with a message
        bool looked = false;      ///< for an early message
    };
    /// A message for which there was no receive.
    struct early_message {
        int source;
        header label;
        at::Tensor data;
        colls::operation arrives{};
    };
    /// The header that is being received from a rank.
    struct awaited_header {
        header label;
        colls::operation arrives{};
    };

    template <class F>
    void post(F add) {
        const std::lock_guard lock(mutex_);
        TORCH_CHECK(!stopped_, "colls: this process group has been destroyed");
        add();
        if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
        changed_.notify_all();
    }
    bool idle() const { return sends_.empty() && receives_.empty() && new_sends_.empty() && new_receives_.empty(); }
    /// Another thread than the queue's own drives, or nothing is to be done.
    void serve() {
        c10::setThreadName("colls_messages");
        std::unique_lock lock(mutex_);
        while (!stopped_ || !(new_sends_.empty() && sends_.empty())) {
            if (!busy_ && !idle()) {
                drive(lock, [this] { return stopped_ && sends_.empty() && new_sends_.empty(); });
            } else {
                ++sleepers_;
                changed_.wait(lock);
                --sleepers_;
            }
        }
    }

    /// Moves messages on until `enough()` or nothing is left to do. The lock is held where it is called and on return.
    template <class F>
    void drive(std::unique_lock<std::mutex>& lock, F enough) {
        busy_ = true;
        const c10::AutoGradMode no_gradients(false);
        auto since = std::chrono::steady_clock::now();
        for (;;) {
            sends_.splice(sends_.end(), new_sends_);
            receives_.splice(receives_.end(), new_receives_);
            const std::string aborted = aborted_;
            lock.unlock();
            bool moved = false;
            try {
                if (!aborted.empty()) comm_.abort(aborted);
                moved = step();
            } catch (...) {
                fail_all(as_torch_error(who_));
                moved = true;
            }
            const auto now = std::chrono::steady_clock::now();
            if (moved)
                since = now;
            else if (now - since < milliseconds(2))
                sched_yield();
            lock.lock();
            if (moved && sleepers_ > 0) changed_.notify_all();
            if (enough() || idle()) break;
            if (!moved && now - since >= milliseconds(2) && new_sends_.empty() && new_receives_.empty())
                changed_.wait_for(lock, std::chrono::microseconds(now - since < milliseconds(50) ? 50 : 500));
        }
        busy_ = false;
        if (sleepers_ > 0) changed_.notify_all();
    }

    /// One look at everything that is under way; true where something has moved.
    bool step() {
        bool moved = false;
        for (auto s = sends_.begin(); s != sends_.end();) {
            begin(*s);
            const bool over = s->announced.test() & s->sent.test();
            if (over) s->result->end(nullptr);
            s = over ? (moved = true, sends_.erase(s)) : std::next(s);
        }
        for (incoming& r : receives_)
            if (!r.looked) r.looked = true, moved |= take_early(r);
        // A rank from which a receive waits gets its next header; for one from any rank the library is asked.
        std::vector<bool> wanted(headers_.size());
        bool any = false;
        for (const incoming& r : receives_) {
            if (r.matched) continue;
            r.source == any_source ? any = true : wanted[static_cast<std::size_t>(r.source)] = true;
        }
        for (std::size_t r = 0; r < headers_.size(); ++r) {
            awaited_header& h = headers_[r];
            const int rank = static_cast<int>(r);
            if (wanted[r] && h.arrives.empty())
                h.arrives = colls::dynamic::start::recv(comm_, {&h.label, sizeof h.label}, rank);
            if (h.arrives.empty() || !h.arrives.test()) continue;
            accept(rank, h.label);
            moved = true;
        }
        if (any) {
            if (const int r = colls::probe_any(comm_); r != colls::none) {
                header label;
                colls::dynamic::recv(comm_, {&label, sizeof label}, r);  // it has been sent already
                accept(r, label);
                moved = true;
            }
        }
        for (early_message& m : early_)
            if (!m.arrives.empty()) moved |= m.arrives.test();
        for (auto r = receives_.begin(); r != receives_.end();) {
            const bool over = r->matched && r->arrives.test();
            if (over) finish(*r);
            r = over ? (moved = true, receives_.erase(r)) : std::next(r);
        }
        return moved;
    }
    void begin(outgoing& s) {
        if (s.begun) return;
        s.begun = true;
        s.announced = colls::dynamic::start::send(comm_, {&s.label, sizeof s.label}, s.peer);
        if (s.label.bytes > 0)
            s.sent = colls::dynamic::start::send(comm_, {s.data.const_data_ptr(), s.data.nbytes()}, s.peer);
    }
    /// Receives the data that follows a header, for the first receive that waits for it.
    void accept(int from, const header& label) {
        const auto land = [&](at::Tensor& to) {
            if (label.bytes == 0) return colls::operation();
            return colls::dynamic::start::recv(comm_, {to.mutable_data_ptr(), label.bytes}, from);
        };
        for (incoming& r : receives_) {
            if (r.matched || r.tag != label.tag || (r.source != any_source && r.source != from)) continue;
            r.matched = true;
            r.result->came_from(from);
            r.bytes = label.bytes;
            const bool direct = r.data.is_contiguous() && r.data.nbytes() == label.bytes;
            r.landing = direct ? r.data : bytes_of(label.bytes);
            r.arrives = land(r.landing);
            return;
        }
        early_.push_back({from, label, bytes_of(label.bytes)});
        early_.back().arrives = land(early_.back().data);
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
            if (!r.landing.is_same(r.data) && r.bytes > 0)
                r.data.copy_(r.landing.view(r.data.scalar_type()).view(r.data.sizes()));
            r.result->end(nullptr);
        } catch (...) {
            r.result->end(std::current_exception());
        }
    }
    static at::Tensor bytes_of(std::size_t bytes) {
        return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
    }
    void fail_all(const std::exception_ptr& why) {
        for (outgoing& s : sends_) s.result->end(why);
        for (incoming& r : receives_) r.result->end(why);
        sends_.clear();
        receives_.clear();
        early_.clear();
        for (awaited_header& h : headers_) h.arrives = {};
    }

    colls::communicator comm_;
    const membership who_;
    // Of the thread that drives.
    std::vector<awaited_header> headers_;  ///< by rank
    std::list<outgoing> sends_;
    std::list<incoming> receives_;
    std::list<early_message> early_;
    // Of all threads.
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<outgoing> new_sends_;
    std::list<incoming> new_receives_;
    std::string aborted_;
    bool busy_ = false, stopped_ = false;
    int sleepers_ = 0;
    std::thread worker_;
    const pid_t process_ = getpid();
};

}  // namespace colls_torch
