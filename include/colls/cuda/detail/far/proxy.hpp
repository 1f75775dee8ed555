// The proxy of a rank: a thread that moves what its kernels send to ranks of other hosts, and receive from them.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// It knows posts (far_memory.hpp) and transports of messages, and nothing else: no schedule, no call, no CUDA. Where
// the windows are in memory of a GPU, a network card may have written data there that kernels do not see yet, though
// the message has arrived: then `flush` comes before they are told.
#pragma once

#include <colls/cuda/detail/kernel/workspace.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>
#include <colls/extend/message_transport.hpp>

#include <sched.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// When the proxy sleeps: nothing has been in flight, and no kernel was launched, for `after` seconds. It then looks
/// again after a part of the time that has passed so, since a kernel may wait in its stream for long before it posts,
/// and a graph that is replayed calls no host code.
struct proxy_naps {
    double after = 1e-3;
    double part = 1.0 / 50;
    double longest = 500e-6, longest_with_graphs = 50e-6;  ///< the second one once a call was captured

    double length(double idle, bool has_graphs) const {
        const double most = has_graphs ? longest_with_graphs : longest, nap = idle * part;
        return nap < most ? nap : most;
    }
};

/// From its construction to its destruction it moves what kernels post. It polls while something is in flight, and
/// after each launch; then it naps.
class proxy {
public:
    /// Why a rank has given up, or has not made a call: `nothing` where it has made it since.
    struct notice {
        failure why = failure::nothing;
        int peer = none;  ///< to blame
        std::string text;
        int told_by = none;  ///< the rank that says so
    };
    /// `transports`: one for each channel. `found`: called by the thread, when a rank of another host has failed or has
    /// said that it gave up. `own_failure`: called by the thread, again and again; true where this rank has given up,
    /// and then it sets why. `flush`, if any: makes kernels see what has arrived in the GPU's memory; may throw. Throws
    /// std::system_error where the thread cannot start.
    proxy(const far_memory& memory, std::vector<std::unique_ptr<extend::message_transport>> transports,
        std::function<void(const notice&)> found, std::function<bool(notice&)> own_failure, const proxy_naps& naps = {},
        std::function<void()> flush = {})
        : memory_(memory),
          found_(std::move(found)),
          own_failure_(std::move(own_failure)),
          flush_(std::move(flush)),
          naps_(naps) {
        for (auto& t : transports) {
            channels_.push_back(std::make_unique<channel>(*this, std::move(t)));
            channels_.back()->transport->listening = channels_.back().get();
        }
        sigset_t all, before;  // the program's signals are for its own threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] {
                try {
                    run();
                } catch (const std::exception& e) {  // no memory: the others learn it when this rank's transports end
                    found_({failure::failed, none, e.what()});
                }
                channels_.clear();
            });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    proxy(const proxy&) = delete;
    proxy& operator=(const proxy&) = delete;
    /// The rank's kernels must be over. Waits until what they have posted has left, for the deadline of waits at most,
    /// and tells the others that this rank leaves.
    ~proxy() {
        stop_.store(true, std::memory_order_release);
        wake(false);
        thread_.join();
    }

    /// A kernel that may post has been launched, or, `captured`, is part of a graph from now on. Any thread may call
    /// it.
    void wake(bool captured) noexcept {
        if (captured) has_graphs_.store(true, std::memory_order_relaxed);
        // Sequentially consistent, here and in nap(): either this thread sees that the proxy sleeps, or the proxy,
        // before it does, sees the new count.
        wakes_.fetch_add(1, std::memory_order_seq_cst);
        if (!naps_now_.load(std::memory_order_seq_cst)) return;
        const std::lock_guard lock(nap_mutex_);
        ends_nap_.notify_one();
    }

    /// Tells the ranks of other hosts that this one has not made a call. Any thread may call it.
    void refuse(const notice& n) {
        {
            const std::lock_guard lock(mutex_);
            refusals_.push_back(n);
        }
        wake(false);
    }

private:
    /// A post whose messages are under way.
    struct under_way {
        struct message {
            int peer;
            bool receives;
            std::uint64_t number;  // in its direction
            bool over = false, told = false;
        };
        std::uint64_t value = 0;
        std::vector<message> messages;
    };
    struct channel final : extend::message_transport::listener {
        channel(proxy& p, std::unique_ptr<extend::message_transport> t) : owner(p), transport(std::move(t)) {}
        proxy& owner;
        std::unique_ptr<extend::message_transport> transport;
        std::deque<under_way> posts;  // at most two
        std::uint64_t begun = 0, ended = 0;
        struct piece {
            int peer;
            bool receives;
            std::uint32_t place;
            std::uint64_t number;  // of the message, in its direction
            bool over = false;
        };
        std::vector<piece> mail;  // under way: pieces of messages between two ranks
        std::uint64_t mail_begun = 0;

        void heard(int peer, const extend::control_message& what) override { owner.heard(peer, what); }
        void lost(int peer, const char* why) override { owner.find(peer, {failure::died, peer, why}); }
        void unexpected(int peer, const extend::message_label& wanted, const extend::message_label& got,
            std::size_t wanted_bytes, std::size_t got_bytes) override {
            v1::detail::error_text text;
            const bool is_message = got.part == between_two_ranks;
            if (is_message != (wanted.part == between_two_ranks))
                text << (is_message ? "it sends a message, and a collective call is expected"
                                    : "it makes a collective call, and a message is expected");
            else if (is_message)
                text << "its message has " << got.fingerprint << " bytes, and " << wanted.fingerprint
                     << " are expected";
            else if (wanted == got)
                text << "it sends " << got_bytes << " bytes where " << wanted_bytes << " are expected";
            owner.find(peer, {failure::mismatch, peer, text.text()});
        }
    };

    /// In labels, which name round and port of other messages.
    static constexpr std::uint32_t between_two_ranks = 0xffffffffu;

    static std::atomic_ref<std::uint64_t> word(std::uint64_t* at) { return std::atomic_ref<std::uint64_t>(*at); }

    void run() {
        double last = v1::detail::seconds_now();
        double end = 0;
        std::uint64_t seen = 0;
        for (;;) {
            const bool ends = stop_.load(std::memory_order_acquire);  // acquire: what the last kernel has posted
            const std::uint64_t wakes = wakes_.load(std::memory_order_relaxed);
            bool busy = wakes != seen;
            seen = wakes;
            for (std::size_t c = 0; c < channels_.size(); ++c) busy = serve(static_cast<int>(c)) || busy;
            tell();
            const double now = v1::detail::seconds_now();
            if (ends && end == 0) end = now + channels_.front()->transport->linger;
            if (ends && (!busy || now > end)) break;
            if (busy) last = now;
            if (ends || now - last < naps_.after)
                sched_yield();
            else
                nap(naps_.length(now - last, has_graphs_.load(std::memory_order_relaxed)), seen);
        }
    }
    /// Sleeps, until it is woken after the first `seen` times.
    void nap(double seconds, std::uint64_t seen) {
        std::unique_lock lock(nap_mutex_);
        naps_now_.store(true, std::memory_order_seq_cst);
        ends_nap_.wait_for(lock, std::chrono::duration<double>(seconds),
            [&] { return wakes_.load(std::memory_order_seq_cst) != seen; });
        naps_now_.store(false, std::memory_order_relaxed);
    }

    /// Moves what the channel has posted. False: nothing is in flight.
    bool serve(int number) {
        channel& c = *channels_[static_cast<std::size_t>(number)];
        // Acquire: the post and what it sends were written before.
        const std::uint64_t posted = word(memory_.posted(number)).load(std::memory_order_acquire);
        const std::uint64_t mailed = word(memory_.mailed(number)).load(std::memory_order_acquire);  // likewise
        c.transport->progress();
        if (has_given_up_) return false;
        while (c.begun < posted) begin(number, c);
        if (c.mail_begun < mailed) begin_mail(number, c, mailed);
        bool lands = false;
        const auto look_at = [&](auto& m) {
            if (m.over) return;
            m.over = (m.receives ? c.transport->received(m.peer) : c.transport->sent(m.peer)) > m.number;
            lands = lands || (m.over && m.receives);
        };
        for (channel::piece& p : c.mail) look_at(p);
        for (under_way& u : c.posts)
            for (under_way::message& m : u.messages) look_at(m);
        if (lands && flush_) flush_();
        std::erase_if(c.mail, [&](const channel::piece& p) {
            // Release: the piece is in its place, or the transport has read it.
            if (p.over) word(memory_.moved(number, p.receives, p.place)).store(1, std::memory_order_release);
            return p.over;
        });
        for (under_way& u : c.posts) announce(number, u);
        const auto is_over = [](const under_way& u) {
            for (const under_way::message& m : u.messages)
                if (!m.over) return false;
            return true;
        };
        while (!c.posts.empty() && is_over(c.posts.front())) {
            c.posts.pop_front();
            // Release: the transport has read the post's window.
            word(memory_.done(number)).store(++c.ended, std::memory_order_release);
        }
        return !c.posts.empty() || !c.mail.empty();
    }
    void begin_mail(int number, channel& c, std::uint64_t mailed) {
        const std::size_t before = c.mail.size();
        for (; c.mail_begun < mailed; ++c.mail_begun) {
            const far_mail& m = memory_.mail(number, c.mail_begun);
            const bool receives = m.receives != 0;
            const extend::piece piece{memory_.place(number, receives, m.place), m.bytes};
            const extend::message_label label{m.whole, m.number, between_two_ranks};
            const int count = m.bytes != 0;
            c.mail.push_back({m.peer, receives, m.place,
                receives ? c.transport->receive(m.peer, label, &piece, count)
                         : c.transport->send(m.peer, label, &piece, count)});
        }
        c.transport->flush();
        for (std::size_t i = before; i < c.mail.size(); ++i)
            if (!c.mail[i].receives) c.transport->request_completion(c.mail[i].peer);
    }
    void begin(int number, channel& c) {
        const far_post& post = memory_.post(number, c.begun);
        under_way& u = c.posts.emplace_back();
        u.value = post.value;
        for (const bool receives : {true, false})
            for (int p = 0; p < post.ports; ++p) {
                const far_message& m = (receives ? post.receives : post.sends)[p];
                if (m.peer == none) continue;
                const far_piece* const pieces = memory_.pieces(number, c.begun, receives) + m.first;
                std::byte* const window = memory_.window(number, c.begun, receives);
                pieces_.clear();
                for (int i = 0; i < m.pieces; ++i)
                    if (pieces[i].bytes != 0) pieces_.push_back({window + pieces[i].at, pieces[i].bytes});
                const extend::message_label label{
                    post.fingerprint, post.value, static_cast<std::uint32_t>(post.round * max_ports + p)};
                const int all = static_cast<int>(pieces_.size());
                // Both ends list the same pieces, so both cut alike.
                const int most = memory_.in_gpu() ? extend::message_transport::most_gpu_pieces : all;
                int first = 0;
                do {
                    const extend::piece* const from = pieces_.data() + first;
                    const int count = std::min(all - first, most);
                    u.messages.push_back({m.peer, receives,
                        receives ? c.transport->receive(m.peer, label, from, count)
                                 : c.transport->send(m.peer, label, from, count)});
                    first += count;
                } while (first < all);
            }
        ++c.begun;
        c.transport->flush();
        for (const under_way::message& m : u.messages)
            if (!m.receives) c.transport->request_completion(m.peer);
    }
    void announce(int number, under_way& u) {
        for (under_way::message& m : u.messages) {
            if (!m.over || !m.receives || m.told) continue;
            m.told = true;
            bool all = true;  // that this rank receives from that one in the round
            for (const under_way::message& other : u.messages)
                all = all && (other.over || !other.receives || other.peer != m.peer);
            // Release: the message is in the window.
            if (all) word(memory_.arrived(number, m.peer)).store(u.value, std::memory_order_release);
        }
    }

    // What goes wrong. Kernels read of it in the shadow of the rank, as in the workspace of one on their own host.

    void write(int peer, const notice& n, std::uint64_t at) {
        std::byte* const shadow = memory_.shadow(peer);
        std::snprintf(reinterpret_cast<char*>(shadow + workspace_layout::text_begin), workspace_layout::text_bytes,
            "%s", n.text.c_str());
        const std::uint32_t value = n.why == failure::nothing ? 0 : poison_word(n.why, n.peer);
        // Release: the text is there.
        std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(shadow + at))
            .store(value, std::memory_order_release);
    }
    /// Rank `peer` of another host has failed, or says that it has given up.
    void find(int peer, const notice& n) {
        write(peer, n, 0);
        if (!has_given_up_) found_({n.why, n.peer, n.text, peer});
    }
    void heard(int peer, const extend::control_message& what) {
        const notice n{static_cast<failure>(what.a), static_cast<int>(what.b) - 1, what.text};
        if (what.what == extend::control_kind::leave)
            write(peer, {failure::left, peer, "left"}, workspace_layout::refusal_begin);
        if (what.what == extend::control_kind::refused) write(peer, n, workspace_layout::refusal_begin);
        if (what.what == extend::control_kind::broken) find(peer, n);
    }
    void tell_far(extend::control_kind kind, const notice& n) {
        const extend::control_message what{
            kind, static_cast<std::uint64_t>(n.why), static_cast<std::uint64_t>(n.peer + 1), 0, n.text.c_str()};
        for (int r = 0; r < memory_.layout.ranks; ++r)
            if (memory_.is_far(r)) channels_.front()->transport->tell(r, what);
    }
    /// What the ranks of other hosts are to know of this one.
    void tell() {
        for (std::vector<notice> all;;) {
            {
                const std::lock_guard lock(mutex_);
                all.swap(refusals_);
            }
            if (all.empty()) break;
            for (const notice& n : all) tell_far(extend::control_kind::refused, n);
            all.clear();
        }
        notice own;
        if (has_given_up_ || !own_failure_(own)) return;
        has_given_up_ = true;
        for (const auto& c : channels_) c->transport->abandon();
        tell_far(extend::control_kind::broken, own);
    }

    const far_memory memory_;
    const std::function<void(const notice&)> found_;
    const std::function<bool(notice&)> own_failure_;
    const std::function<void()> flush_;
    std::vector<std::unique_ptr<channel>> channels_;
    std::vector<extend::piece> pieces_;  // of one message
    bool has_given_up_ = false;          // and has said so
    std::mutex mutex_;
    std::vector<notice> refusals_;  // to be told
    std::atomic<bool> stop_{false};
    const proxy_naps naps_;
    std::atomic<bool> has_graphs_{false}, naps_now_{false};
    std::atomic<std::uint64_t> wakes_{0};
    std::mutex nap_mutex_;
    std::condition_variable ends_nap_;
    std::thread thread_;
};

}  // namespace colls::inline v1::cuda::detail
