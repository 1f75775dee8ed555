// Random histories of a group whose members are killed, stopped, woken, leave, and come again: one sequence of epochs,
// right results in each, and nothing that reaches memory from a process that was left out, or is left of one.
#include "catch.hpp"

#include "gathered.hpp"
#include "support/random.hpp"
#include "support/says.hpp"

#include <algorithm>
#include <csignal>
#include <deque>
#include <fstream>
#include <map>
#include <optional>

using namespace gathered;
using colls::errc;
using colls::elastic::member;
using support::says;

namespace {

constexpr int slots = 6, founders = 3;
constexpr std::uint64_t most_epochs = 8192;
constexpr const char* left_out = "have shrunk the group without this rank";

enum class wish : std::uint8_t { be_member, be_away, end };
enum class stage : std::uint8_t { none, opened, member, away, lost, failed };

/// What the conductor and the process of that number tell each other. Processes are replaced: fields begin anew.
struct seat {
    std::atomic<wish> wanted;
    std::atomic<stage> is;
    std::atomic<std::uint64_t> epoch, members;  ///< in which it has made a right step, and of whom, as bits
    std::atomic<int> told;                      ///< how often it has heard that it was left out
    // Written in turn, so that a reader has time.
    char handles[32][256];
    std::atomic<std::uint32_t> handle;
    char text[1000];
};
struct stage_of_all {
    std::atomic<bool> begin;
    seat seats[slots];
    /// By epoch: what all that are in it agree on.
    std::atomic<std::uint64_t> members[most_epochs], done[most_epochs];
};

std::size_t lines_of(const char* file) {
    std::ifstream in(file);
    std::size_t n = 0;
    for (std::string line; std::getline(in, line);) ++n;
    return n;
}
struct usage {
    std::size_t descriptors = support::names_in("/proc/self/fd").size();
    std::size_t threads = support::names_in("/proc/self/task").size();
    std::size_t maps = lines_of("/proc/self/maps");
};

class actor {
public:
    actor(stage_of_all& all, int number) : all_(all), own_(all.seats[number]), number_(number) {}

    void run(bool founds) {
        for (bool first = true;; first = false) {
            try {
                colls::endpoint e = colls::endpoint::open();
                publish(e.handle());
                own_.is = stage::opened;
                if (first && founds) {
                    until([&] { return all_.begin.load(); }, "the beginning");
                    // The last of the list is the one that is never killed: others lead.
                    live(member(std::move(e), {{handle_of(1), handle_of(2), handle_of(0)}}, how));
                } else {
                    live(knock(std::move(e)));
                }
                own_.is = stage::away;
                until([&] { return own_.wanted != wish::be_away; }, "what comes next");
                if (own_.wanted == wish::end) break;
            } catch (const colls::error& x) {
                if (!says(x.what(), left_out)) throw;
                kept_.clear();
                own_.is = stage::none;
                ++own_.told;
            }
            // Every time that it is no member.
            if (!outside_) outside_.emplace();
            expect_no_more(usage{}, *outside_, "outside of a group");
        }
    }

private:
    static constexpr colls::elastic::options how{.timeout = 30};
    static constexpr std::size_t count = 9001;

    template <class F>
    static void until(F f, const char* what) {
        for (const double end = colls::detail::seconds_now() + 100; !f(); usleep(300))
            if (colls::detail::seconds_now() > end) throw std::runtime_error(std::string(what) + " does not come");
    }
    void publish(const std::string& handle) {
        const std::uint32_t next = own_.handle.load() + 1;
        char* const at = own_.handles[next % 32];
        std::memset(at, 0, 256);
        handle.copy(at, 255);
        own_.handle = next;
    }
    std::string handle_of(int i) const {
        const seat& s = all_.seats[i];
        return s.handles[s.handle.load() % 32];
    }
    /// At whatever members there seem to be; some have gone by then.
    member knock(colls::endpoint&& e) {
        for (int tries = 0;; ++tries) {
            std::vector<std::string> doors;
            until(
                [&] {
                    for (int i = 0; i < slots; ++i)
                        if (i != number_ && all_.seats[i].is == stage::member) doors.push_back(handle_of(i));
                    return !doors.empty();
                },
                "a member");
            try {
                return member(std::move(e), doors, how);
            } catch (const colls::error& x) {
                if (x.code() != errc::peer_failed || tries > 100) throw;
                usleep(5000);
                e = colls::endpoint::open();
                publish(e.handle());
            }
        }
    }

    void live(member m) {
        std::uint64_t k = m.done_by_all();
        note(m);
        for (;;) {
            expect_patterns();
            k += step(m);
            if (own_.wanted != wish::be_member) {
                kept_.clear();
                return m.leave(k);
            }
            const std::vector<std::string> before = m.handles();
            const std::uint64_t epoch = m.epoch();
            const bool changed = m.update(k);
            expect(changed == (m.epoch() != epoch), "update says that the epoch has changed");
            expect(m.done_by_any() - m.done_by_all() <= 1, "members are more than a step apart");
            expect(m.done_by_all() + 1 >= k && m.done_by_any() >= k, "steps are lost");
            if (!changed) continue;
            expect(m.epoch() > epoch, "the epoch went back");
            k = m.done_by_all();
            std::vector<std::string> after = before;
            std::erase_if(after, [&](const std::string& h) { return has(m.gone(), h); });
            after.insert(after.end(), m.came().begin(), m.came().end());
            expect(after == m.handles(), "who came and went");
            note(m);
        }
    }
    static bool has(const std::vector<std::string>& all, const std::string& x) {
        return std::find(all.begin(), all.end(), x) != all.end();
    }
    /// All that are in the epoch see the same.
    void note(member& m) {
        std::uint64_t hash = 14695981039346656037u;
        for (const std::string& h : m.handles())
            for (const char c : h) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
        expect(m.epoch() >= 1 && m.epoch() < most_epochs, "the epoch's number");
        expect(m.comm().size() == static_cast<int>(m.handles().size()), "the number of handles");
        expect(m.handles()[static_cast<std::size_t>(m.comm().rank())] == handle_of(number_), "the own place");
        same(all_.members[m.epoch()], hash, "two histories");
        same(all_.done[m.epoch()], m.done_by_all() << 32 | m.done_by_any() << 1 | 1, "two numbers of steps done");
        // Memory of earlier epochs has a pattern, which nobody writes to.
        if (now_) kept_.push_back({std::move(*now_), 0});
        while (kept_.size() > 6) kept_.pop_front();
        for (kept& x : kept_) {
            x.seed = m.epoch() * 64 + static_cast<std::uint64_t>(number_);
            for (std::size_t i = 0; i < x.at.size(); ++i) x.at[i] = pattern(x.seed, i);
        }
        now_.emplace(m.comm().allocate<std::uint64_t>(count + 2));
    }
    static void same(std::atomic<std::uint64_t>& seen, std::uint64_t value, const char* what) {
        std::uint64_t before = 0;
        if (!seen.compare_exchange_strong(before, value)) expect(before == value, what);
    }
    static std::uint64_t pattern(std::uint64_t seed, std::size_t i) { return (seed + i) * 0x9e3779b97f4a7c15u; }
    void expect_patterns() const {
        for (const kept& x : kept_)
            for (std::size_t i = 0; i < x.at.size(); ++i)
                expect(x.at[i] == pattern(x.seed, i), "memory of an earlier epoch was written to");
    }

    /// False: it has failed, as where another one has gone.
    bool step(member& m) {
        colls::communicator& comm = m.comm();
        std::vector<int> who(static_cast<std::size_t>(comm.size()));
        try {
            colls::all_gather(comm, std::vector<int>{number_}, who);
            for (std::size_t r = 0; r < who.size(); ++r)
                if (all_.seats[who[r]].is == stage::member && all_.seats[who[r]].epoch == m.epoch())
                    expect(m.handles()[r] == handle_of(who[r]), "the order of the ranks");
            check_group(comm, who, number_);
            // Into memory of the group, in one piece and by parts.
            colls::memory<std::uint64_t>& x = *now_;
            x[0] = x[count + 1] = 5;
            for (std::size_t i = 1; i <= count; ++i) x[i] = i * static_cast<std::uint64_t>(number_ + 1);
            colls::all_reduce(comm, std::span(x.data() + 1, count), colls::sum);
            std::uint64_t sum = 0, members = 0;
            for (const int w : who) sum += static_cast<std::uint64_t>(w + 1), members |= std::uint64_t{1} << w;
            for (std::size_t i = 1; i <= count; ++i) expect(x[i] == i * sum, "a sum in memory of the group");
            const std::size_t each = count / who.size();
            std::vector<std::uint64_t> mine(each);
            for (std::size_t i = 0; i < each; ++i) mine[i] = pattern(static_cast<std::uint64_t>(number_), i);
            colls::all_gather(comm, mine, std::span(x.data() + 1, each * who.size()));
            for (std::size_t i = 0; i < each * who.size(); ++i)
                expect(x[i + 1] == pattern(static_cast<std::uint64_t>(who[i / each]), i % each), "a part");
            expect(x[0] == 5 && x[count + 1] == 5, "guards in memory of the group");
            own_.members = members;
            own_.epoch = m.epoch();
            own_.is = stage::member;
            expect_flat(comm.size());
            return true;
        } catch (const colls::error& e) {
            const std::string text = "in a step: " + std::to_string(static_cast<int>(e.code())) + ": " + e.what();
            expect(e.code() == errc::peer_failed || e.code() == errc::timeout, text.c_str());
            return false;
        }
    }

    /// A process uses no more after many epochs than after some, in groups of that size.
    void expect_flat(int size) {
        constexpr int first = 60;
        const usage now;
        usage& most = inside_[size];
        if (++steps_[size] == 1) most = now;
        if (steps_[size] > first) return expect_no_more(now, most, "in a group");
        most = {std::max(most.descriptors, now.descriptors), std::max(most.threads, now.threads),
            std::max(most.maps, now.maps)};
    }
    static void expect_no_more(const usage& now, const usage& before, const char* where) {
        const auto compare = [&](const char* what, std::size_t is, std::size_t was, std::size_t room) {
            const std::string text =
                std::string(where) + ": " + std::to_string(is) + " " + what + ", before " + std::to_string(was);
            expect(is <= was + room, text.c_str());
        };
        compare("descriptors", now.descriptors, before.descriptors, 8);
        compare("threads", now.threads, before.threads, 0);
        compare("memory maps", now.maps, before.maps, 40);
    }

    struct kept {
        colls::memory<std::uint64_t> at;
        std::uint64_t seed;
    };
    stage_of_all& all_;
    seat& own_;
    const int number_;
    std::optional<colls::memory<std::uint64_t>> now_;
    std::deque<kept> kept_;
    std::optional<usage> outside_;
    std::map<int, usage> inside_;
    std::map<int, int> steps_;
};

/// Starts the processes, and has them come, leave, die, stop and wake.
class conductor {
public:
    conductor(const shape& s, const char* timeout, std::uint64_t seed)
        : shape_(s), timeout_(timeout), random_(seed), by_messages_(std::string_view(s.name) != "memory") {
        std::fill(std::begin(pids_), std::end(pids_), 0);
    }
    conductor(const conductor&) = delete;
    conductor& operator=(const conductor&) = delete;
    ~conductor() {
        for (int i = 0; i < slots; ++i) end(i, SIGKILL);
    }

    /// Until there have been so many epochs. "": all was as it should be.
    std::string run(std::uint64_t epochs, int most_stops) {
        for (int i = 0; i < founders; ++i) start(i, true);
        if (!wait([&] {
                for (int i = 0; i < founders; ++i)
                    if (all_->seats[i].is != stage::opened) return false;
                return true;
            }))
            return "the founders do not open";
        all_->begin = true;
        if (!settle()) return "the founders do not meet: " + state();
        while (epoch_ < epochs) {
            const int n = count(members_);
            int deaths = 0, leaves = 0, events = random_.one_in(3) ? 2 + random_.one_in(2) : 1;
            std::string did;
            while (events-- > 0) {
                did += act(n, deaths, leaves, most_stops) + "; ";
                if (events > 0) usleep(static_cast<useconds_t>(random_.below(20'000)));
            }
            if (!settle()) return "after " + did + "the group does not go on: " + state();
            for (int i = 0; i < slots; ++i)
                if (stopped_[i]) {
                    // It may have missed the deadline before, and have been told.
                    const int told = all_->seats[i].told;
                    const bool was_member = all_->seats[i].is == stage::member;
                    kill(pids_[i], SIGCONT);
                    stopped_[i] = false;
                    if (!wait([&] { return !was_member || all_->seats[i].told > told; }))
                        return "process " + std::to_string(i) +
                               ", which was left out and wakes, is not told: " + state();
                    if (!settle()) return "the one that wakes does not come again: " + state();
                }
        }
        for (int i = 0; i < slots; ++i)
            if (pids_[i] != 0) {
                all_->seats[i].wanted = wish::end;
                if (random_.one_in(2) && !wait([&] { return ended(i); })) return "it does not end: " + state();
            }
        for (int i = 0; i < slots; ++i)
            if (pids_[i] != 0 && !wait([&] { return ended(i); })) return "it does not end: " + state();
        for (int i = 0; i < slots; ++i)
            if (all_->seats[i].is == stage::failed) return state();
        return "";
    }
    /// The machine was too slow: members over messages have missed the deadline, and with those that were killed the
    /// majority was gone.
    bool lost_majority() const {
        if (!by_messages_) return false;
        for (const seat& s : all_->seats)
            if (s.is == stage::failed && says(s.text, "not a majority")) return true;
        return false;
    }

    int kills = 0, stops = 0, leaves_made = 0;

private:
    static int count(std::uint64_t bits) { return __builtin_popcountll(bits); }
    bool is_member(int i) const { return (members_ >> i & 1) != 0; }

    void start(int i, bool founds) {
        seat& s = all_->seats[i];
        s.is = stage::none, s.wanted = wish::be_member, s.epoch = 0;
        const pid_t child = fork();
        if (child == 0) be(i, founds);
        pids_[i] = child;
    }
    [[noreturn]] void be(int i, bool founds) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("COLLS_HOST", ("host " + std::to_string(i / shape_.per_host)).c_str(), 1);
        setenv("COLLS_TRANSPORT", shape_.transport, 1);
        setenv("COLLS_TIMEOUT", timeout_, 1);
        seat& own = all_->seats[i];
        const auto fail = [&](const char* why) {
            std::memset(own.text, 0, sizeof own.text);
            std::strncpy(own.text, why, sizeof own.text - 1);
            own.is = stage::failed;
            _exit(1);
        };
        try {
            actor(*all_, i).run(founds);
        } catch (const colls::error& e) {
            fail((std::to_string(static_cast<int>(e.code())) + ": " + e.what()).c_str());
        } catch (const std::exception& e) {
            fail(e.what());
        }
        _exit(0);
    }
    void end(int i, int signal) {
        if (pids_[i] == 0) return;
        if (signal != 0) kill(pids_[i], signal);
        waitpid(pids_[i], nullptr, 0);
        pids_[i] = 0, stopped_[i] = false;
    }
    bool ended(int i) {
        if (pids_[i] != 0 && waitpid(pids_[i], nullptr, WNOHANG) == pids_[i]) pids_[i] = 0;
        return pids_[i] == 0;
    }

    /// One event; what it was. `n`: members before the first of some at once.
    std::string act(int n, int& deaths, int& leaves, int most_stops) {
        for (;;) {
            const int i = static_cast<int>(random_.below(slots));
            const std::string name = " " + std::to_string(i);
            seat& s = all_->seats[i];
            // Over messages a majority of all that there were has to be left.
            const auto may = [&](int d, int l) {
                const int left = n - deaths - d - leaves - l;
                return by_messages_ ? 2 * left > n : left > 0;
            };
            if (stopped_[i]) continue;
            if (pids_[i] == 0) return start(i, false), "start" + name;
            if (s.wanted == wish::be_away) {
                if (s.is != stage::away) continue;
                return s.is = stage::none, s.wanted = wish::be_member, "come again" + name;
            }
            const std::size_t what = random_.below(10);
            if (s.is == stage::none && what < 4) continue;  // it has not seen yet that it is to come
            if (what < 4 && may(0, 1)) return ++leaves, ++leaves_made, s.wanted = wish::be_away, "leave" + name;
            if (what < 9 && i != 0 && may(1, 0)) {
                ++deaths, ++kills;
                end(i, SIGKILL);
                if (random_.one_in(2)) return "kill" + name;
                return start(i, false), "replace" + name;
            }
            if (what == 9 && is_member(i) && stops < most_stops && may(1, 0)) {
                ++deaths, ++stops;
                kill(pids_[i], SIGSTOP);
                return stopped_[i] = true, "stop" + name;
            }
            if (what == 9) {
                kill(pids_[i], SIGSTOP), usleep(1000), kill(pids_[i], SIGCONT);
                return "hold" + name;
            }
        }
    }
    /// Waits until those that want to be members are, and no others.
    bool settle() {
        return wait([&] {
            std::uint64_t wanted = 0, epoch = 0;
            for (int i = 0; i < slots; ++i)
                if (pids_[i] != 0 && !stopped_[i] && all_->seats[i].wanted == wish::be_member)
                    wanted |= std::uint64_t{1} << i, epoch = std::max(epoch, all_->seats[i].epoch.load());
            for (int i = 0; i < slots; ++i) {
                const seat& s = all_->seats[i];
                if ((wanted >> i & 1) && (s.is != stage::member || s.epoch != epoch || s.members != wanted))
                    return false;
                if (pids_[i] != 0 && !stopped_[i] && s.wanted == wish::be_away && s.is != stage::away) return false;
            }
            members_ = wanted, epoch_ = epoch;
            return true;
        });
    }
    template <class F>
    bool wait(F f) {
        for (const double until = colls::detail::seconds_now() + 60; !f(); usleep(300)) {
            for (int i = 0; i < slots; ++i)
                if (all_->seats[i].is == stage::failed) return false;
            if (colls::detail::seconds_now() > until) return false;
        }
        return true;
    }
    std::string state() const {
        std::string text;
        for (int i = 0; i < slots; ++i) {
            const seat& s = all_->seats[i];
            text += "\n    " + std::to_string(i) +
                    (pids_[i] == 0    ? " has ended"
                        : stopped_[i] ? " is stopped"
                                      : "") +
                    ": wanted " + std::to_string(static_cast<int>(s.wanted.load())) + ", stage " +
                    std::to_string(static_cast<int>(s.is.load())) + ", epoch " + std::to_string(s.epoch) +
                    ", members " + std::to_string(s.members) + ", told " + std::to_string(s.told);
            if (s.is == stage::failed) text += std::string(": ") + s.text;
        }
        return text;
    }

    const shape& shape_;
    const char* const timeout_;
    support::random_source random_;
    const bool by_messages_;
    support::common<stage_of_all> all_;
    pid_t pids_[slots];
    bool stopped_[slots] = {};
    std::uint64_t members_ = 0, epoch_ = 0;  // when it was settled last
};

}  // namespace

TEST_CASE("histories: members that are killed, stopped, woken, leave and come again see one sequence of epochs",
    "[elastic]") {
    const std::uint64_t seed = support::setting("COLLS_TEST_SEED", 1);
    const std::uint64_t epochs = support::setting("COLLS_TEST_CASES", support::long_run ? 1000 : 16);
    const int stops = support::long_run ? 40 : 1;
    const support::remains before;
    for (const shape& s : shapes) {
        std::string wrong;
        for (int trial = 0; trial < 3; ++trial) {
            conductor all(s, "1", support::stream(seed, static_cast<std::uint64_t>(trial)).next());
            wrong = all.run(epochs, stops);
            if (!all.lost_majority()) break;
        }
        INFO(s.name << ", seed " << seed << ": " << wrong);
        CHECK(wrong.empty());
        const std::string left = before.left();
        INFO(left);
        CHECK(left.empty());
    }
}
