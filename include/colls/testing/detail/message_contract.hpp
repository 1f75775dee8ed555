// What the test kit does with message transports: each line of the contract at the head of
// extend/message_transport.hpp.
// IWYU pragma: private, include <colls/testing/transport.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/extend/message_transport.hpp>
#include <colls/testing/detail/guarded_buffer.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace colls::inline v1::detail::testing {

using extend::control_kind, extend::control_message, extend::message_label, extend::message_transport, extend::piece;
using transports = std::vector<std::unique_ptr<message_transport>>;

/// The memory of one message: pieces with guard bytes around them.
class scattered_message {
public:
    scattered_message(std::size_t bytes, int pieces, std::uint64_t seed) {
        const std::size_t each = pieces > 0 ? bytes / index(pieces) : 0;
        memory_.assign(bytes + index(pieces + 1) * gap, guard);
        for (int i = 0; i < pieces; ++i)
            pieces_.push_back({memory_.data() + index(i) * (each + gap) + gap,
                i + 1 < pieces ? each : bytes - index(pieces - 1) * each});
        seed_ = seed;
    }
    const piece* pieces() const { return pieces_.data(); }
    int count() const { return static_cast<int>(pieces_.size()); }
    void fill() {
        over([](std::byte& at, std::byte is) { at = is; });
    }
    /// The message has arrived whole, and no byte beside it has been written. Clears it.
    bool arrived() {
        bool same = true;
        over([&](std::byte& at, std::byte is) { same = same && std::exchange(at, guard) == is; });
        return same && untouched();
    }
    bool untouched() const {
        return std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == guard; });
    }
    /// After this an access is one to memory that has been freed, or finds other bytes.
    void free() { std::vector<std::byte>().swap(memory_); }

private:
    static constexpr std::byte guard{0x5a};
    static constexpr std::size_t gap = 5;
    template <class F>
    void over(F f) {
        std::uint64_t i = seed_;
        for (const piece& p : pieces_)
            for (std::size_t k = 0; k < p.bytes; ++k)
                f(p.data[k], static_cast<std::byte>(++i * 0x9e3779b97f4a7c15ull >> 56));
    }
    std::vector<std::byte> memory_;
    std::vector<piece> pieces_;
    std::uint64_t seed_ = 0;
};

/// One rank: its transport, what it has posted, and what it has heard. Reports what is against the contract at once.
class tested_rank final : public message_transport::listener {
public:
    struct peer {
        std::deque<scattered_message> out, in;
        std::uint64_t told = 0, heard = 0, arrived = 0,
                      due = 0;  // due: messages that must arrive before `leave`, `broken`
        int left = 0, broken = 0, unexpected = 0;
        message_label wanted, got;
        std::size_t wanted_bytes = 0, got_bytes = 0;
        bool may_differ = false;  // its next message may be unexpected
    };

    tested_rank(std::unique_ptr<message_transport> t, int rank, int n, double linger)
        : transport(std::move(t)), rank_(rank), peers_(index(n)) {
        transport->listening = this;
        transport->linger = linger;
    }
    peer& with(int q) { return peers_[index(q)]; }
    bool is(int rank) const { return rank_ == rank; }

    static message_label label_of(int from, int to, std::uint64_t i) {
        return {hash(index(from), index(to)), i, static_cast<std::uint32_t>(hash(i))};
    }
    void send(int q, std::size_t bytes, int pieces = 1) {
        send(q, bytes, pieces, label_of(rank_, q, with(q).out.size()));
    }
    void send(int q, std::size_t bytes, int pieces, const message_label& label) {
        auto& out = with(q).out;
        const std::uint64_t number = out.size();
        out.emplace_back(bytes, pieces, seed_of(rank_, q, number)).fill();
        if (transport->send(q, label, out.back().pieces(), pieces) != number) wrong("send returns a wrong number");
    }
    void receive(int q, std::size_t bytes, int pieces = 1) {
        auto& in = with(q).in;
        const std::uint64_t number = in.size();
        in.emplace_back(bytes, pieces, seed_of(q, rank_, number));
        if (transport->receive(q, label_of(q, rank_, number), in.back().pieces(), pieces) != number)
            wrong("receive returns a wrong number");
    }
    /// A control message with that value, and a text of up to the longest.
    void tell(int q, std::uint64_t value = 0) {
        const std::uint64_t number = with(q).told++;
        const std::string text = text_of(rank_, q, number);
        if (!transport->tell(q, {control_kind::board, number, hash(number), value, text.c_str()}))
            wrong("tell returns false, though the peer is there");
    }
    void progress() {
        in_progress_ = true;
        transport->progress();
        in_progress_ = false;
        if (!problem_.empty()) wrong(problem_);
        for (int q = 0; q < static_cast<int>(peers_.size()); ++q)
            if (q != rank_) look(q);
    }
    bool done(int q) { return transport->sent(q) == with(q).out.size() && transport->received(q) == with(q).in.size(); }
    [[noreturn]] void wrong(const std::string& what) const {
        throw finding(what + ", on rank " + std::to_string(rank_));
    }

    std::unique_ptr<message_transport> transport;
    std::function<void(int q, std::uint64_t value)> on_heard;
    std::function<void(int q)> on_unexpected;

private:
    static std::uint64_t seed_of(int from, int to, std::uint64_t i) { return hash(index(from), index(to), i); }
    static std::string text_of(int from, int to, std::uint64_t i) {
        return std::string(i % 3 == 0 ? seed_of(from, to, i) % 401 : 0, static_cast<char>('a' + i % 26));
    }
    void look(int q) {
        peer& p = with(q);
        const std::uint64_t arrived = transport->received(q), sent = transport->sent(q);
        if (arrived < p.arrived || arrived > p.in.size() || sent > p.out.size()) wrong("a count is wrong");
        for (; p.arrived < arrived; ++p.arrived)
            if (!p.in[p.arrived].arrived()) wrong("a message arrives with wrong bytes, or outside its memory");
    }
    /// Kept until `progress` has returned: a transport need not let exceptions of its listener out.
    void note(const std::string& problem) {
        if (problem_.empty()) problem_ = problem;
    }
    void reported(int q) {
        if (!in_progress_) note("the listener is called outside progress");
        if (with(q).left > 0) note("something is reported after leave");
    }
    void heard(int q, const control_message& what) override {
        reported(q);
        peer& p = with(q);
        const bool last = what.what == control_kind::leave || what.what == control_kind::broken;
        if (last && transport->received(q) < p.due) note("leave or broken comes before messages that had left");
        if (what.what == control_kind::leave) ++p.left;
        if (what.what == control_kind::broken) ++p.broken;
        if (what.what != control_kind::board) return;
        if (what.a != p.heard || what.b != hash(what.a) || text_of(q, rank_, what.a) != what.text)
            note("another control message arrives than was sent, or in another order");
        ++p.heard;
        if (on_heard) on_heard(q, what.c);
    }
    void lost(int q, const char* why) override {
        note("rank " + std::to_string(q) + " is reported lost (" + why + "), though it lives or has said leave");
    }
    void unexpected(int q, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
        std::size_t got_bytes) override {
        reported(q);
        peer& p = with(q);
        if (!p.may_differ || ++p.unexpected > 1) note("a message is reported as unexpected that is not, or twice");
        p.wanted = wanted, p.got = got, p.wanted_bytes = wanted_bytes, p.got_bytes = got_bytes;
        if (on_unexpected) on_unexpected(q);
    }

    const int rank_;
    std::vector<peer> peers_;
    bool in_progress_ = false;
    std::string problem_;
};

struct contract_settings {
    std::function<transports(int n)> make;
    std::function<std::function<bool()>()> meet;  ///< null: all ranks are driven here
    std::vector<std::size_t> sizes;
    std::size_t large;
    double deadline;
};

/// Drives the ranks of groups of n that are driven here, by turns on one thread.
class message_contract {
public:
    message_contract(int n, const contract_settings& how) : n_(n), how_(how) {}

    int steps() const { return steps_; }
    /// Returns what is wrong, or an empty text.
    std::string run() {
        try {
            step("messages of all sizes", [&] { sizes(); });
            step("many small messages, and many pieces", [&] { rows(); });
            step("random traffic", [&] { traffic(30, how_.large); });
            for (int i = 0; i < 5; ++i) step("groups one after the other", [&] { traffic(2, 100); });
            step("control messages pass messages without a receive", [&] { pass(); });
            for (odd_ = 0; odd_ < n_; odd_ += n_ - 1) {
                for (const std::size_t bytes : {std::size_t{100}, how_.large})
                    for (int kind = 0; kind < 5; ++kind)
                        step("a message that does not match its receive", [&] { mismatch(kind, bytes); });
                for (const bool late : {false, true}) step("a rank leaves, with messages queued", [&] { leave(late); });
                step("a rank has left before its messages are received", [&] { leave_alone(); });
                step("broken after messages", [&] { say_broken(); });
                step("abandon amid messages", [&] { abandon(); });
                step("idle ends when something arrives", [&] { sleep(); });
            }
            step("a listener that abandons and answers", [&] { answer(); });
            step("tell_all, and offloads", [&] { reach_all(); });
            return "";
        } catch (const std::exception& e) {
            ranks([](tested_rank& w, int) {
                if (w.transport) w.transport->abandon();
            });
            ranks_.clear();
            return step_ + ": " + e.what();
        }
    }

private:
    template <class F>
    void step(const char* name, F f) {
        step_ = name;
        f();
        end();
        ++steps_;
    }
    void begin(double linger_of_odd = 0.1) {
        transports made = how_.make(n_);
        if (static_cast<int>(made.size()) != n_) throw finding("make returns another number of transports");
        ranks_.resize(index(n_));
        for (int r = 0; r < n_; ++r)
            if (made[index(r)])
                ranks_[index(r)] =
                    std::make_unique<tested_rank>(std::move(made[index(r)]), r, n_, r == odd_ ? linger_of_odd : 0.1);
    }
    int driven() {
        int n = 0;
        ranks([&](tested_rank&, int) { ++n; });
        return n;
    }
    /// f(rank, its number) of those that are driven here.
    template <class F>
    void ranks(F f) {
        for (int r = 0; r < n_; ++r)
            if (ranks_[index(r)]) f(*ranks_[index(r)], r);
    }
    template <class F>
    void odd(F f) {
        ranks([&](tested_rank& w, int r) {
            if (r == odd_) f(w);
        });
    }
    template <class F>
    void others(F f) {
        ranks([&](tested_rank& w, int r) {
            if (r != odd_) f(w, r);
        });
    }
    /// f(rank, peer) of each pair.
    template <class F>
    void pairs(F f) {
        ranks([&](tested_rank& w, int r) {
            for (int q = 0; q < n_; ++q)
                if (q != r) f(w, q);
        });
    }
    template <class F>
    bool all(F holds) {
        bool is = true;
        pairs([&](tested_rank& w, int q) { is = is && holds(w, q); });
        return is;
    }
    void progress() {
        ranks([](tested_rank& w, int) { w.progress(); });
    }
    /// Makes progress on all ranks until holds(); false after `seconds`.
    template <class F>
    bool within(double seconds, F holds) {
        const double end = seconds_now() + seconds;
        for (int i = 1; progress(), !holds(); ++i) {
            if (seconds_now() > end) return false;
            if (i % 64 != 0) continue;
            ranks([](tested_rank& w, int) { w.transport->idle(1e-4); });
            std::this_thread::yield();
        }
        return true;
    }
    template <class F>
    void until(const char* what, F holds) {
        if (!within(how_.deadline, holds)) throw finding(std::string("waited too long until ") + what);
    }
    template <class F>
    void until_all(const char* what, F holds) {
        until(what, [&] { return all(holds); });
    }
    /// holds(rank) on all ranks but `odd_`.
    template <class F>
    void until_others(const char* what, F holds) {
        until(what, [&] {
            bool is = true;
            others([&](tested_rank& w, int) { is = is && holds(w); });
            return is;
        });
    }
    /// f(rank, peer) on rank `odd_`.
    template <class F>
    void from_odd(F f) {
        odd([&](tested_rank& w) {
            for (int q = 0; q < n_; ++q)
                if (q != odd_) f(w, q);
        });
    }
    void finish() {
        until_all("all messages have left and arrived", [](tested_rank& w, int q) { return w.done(q); });
    }
    void hear(std::uint64_t count) {
        until_all("control messages arrive", [&](tested_rank& w, int q) { return w.with(q).heard >= count; });
    }
    /// All ranks have come to this point.
    void meet() {
        if (!how_.meet) return;
        until("the other processes come as far", how_.meet());
    }
    void greet() {
        pairs([](tested_rank& w, int q) { w.tell(q); });
        hear(1);
    }
    /// Ranks end, each on a thread of its own where others are here too: an end waits for what is queued.
    template <class Whom>
    void leave_if(Whom whom) {
        transports ends;
        ranks([&](tested_rank& w, int r) {
            if (!whom(r)) return;
            ends.push_back(std::move(w.transport));
            left_.push_back(std::move(ranks_[index(r)]));  // what was posted stays as long as the transport
        });
        if (ends.size() == 1 && driven() == 0) return ends.clear();
        std::atomic<std::size_t> missing{ends.size()};
        std::vector<std::jthread> threads;
        for (auto& t : ends)
            threads.emplace_back([&] {
                t.reset();
                missing.fetch_sub(1, std::memory_order_release);
            });
        const bool ended = within(how_.deadline + 5, [&] { return missing.load(std::memory_order_acquire) == 0; });
        if (!ended) throw finding("a transport does not end within linger");
    }
    void end() {
        leave_if([](int) { return true; });
        ranks_.clear(), left_.clear();
        if (how_.meet) {
            const auto met = how_.meet();
            while (!met()) std::this_thread::yield();
        }
    }

    void sizes() {
        begin();
        std::vector<std::size_t> bytes = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4096, 65'536, how_.large};
        for (const std::size_t s : how_.sizes) bytes.insert(bytes.end(), {s - 1, s, s + 1});
        for (const bool receiver_first : {true, false})
            for (const std::size_t b : bytes) {
                const auto receive = [&] {
                    pairs([&](tested_rank& w, int q) { w.receive(q, b, b == 0 ? 0 : 2), w.receive(q, b, 1); });
                };
                if (receiver_first) receive();
                meet();
                pairs([&](tested_rank& w, int q) {
                    w.send(q, b, 1), w.send(q, b, 3);
                    w.transport->request_completion(q), w.transport->flush();
                });
                progress();
                meet();
                if (!receiver_first) receive();
                finish();
            }
        meet();
    }
    void rows() {
        begin();
        for (int i = 0; i < 1000; ++i) pairs([&](tested_rank& w, int q) { w.receive(q, i % 5 == 0 ? 0 : 8); });
        for (int i = 0; i < 1000; ++i)
            pairs([&](tested_rank& w, int q) { w.send(q, i % 5 == 0 ? 0 : 8, i % 5 == 0 ? 0 : 1); });
        finish();
        pairs([](tested_rank& w, int q) { w.receive(q, 12'000, 4000), w.send(q, 12'000, 3000); });
        finish();
    }
    /// Sends, receives and control messages in random order. Some ranks post their receives late.
    void traffic(std::uint64_t count, std::size_t largest) {
        begin();
        std::uint64_t turn = 0;
        const auto one_in = [&](std::uint64_t k) { return (turn = hash(turn, count)) % k == 0; };
        const auto bytes = [&](int from, int to, std::uint64_t i) {
            const std::uint64_t x = hash(index(from * n_ + to), i, largest);
            return x / 8 % (x % 8 == 0 ? 1 : x % 8 == 1 ? largest + 1 : 2000);
        };
        const auto pieces = [&] { return static_cast<int>(1 + hash(turn) % (one_in(3) ? 200 : 3)); };
        for (bool posts = true; posts; progress()) {
            posts = false;
            ranks([&](tested_rank& w, int r) {
                for (int q = 0; q < n_; ++q) {
                    if (q == r) continue;
                    auto& p = w.with(q);
                    if (p.out.size() < count && one_in(2)) w.send(q, bytes(r, q, p.out.size()), pieces());
                    if (p.in.size() < count && one_in((r + q) % 3 == 0 ? 60 : 2))
                        w.receive(q, bytes(q, r, p.in.size()), pieces());
                    if (p.told < count && one_in(2)) w.tell(q);
                    posts = posts || p.out.size() < count || p.in.size() < count || p.told < count;
                }
            });
        }
        finish();
        hear(count);
    }
    void pass() {
        begin();
        pairs([&](tested_rank& w, int q) {
            for (int i = 0; i < 3; ++i) w.send(q, how_.large);
            for (int i = 0; i < 50; ++i) w.tell(q);
        });
        hear(50);
        meet();
        pairs([&](tested_rank& w, int q) {
            for (int i = 0; i < 3; ++i) w.receive(q, how_.large);
        });
        finish();
    }
    /// The second message of rank `odd_` has another label or size than the others expect, and a third one follows.
    void mismatch(int kind, std::size_t bytes) {
        begin(0.01);  // its third message stays queued
        const std::size_t sent = bytes + (kind == 3) - (kind == 4);
        const auto label = [&](int to) {
            message_label l = tested_rank::label_of(odd_, to, 1);
            l.fingerprint += kind == 0, l.sequence += kind == 1, l.part += kind == 2;
            return l;
        };
        from_odd([&](tested_rank& w, int q) {
            w.send(q, 1000), w.send(q, sent, 1, label(q)), w.send(q, bytes), w.receive(q, 1000);
        });
        others([&](tested_rank& w, int) {
            w.with(odd_).may_differ = true;
            w.receive(odd_, 1000), w.receive(odd_, bytes), w.receive(odd_, bytes);
        });
        until_others("the mismatch is reported", [&](tested_rank& w) { return w.with(odd_).unexpected == 1; });
        others([&](tested_rank& w, int r) {
            const auto& p = w.with(odd_);
            if (p.wanted != tested_rank::label_of(odd_, r, 1) || p.got != label(r) || p.wanted_bytes != bytes ||
                p.got_bytes != sent)
                w.wrong("the mismatch is reported with wrong labels or sizes");
            w.send(odd_, 1000);
        });
        greet();  // control messages go on, and so does the other direction
        until_all("messages of the other direction arrive", [&](tested_rank& w, int q) {
            return q == odd_ ? w.transport->sent(q) == 1 : !w.is(odd_) || w.transport->received(q) == 1;
        });
        meet();
        others([&](tested_rank& w, int) {
            auto& p = w.with(odd_);
            if (w.transport->received(odd_) != 1 || !p.in[1].untouched() || !p.in[2].untouched())
                w.wrong("the message that does not match, or one after it, lands or is counted");
        });
        meet();
    }
    /// Rank `odd_` leaves at once behind messages and control messages. `late`: they are received one by one.
    void leave(bool late) {
        begin(how_.deadline);
        greet();
        static constexpr std::uint64_t count = 3;
        others([&](tested_rank& w, int) {
            w.with(odd_).due = count;
            if (!late)
                for (std::uint64_t i = 0; i < count; ++i) w.receive(odd_, how_.large);
            else
                w.on_heard = [&w, this](int q, std::uint64_t) {
                    auto& p = w.with(q);
                    if (q == odd_ && p.in.size() < count && p.heard % 6 == 0) w.receive(q, how_.large);
                };
        });
        from_odd([&](tested_rank& w, int q) {
            for (std::uint64_t i = 0; i < 20; ++i) {
                if (i < count) w.send(q, how_.large);
                w.tell(q);
            }
        });
        leave_if([&](int r) { return r == odd_; });
        until_others("leave is reported", [&](tested_rank& w) { return w.with(odd_).left == 1; });
        others([&](tested_rank& w, int r) {
            if (w.with(odd_).heard != 21) w.wrong("leave comes before control messages");
            for (int q = 0; q < n_; ++q)  // the others go on
                if (q != r && q != odd_) w.send(q, 1000), w.receive(q, 1000);
        });
        until_all("messages of the others arrive", [&](tested_rank& w, int q) { return q == odd_ || w.done(q); });
    }
    /// Rank `odd_` has left when the others look again. What had left then arrives.
    void leave_alone() {
        begin(0.05);
        greet();
        meet();
        others([](tested_rank& w, int) { w.on_heard = [&w](int q, std::uint64_t value) { w.with(q).due = value; }; });
        from_odd([&](tested_rank& w, int q) {
            for (int i = 0; i < 4; ++i) w.send(q, how_.large / 20);
        });
        odd([&](tested_rank& w) {
            promise(w, 4);
            w.transport.reset();
            left_.push_back(std::move(ranks_[index(odd_)]));
        });
        if (how_.meet) {  // the others do not look
            const auto met = how_.meet();
            while (!met()) std::this_thread::yield();
        }
        until_others("a control message of a rank that has left arrives",
            [&](tested_rank& w) { return w.with(odd_).heard == 2; });
        for (std::uint64_t i = 0; i < 4; ++i) {
            others([&](tested_rank& w, int) { w.receive(odd_, how_.large / 20); });
            until_others("messages of a rank that has left arrive",
                [&](tested_rank& w) { return w.transport->received(odd_) > i || i >= w.with(odd_).due; });
        }
        until_others("leave is reported", [&](tested_rank& w) { return w.with(odd_).left == 1; });
        meet();
    }
    /// Waits a little for the messages of a rank to leave, while no other rank looks, and tells its peers how many
    /// have.
    void promise(tested_rank& w, std::uint64_t count) {
        const double end = seconds_now() + 0.05;
        for (bool left = false; !left && seconds_now() < end;) {
            w.progress(), left = true;
            from_odd([&](tested_rank&, int q) { left = left && w.transport->sent(q) == count; });
        }
        from_odd([&](tested_rank&, int q) { w.tell(q, w.transport->sent(q)); });
    }
    /// Rank `odd_` says `broken` behind messages that have left, while no other rank looks.
    void say_broken() {
        begin();
        greet();
        others([&](tested_rank& w, int) {
            for (int i = 0; i < 3; ++i) w.receive(odd_, 2000);
            w.on_heard = [&w](int q, std::uint64_t value) { w.with(q).due = value; };
        });
        meet();
        from_odd([](tested_rank& w, int q) { w.send(q, 2000), w.send(q, 2000), w.send(q, 2000); });
        odd([&](tested_rank& w) { promise(w, 3); });
        odd([](tested_rank& w) {
            w.transport->tell_all({control_kind::broken, 1, 2, 3, "the kit says so"});
            for (int i = 0; i < 20; ++i) w.progress();
        });
        until_others("broken is reported", [&](tested_rank& w) { return w.with(odd_).broken == 1; });
        others([&](tested_rank& w, int) { w.tell(odd_); });  // control messages go on
        until_all("control messages arrive after broken",
            [&](tested_rank& w, int q) { return !w.is(odd_) || w.with(q).heard == 2; });
        meet();
        ranks([](tested_rank& w, int) { w.transport->abandon(); });
        meet();
    }
    /// Rank `odd_` abandons amid messages both ways, and frees the memory of what has not left or arrived.
    void abandon() {
        begin();
        greet();
        pairs([&](tested_rank& w, int q) {
            for (int i = 0; i < 3; ++i) w.send(q, how_.large), w.receive(q, how_.large);
        });
        const auto give_up = [](tested_rank& w, int n, int r) {
            w.transport->abandon();
            for (int q = 0; q < n; ++q) {
                if (q == r) continue;
                auto& p = w.with(q);
                for (std::uint64_t i = w.transport->sent(q); i < p.out.size(); ++i) p.out[i].free();
                for (std::uint64_t i = w.transport->received(q); i < p.in.size(); ++i) p.in[i].free();
            }
        };
        std::vector<std::uint64_t> before;
        for (int i = 0; i < 20; ++i) progress();
        odd([&](tested_rank& w) { give_up(w, n_, odd_); });
        from_odd([&](tested_rank& w, int q) {
            before.push_back(w.transport->sent(q)), before.push_back(w.transport->received(q));
            w.send(q, 1000), w.receive(q, 1000), w.tell(q);
        });
        others([&](tested_rank& w, int) { w.send(odd_, 1000), w.receive(odd_, 1000), w.tell(odd_); });
        until_all("control messages arrive after abandon",
            [&](tested_rank& w, int q) { return w.with(q).heard == 2 || (!w.is(odd_) && q != odd_); });
        std::size_t at = 0;
        from_odd([&](tested_rank& w, int q) {
            const bool same = w.transport->sent(q) == before[at] && w.transport->received(q) == before[at + 1];
            if (at += 2; !same) w.wrong("a message is counted after abandon");
        });
        meet();
        others([&](tested_rank& w, int r) {
            if (w.transport->received(odd_) > 3) w.wrong("a message arrives that was sent after abandon");
            give_up(w, n_, r);
        });
        meet();
        for (int i = 0; i < 20; ++i) progress();
        meet();
    }
    /// A message of 8 bytes, or a control message, has come while this rank did not look: no sleep is as long as a
    /// wait.
    void sleep() {
        begin();
        greet();
        const int sleeper = odd_ == 0 ? n_ - 1 : 0;
        for (int turn = 0; turn < 6; ++turn) {
            const bool by_control = turn % 3 == 0;
            ranks([&](tested_rank& w, int r) {
                if (r == sleeper && !by_control) w.receive(odd_, 8);
            });
            odd([&](tested_rank& w) {
                by_control ? w.tell(sleeper) : w.send(sleeper, 8);
                const double end = seconds_now() + 0.02;
                while (w.progress(),
                    !by_control && w.transport->sent(sleeper) < w.with(sleeper).out.size() && seconds_now() < end) {}
            });
            ranks([&](tested_rank& w, int r) {
                if (r != sleeper) return;
                const auto& p = w.with(odd_);
                const double begun = seconds_now();
                while (p.heard < index(2 + turn / 3) || w.transport->received(odd_) < p.in.size()) {
                    if (ranks_[index(odd_)]) ranks_[index(odd_)]->progress();
                    w.transport->idle(how_.deadline);
                    if (seconds_now() - begun > how_.deadline * 0.9)
                        w.wrong("idle does not end when something arrives");
                    w.progress();
                }
            });
            meet();
        }
        finish();
    }
    /// The first messages do not match, both ways. The listener abandons the rest, and answers.
    void answer() {
        begin();
        pairs([&](tested_rank& w, int q) {
            w.with(q).may_differ = true;
            w.receive(q, how_.large), w.send(q, how_.large, 1, {9, 9, 9});
        });
        ranks([](tested_rank& w, int) {
            w.on_unexpected = [&w](int q) { w.transport->abandon(), w.tell(q); };
            w.on_heard = [&w](int q, std::uint64_t) {
                if (w.with(q).told < 5) w.tell(q);
            };
        });
        pairs([](tested_rank& w, int q) { w.tell(q); });
        hear(5);
        meet();
        ranks([](tested_rank& w, int) { w.transport->abandon(); });
        meet();
    }
    void reach_all() {
        begin();
        ranks([](tested_rank& w, int) {
            w.on_heard = [&w](int, std::uint64_t value) {
                if (value != static_cast<std::uint64_t>(w.transport->offloads())) w.wrong("ranks differ in offloads");
            };
        });
        pairs([](tested_rank& w, int q) { w.tell(q, w.transport->offloads()); });
        hear(1);
        ranks([](tested_rank& w, int) { w.transport->tell_all({control_kind::broken, 0, 0, 0, "to all"}); });
        until_all("all ranks hear what is told to all", [](tested_rank& w, int q) { return w.with(q).broken == 1; });
        meet();
    }

    const int n_;
    const contract_settings& how_;
    int odd_ = 0;  // the rank that does something else
    int steps_ = 0;
    std::string step_;
    std::vector<std::unique_ptr<tested_rank>> ranks_, left_;
};

}  // namespace colls::inline v1::detail::testing
