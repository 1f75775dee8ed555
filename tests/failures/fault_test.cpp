// Ranks that are killed or stopped, that throw or leave, at any moment: every other rank gets an error that names the
// rank, within a second; the survivors shrink the group and go on; no process, descriptor or file is left behind.
#include "catch.hpp"

#include "support/fault.hpp"
#include "support/random.hpp"
#include "support/says.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>

using namespace support;

namespace {

constexpr int max_ranks = 8;
constexpr std::size_t max_bytes = std::size_t{4} << 20;
/// Seconds after which COLLS_TEST_FIGURES=1 counts an error as late. No test asserts a time, since machines are shared.
constexpr double late_after = 1;

/// What a rank tells the test.
struct report {
    int calls;  ///< that are complete
    int wrong;  ///< complete calls with a wrong result
    int code;   ///< of the error; 0: none
    int peer;   ///< that the error names
    double at;  ///< time of the error
    char text[512];
    char later[512];  ///< what was wrong after the error
    bool shrunk;
    bool no_majority;  ///< the group was not shrunk, since half of it or less had survived
    bool finished;     ///< the rank came to the end of its function
    char files[512];   ///< named files that the rank still had open or mapped after the error
};
struct group_report {
    double died;      ///< time at which the victim was killed, stopped or left
    int process;      ///< of the victim
    double deadline;  ///< seconds, where a wait is to time out
    std::atomic<int> failed, woken;
    report of[max_ranks];
};
common<group_report>& reported() {
    static common<group_report> all;
    return all;
}
void clear_reports() { std::memset(static_cast<void*>(&*reported()), 0, sizeof(group_report)); }
template <std::size_t n>
void put(char (&to)[n], const std::string& text) {
    std::snprintf(to, n, "%s", text.c_str());
}

void die() {
    reported()->died = colls::detail::seconds_now();
    kill(getpid(), SIGKILL);
}
void die_by_signal(int) { die(); }
/// Calls the handler once, after so many seconds, wherever the process is then.
void set_timer(double seconds, void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    sigaction(SIGALRM, &action, nullptr);
    itimerval when{};
    when.it_value.tv_usec = static_cast<suseconds_t>(seconds * 1e6) + 1;
    setitimer(ITIMER_REAL, &when, nullptr);
}
/// Kills a rank that hangs, after the library's own deadline (300 s), since an error of the library says more.
void kill_if_hanging() {
    signal(SIGALRM, SIG_DFL);
    alarm(400);
}

/// Buffers for calls: two pairs, so that two calls can be in flight.
class memory_of_calls {
public:
    memory_of_calls(colls::communicator& comm, std::size_t bytes, bool reached) {
        for (auto& b : all_) {
            const std::size_t count = bytes / judged_call::element;
            if (reached) {
                b.reached.emplace(comm.allocate<std::uint64_t>(count));
                b.data = b.reached->data();
            } else {
                b.own.reset(new std::uint64_t[count]);
                b.data = b.own.get();
            }
        }
    }
    std::uint64_t* in(int pair) { return all_[static_cast<std::size_t>(2 * pair)].data; }
    std::uint64_t* out(int pair) { return all_[static_cast<std::size_t>(2 * pair + 1)].data; }

private:
    struct buffer {
        std::optional<colls::memory<std::uint64_t>> reached;
        std::unique_ptr<std::uint64_t[]> own;
        std::uint64_t* data = nullptr;
    };
    std::array<buffer, 4> all_;
};

/// A sequence of calls that is the same on all ranks.
struct traffic {
    std::uint64_t seed = 0;
    int only = -1;            ///< the only collective, or -1: all of them
    std::size_t bytes = 64;   ///< of a call, at most
    bool exactly = false;     ///< all calls have `bytes` bytes
    bool messages = false;    ///< some calls are messages to the next rank
    int breaks_at = -1;       ///< `breaks` is called before this call
    int breaks_between = -1;  ///< `breaks` is called when this call has been started
    void (*breaks)() = nullptr;

    judged_call draw(random_source& random, int n, std::uint64_t number) const {
        const auto c = static_cast<verb>(only >= 0 ? only : static_cast<int>(random.below(colls::collective_count)));
        const std::size_t size = exactly ? bytes : random.one_in(3) ? 8 : 8 + random.below(bytes - 7);
        return judged_call(c, n, rooted(c) ? random.between(0, n - 1) : 0, size, number);
    }
    void turn(colls::communicator& comm, memory_of_calls& memory, int k, report& mine) const {
        const int n = comm.size(), rank = comm.rank();
        random_source random = stream(seed, static_cast<std::uint64_t>(k));
        const auto number = static_cast<std::uint64_t>(k) * 2;
        const judged_call a = draw(random, n, number), b = draw(random, n, number + 1);
        const std::size_t way = random.below(6);
        const bool passes = messages && random.one_in(4);
        const auto judge = [&](const judged_call& c, int pair) {
            ++mine.calls;
            mine.wrong += !c.right(rank, memory.out(pair));
        };
        if (breaks && k == breaks_at) breaks();
        a.fill(rank, memory.in(0), memory.out(0));
        if (passes) {
            const std::size_t count = a.longest() > 0 ? a.longest() : 1;
            judged_call(verb::reduce, n, 0, count * judged_call::element, number)
                .fill(rank, memory.in(0), memory.out(0));
            auto sent = colls::start::send(comm, std::span(memory.in(0), count), (rank + 1) % n);
            if (breaks && k == breaks_between) breaks();
            colls::recv(comm, std::span(memory.out(0), count), (rank + n - 1) % n);
            sent.wait();
            judge(judged_call(verb::broadcast, n, (rank + n - 1) % n, count * judged_call::element, number), 0);
        } else if (way < 3) {
            make<blocking_way>(comm, a, memory.in(0), memory.out(0));
            judge(a, 0);
        } else if (way < 5) {
            b.fill(rank, memory.in(1), memory.out(1));
            colls::operation first = make<start_way>(comm, a, memory.in(0), memory.out(0));
            colls::operation second = make<start_way>(comm, b, memory.in(1), memory.out(1));
            if (breaks && k == breaks_between) breaks();
            if (random.one_in(2))
                while (!second.test()) sched_yield();
            else
                second.wait();
            first.wait();
            judge(a, 0);
            judge(b, 1);
        } else {
            colls::plan plan = make<prepare_way>(comm, a, memory.in(0), memory.out(0));
            plan.run();
            judge(a, 0);
            a.fill(rank, memory.in(0), memory.out(0));
            colls::operation again = plan.start();
            if (breaks && k == breaks_between) breaks();
            again.wait();
            judge(a, 0);
        }
    }
};

/// Calls f and stores the error that it throws.
template <class F>
void note_error(report& mine, F f) {
    try {
        f();
    } catch (const colls::error& x) {
        mine.at = colls::detail::seconds_now();
        mine.code = static_cast<int>(x.code());
        mine.peer = x.peer();
        put(mine.text, x.what());
    } catch (const std::exception& x) {
        mine.code = -1;
        put(mine.text, x.what());
    }
}

/// What a survivor does after the error: shrinks the group and checks that the new group works. Where ranks pass
/// messages (`halves_go_on` is false), half of a group or less must not go on, since the other half may live as well.
void go_on(
    colls::communicator& comm, bool halves_go_on, const std::vector<int>& survivors, std::uint64_t seed, report& mine) {
    const int old = comm.rank();
    const int n = static_cast<int>(survivors.size());
    std::string& wrong = *new std::string;
    try {
        const bool goes_on = halves_go_on || 2 * n > comm.size();
        colls::communicator rest = comm.shrink();
        mine.shrunk = true;
        if (!goes_on) wrong += "half of a group has shrunk; ";
        const auto size = static_cast<std::size_t>(rest.size());
        std::vector<int> members(size);
        colls::all_gather(rest, std::array{old}, members);
        if (members != survivors) {
            wrong += "the members after shrink: ";
            for (const int r : members) wrong += std::to_string(r) + " ";
        } else {
            if (survivors[static_cast<std::size_t>(rest.rank())] != old)
                wrong += "its rank after shrink is " + std::to_string(rest.rank()) + "; ";
            memory_of_calls memory(rest, 1 << 16, seed % 2 == 0);
            report after{};
            for (int k = 0; k < 4; ++k) traffic{seed + 1, -1, 1 << 16}.turn(rest, memory, k, after);
            traffic{seed + 2, static_cast<int>(verb::all_reduce), 1 << 16, true}.turn(rest, memory, 0, after);
            if (after.wrong > 0) wrong += "a call after shrink had a wrong result; ";
            colls::communicator half = rest.split(rest.rank() % 2, -rest.rank());
            if (half.size() != (n + 1 - rest.rank() % 2) / 2)
                wrong += "a part of the shrunk group has " + std::to_string(half.size()) + " ranks; ";
            memory_of_calls less(half, 1 << 12, false);
            traffic{seed + 3, static_cast<int>(verb::all_reduce), 1 << 12, true}.turn(half, less, 0, after);
            if (after.wrong > 0) wrong += "a call in a part of the shrunk group had a wrong result; ";
            colls::barrier(rest);
        }
    } catch (const colls::error& x) {
        if (!mine.shrunk && !halves_go_on && 2 * n <= comm.size() &&
            std::string_view(x.what()).find("not a majority") != std::string_view::npos)
            mine.no_majority = true;
        else
            wrong += std::string("after the error: ") + x.what();
    }
    put(mine.later, wrong);
    delete &wrong;
}

struct figures {
    int trials = 0, not_shrunk = 0, late = 0;
    double latest = 0;
};

/// One trial: empty, or what was wrong.
std::string kill_one(const std::string& transport, std::uint64_t seed, figures& all) {
    random_source random = stream(seed, 1);
    const int n = random.between(2, max_ranks), victim = random.between(0, n - 1);
    traffic calls;
    calls.seed = seed;
    calls.only = random.one_in(2) ? -1 : random.between(0, colls::collective_count - 1);
    constexpr std::size_t sizes[] = {8, 64, 4 << 10, 32 << 10, 256 << 10, 1 << 20, max_bytes};
    calls.bytes = sizes[random.below(std::size(sizes))];
    calls.exactly = random.one_in(2);
    calls.messages = random.one_in(3);
    const bool reached = random.one_in(2);
    const double delay = random.unit() * 3e-3;
    const std::size_t moment = random.below(4);
    const int at_call = random.between(0, 12);
    const long in_fold = 1 + static_cast<long>(random.below(calls.bytes / 8 * 4));
    constexpr const char* schedules[] = {nullptr, nullptr, nullptr, "mailbox", "direct", "ring", "recursive_doubling",
        "tree", "double_tree", "circulant", "bruck", "pipelined_broadcast"};
    const char* const schedule = schedules[random.below(std::size(schedules))];

    std::string name = transport + ", seed " + std::to_string(seed) + ", n " + std::to_string(n) + ", victim " +
                       std::to_string(victim) + ", " +
                       (calls.only < 0 ? "all collectives" : name_of(static_cast<verb>(calls.only))) + " of " +
                       (calls.exactly ? "" : "at most ") + std::to_string(calls.bytes) + " bytes, " +
                       (schedule ? schedule : "automatic") + (reached ? ", allocated" : "") + ", moment " +
                       std::to_string(moment) + "\n";

    const with_environment chosen("COLLS_SCHEDULE", schedule);
    std::vector<int> survivors;
    for (int r = 0; r < n; ++r)
        if (r != victim) survivors.push_back(r);
    clear_reports();
    const remains before;
    std::string wrong;
    try {
        colls::processes::run(n, [&](colls::communicator& comm) {
            report& mine = reported()->of[comm.rank()];
            traffic own = calls;
            if (comm.rank() == victim) {
                reported()->process = getpid();
                own.breaks = die;
                if (moment == 1) own.breaks_at = at_call;
                if (moment == 2) own.breaks_between = at_call;
                if (moment == 3) mortal_sum::countdown = in_fold, mortal_sum::at_the_end = die;
                set_timer(moment == 0 ? delay : 3e-3 + delay, die_by_signal);
            } else {
                kill_if_hanging();
            }
            memory_of_calls memory(comm, calls.bytes, reached);
            note_error(mine, [&] {
                for (int k = 0; k < 1'000'000; ++k) own.turn(comm, memory, k, mine);
            });
            if (comm.rank() == victim) return;
            ++reported()->failed;
            put(mine.files, before.lasting());
            if (mine.code > 0) go_on(comm, transport == "shm", survivors, seed, mine);
            mine.finished = true;
        });
        wrong += "run threw no error; ";
    } catch (const colls::error& x) {
        if (x.code() != colls::errc::peer_failed || x.rank() != victim)
            wrong += std::string("run threw: ") + x.what() + "; ";
    }
    if (const std::string left = before.left(); !left.empty()) wrong += left;
    if (reported()->died == 0) wrong += "the victim was not killed; ";
    for (const int r : survivors) {
        const report& got = reported()->of[r];
        const std::string of_rank = "\n  rank " + std::to_string(r) + ": ";
        const double late = got.at - reported()->died;
        if (!got.finished) wrong += of_rank + "did not come to the end of its function";
        if (got.wrong > 0) wrong += of_rank + std::to_string(got.wrong) + " wrong results";
        if (got.code != static_cast<int>(colls::errc::peer_failed) || got.peer != victim)
            wrong +=
                of_rank + "error " + std::to_string(got.code) + ", peer " + std::to_string(got.peer) + ": " + got.text;
        if (got.later[0]) wrong += of_rank + got.later;
        if (got.files[0]) wrong += of_rank + got.files;
        all.not_shrunk += got.no_majority;
        if (late > late_after) {
            ++all.late;
            if (setting("COLLS_TEST_FIGURES", 0))
                std::printf("%srank %d: after %.3f s: %s\n", name.c_str(), r, late, got.text);
        }
        if (late > all.latest) all.latest = late;
    }
    ++all.trials;
    return wrong.empty() ? wrong : name + wrong;
}

}  // namespace

namespace {

/// A temporary folder with a space and the library's name in its path.
struct odd_folder {
    std::string path = (std::filesystem::temp_directory_path() / "colls of a test XXXXXX").string();
    odd_folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
    odd_folder(const odd_folder&) = delete;
    odd_folder& operator=(const odd_folder&) = delete;
    ~odd_folder() { std::filesystem::remove_all(path); }
    int make(const char* name) const {
        const int file = open((path + "/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        REQUIRE(file >= 0);
        REQUIRE(ftruncate(file, 4096) == 0);
        return file;
    }
};
void* map_shared(int file) {
    void* const at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(at != MAP_FAILED);
    return at;
}

}  // namespace

TEST_CASE("remains: ignores what was open or mapped before the trial, whatever its path", "[fault]") {
    has_own_folders();  // if possible, the folder lies in a /tmp of this process
    const odd_folder folder;
    const int log = folder.make("LastTest.log.tmp"), other = folder.make("mapped");
    void* const at = map_shared(other);
    close(other);
    {
        const remains before;
        CHECK(before.named() == "");
        CHECK(before.left() == "");
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) _exit(before.named().empty() ? 0 : 1);
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    munmap(at, 4096);
    close(log);
}

TEST_CASE("remains: finds what a trial left open, mapped, in a folder or running", "[fault]") {
    has_own_folders();
    const odd_folder folder;
    const remains before;
    const std::string path = folder.path + "/made";
    REQUIRE(before.left() == "");

    SECTION("open, then mapped, then without a name") {
        const int file = folder.make("made");
        CHECK(before.named() == path + " is open; ");
        CHECK(lacks(before.left(), {"descriptors, before"}) == "");
        void* const at = map_shared(file);
        CHECK(before.named() == path + " is mapped; " + path + " is open; ");
        close(file);
        CHECK(before.named() == path + " is mapped; ");
        CHECK(lacks(before.lasting(), {path + " is mapped"}) == "");
        unlink(path.c_str());
        CHECK(before.named() == "");
        munmap(at, 4096);
    }
    SECTION("in the folders of temporary files") {
        for (const char* left : {"/tmp/left by a test", "/dev/shm/left by a test"}) {
            if (!has_own_folders()) {
                WARN(
                    "left out: files in /tmp and /dev/shm, which this process shares with others (folders of its own "
                    "need CAP_SYS_ADMIN)");
                break;
            }
            close(open(left, O_RDWR | O_CREAT, 0600));
            CHECK(lacks(before.left(), {std::string(left) + " is left"}) == "");
            unlink(left);
            CHECK(before.left().find(left) == std::string::npos);
        }
    }
    SECTION("memory without a name is ignored") {
        const int file = memfd_create("colls", MFD_CLOEXEC);
        REQUIRE(file >= 0);
        REQUIRE(ftruncate(file, 4096) == 0);
        void* const at = map_shared(file);
        CHECK(before.named() == "");
        munmap(at, 4096);
        close(file);
    }
    SECTION("a process") {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0)
            for (;;) pause();
        CHECK(lacks(before.left(), {"a process is left"}) == "");
        kill(child, SIGKILL);
        CHECK(waitpid(child, nullptr, 0) == child);
    }
    CHECK(before.left() == "");
}

TEST_CASE(
    "fault: a rank killed at a random moment is named in every survivor's error, and the survivors go on", "[fault]") {
    const std::uint64_t trials = setting("COLLS_TEST_TRIALS", long_run ? 300 : 20),
                        seed = setting("COLLS_TEST_SEED", 1);
    for (const std::string& transport : process_transports()) {
        const with_environment by("COLLS_TRANSPORT", transport.c_str());
        figures all;
        int failures = 0;
        for (std::uint64_t t = 0; t < trials && failures < 5; ++t) {
            const std::string wrong = kill_one(transport, seed * 1'000'000 + t, all);
            INFO(wrong);
            CHECK(wrong.empty());
            failures += !wrong.empty();
        }
        if (setting("COLLS_TEST_FIGURES", 0))
            std::printf(
                "%s: %d trials, the latest error after %.3f s, %d after more than %.0f s, %d times no majority to "
                "shrink\n",
                transport.c_str(), all.trials, all.latest, all.late, late_after, all.not_shrunk);
    }
}

namespace {

constexpr int first_turns = 4;

/// A deadline that passes for a stopped rank and not for one that waits for a core: a multiple of the longest of the
/// first turns on any rank. Until it is set, the library's own deadline holds.
double short_deadline(colls::communicator& comm, const traffic& calls, memory_of_calls& memory, report& mine) {
    double longest[1] = {};
    for (int k = 0; k < first_turns; ++k) {
        const double begun = colls::detail::seconds_now();
        calls.turn(comm, memory, k, mine);
        if (k > 0)
            longest[0] = std::max(longest[0], colls::detail::seconds_now() - begun);  // the first touches all memory
    }
    colls::all_reduce(comm, longest, colls::max);
    return std::clamp(10 * longest[0], 1., 60.);
}

/// Empty, or the first element that differs from `value`.
std::string changed(const char* what, const std::uint64_t* data, std::size_t count, std::uint64_t value) {
    for (std::size_t i = 0; i < count; ++i)
        if (data[i] != value) return std::string(what) + ": element " + std::to_string(i) + " has changed; ";
    return {};
}

}  // namespace

TEST_CASE("fault: a rank stopped past the deadline is a timeout on every rank, and writes nothing when it goes on",
    "[fault]") {
    const std::uint64_t trials = setting("COLLS_TEST_STOPS", long_run    ? 4
                                                             : sanitized ? 1
                                                                         : 2),
                        seed = setting("COLLS_TEST_SEED", 1);
    constexpr std::uint64_t untouched = 0x7e57ed7e57ed7e57u;
    for (const std::string& transport : process_transports())
        for (std::uint64_t t = 0; t < trials; ++t) {
            random_source random = stream(seed, 2, t);
            const int n = random.between(2, 5), victim = random.between(0, n - 1);
            const bool reached = t % 2 == 0;
            const double delay = random.unit() * 20e-3;
            traffic calls{random.next(), t % 4 < 2 ? static_cast<int>(verb::all_reduce) : -1, max_bytes, true};
            const with_environment by("COLLS_TRANSPORT", transport.c_str());
            clear_reports();
            const remains before;
            std::string thrown;
            try {
                colls::processes::run(n, [&](colls::communicator& comm) {
                    report& mine = reported()->of[comm.rank()];
                    std::optional<memory_of_calls> memory(std::in_place, comm, calls.bytes, reached);
                    const double deadline = short_deadline(comm, calls, *memory, mine);
                    if (comm.rank() == 0) reported()->deadline = deadline;
                    comm.context().env.timeout = deadline;
                    const auto call = [&] {
                        for (int k = first_turns; k < 1'000'000; ++k) calls.turn(comm, *memory, k, mine);
                    };
                    if (comm.rank() == victim) {
                        reported()->process = getpid();
                        set_timer(delay, [](int) {
                            reported()->died = colls::detail::seconds_now();
                            raise(SIGSTOP);
                        });
                        note_error(mine, call);
                        ++reported()->woken;
                        mine.finished = true;
                        return;
                    }
                    kill_if_hanging();
                    note_error(mine, call);
                    // After the error no rank writes to a survivor's ordinary memory. Memory from allocate may still be
                    // written to by the stopped rank, which must not take what is there now for a result; memory that
                    // is allocated in its place must stay untouched.
                    const bool keeps = reached && t % 4 == 0;
                    if (reached && !keeps) {
                        memory.reset();
                        memory.emplace(comm, calls.bytes, true);
                    }
                    const std::size_t count = calls.bytes / judged_call::element;
                    for (int pair = 0; pair < 2; ++pair) {
                        std::fill_n(memory->in(pair), count, untouched);
                        std::fill_n(memory->out(pair), count, untouched);
                    }
                    if (++reported()->failed == n - 1) kill(reported()->process, SIGCONT);
                    for (int i = 0; i < 60'000 && reported()->woken == 0; ++i) usleep(1'000);
                    std::string wrong;
                    for (int pair = 0; pair < 2 && !keeps; ++pair)
                        wrong += changed("in", memory->in(pair), count, untouched) +
                                 changed("out", memory->out(pair), count, untouched);
                    put(mine.later, wrong);
                    mine.finished = true;
                });
            } catch (const colls::error& x) {
                thrown = x.what();
            }
            INFO(transport << ", trial " << t << ", n " << n << ", stopped " << victim
                           << (reached ? ", allocated" : ""));
            CHECK(thrown == "");
            CHECK(before.left() == "");
            CHECK(reported()->died > 0);
            for (int r = 0; r < n; ++r) {
                const report& got = reported()->of[r];
                INFO("rank " << r << ", " << got.at - reported()->died << " s: " << got.text);
                CHECK(got.finished);
                CHECK(got.wrong == 0);
                CHECK(std::string(got.later) == "");
                CHECK(got.code == static_cast<int>(colls::errc::timeout));
                if (r == victim) continue;
                CHECK(got.peer == victim);
                if (setting("COLLS_TEST_FIGURES", 0))
                    std::printf("%s: %.2f s of %.2f s, %s\n", transport.c_str(), got.at - reported()->died,
                        reported()->deadline, got.text);
            }
        }
}

namespace {

/// How a rank leaves its group.
enum class departure { throws, operator_throws, returns, exits, exits_with_status, aborts };
constexpr const char* departures[] = {"its function throws", "its operator throws", "its function returns",
    "it calls exit(0)", "it calls exit(3)", "it calls abort()"};

struct own_exception : std::runtime_error {
    own_exception() : std::runtime_error("the rank's own exception") {}
};

}  // namespace

TEST_CASE("fault: a rank that throws, returns or exits during calls is named in the others' errors, and in run's",
    "[fault]") {
    const std::uint64_t turns = setting("COLLS_TEST_DEPARTURES", long_run ? 4 : 1),
                        seed = setting("COLLS_TEST_SEED", 1);
    for (const std::string& transport : process_transports())
        for (int f = 0; f < static_cast<int>(std::size(departures)); ++f)
            for (std::uint64_t t = 0; t < turns * 3; ++t) {
                const auto how = static_cast<departure>(f);
                random_source random = stream(seed, 3 + static_cast<std::uint64_t>(f), t);
                const int n = random.between(2, 6), victim = t % 3 == 0 ? 0 : random.between(0, n - 1);
                const int at_call = random.between(0, 6);
                traffic calls{
                    random.next(), -1, t % 2 == 0 ? std::size_t{64} : std::size_t{256} << 10, t % 2 != 0, true};
                if (how == departure::operator_throws)
                    calls.only = static_cast<int>(verb::all_reduce), calls.messages = false;
                const bool survivors_stay = random.one_in(2);
                const with_environment by("COLLS_TRANSPORT", transport.c_str());
                clear_reports();
                const remains before;
                std::vector<int> survivors;
                for (int r = 0; r < n; ++r)
                    if (r != victim) survivors.push_back(r);
                std::string thrown;
                int code = 0, thrower = colls::none;
                try {
                    colls::processes::run(n, [&](colls::communicator& comm) {
                        report& mine = reported()->of[comm.rank()];
                        memory_of_calls memory(comm, calls.bytes, t % 2 == 0);
                        kill_if_hanging();
                        if (comm.rank() == victim) {
                            struct rlimit no_core{};
                            setrlimit(RLIMIT_CORE, &no_core);
                            for (int k = 0; k < at_call; ++k) calls.turn(comm, memory, k, mine);
                            reported()->died = colls::detail::seconds_now();
                            switch (how) {
                                case departure::throws:
                                    throw own_exception();
                                case departure::operator_throws:
                                    mortal_sum::countdown = 1;
                                    mortal_sum::at_the_end = [] { throw own_exception(); };
                                    calls.turn(comm, memory, at_call, mine);
                                    throw own_exception();  // reached where this rank folds nothing, as a leaf of a
                                                            // tree
                                case departure::returns:
                                    return;
                                case departure::exits:
                                    std::exit(0);
                                case departure::exits_with_status:
                                    std::exit(3);
                                case departure::aborts:
                                    signal(SIGABRT, SIG_DFL);
                                    std::abort();
                            }
                            return;
                        }
                        note_error(mine, [&] {
                            for (int k = 0; k < 1'000'000; ++k) calls.turn(comm, memory, k, mine);
                        });
                        put(mine.files, before.lasting());
                        if (survivors_stay) go_on(comm, transport == "shm", survivors, t, mine);
                        mine.finished = true;
                    });
                } catch (const colls::error& x) {
                    thrown = x.what();
                    code = static_cast<int>(x.code());
                    thrower = x.rank();
                }
                INFO(transport << ", " << departures[f] << ", trial " << t << ", n " << n << ", rank " << victim
                               << " after " << at_call << " calls of " << calls.bytes
                               << " bytes; run threw: " << thrown);
                CHECK(before.left() == "");
                if (how == departure::returns || how == departure::exits) {
                    CHECK(thrown == "");
                } else {
                    CHECK(code == static_cast<int>(colls::errc::peer_failed));
                    CHECK(thrower == victim);
                    if (how == departure::throws || how == departure::operator_throws)
                        CHECK(lacks(thrown, {"the rank's own exception"}) == "");
                    if (how == departure::exits_with_status) CHECK(lacks(thrown, {"status 3"}) == "");
                    if (how == departure::aborts) CHECK(lacks(thrown, {"signal 6"}) == "");
                }
                for (const int r : survivors) {
                    const report& got = reported()->of[r];
                    INFO("rank " << r << ", " << got.at - reported()->died << " s: " << got.text);
                    CHECK(got.finished);
                    CHECK(got.wrong == 0);
                    CHECK(got.code == static_cast<int>(colls::errc::peer_failed));
                    CHECK(got.peer == victim);
                    CHECK(std::string(got.later) == "");
                    CHECK(std::string(got.files) == "");
                }
            }
}
