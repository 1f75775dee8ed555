// What tests of message transports share: a listener that records, messages in scattered memory, and a random exchange
// whose contents both sides can compute.
#pragma once

#include "random.hpp"

#include <colls/extend/message_transport.hpp>
#include <colls/net/detail/connection/tcp_node.hpp>
#include <colls/testing/transport.hpp>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace support {

using namespace colls::detail;

/// No test waits longer for anything: it says what it waited for before its time limit ends it.
inline constexpr double patience_s = 120;

/// Records what a transport reports.
struct ear final : message_transport::listener {
    struct item {
        int peer;
        control_message what;
        std::string text;
    };
    std::vector<item> all;
    std::vector<std::string> events;  // in order
    std::function<void(int, const control_message&)> on_control;

    void heard(int peer, const control_message& what) override {
        all.push_back({peer, what, what.text});
        events.push_back("heard " + std::to_string(static_cast<int>(what.what)) + " from " + std::to_string(peer));
        if (on_control) on_control(peer, what);
    }
    void lost(int peer, const char* why) override {
        events.push_back("lost " + std::to_string(peer));
        reasons.push_back(why);
    }
    void failed(int peer, const char* why) override {
        events.push_back("failed " + std::to_string(peer));
        reasons.push_back(why);
    }
    void unexpected(int peer, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
        std::size_t got_bytes) override {
        events.push_back("unexpected from " + std::to_string(peer));
        labels = {wanted, got};
        sizes = {wanted_bytes, got_bytes};
    }
    std::vector<std::string> reasons;
    std::vector<message_label> labels;
    std::vector<std::size_t> sizes;

    int count(const std::string& what) const {
        const auto is = [&](const std::string& e) { return e.find(what) == 0; };
        return static_cast<int>(std::count_if(events.begin(), events.end(), is));
    }
    std::string text() const {
        std::string t;
        for (const std::string& e : events) t += e + "; ";
        for (const std::string& e : reasons) t += "(" + e + ") ";
        return t;
    }
};
inline std::string said(colls::detail::control_kind what) { return "heard " + std::to_string(static_cast<int>(what)); }
inline const std::string said_leave = said(colls::detail::control_kind::leave),
                         said_broken = said(colls::detail::control_kind::broken),
                         said_board = said(colls::detail::control_kind::board);

/// Makes progress until `holds()`. False: it did not within `seconds`.
template <class F>
bool until(message_transport& w, F holds, double seconds = patience_s) {
    const double end = seconds_now() + seconds;
    for (int i = 0; !holds(); ++i) {
        if (seconds_now() > end) return false;
        w.progress();
        if (i % 64 == 63) w.idle(1e-3);
    }
    return true;
}
/// Makes progress for so long.
inline void idle(message_transport& w, double seconds) {
    until(w, [] { return false; }, seconds);
}

/// Makes progress until all n ranks of a group, which are threads, have come here. A rank that left as soon as it has
/// what it looks for might keep a slower one from it.
inline bool meet(message_transport& w, std::atomic<int>& here, int n) {
    ++here;
    return until(w, [&] { return here >= n; });
}

/// The listening sockets of a group, made before its ranks start.
struct meeting_place {
    std::vector<descriptor> listening;
    std::vector<address> members;
    explicit meeting_place(int n) {
        for (int r = 0; r < n; ++r) {
            listening.push_back(listen_at(address::loopback(AF_INET, 0)));
            members.push_back(local_address(listening.back().get()));
        }
    }
    descriptor take(int rank) { return std::move(listening[static_cast<std::size_t>(rank)]); }
};

/// Runs f(rank, node, members, complain) on a thread for each rank. Returns what the ranks complained of.
template <class F>
std::string ranks_as_threads(int n, F f) {
    meeting_place place(n);
    std::mutex mutex;
    std::string complaints;
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            const auto complain = [&](const std::string& what) {
                const std::lock_guard lock(mutex);
                complaints += "rank " + std::to_string(r) + ": " + what + "\n";
            };
            tcp_node node(place.take(r));
            f(r, node, place.members, complain);
        });
    for (std::thread& t : ranks) t.join();
    return complaints;
}

/// A forked rank, killed in the end if it still runs. `f` returns its exit status.
class child {
public:
    template <class F>
    explicit child(F f) : pid_(fork()) {
        if (pid_ != 0) return;
        alarm(static_cast<unsigned>(patience_s + 60));
        _exit(f());
    }
    ~child() {
        kill();
        wait();
    }
    void kill() {
        if (pid_ > 0) ::kill(pid_, SIGKILL);
    }
    /// Does not wait.
    bool ended() const {
        siginfo_t info{};
        return pid_ <= 0 ||
               (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid != 0);
    }
    /// Waits for its end. Returns the exit status; -1: it did not exit.
    int wait() {
        if (pid_ > 0) {
            int how = 0;
            waitpid(pid_, &how, 0);
            status_ = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
            pid_ = 0;
        }
        return status_;
    }

private:
    pid_t pid_;
    int status_ = -1;
};

inline message_label label_of(int from, int to, std::uint64_t i) {
    return {0x5eed + static_cast<std::uint64_t>(from * 1000 + to), i, static_cast<std::uint32_t>(i * 77)};
}

/// The memory of a message: pieces with gaps between them that must not change.
class scattered {
public:
    scattered(std::size_t bytes, int pieces, random_source& random) {
        std::vector<std::size_t> cuts{0, bytes};
        for (int i = 1; i < pieces; ++i) cuts.push_back(random.below(bytes + 1));
        std::sort(cuts.begin(), cuts.end());
        std::vector<std::size_t> at;
        std::size_t whole = 0;
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            whole += random.below(9);
            at.push_back(whole);
            whole += cuts[i + 1] - cuts[i];
        }
        memory_.assign(whole + 8, gap);
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
            pieces_.push_back({memory_.data() + at[i], cuts[i + 1] - cuts[i]});
    }
    const piece* pieces() const { return pieces_.data(); }
    int count() const { return static_cast<int>(pieces_.size()); }

    void fill(std::uint64_t seed) {
        random_source r(seed);
        for (const piece& p : pieces_)
            for (std::size_t i = 0; i < p.bytes; ++i) p.data[i] = next(r, i);
    }
    /// Fills `flat` as `fill` fills pieces for the same seed, by position in the whole message.
    static void fill(std::vector<std::byte>& flat, std::uint64_t seed) {
        random_source r(seed);
        std::uint64_t word = 0;
        for (std::size_t i = 0; i < flat.size(); ++i) {
            if (i % 8 == 0) word = r.next();
            flat[i] = static_cast<std::byte>(word >> (i % 8 * 8));
        }
    }
    void put(const std::vector<std::byte>& flat) {
        std::size_t at = 0;
        for (const piece& p : pieces_) {
            if (p.bytes > 0) std::memcpy(p.data, flat.data() + at, p.bytes);
            at += p.bytes;
        }
    }
    /// Empty, or says what differs from `flat`.
    std::string differs(const std::vector<std::byte>& flat) {
        std::size_t at = 0;
        for (const piece& p : pieces_) {
            if (p.bytes > 0 && std::memcmp(p.data, flat.data() + at, p.bytes) != 0) return "other bytes";
            at += p.bytes;
        }
        for (const piece& p : pieces_) std::fill(p.data, p.data + p.bytes, gap);
        return std::count(memory_.begin(), memory_.end(), gap) == static_cast<std::ptrdiff_t>(memory_.size())
                   ? ""
                   : "memory between the pieces was written";
    }

private:
    static constexpr std::byte gap{0x5a};
    static std::byte next(random_source& r, std::size_t) { return static_cast<std::byte>(r.next()); }
    std::vector<std::byte> memory_;
    std::vector<piece> pieces_;
};

/// The messages of a random exchange, which both sides compute from the seed.
struct random_traffic {
    std::uint64_t seed;
    int messages, control;  // control messages
    std::size_t largest;

    std::uint64_t content(int from, int to, int i) const {
        return stream(seed, static_cast<std::uint64_t>(from * 64 + to), static_cast<std::uint64_t>(i)).next();
    }
    std::size_t bytes(int from, int to, int i) const {
        random_source r(content(from, to, i) + 1);
        switch (r.below(8)) {
            case 0:
                return 0;
            case 1:
                return r.below(largest + 1);
            case 2:
                return r.below(100'000 < largest ? 100'000 : largest);
            case 3:
                return 16384 - 48 - 4 + r.below(9);  // about the size of the buffer
            default:
                return r.below(2000);
        }
    }
    control_message telling(int from, int to, int i, std::string& text) const {
        random_source r(content(from, to, i) + 2);
        text = std::string(r.one_in(3) ? r.below(401) : 0, static_cast<char>('a' + r.below(26)));
        return {control_kind::offer, r.next(), r.next(), static_cast<std::uint64_t>(i), text.c_str()};
    }
};

/// One rank's part of the exchange. Returns an empty text, or what is wrong.
inline std::string exchange(const random_traffic& t, int rank, int n, message_transport& w) {
    struct peer {
        std::vector<scattered> out, in;
        int told = 0, heard = 0, checked = 0;
        bool late = false;
    };
    std::vector<peer> peers(static_cast<std::size_t>(n));
    const auto at = [&](int p) -> peer& { return peers[static_cast<std::size_t>(p)]; };
    random_source random = stream(t.seed, 7, static_cast<std::uint64_t>(rank));
    std::string wrong;
    ear e;
    e.on_control = [&](int p, const control_message& got) {
        if (got.what != control_kind::offer) return;
        std::string text;
        const control_message want = t.telling(p, rank, at(p).heard++, text);
        if (got.a != want.a || got.b != want.b || got.c != want.c || text != got.text) wrong = "other control messages";
    };
    // Where this ends early, messages are still under way from and to `peers`.
    struct watch {
        message_transport& w;
        bool done = false;
        ~watch() {
            w.listening = nullptr;
            if (!done) w.abandon();
        }
    } watched{w};
    w.listening = &e;
    for (peer& p : peers) {
        p.out.reserve(static_cast<std::size_t>(t.messages));
        p.in.reserve(static_cast<std::size_t>(t.messages));
        p.late = random.one_in(3);
    }
    const double end = seconds_now() + patience_s;
    std::vector<std::byte> flat;
    for (;;) {
        bool all = true;
        for (int p = 0; p < n; ++p)
            if (p != rank)
                all = all && static_cast<int>(w.sent(p)) == t.messages && at(p).checked == t.messages &&
                      at(p).told == t.control && at(p).heard == t.control;
        watched.done = all;
        if (e.count("lost") + e.count("failed") + e.count("unexpected") > 0) wrong += e.text();
        if (all || !wrong.empty()) break;
        if (seconds_now() > end) return "not done in time; " + e.text();
        const int p = random.between(0, n - 1);
        if (p == rank) continue;
        peer& with = at(p);
        if (static_cast<int>(with.out.size()) < t.messages && random.one_in(2)) {
            const int i = static_cast<int>(with.out.size());
            flat.resize(t.bytes(rank, p, i));
            scattered::fill(flat, t.content(rank, p, i));
            with.out.emplace_back(
                flat.size(), random.one_in(3) ? random.between(1, 200) : random.between(1, 3), random);
            with.out.back().put(flat);
            if (w.send(p, label_of(rank, p, static_cast<std::uint64_t>(i)), with.out.back().pieces(),
                    with.out.back().count()) != static_cast<std::uint64_t>(i))
                return "send counts wrongly";
        }
        // Some ranks post receives late: what the others send has to wait in the sockets.
        const bool may = !with.late || random.one_in(100);
        if (static_cast<int>(with.in.size()) < t.messages && may && random.one_in(2)) {
            const int i = static_cast<int>(with.in.size());
            with.in.emplace_back(
                t.bytes(p, rank, i), random.one_in(3) ? random.between(1, 200) : random.between(1, 3), random);
            if (w.receive(p, label_of(p, rank, static_cast<std::uint64_t>(i)), with.in.back().pieces(),
                    with.in.back().count()) != static_cast<std::uint64_t>(i))
                return "receive counts wrongly";
        }
        if (with.told < t.control && random.one_in(2)) {
            std::string text;
            const control_message what = t.telling(rank, p, with.told++, text);
            if (!w.tell(p, what)) return "no way to the peer";
        }
        bool posts = false;  // more, later
        for (int q = 0; q < n; ++q)
            posts =
                posts || (q != rank && (static_cast<int>(at(q).out.size()) < t.messages ||
                                           static_cast<int>(at(q).in.size()) < t.messages || at(q).told < t.control));
        w.progress();
        // A rank that only waits leaves the processor to the ranks for which it waits.
        if (!posts || random.one_in(40)) w.idle(posts ? 1e-4 : 1e-3);
        for (int q = 0; q < n; ++q)
            while (q != rank && at(q).checked < static_cast<int>(w.received(q))) {
                const int i = at(q).checked++;
                if (i >= static_cast<int>(at(q).in.size())) return "more arrived than was posted";
                flat.resize(t.bytes(q, rank, i));
                scattered::fill(flat, t.content(q, rank, i));
                const std::string differs = at(q).in[static_cast<std::size_t>(i)].differs(flat);
                if (!differs.empty())
                    wrong = "message " + std::to_string(i) + " from " + std::to_string(q) + ": " + differs;
            }
    }
    return wrong;
}

/// How deep the reports of `w`, which is rank 0, go into each other where each makes progress; `other` is rank 1.
inline int depth_of_reports(message_transport& w, message_transport& other) {
    ear e;
    int depth = 0, most = 0;
    const auto tell = [&] { return other.tell(0, {control_kind::board, 0, 0, 0, ""}); };
    e.on_control = [&](int, const control_message&) {
        most = std::max(most, ++depth);
        if (e.all.size() < 3) tell(), other.progress();
        w.progress();
        --depth;
    };
    w.listening = &e;
    tell();
    const bool heard = until(w, [&] {
        other.progress();
        return e.count(said_board) == 3;
    });
    w.listening = nullptr;
    return heard ? most : colls::none;
}

/// What is against the contract of message transports, or an empty text. `make` as colls::testing takes it.
template <class Make>
std::string breach_of_contract(
    Make make, std::vector<int> groups = {2, 3, 5}, std::vector<std::size_t> sizes = {}, std::size_t large = 400'000) {
    if (sanitized) groups = {groups.back()};  // a sanitizer sees there what it sees in smaller ones
    const auto report = colls::testing::message_transports(std::move(make),
        {.deadline = patience_s, .groups = std::move(groups), .sizes = std::move(sizes), .large = large});
    return report.ok() ? "" : report.text();
}

/// Rank 1 sends control messages to rank 0, which does not look, until one is refused: not before a queue is full, and
/// not never. Those that were taken arrive, in order, and then there is room again. `taken` is 0 and shared. Empty: it
/// was right.
inline std::string fill_control(int rank, message_transport& w, ear& e, std::atomic<std::uint64_t>& taken) {
    constexpr std::uint64_t queue = 4096, most = 200'000;  // `most`: far more than queue and connection hold
    const std::string text(400, 'x');
    if (rank == 1) {
        std::uint64_t all = 0;
        while (all < most && w.tell(0, {control_kind::board, all, 0, 0, text.c_str()})) ++all;
        taken = all;
        if (all < queue || all == most) return "taken: " + std::to_string(all);
        if (!until(w, [&] { return e.all.size() >= 1; })) return "no answer; " + e.text();
        if (!w.tell(0, {control_kind::board, all, 0, 0, text.c_str()})) return "refused with room";
        return until(w, [&] { return e.all.size() >= 2; }) ? "" : "no second answer; " + e.text();
    }
    const double end = seconds_now() + 60;
    while (taken == 0 && seconds_now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (taken < queue || taken == most) return "";  // rank 1 reports it
    for (const std::uint64_t count : {taken + 0, taken + 1}) {
        if (!until(w, [&] { return e.all.size() >= count; }, 60))
            return std::to_string(e.all.size()) + " arrived of " + std::to_string(count);
        w.tell(1, {control_kind::accept, 0, 0, 0, ""});
    }
    for (std::uint64_t i = 0; i < e.all.size(); ++i)
        if (e.all[i].what.a != i || e.all[i].text != text) return "others arrived";
    return "";
}

inline int open_descriptors() {
    int n = 0;
    DIR* const d = opendir("/proc/self/fd");
    while (readdir(d) != nullptr) ++n;
    closedir(d);
    return n;
}

}  // namespace support
