// `colls status`: what it says of running programs, by process and over the network, and what it refuses. Ranks here
// are processes, or threads of one, that this test stops and kills.
#include "../support/launch.hpp"
#include "../support/ports.hpp"
#include "execute.hpp"

#include <colls/elastic.hpp>
#include <colls/net/detail/connection/channel.hpp>
#include <colls/status/detail/reader.hpp>
#include <colls/status/detail/record.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using nlohmann::json;
using namespace std::chrono_literals;
using support::execute;
using support::program_result;

/// What a job and this test tell each other.
struct board {
    std::atomic<pid_t> process[64];
    std::atomic<std::uint64_t> calls[64];
    std::atomic<int> told;
    std::atomic<bool> over;
};

/// Programs that run while this lives, in processes of their own.
class job {
public:
    explicit job(const std::function<void(board&)>& run)
        : board_(static_cast<board*>(
              mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        REQUIRE(board_ != MAP_FAILED);
        prctl(PR_SET_CHILD_SUBREAPER, 1);  // the ranks that the runner forks become ours when it is gone
        std::fflush(nullptr);
        runner_ = fork();
        REQUIRE(runner_ >= 0);
        if (runner_ > 0) return;
        setenv("COLLS_TIMEOUT", "inf", 1);
        try {
            run(*board_);
        } catch (const std::exception& e) {
            if (!board_->over) std::fprintf(stderr, "the job: %s\n", e.what());
        }
        _exit(0);
    }
    job(const job&) = delete;
    job& operator=(const job&) = delete;
    ~job() {
        board_->over = true;
        for (const auto& p : board_->process)
            if (p > 0) kill(p, SIGKILL);
        kill(runner_, SIGKILL);
        waitpid(runner_, nullptr, 0);
        for (const auto& p : board_->process)  // what they listen on is free then, and what they hold
            if (p > 0) waitpid(p, nullptr, 0);
        munmap(board_, sizeof(board));
    }
    board* operator->() const { return board_; }
    pid_t runner() const { return runner_; }
    bool lives() const { return colls::detail::status::state_of("/proc/" + std::to_string(runner_)) != 'Z'; }
    /// Returns when all n ranks have made this many calls.
    void wait_for_calls(int n, std::uint64_t calls) const {
        for (int r = 0; r < n; ++r)
            while (board_->calls[r] < calls) std::this_thread::sleep_for(1ms);
    }

private:
    board* board_;
    pid_t runner_ = -1;
};

/// Calls until the job is over; after an error the rank keeps its group.
void make_calls(colls::communicator& comm, board& b) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int rank = comm.rank();
    b.process[rank] = getpid();
    std::vector<float> x(256, 1);
    try {
        while (!b.over) {
            colls::all_reduce(comm, std::span(x), colls::max);
            ++b.calls[rank];
        }
    } catch (const colls::error&) {}
    while (!b.over) std::this_thread::sleep_for(1ms);
}

/// This process becomes the only rank of a job with this COLLS_STATUS.
void be_alone(const std::string& shown_at) {
    setenv("COLLS_STATUS", shown_at.c_str(), 1);
    setenv("COLLS_RANK", "0", 1);
    setenv("COLLS_SIZE", "1", 1);
}

/// Stops a process, and returns when it has: before that it may have to wait for a core.
void stop(pid_t process) {
    kill(process, SIGSTOP);
    while (colls::detail::status::state_of("/proc/" + std::to_string(process)) != 'T') std::this_thread::sleep_for(1ms);
}

program_result status(const std::string& arguments, const std::string& before = "") {
    return execute(before + " '" COLLS_TEST_TOOL "' status " + arguments);
}
json groups(const std::string& target, const std::string& before = "") {
    const program_result r = status(target + " --json", before);
    CAPTURE(target, r.text);
    REQUIRE(r.status == 0);
    return json::parse(r.text).at("groups");
}
/// The rows of the only group.
json rows(const std::string& target, const std::string& before = "") {
    const json all = groups(target, before);
    CAPTURE(all.dump());
    REQUIRE(all.size() == 1);
    return all[0]["ranks"];
}
json row_of(const json& rows, int rank) {
    for (const json& r : rows)
        if (r["rank"] == rank) return r;
    FAIL("no rank " << rank << " in " << rows.dump());
    return {};
}
void say_time(const char* what, std::chrono::steady_clock::time_point since) {
    if (const char* const figures = std::getenv("COLLS_TEST_FIGURES"); figures && *figures != '0')
        std::printf(
            "%s: %.3f s\n", what, std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count());
}

/// A process that does `what`, and then sleeps.
class sleeper {
public:
    explicit sleeper(const std::function<void()>& what) {
        int ready[2];
        REQUIRE(pipe(ready) == 0);
        process_ = fork();
        if (process_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            what();
            static_cast<void>(!write(ready[1], "x", 1));
            for (;;) pause();
        }
        char c;
        REQUIRE(read(ready[0], &c, 1) == 1);
        close(ready[0]), close(ready[1]);
    }
    ~sleeper() {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
    std::string number() const { return std::to_string(process_); }

private:
    pid_t process_;
};

int connect_to(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<in_port_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    return fd;
}

}  // namespace

TEST_CASE("a stopped rank of a host is named first, and a killed one") {
    for (const int n : {2, 5, 64}) {
        CAPTURE(n);
        const job run([n](board& b) { colls::processes::run(n, [&](colls::communicator& c) { make_calls(c, b); }); });
        run.wait_for_calls(n, 3);
        const int stopped = n / 2, other = n - 1 == stopped ? 0 : n - 1;
        const auto since = std::chrono::steady_clock::now();
        stop(run->process[stopped]);
        // At once: the others may not wait yet.
        const json first = rows(std::to_string(run->process[other]));
        say_time("named", since);
        REQUIRE(first.size() == static_cast<std::size_t>(n));
        CHECK(first[0]["rank"] == stopped);
        CHECK(first[0]["state"] == "stopped");
        CHECK(first[0]["process"] == run->process[stopped].load());
        CHECK(row_of(first, other)["state"] == "runs");
        CHECK(row_of(first, other)["calls"] >= 3);
        CHECK(row_of(first, other)["bytes"].get<std::uint64_t>() ==
              row_of(first, other)["calls"].get<std::uint64_t>() * 1024);
        CHECK(row_of(first, other)["latest"] == "all_reduce");
        // A while later others wait for it, though not each of them itself. It can be asked, too.
        json later;
        const auto waits_for_it = [&](const json& r) { return r.value("waits_for", -1) == stopped; };
        do later = rows(std::to_string(run->process[stopped]));
        while (std::none_of(later.begin(), later.end(), waits_for_it) || row_of(later, other)["in_call"] != true);
        CHECK(later[0]["rank"] == stopped);
        const program_result table = status(std::to_string(run->process[other]));
        CAPTURE(table.text);
        CHECK(table.says("group 0: " + std::to_string(n) + " ranks, processes that share memory"));
        CHECK(table.says("waits for rank " + std::to_string(stopped)));

        kill(run->process[stopped], SIGCONT);
        kill(run->process[stopped], SIGKILL);
        json killed;
        do killed = rows(std::to_string(run->process[other]));
        while (row_of(killed, other)["errors"] == 0);
        CHECK(killed[0]["rank"] == stopped);
        CHECK(killed[0]["state"] == "gone");
        CHECK(row_of(killed, other)["last_error"].get<std::string>().find("has died") != std::string::npos);
        CHECK(status(std::to_string(run->process[other])).says("last error of rank " + std::to_string(other)));
    }
}

TEST_CASE("two jobs of a host are apart, and shown together without a target") {
    const auto three = [](board& b) { colls::processes::run(3, [&](colls::communicator& c) { make_calls(c, b); }); };
    const job one(three), two(three);
    one.wait_for_calls(3, 1), two.wait_for_calls(3, 1);
    const json mine = rows(std::to_string(one->process[0]));
    CHECK(mine.size() == 3);
    for (int r = 0; r < 3; ++r) CHECK(row_of(mine, r)["process"] == one->process[r].load());
    const json both = groups(std::to_string(one->process[0]) + " " + std::to_string(two->process[1]));
    REQUIRE(both.size() == 2);
    CHECK(both[0]["number"] != both[1]["number"]);
    int found = 0;
    for (const json& g : groups(""))
        for (const json& r : g["ranks"])
            found += r.contains("process") &&
                     (r["process"] == one->process[2].load() || r["process"] == two->process[2].load());
    CHECK(found == 2);
}

TEST_CASE("ranks that are threads of one process") {
    const job run([](board& b) {
        colls::threads::run(4, [&](colls::communicator& comm) {
            const int rank = comm.rank();
            for (int i = 0; i < 5; ++i) colls::barrier(comm);
            if (rank == 2) b.process[rank] = getpid();
            while (rank == 2 && !b.over) std::this_thread::sleep_for(1ms);  // it computes
            int x = rank;
            if (rank == 3) colls::recv(comm, std::span(&x, 1), 2);
            colls::all_reduce(comm, std::span(&x, 1), colls::sum);
        });
    });
    while (run->process[2] == 0) std::this_thread::sleep_for(1ms);
    json all;
    do all = rows(std::to_string(run.runner()));
    while (row_of(all, 0).value("waits_for", -1) != 2 || row_of(all, 3).value("waits_for", -1) != 2 ||
           row_of(all, 1)["calls"] != 6);
    CHECK(all.size() == 4);
    CHECK(all[0]["rank"] == 2);
    CHECK(all[0]["in_call"] == false);
    CHECK(all[0]["does"] == "after barrier, call 4");
    CHECK(all[1]["rank"] == 3);  // likewise five calls, but it waits
    CHECK(all[1]["does"].get<std::string>().rfind("in recv, waits for rank 2", 0) == 0);
    CHECK(all[1]["messages"] == 1);
    CHECK(row_of(all, 0)["calls"] == 6);
    CHECK(status(std::to_string(run.runner())).says("4 ranks, threads"));
}

TEST_CASE("metrics for Prometheus") {
    const job run([](board& b) { colls::processes::run(2, [&](colls::communicator& c) { make_calls(c, b); }); });
    run.wait_for_calls(2, 3);
    stop(run->process[1]);
    const program_result r = status(std::to_string(run->process[0]) + " --prometheus");
    CAPTURE(r.text);
    CHECK(r.status == 0);
    std::istringstream lines(r.text);
    std::string line, announced;
    int samples = 0;
    while (std::getline(lines, line)) {
        if (line.rfind("# HELP ", 0) == 0) {
            announced = line.substr(7, line.find(' ', 7) - 7);
            std::getline(lines, line);
            CHECK(line.rfind("# TYPE " + announced + " ", 0) == 0);
            continue;
        }
        ++samples;
        CHECK(line.rfind(announced + "{group=\"0\",number=\"", 0) == 0);
        char* end = nullptr;
        std::strtod(line.c_str() + line.rfind(' '), &end);
        CHECK(*end == '\0');
        if (line.rfind("colls_rank_up{", 0) == 0)
            CHECK(line.back() == (line.find("rank=\"1\"") != std::string::npos ? '0' : '1'));
    }
    CHECK(samples == 16);
    CHECK(status("--json --prometheus").status == 2);
}

TEST_CASE("over the network: token, stopped processes, garbage") {
    const support::claimed_ports ports;
    const std::string at = "127.0.0.1:" + std::to_string(ports.first());
    for (const std::string token : {"", "a secret"}) {
        CAPTURE(token);
        constexpr int n = 3;
        const job run([&](board& b) {
            setenv("COLLS_TRANSPORT", "tcp", 1);
            setenv("COLLS_STATUS", token.empty() ? std::to_string(ports.first()).c_str() : at.c_str(), 1);
            if (!token.empty()) setenv("COLLS_TOKEN", token.c_str(), 1);
            support::launch_world(n, n, [&](colls::communicator& c) { make_calls(c, b); });
        });
        run.wait_for_calls(n, 3);
        const std::string with = token.empty() ? "" : "COLLS_TOKEN='" + token + "'";
        CHECK(rows(at, with).size() == n);
        for (int stopped = 0; stopped < n; ++stopped) {  // each listens: one that is stopped does not answer
            const auto since = std::chrono::steady_clock::now();
            stop(run->process[stopped]);
            const json all = rows(at, with);
            say_time("named over the network", since);
            CHECK(all[0]["rank"] == stopped);
            CHECK(all[0]["state"] == "stopped");
            kill(run->process[stopped], SIGCONT);
        }
        const json both = groups(at + " " + std::to_string(run->process[1]), with);
        REQUIRE(both.size() == 1);
        CHECK(both[0]["ranks"].size() == n);
        CHECK(both[0]["kind"] == "processes that pass messages");

        for (const std::string& other :
            {std::string("COLLS_TOKEN='another'"), std::string(token.empty() ? "COLLS_TOKEN=x" : "")}) {
            const program_result refused = status(at, other);
            CAPTURE(refused.text);
            CHECK(refused.status == 2);
            CHECK(refused.says("has a different token: set COLLS_TOKEN"));
        }
        // What is no question gets no answer, and does no harm. (All of it is kept open for a while.)
        std::vector<int> open;
        for (const std::string& garbage :
            {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("x"), std::string(100'000, '\xff'),
                std::string("colls:\nq"), std::string("colls:\nq") + std::string(90, '\0'), std::string()})
            for (int i = 0; i < 8; ++i) {
                open.push_back(connect_to(ports.first()));
                send(open.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        CHECK(rows(at, with).size() == n);
        for (const int fd : open) close(fd);
        CHECK(rows(at, with).size() == n);
        const std::uint64_t before = run->calls[0];
        run.wait_for_calls(n, before + 10);  // the job goes on
    }
    const program_result none = status(at);
    CAPTURE(none.text);
    CHECK(none.status == 2);
    CHECK(none.says("Connection refused. Is COLLS_STATUS set there?"));
}

TEST_CASE("an address that cannot be one is refused where the group is formed") {
    for (const std::string value : {"x", "0", "65536", "host:", ":7000", "7000x", "host:-1"}) {
        CAPTURE(value);
        const job run([&](board& b) {
            be_alone(value);
            try {
                colls::world();
                b.told = 1;
            } catch (const colls::error& e) {
                b.told = e.code() == colls::errc::invalid_argument &&
                                 std::string(e.what()).find("COLLS_STATUS is '" + value) != std::string::npos
                             ? 2
                             : 3;
            }
        });
        while (run->told == 0) std::this_thread::sleep_for(1ms);
        CHECK(run->told == 2);
    }
}

TEST_CASE("files of TLS that are of no use are refused where the group is formed, also without TCP") {
    const support::claimed_ports ports;
    const job run([&](board& b) {
        setenv("COLLS_TLS", "nothing", 1);
        be_alone(std::to_string(ports.first()));
        try {
            colls::world();
            b.told = 1;
        } catch (const colls::error& e) {
            b.told = std::string(e.what()).find("COLLS_TLS") != std::string::npos ? 2 : 3;
        }
    });
    while (run->told == 0 && run.lives()) std::this_thread::sleep_for(1ms);
    CHECK(run->told == 2);
}

TEST_CASE("a process is answered for until it ends") {
    const support::claimed_ports ports;
    static board* ending;
    const job run([&](board& b) {
        ending = &b;
        // Behind what libraries do at the end that were used later, as by TLS.
        std::atexit([] {
            ending->told = 1;
            while (!ending->over) std::this_thread::sleep_for(1ms);
        });
        be_alone(std::to_string(ports.first()));
        new colls::communicator(colls::world());
        colls::detail::cover_of(false);  // as groups of several hosts have
        std::exit(0);
    });
    while (run->told == 0 && run.lives()) std::this_thread::sleep_for(1ms);
    const std::string at = "127.0.0.1:" + std::to_string(ports.first());
    while (status(at).status != 0 && run.lives()) {}  // a thread of its own begins to listen
    for (int i = 0; i < 3; ++i) CHECK(rows(at).size() == 1);
}

TEST_CASE("an elastic group shows its epoch") {
    char folder[] = "/tmp/colls-status-XXXXXX";
    REQUIRE(mkdtemp(folder));
    {
        const auto take_part = [&](int number) {
            return [&folder, number](board& b) {
                b.process[number] = getpid();
                colls::elastic::folder store(folder);
                colls::elastic::member m(colls::endpoint::open(), store, "status");
                while (!b.over) {
                    m.update();
                    b.told = m.comm().size();
                    std::this_thread::sleep_for(1ms);
                }
            };
        };
        const job one(take_part(0));
        while (one->told != 1) std::this_thread::sleep_for(1ms);
        json alone = groups(std::to_string(one.runner()));
        REQUIRE(alone.size() == 1);
        CHECK(alone[0]["epoch"] == 1);
        const job two(take_part(1));
        while (two->told != 2) std::this_thread::sleep_for(1ms);
        json together;
        do together = groups(std::to_string(two.runner()));
        while (together.size() != 1 || together[0]["ranks"].size() != 2);
        CHECK(together[0]["epoch"] == 2);
        CHECK(status(std::to_string(one.runner())).says("epoch 2"));
    }
    std::filesystem::remove_all(folder);
}

TEST_CASE("what cannot be shown is refused in words") {
    const auto refused = [](const std::string& target, const std::string& words) {
        const program_result r = status(target);
        CAPTURE(target, r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
        CHECK(std::count(r.text.begin(), r.text.end(), '\n') == 1);
    };
    pid_t ended = fork();
    if (ended == 0) _exit(0);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT);
    refused(std::to_string(ended), "has ended");
    waitpid(ended, nullptr, 0);
    refused(std::to_string(ended), "no process of this host has that number");
    refused("x", "'x' is neither the number of a process nor HOST:PORT");
    refused("-1:x", "neither a port from 1 to 65535, nor HOST:PORT");
    refused("there.is.no.such.host.invalid:7000", "is not known");
    {
        const sleeper other([] {});
        refused(other.number(), "shows no group of colls");
    }
    using colls::detail::rank_status;
    using colls::detail::status::record_head;
    const auto with_record = [&](auto change, std::size_t bytes, const std::string& words) {
        const sleeper other([&] {
            const int fd = memfd_create(colls::detail::status::file_name, 0);
            record_head h{};
            std::memcpy(h.magic, record_head::begin, sizeof h.magic);
            h.form = colls::detail::status::format;
            h.version = 3 << 20 | 7 << 10 | 1;
            h.place_bytes = sizeof(rank_status);
            h.process = getpid();
            change(h);
            static_cast<void>(!pwrite(fd, &h, std::min(bytes, sizeof h), 0));
            static_cast<void>(!ftruncate(fd, static_cast<off_t>(bytes)));
        });
        refused(other.number(), words);
    };
    const auto same = [](record_head&) {};
    with_record(same, 0, "has a damaged record");
    with_record(same, 10, "has a damaged record");
    with_record([](record_head& h) { h.magic[3] = 'x'; }, 8192, "has a damaged record");
    with_record([](record_head& h) { h.used = 3; }, record_head::bytes + 2 * sizeof(rank_status), "cut off");
    with_record([](record_head& h) { h.used = ~0u; }, 1 << 20, "too many places");
    with_record([](record_head& h) { ++h.form; }, 8192, "uses colls 3.7.1, whose record has form 2");
    with_record([](record_head& h) { h.place_bytes = 64; }, 8192, "uses colls 3.7.1");
    with_record([](record_head& h) { h.process = 1; }, 8192, "shows no group of colls");
    if (geteuid() != 0) return;
    // The rest of the tests is one user's. This is root's: another user may not look at it.
    const sleeper own([] {});
    char folder[] = "/tmp/colls-status-XXXXXX";
    REQUIRE(mkdtemp(folder));
    const std::string copy = std::string(folder) + "/colls";
    const program_result r = execute("cp '" COLLS_TEST_TOOL "' " + copy + " && chmod 755 " + folder + " " + copy +
                                     " && setpriv --reuid=65534 --clear-groups " + copy + " status " + own.number());
    std::filesystem::remove_all(folder);
    CAPTURE(r.text);
    CHECK(r.says("belongs to another user (0): ask as that user, or as root"));
}
