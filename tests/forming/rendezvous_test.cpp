// The rendezvous, between threads and between processes, also with stray connections, wrong tokens and ranks that fail.
#include "catch.hpp"

#include "support/ports.hpp"
#include "support/raw_socket.hpp"
#include "support/says.hpp"

#include <colls/detail/support/host.hpp>
#include <colls/net/detail/forming/rendezvous.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <atomic>
#include <csignal>
#include <functional>
#include <random>
#include <thread>
#include <tuple>

using namespace colls::detail;
using namespace colls::detail::rendezvous;
using colls::errc;
using colls::launch;
using support::lacks;
using support::receive_all;
using support::send_all;

namespace {

constexpr double ample = 300;  // seconds; nothing here lasts that long unless it hangs
// The timeout of a rank 0 that is to give up: long enough for the others to connect, which may wait for a core.
constexpr double brief = 3;
const std::string waited_briefly = "rank 0 waited 3 s for ";

const support::claimed_ports own_ports;

/// A port at which nothing listens; the next 23 belong to this process too.
int free_port() {
    static std::atomic<int> turn{0};
    for (;;) {
        const int port = own_ports.first() + (turn += 24) % support::claimed_ports::count;
        if (listen_at(address::loopback(AF_INET, port))) return port;
    }
}

launch rank_of(int rank, int size, int port, const char* token = "the token") {
    launch l;
    l.rank = rank;
    l.size = size;
    l.port = port;
    l.token = token;
    return l;
}
std::vector<launch> ranks_of(int size, int port) {
    std::vector<launch> all;
    for (int r = 0; r < size; ++r) all.push_back(rank_of(r, size, port));
    return all;
}

/// What a rank knows once all have met, and have exchanged where each listens.
struct meeting {
    std::unique_ptr<rank_star> star;
    std::vector<member_record> processes{};
    std::vector<member> members{};
    descriptor listening{};
};
struct outcome {
    std::optional<meeting> met;
    std::optional<colls::error> failed;
    std::string text() const { return met ? "it met" : failed ? failed->what() : "nothing"; }
    bool is(errc code) const { return failed && failed->code() == code; }
};
outcome meet_as(const launch& l, double timeout = ample) {
    outcome o;
    try {
        meeting m{meet(l, timeout)};
        if (l.size > 1) {
            forming f{
                .exchange = *m.star, .rank = l.rank, .size = l.size, .env = environment::read(), .listen = [&](bool) {
                    return listen_for_members(l, m.star->at);
                }};
            meet_members(f, false);
            m.processes = f.all;
            m.members = exchange_addresses(f, m.listening);
        }
        o.met = std::move(m);
    } catch (const colls::error& e) {
        o.failed = e;
    }
    return o;
}
void nap(double seconds) { poll(nullptr, 0, static_cast<int>(seconds * 1e3)); }

/// Runs `meet` on a thread for each rank, after `late` seconds each.
std::vector<outcome> meet_all(
    const std::vector<launch>& ranks, const std::vector<double>& late = {}, double timeout = ample) {
    std::vector<outcome> outcomes(ranks.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
        threads.emplace_back([&, i] {
            if (i < late.size()) nap(late[i]);
            outcomes[i] = meet_as(ranks[i], timeout);
        });
    for (std::jthread& t : threads) t.join();
    return outcomes;
}

/// Likewise, but rank `last`, without which the group is not complete, starts when one of the others has been refused.
std::vector<outcome> meet_after_refusal(const std::vector<launch>& ranks, std::size_t last) {
    std::vector<outcome> outcomes(ranks.size());
    std::atomic<int> over{0};
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
        threads.emplace_back([&, i] {
            while (i == last && over == 0) nap(0.01);
            outcomes[i] = meet_as(ranks[i]);
            ++over;
        });
    for (std::jthread& t : threads) t.join();
    return outcomes;
}

/// All ranks met, and have the same table.
void check_met(const std::vector<outcome>& outcomes) {
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
        INFO("rank " << r << ": " << outcomes[r].text());
        REQUIRE(outcomes[r].met);
        const meeting &m = *outcomes[r].met, &first = *outcomes[0].met;
        CHECK(m.star->own() == static_cast<int>(r));
        if (outcomes.size() == 1) continue;
        REQUIRE(m.members.size() == outcomes.size());
        CHECK(m.processes[0].group == first.processes[0].group);
        CHECK(local_address(m.listening.get()) == m.members[r].at);
        for (std::size_t q = 0; q < outcomes.size(); ++q) {
            CHECK(m.members[q].at == first.members[q].at);
            CHECK(m.processes[q].host == first.processes[q].host);
            CHECK(m.processes[q].process == getpid());
            CHECK(m.members[q].cores == first.members[q].cores);
            for (std::size_t p = 0; p < q; ++p) CHECK_FALSE(m.members[p].at == m.members[q].at);
        }
        // And it is reached there.
        const descriptor to = start_connect(m.members[r].at);
        REQUIRE(to);
        REQUIRE(wait_for(to.get(), POLLOUT, seconds_now() + ample));
        CHECK(connected(to.get()) == 0);
    }
}

reply reply_of(verdict what, int size, std::uint64_t group, const char* text = "") {
    reply a;
    a.what = what;
    a.size = size;
    a.group = group;
    std::snprintf(a.text, sizeof a.text, "%s", text);
    return a;
}
challenge challenge_of(const nonce& once, std::uint32_t library = library_version) { return {library, once}; }

/// A peer that the test plays, record by record.
struct hand {
    descriptor fd;
    nonce theirs{}, ours{};
    std::string token = "the token";

    explicit hand(int port, bool reads_challenge = true) {
        const double until = seconds_now() + ample;
        while (!fd) {
            fd = start_connect(address::loopback(AF_INET, port));
            while (fd && !connected(fd.get())) wait_for(fd.get(), POLLOUT, until);
            if (fd && connected(fd.get()).value_or(0) != 0) fd.close();
            if (seconds_now() > until) throw std::runtime_error("no process listens at the port");
            if (!fd) nap(0.01);
        }
        if (reads_challenge) {
            std::array<std::byte, challenge::bytes> bytes;
            if (receive_all(fd.get(), bytes.data(), bytes.size(), until) != 0) throw std::runtime_error("no challenge");
            theirs = parse<challenge>(bytes).value().once;
            ours = random_bytes<nonce>();
        }
    }
    std::array<std::byte, hello::bytes> record(int rank, int size, std::uint32_t library = library_version) const {
        hello h;
        h.library = library;
        h.once = ours;
        h.rank = rank;
        h.size = size;
        h.pid = 12345;
        h.proof = prove(token, theirs, ours, encode(h));
        return encode(h);
    }
    void put(bytes_view bytes) { send_all(fd.get(), bytes.data(), bytes.size(), seconds_now() + ample); }
    std::optional<reply> get() {
        std::array<std::byte, reply::bytes> bytes;
        if (receive_all(fd.get(), bytes.data(), bytes.size(), seconds_now() + ample) != 0) return {};
        const auto a = parse<reply>(bytes);
        if (a && !same(a->proof, prove(token, theirs, ours, bytes))) return {};
        return a;
    }
    /// Waits until rank 0 closes the connection, which it must.
    void wait_for_end() {
        char waste[512];
        for (;;) {
            REQUIRE(wait_for(fd.get(), POLLIN, seconds_now() + ample));
            const ssize_t n = recv(fd.get(), waste, sizeof waste, 0);
            if (n == 0 || (n < 0 && errno == ECONNRESET)) return;
            REQUIRE(n > 0);
        }
    }
};

/// A rank 0 that the test plays: `act` gets each connection.
class impostor {
public:
    explicit impostor(int port, std::function<void(int)> act)
        : listening_(listen_at(address::loopback(AF_INET, port))), act_(std::move(act)), thread_([this] {
              while (!over_) {
                  if (!wait_for(listening_.get(), POLLIN, seconds_now() + 0.02)) continue;
                  descriptor fd = accept_from(listening_.get());
                  if (!fd) continue;
                  act_(fd.get());
                  kept_.push_back(std::move(fd));
              }
          }) {}
    ~impostor() {
        over_ = true;
        thread_.join();
    }

private:
    descriptor listening_;
    std::function<void(int)> act_;
    std::vector<descriptor> kept_;
    std::atomic<bool> over_{false};
    std::jthread thread_;
};

/// For an impostor: meets a peer as a rank 0 that knows the token does, of a group of 2, up to these replies.
std::optional<hello> reply_to(
    int fd, std::initializer_list<verdict> replies, const char* text = "", const char* token = "the token") {
    const double until = seconds_now() + ample;
    const challenge c = challenge_of(random_bytes<nonce>());
    const auto bytes = encode(c);
    send_all(fd, bytes.data(), bytes.size(), until);
    std::array<std::byte, hello::bytes> theirs;
    if (receive_all(fd, theirs.data(), theirs.size(), until) != 0) return {};
    const hello h = parse<hello>(theirs).value();
    for (const verdict v : replies) {
        reply a = reply_of(v, 2, 1, text);
        a.proof = prove(token, c.once, h.once, encode(a));
        const auto sent = encode(a);
        send_all(fd, sent.data(), sent.size(), until);
    }
    return h;
}

int open_files() {
    int n = 0;
    DIR* const all = opendir("/proc/self/fd");
    while (readdir(all)) ++n;
    closedir(all);
    return n;
}

std::string hex(bytes_view bytes) {
    std::string text;
    for (const std::byte b : bytes) {
        text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
        text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
    }
    return text;
}
bytes_view raw(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("rendezvous: ranks of groups of any size meet, in any order", "[rendezvous]") {
    const int files = open_files();
    std::mt19937 random(1);
    for (const int size : {1, 2, 3, 7, 16})
        for (int round = 0; round < 3; ++round) {
            INFO("size " << size << ", round " << round);
            std::vector<double> late(static_cast<std::size_t>(size));
            if (round > 0)
                for (double& seconds : late) seconds = std::uniform_real_distribution<>(0, 0.15)(random);
            if (round == 2) late[0] = 0.3;  // rank 0 does not listen yet when the others try
            const auto outcomes = meet_all(ranks_of(size, size == 1 ? 0 : free_port()), late);
            check_met(outcomes);
            if (size > 1) CHECK(outcomes[0].met->members[0].at.is_loopback());
        }
    CHECK(open_files() == files);
}

TEST_CASE("rendezvous: groups that meet at one port one after the other have different numbers", "[rendezvous]") {
    const int port = free_port();
    const auto a = meet_all(ranks_of(3, port));
    const auto b = meet_all(ranks_of(3, port));
    check_met(a);
    check_met(b);
    CHECK(a[0].met->processes[0].group != b[0].met->processes[0].group);
}

TEST_CASE("rendezvous: processes meet, and learn each other's process ids and hosts", "[rendezvous]") {
    constexpr int size = 5;
    const int port = free_port();
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const descriptor in(ends[0]), out(ends[1]);
    struct told {
        int rank;
        std::uint64_t group, hosts;
        std::int64_t pids[size];
    };
    std::vector<pid_t> children;
    for (int r = 0; r < size; ++r) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const outcome o = meet_as(rank_of(r, size, port));
            told t{r, 0, 0, {}};
            if (o.met) {
                t.group = o.met->processes[0].group;
                for (std::size_t q = 0; q < size; ++q) {
                    t.pids[q] = o.met->processes[q].process;
                    t.hosts += o.met->processes[q].host == o.met->processes[0].host;
                }
            }
            _exit(write(out.get(), &t, sizeof t) == sizeof t ? 0 : 1);
        }
        children.push_back(child);
    }
    std::uint64_t group = 0;
    for (int i = 0; i < size; ++i) {
        told t;
        REQUIRE(read(in.get(), &t, sizeof t) == sizeof t);
        CHECK(t.group != 0);
        if (i > 0) CHECK(t.group == group);
        group = t.group;
        CHECK(t.hosts == size);
        for (int q = 0; q < size; ++q) CHECK(t.pids[q] == children[static_cast<std::size_t>(q)]);
    }
    for (const pid_t child : children) {
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
}

TEST_CASE("rendezvous: a peer with another token is refused, and the group meets all the same", "[rendezvous]") {
    const int port = free_port();
    auto ranks = ranks_of(2, port);
    ranks.push_back(rank_of(1, 2, port, "another token"));
    const auto outcomes = meet_after_refusal(ranks, 1);
    CHECK(outcomes[0].met);
    CHECK(outcomes[1].met);
    INFO(outcomes[2].text());
    REQUIRE(outcomes[2].is(errc::invalid_argument));
    CHECK(outcomes[2].failed->rank() == 1);
    CHECK(outcomes[2].failed->peer() == 0);
    CHECK(lacks(outcomes[2].text(),
              {"rank 1 of 2", "127.0.0.1:" + std::to_string(port), "tokens differ", "COLLS_TOKEN"}) == "");
}

TEST_CASE(
    "rendezvous: rank 0 prints that it has refused another token where COLLS_DEBUG is info, else not", "[rendezvous]") {
    for (const bool info : {false, true}) {
        const int port = free_port();
        auto ranks = ranks_of(2, port);
        ranks.push_back(rank_of(1, 2, port, "another token"));
        const int file = memfd_create("said", MFD_CLOEXEC), before = dup(STDERR_FILENO);
        REQUIRE(file >= 0);
        dup2(file, STDERR_FILENO);
        if (info) setenv("COLLS_DEBUG", "info", 1);
        const auto outcomes = meet_after_refusal(ranks, 1);
        unsetenv("COLLS_DEBUG");
        dup2(before, STDERR_FILENO);
        close(before);
        char text[4096] = {};
        CHECK(pread(file, text, sizeof text - 1, 0) >= 0);
        close(file);
        INFO(text);
        CHECK((outcomes[0].met && outcomes[1].met && !outcomes[2].met));
        CHECK((std::string(text).find("rank 0 of 2 has refused a connection: ") != std::string::npos) == info);
    }
}

TEST_CASE("rendezvous: the timeout of rank 0 says which process it has refused", "[rendezvous]") {
    const int port = free_port();
    std::vector<outcome> outcomes(2);
    {
        std::jthread rank0([&] { outcomes[0] = meet_as(rank_of(0, 2, port), brief); });
        outcomes[1] = meet_as(rank_of(1, 2, port, "another token"));
    }
    REQUIRE(outcomes[0].is(errc::timeout));
    CHECK(lacks(outcomes[0].text(), {waited_briefly + "rank 1 (1 of 2 have connected)",
                                        "Refused: a process on 127.0.0.1 has a different token"}) == "");
    CHECK(outcomes[0].failed->peer() == 1);
    CHECK(outcomes[1].is(errc::invalid_argument));
}

TEST_CASE("rendezvous: rejects a rank of another size, out of range, or given twice", "[rendezvous]") {
    const int port = free_port();
    auto ranks = ranks_of(3, port);
    SECTION("another size") {
        ranks.push_back(rank_of(1, 4, port));
        const auto outcomes = meet_after_refusal(ranks, 2);
        for (int r = 0; r < 3; ++r) CHECK(outcomes[static_cast<std::size_t>(r)].met);
        REQUIRE(outcomes[3].is(errc::mismatch));
        CHECK(lacks(outcomes[3].text(), {"rank 1 was started as one of 4 ranks, but rank 0 as one of 3"}) == "");
    }
    SECTION("out of range") {
        ranks.push_back(rank_of(5, 8, port));
        const auto outcomes = meet_after_refusal(ranks, 2);
        for (int r = 0; r < 3; ++r) CHECK(outcomes[static_cast<std::size_t>(r)].met);
        REQUIRE(outcomes[3].is(errc::invalid_argument));
        CHECK(lacks(outcomes[3].text(), {"rank 5 of 8 is out of range: rank 0 was started as one of 3 ranks"}) == "");
    }
    SECTION("given twice") {
        ranks.push_back(rank_of(1, 3, port));
        const auto outcomes = meet_after_refusal(ranks, 2);
        CHECK(outcomes[0].met);
        CHECK(outcomes[2].met);
        const bool first_stays = outcomes[1].met.has_value();  // either may connect first
        const outcome& refused = outcomes[first_stays ? 3 : 1];
        CHECK(outcomes[first_stays ? 1 : 3].met);
        REQUIRE(refused.is(errc::invalid_argument));
        CHECK(lacks(refused.text(), {"rank 1 was given twice", "process " + std::to_string(getpid())}) == "");
    }
    SECTION("rank 0 given twice") {
        for (const int ports : {1, 16}) {
            for (launch& l : ranks) l.ports = ports;
            ranks.resize(3);
            ranks.push_back(ranks[0]);
            const auto outcomes = meet_after_refusal(ranks, 2);
            CHECK(outcomes[1].met);
            CHECK(outcomes[2].met);
            const bool first_stays = outcomes[0].met.has_value();
            const outcome& refused = outcomes[first_stays ? 3 : 0];
            CHECK(outcomes[first_stays ? 0 : 3].met);
            REQUIRE(refused.is(errc::invalid_argument));
            CHECK(lacks(refused.text(), {"rank 0 was given twice"}) == "");
        }
    }
    SECTION("rank 0 says so at the end") {
        std::vector<outcome> outcomes(3);
        {
            std::vector<std::jthread> threads;
            for (const int r : {0, 1, 2})
                threads.emplace_back([&, r] {
                    outcomes[static_cast<std::size_t>(r)] =
                        meet_as(rank_of(r, r == 2 ? 4 : 3, port), r == 0 ? brief : ample);
                });
        }
        REQUIRE(outcomes[0].is(errc::timeout));
        CHECK(lacks(outcomes[0].text(),
                  {"for rank 2 (2 of 3 have connected)", "Refused: rank 2 was started as one of 4 ranks"}) == "");
        CHECK(outcomes[2].is(errc::mismatch));
    }
    SECTION("refused before any connection") {
        CHECK(meet_as(rank_of(3, 3, port)).is(errc::invalid_argument));
        CHECK(meet_as(rank_of(-1, 3, port)).is(errc::invalid_argument));
        CHECK(meet_as(rank_of(0, 0, port)).is(errc::invalid_argument));
        CHECK(meet_as(rank_of(1, 3, 0)).is(errc::invalid_argument));
        CHECK(meet_as(rank_of(0, 3, 65536)).is(errc::invalid_argument));
    }
}

TEST_CASE("rendezvous: ranks of different versions are refused, and both versions are named", "[rendezvous]") {
    const int port = free_port();
    const std::string own = "colls " + std::to_string(COLLS_VERSION_MAJOR) + "." + std::to_string(COLLS_VERSION_MINOR) +
                            "." + std::to_string(COLLS_VERSION_PATCH);
    SECTION("of the library, at rank 0") {
        outcome zero;
        std::jthread rank0([&] { zero = meet_as(rank_of(0, 2, port), brief); });
        {
            hand other(port);
            other.put(other.record(1, 2, 3 << 20 | 2 << 10 | 1));
            const auto a = other.get();
            REQUIRE(a);
            CHECK(a->what == verdict::version_skew);
            CHECK(lacks(a->text, {"uses colls 3.2.1", "rank 0 uses " + own}) == "");
        }
        rank0.join();
        REQUIRE(zero.is(errc::timeout));
        CHECK(lacks(zero.text(), {"for rank 1", "uses colls 3.2.1, but rank 0 uses " + own}) == "");
    }
    SECTION("of the protocol, at rank 0, whatever bytes follow the versions") {
        outcome zero;
        std::jthread rank0([&] { zero = meet_as(rank_of(0, 2, port), brief); });
        {
            hand other(port);
            std::vector<std::byte> longer(3000, std::byte{'x'});
            const auto now = other.record(1, 2, 9 << 20);
            std::copy_n(now.begin(), prefix_bytes, longer.begin());
            longer[8] = std::byte{rendezvous_version + 1};
            other.put(longer);
            other.ours = {};  // rank 0 cannot know it
            const auto a = other.get();
            REQUIRE(a);
            CHECK(a->what == verdict::version_skew);
        }
        rank0.join();
        REQUIRE(zero.is(errc::timeout));
        CHECK(lacks(zero.text(), {"uses colls 9.0.0 (rendezvous 5), but rank 0 uses " + own}) == "");
    }
    SECTION("of the protocol, at another rank") {
        const impostor rank0(port, [](int fd) {
            auto bytes = encode(challenge_of({}, 9 << 20));
            bytes[8] = std::byte{rendezvous_version + 1};
            send_all(fd, bytes.data(), bytes.size(), seconds_now() + ample);
        });
        const outcome o = meet_as(rank_of(1, 2, port));
        REQUIRE(o.is(errc::mismatch));
        CHECK(lacks(o.text(), {"rank 0 uses colls 9.0.0 (rendezvous 5), but this rank uses " + own}) == "");
    }
    SECTION("of the library, at another rank") {
        const impostor rank0(port, [](int fd) {
            const challenge c = challenge_of(random_bytes<nonce>());
            std::array<std::byte, hello::bytes> theirs;
            const auto bytes = encode(c);
            send_all(fd, bytes.data(), bytes.size(), seconds_now() + ample);
            if (receive_all(fd, theirs.data(), theirs.size(), seconds_now() + ample) != 0) return;
            reply a = reply_of(verdict::version_skew, 2, 1, "such colls and such");
            a.proof = prove("the token", c.once, parse<hello>(theirs).value().once, encode(a));
            const auto sent = encode(a);
            send_all(fd, sent.data(), sent.size(), seconds_now() + ample);
        });
        const outcome o = meet_as(rank_of(1, 2, port));
        REQUIRE(o.is(errc::mismatch));
        CHECK(lacks(o.text(), {"such colls and such"}) == "");
    }
}

TEST_CASE("rendezvous: at the timeout every rank names the missing ranks", "[rendezvous]") {
    const int port = free_port();
    SECTION("rank 0 gives up first") {
        std::vector<launch> ranks{rank_of(0, 9, port), rank_of(1, 9, port), rank_of(3, 9, port), rank_of(7, 9, port)};
        std::vector<outcome> outcomes(ranks.size());
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < ranks.size(); ++i)
            threads.emplace_back([&, i] { outcomes[i] = meet_as(ranks[i], i == 0 ? brief : ample); });
        for (std::jthread& t : threads) t.join();
        for (const outcome& o : outcomes) {
            REQUIRE(o.is(errc::timeout));
            CHECK(lacks(o.text(), {waited_briefly + "ranks 2, 4-6, 8 (4 of 9 have connected)"}) == "");
        }
        CHECK(outcomes[0].failed->peer() == 2);
        CHECK(lacks(outcomes[0].text(), {"127.0.0.1:" + std::to_string(port), "COLLS_MASTER_ADDR"}) == "");
    }
    SECTION("another rank gives up first") {
        std::vector<outcome> outcomes(3);
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < 3; ++i)
            threads.emplace_back([&, i] {
                if (i == 2) nap(0.6);  // rank 1, which has connected before, must be told of it
                outcomes[i] = meet_as(rank_of(static_cast<int>(i), 4, port), i == 0 ? 9 : i == 1 ? 4 : ample);
            });
        for (std::jthread& t : threads) t.join();
        REQUIRE(outcomes[1].is(errc::timeout));
        CHECK(lacks(outcomes[1].text(),
                  {"after 4 s it still waited for rank 3", "127.0.0.1:" + std::to_string(port)}) == "");
        // The others do not wait any longer: there will be no group.
        for (const int r : {0, 2}) {
            const outcome& o = outcomes[static_cast<std::size_t>(r)];
            REQUIRE(o.is(errc::peer_failed));
            CHECK(lacks(o.text(), {"rank 1 (process ", "connected, and has left again", "waiting for rank 3"}) == "");
        }
        CHECK(outcomes[0].failed->peer() == 1);
    }
}

TEST_CASE("rendezvous: a rank that cannot reach rank 0 says where it has tried, and why it failed", "[rendezvous]") {
    const int port = free_port();
    const outcome o = meet_as(rank_of(1, 2, port), 1);
    REQUIRE(o.is(errc::timeout));
    CHECK(o.failed->peer() == 0);
    CHECK(lacks(o.text(), {"rank 1 of 2", "127.0.0.1, port " + std::to_string(port), "within 1 s", "refused",
                              "COLLS_MASTER_ADDR"}) == "");

    launch range = rank_of(1, 2, port);
    range.ports = 16;
    const impostor beyond(port + 16, [](int fd) { reply_to(fd, {verdict::rank_taken}, "not asked"); });
    CHECK(lacks(meet_as(range, 1).text(),
              {"cannot reach", "port " + std::to_string(port) + " to " + std::to_string(port + 15) + ","}) == "");

    // A program that accepts connections, and sends nothing.
    const impostor silent(port, [](int) {});
    const outcome mute = meet_as(rank_of(1, 2, port), 1);
    REQUIRE(mute.is(errc::timeout));
    CHECK(lacks(mute.text(), {"no answer"}) == "");

    launch nobody = rank_of(1, 2, port);
    nobody.host = "255.255.255.255";  // the system refuses to connect to it
    const descriptor none = start_connect(resolve(nobody.host, port).front());
    const std::string why = std::strerror(errno);
    REQUIRE_FALSE(none);
    CHECK(lacks(meet_as(nobody, 0.3).text(), {"255.255.255.255", why}) == "");

    for (const int rank : {0, 1}) {
        launch nowhere = rank_of(rank, 2, port);
        nowhere.host = "no.such host";
        const outcome unknown = meet_as(nowhere, 1);
        REQUIRE(unknown.is(rank == 0 ? errc::invalid_argument : errc::timeout));
        CHECK(lacks(unknown.text(), {"no.such host", "not known", "COLLS_MASTER_ADDR"}) == "");
    }
}

TEST_CASE("rendezvous: the death of rank 0 is an error of the ranks that wait for others", "[rendezvous]") {
    const int port = free_port();
    const pid_t rank0 = fork();
    REQUIRE(rank0 >= 0);
    if (rank0 == 0) {
        meet_as(rank_of(0, 4, port));
        _exit(0);
    }
    outcome o;
    std::jthread rank1([&] { o = meet_as(rank_of(1, 4, port)); });
    // Rank 2 is told for which ranks rank 0 still waits: when rank 1 is no longer among them, it has connected.
    for (;;) {
        hand other(port);
        other.put(other.record(2, 4));
        const auto a = other.get();
        REQUIRE(a);
        REQUIRE(a->what == verdict::accepted);
        if (lacks(a->text, {"rank 3"}) == "" && std::string_view(a->text).find('1') == std::string_view::npos) break;
    }
    kill(rank0, SIGKILL);
    rank1.join();
    waitpid(rank0, nullptr, 0);
    REQUIRE(o.is(errc::peer_failed));
    CHECK(o.failed->peer() == 0);
    CHECK(lacks(o.text(), {"rank 0 at 127.0.0.1:" + std::to_string(port)}) == "");
}

TEST_CASE("rendezvous: a rank may connect again after its connection has ended", "[rendezvous]") {
    const int port = free_port();
    std::vector<outcome> outcomes(3);
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { outcomes[0] = meet_as(rank_of(0, 3, port)); });
    for (int attempt = 0; attempt < 5; ++attempt) {
        hand first(port);
        first.put(first.record(1, 3));
        const auto a = first.get();
        REQUIRE(a);
        CHECK(a->what == verdict::accepted);
        CHECK(lacks(a->text, {"rank 2"}) == "");
    }
    for (const int r : {1, 2})
        threads.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = meet_as(rank_of(r, 3, port)); });
    for (std::jthread& t : threads) t.join();
    check_met(outcomes);
}

TEST_CASE("rendezvous: a rank takes its own place again, also where rank 0 has not seen yet that it had left",
    "[rendezvous]") {
    struct process {
        pid_t id = fork();
        ~process() {
            if (id <= 0) return;
            kill(id, SIGKILL);
            waitpid(id, nullptr, 0);
        }
    };
    for (const bool reset : {false, true}) {
        INFO("reset " << reset);
        const int port = free_port();
        const process rank0;
        REQUIRE(rank0.id >= 0);
        if (rank0.id == 0) _exit(meet_as(rank_of(0, 3, port)).met ? 0 : 1);
        hand second(port), first(port);  // rank 0 looks at them in this order
        first.put(first.record(1, 3));
        REQUIRE(first.get());
        int how = 0;
        REQUIRE(kill(rank0.id, SIGSTOP) == 0);
        REQUIRE(waitpid(rank0.id, &how, WUNTRACED) == rank0.id);
        const linger none{1, 0};
        if (reset) setsockopt(first.fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
        first.fd.close();
        second.put(second.record(1, 3));
        kill(rank0.id, SIGCONT);
        const auto a = second.get();
        REQUIRE(a);
        CHECK(a->what == verdict::accepted);
    }
}

TEST_CASE("rendezvous: stray connections do not keep the group from meeting", "[rendezvous]") {
    const int port = free_port();
    std::vector<outcome> outcomes(3);
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { outcomes[0] = meet_as(rank_of(0, 3, port)); });
    std::vector<hand> kept;
    SECTION("port scan") {
        for (int i = 0; i < 50; ++i) hand(port, false);
    }
    SECTION("another protocol, garbage, a reflected challenge") {
        std::mt19937 random(7);
        std::vector<std::byte> garbage(100'000);
        for (std::byte& b : garbage) b = static_cast<std::byte>(random() & 0xff);
        const bytes_view http = raw("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for (const bytes_view text : {http, bytes_view(garbage), raw("colls:\n"), raw("SSH-2.0-x\r\n")}) {
            hand(port, false).put(text);
            kept.emplace_back(port, false).put(text);
        }
        hand mirror(port);
        mirror.put(encode(challenge_of(mirror.theirs)));
        mirror.wait_for_end();
    }
    SECTION("silent, for longer than is allowed") {
        for (int i = 0; i < 20; ++i) kept.emplace_back(port);
        for (hand& h : kept) h.wait_for_end();  // rank 0 closes them
    }
    SECTION("a byte a second; a connection that is refused late may stay on") {
        hand late(port), slow(port);
        double refused_at = 0;
        const auto bytes = slow.record(2, 3);
        std::size_t n = 0;
        while (n < bytes.size() && send(slow.fd.get(), bytes.data() + n, 1, MSG_NOSIGNAL) == 1) {
            if (++n == 8) {
                refused_at = seconds_now();
                late.put(late.record(2, 4));
                REQUIRE(late.get());
            }
            nap(0.5);
        }
        CHECK(n < bytes.size());
        send(late.fd.get(), "x", 1, MSG_NOSIGNAL);
        nap(0.05);  // where it is closed, that has been answered by now
        const ssize_t more = send(late.fd.get(), "x", 1, MSG_NOSIGNAL);
        if (seconds_now() < refused_at + 5) CHECK(more == 1);
    }
    SECTION("half a hello, then the end of the connection") {
        hand half(port);
        half.put(bytes_view(half.record(2, 3)).first(50));
    }
    SECTION("a hello with invalid fields, with the right token") {
        for (const std::size_t at : {prefix_bytes + 19, prefix_bytes + 23, prefix_bytes + 31}) {  // rank, size, process
            hand odd(port);
            auto bytes = odd.record(2, 3);
            bytes[at] = std::byte{0x80};
            const digest proof = prove(odd.token, odd.theirs, odd.ours, bytes);
            std::copy(proof.begin(), proof.end(), bytes.end() - 32);
            odd.put(bytes);
            odd.wait_for_end();
        }
    }
    SECTION("a rank that sends more than its hello") {
        hand chatty(port);
        chatty.put(chatty.record(2, 3));
        REQUIRE(chatty.get());
        chatty.put(raw("and another thing"));
        chatty.wait_for_end();  // and its rank may connect again
    }
    SECTION("a hello that is replayed on another connection") {
        hand first(port), second(port);
        second.put(first.record(2, 3));
        second.ours = first.ours;
        const auto a = second.get();
        REQUIRE(a);
        CHECK(a->what == verdict::wrong_token);
    }
    // The other ranks connect after the stray connections.
    for (const int r : {1, 2})
        threads.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = meet_as(rank_of(r, 3, port)); });
    for (std::jthread& t : threads) t.join();
    check_met(outcomes);
}

TEST_CASE("rendezvous: why a rank cannot take part is the error of all", "[rendezvous]") {
    for (const int failing : {0, 2}) {
        const int port = free_port();
        std::vector<outcome> outcomes(3);
        std::vector<std::jthread> threads;
        for (int r = 0; r < 3; ++r)
            threads.emplace_back([&, r] {
                try {
                    const launch l = rank_of(r, 3, port);
                    const auto star = meet(l, ample);
                    environment env = environment::read();
                    env.tcp = true;  // the ranks are threads
                    form_over(
                        *star, {.exchange = *star, .rank = r, .size = 3, .env = env, .listen = [&](bool) -> descriptor {
                                    if (r == failing) throw colls::error(errc::unsupported, "colls: no chair", r);
                                    return listen_for_members(l, star->at);
                                }});
                } catch (const colls::error& e) {
                    outcomes[static_cast<std::size_t>(r)].failed = e;
                }
            });
        for (std::jthread& t : threads) t.join();
        for (std::size_t r = 0; r < 3; ++r) {
            const outcome& o = outcomes[r];
            INFO(failing << ", " << r << ": " << o.text());
            CHECK(o.is(errc::unsupported));
            CHECK(lacks(o.text(), {"no chair"}) == "");
            if (static_cast<int>(r) == failing) continue;
            CHECK(lacks(o.text(), {"the group was not formed: rank " + std::to_string(failing) + ": "}) == "");
            CHECK(o.failed->peer() == failing);
        }
    }
}

TEST_CASE("rendezvous: ranks meet despite a thousand silent connections, or more than there are descriptors for",
    "[rendezvous]") {
    const int port = free_port();
    const bool few_files = GENERATE(false, true);
    const pid_t rank0 = fork();
    REQUIRE(rank0 >= 0);
    if (rank0 == 0) {
        const rlimit few{40, 40};
        if (few_files) setrlimit(RLIMIT_NOFILE, &few);
        _exit(meet_as(rank_of(0, 2, port)).met ? 0 : 1);
    }
    const pid_t crowd = fork();
    REQUIRE(crowd >= 0);
    if (crowd == 0) {
        std::vector<descriptor> all;
        hand(port, false);  // rank 0 listens
        for (int i = 0; i < (few_files ? 100 : 1000); ++i)
            all.push_back(start_connect(address::loopback(AF_INET, port)));
        kill(getpid(), SIGSTOP);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(crowd, &status, WUNTRACED) == crowd);
    REQUIRE(WIFSTOPPED(status));
    const outcome o = meet_as(rank_of(1, 2, port));
    INFO(o.text());
    CHECK(o.met);
    kill(crowd, SIGKILL);
    waitpid(crowd, &status, 0);
    REQUIRE(waitpid(rank0, &status, 0) == rank0);
    CHECK(status == 0);
}

TEST_CASE("rendezvous: descriptors have run out where attempts have shown that, however long the pauses between them",
    "[rendezvous]") {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        door<hello> d(listen_at(address::loopback(AF_INET, free_port())), "the token", "rank 0");
        const int spare = dup(0), next = dup(0);
        close(next);
        const rlimit used{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
        if (spare < 0 || next < 0 || setrlimit(RLIMIT_NOFILE, &used) != 0 || d.exhausted_for(0) != 0) _exit(1);
        d.serve();
        if (d.reason() != EMFILE || d.exhausted_for(0) != EMFILE) _exit(2);
        usleep(80'000);
        if (d.exhausted_for(0.07) != 0) _exit(3);  // nothing has been tried meanwhile
        close(spare);
        d.serve();
        _exit(d.exhausted_for(0) != 0 ? 4 : 0);  // there is a descriptor again, though no connection comes
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("rendezvous: where descriptors run out, all ranks hear of it", "[rendezvous]") {
    const int port = free_port();
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const descriptor in(ends[0]), out(ends[1]);
    const pid_t rank0 = fork();
    REQUIRE(rank0 >= 0);
    if (rank0 == 0) {
        const rlimit few{24, 24};
        setrlimit(RLIMIT_NOFILE, &few);
        const std::string text = meet_as(rank_of(0, 40, port), 60).text();
        _exit(write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    auto ranks = ranks_of(40, port);
    ranks.erase(ranks.begin());
    for (const outcome& o : meet_all(ranks, {}, 60)) {
        CHECK(o.is(errc::peer_failed));
        CHECK(lacks(o.text(), {"Too many open files", "ulimit -n"}) == "");
    }
    char text[600] = {};
    CHECK(read(in.get(), text, sizeof text - 1) > 0);
    CHECK(lacks(text, {"cannot accept the connections of all ranks: Too many open files", "ulimit -n"}) == "");
    CHECK(waitpid(rank0, nullptr, 0) == rank0);
}

TEST_CASE("rendezvous: a port that is taken", "[rendezvous]") {
    const int port = free_port();
    SECTION("is an error, if the port was given") {
        const descriptor other = listen_at(address::loopback(AF_INET, port));
        const outcome o = meet_as(rank_of(0, 2, port), 3);
        REQUIRE(o.is(errc::invalid_argument));
        CHECK(lacks(o.text(), {"port " + std::to_string(port), "another process uses it", "MASTER_PORT",
                                  "COLLS_MASTER_PORT"}) == "");
    }
    SECTION("is avoided by all ranks, if the port was derived") {
        // Three programs occupy ports, each in another way.
        const impostor silent(port, [](int) {});
        const impostor talker(
            port + 1, [](int fd) { send_all(fd, "220 mail.example.org ESMTP\r\n", 28, seconds_now() + ample); });
        std::vector<outcome> other(1);
        std::jthread foreign([&] { other[0] = meet_as(rank_of(0, 2, port + 2, "the token of another job"), 3); });
        hand(port + 2);  // it listens
        auto ranks = ranks_of(3, port);
        for (launch& l : ranks) l.ports = 16;
        check_met(meet_all(ranks));
        foreign.join();
        REQUIRE(other[0].is(errc::timeout));
    }
    SECTION("is an error, if all derived ports are") {
        std::vector<descriptor> taken;
        for (int i = 0; i < 4; ++i) taken.push_back(listen_at(address::loopback(AF_INET, port + i)));
        launch l = rank_of(0, 2, port);
        l.ports = 4;
        CHECK(lacks(meet_as(l).text(), {"port " + std::to_string(port) + " to " + std::to_string(port + 3)}) == "");
    }
}

TEST_CASE("rendezvous: a rank 0 that does not know the token gets no rank", "[rendezvous]") {
    const int port = free_port();
    SECTION("by a reply") {
        const impostor other(port, [](int fd) { reply_to(fd, {verdict::accepted}, "", "a guess"); });
        const outcome o = meet_as(rank_of(1, 2, port));
        REQUIRE(o.is(errc::invalid_argument));
        CHECK(lacks(o.text(), {"tokens differ"}) == "");
    }
    SECTION("by a reply that all have come") {
        const impostor other(port, [](int fd) { reply_to(fd, {verdict::complete}, "", "a guess"); });
        CHECK_FALSE(meet_as(rank_of(1, 2, port), 2).met);
    }
}

TEST_CASE("rendezvous: a rank that does not come to a step of forming is named at the deadline", "[rendezvous]") {
    for (const int rank : {0, 2}) {
        int pair[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        const descriptor silent(pair[1]);
        std::vector<peer_line> lines;
        if (rank == 0) lines.resize(3);  // itself, one that needs no connection, and the one that is silent
        lines.push_back({std::make_unique<own_socket>(descriptor(pair[0]))});
        rank_star star(rank_of(rank, 4, 1), 0.02, std::move(lines), {});
        outcome o;
        try {
            star.meet();
        } catch (const colls::error& e) {
            o.failed = e;
        }
        const int silent_rank = rank == 0 ? 3 : 0;
        REQUIRE(o.is(errc::timeout));
        CHECK(o.failed->rank() == rank);
        CHECK(o.failed->peer() == silent_rank);
        CHECK(lacks(o.text(), {"rank " + std::to_string(silent_rank) +
                                  " has not formed the group with the others within 0.02 s"}) == "");
    }
}

TEST_CASE("rendezvous: a rank to which nothing can be sent any more is asked why first", "[rendezvous]") {
    for (const bool says : {true, false}) {
        int pair[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        std::vector<peer_line> lines;
        lines.push_back({std::make_unique<own_socket>(descriptor(pair[0]))});
        rank_star star(rank_of(1, 3, 1), ample, std::move(lines), {});
        descriptor zero(pair[1]);
        const auto why = encode(refusal(errc::peer_failed, 2, "rank 2 has no chair"));
        if (says) REQUIRE(send_all(zero.get(), why.data(), why.size(), 0) == 0);
        zero.close();
        outcome o;
        try {
            star.meet();
        } catch (const colls::error& e) {
            o.failed = e;
        }
        REQUIRE(o.is(errc::peer_failed));
        CHECK(o.failed->peer() == (says ? 2 : 0));
        CHECK(lacks(o.text(), {says ? "rank 2 has no chair" : "rank 0 has ended"}) == "");
    }
}

TEST_CASE("rendezvous: what comes of an acceptance if no more follows", "[rendezvous]") {
    const int port = free_port();
    const auto after = [port](std::function<void(int)> act, double timeout = ample) {
        const impostor rank0(port, std::move(act));
        return meet_as(rank_of(1, 2, port), timeout);
    };
    const std::string accepted = "rank 0 at 127.0.0.1:" + std::to_string(port) + " has accepted this rank, but ";
    const auto check = [&](const outcome& o, errc code, const std::string& text) {
        INFO(o.text());
        REQUIRE(o.is(code));
        CHECK(lacks(o.text(), {"rank 1 of 2", accepted + text}) == "");
        CHECK(o.failed->peer() == (text.starts_with("after") ? colls::none : 0));
    };
    const auto silent_after = [&](std::initializer_list<verdict> replies, const char* text) {
        outcome o;  // a busy machine may take longer to the acceptance
        for (double timeout = 0.5; timeout < ample && !o.is(errc::timeout); timeout *= 2) {
            o = after([&](int fd) { reply_to(fd, replies, text); }, timeout);
            if (o.text().find("cannot reach") != std::string::npos) o.failed.reset();
        }
        return o;
    };
    check(silent_after({verdict::accepted}, "rank 5"), errc::timeout, "after ");
    check(silent_after({verdict::accepted, verdict::waiting}, "rank 5"), errc::timeout, "after ");
    CHECK(lacks(silent_after({verdict::accepted}, "rank 5").text(), {"still waited for rank 5: were all"}) == "");

    check(after([&](int fd) {
        reply_to(fd, {verdict::accepted, verdict::waiting});
        shutdown(fd, SHUT_RDWR);
    }),
        errc::peer_failed, "then closed the connection before all ranks had connected: has it failed?");
    const outcome ended = after([&](int fd) {
        reply_to(fd, {verdict::accepted, verdict::complete});
        shutdown(fd, SHUT_RDWR);
    });
    CHECK(ended.is(errc::peer_failed));
    CHECK(ended.failed->peer() == 0);
    CHECK(lacks(ended.text(), {"rank 0 has ended, or given up, before all had formed the group"}) == "");
    // Bytes that are no exchange.
    for (const char* bytes : {"dxx", "e", "colls:\nr"}) {
        const outcome odd = after([&](int fd) {
            reply_to(fd, {verdict::accepted, verdict::complete});
            send_all(fd, bytes, std::strlen(bytes), seconds_now() + ample);
            shutdown(fd, SHUT_WR);
        });
        INFO(bytes << ": " << odd.text());
        CHECK(odd.is(errc::peer_failed));
        CHECK(odd.failed->peer() == 0);
    }
    check(after([](int fd) {
        reply_to(fd, {verdict::accepted});
        const std::array<std::byte, reply::bytes> garbage{};
        send_all(fd, garbage.data(), garbage.size(), seconds_now() + ample);
    }),
        errc::peer_failed, "then the connection failed: Protocol error");

    const outcome broken = after([](int fd) { reply_to(fd, {verdict::accepted, verdict::broken}, "a fire"); });
    CHECK(broken.is(errc::timeout));
    CHECK(lacks(broken.text(), {"rank 1 of 2", "the group was not formed: a fire"}) == "");
    for (const verdict v : {verdict::other_size, verdict::version_skew, verdict::rank_out_of_range, verdict::rank_taken,
             verdict::wrong_token}) {
        const outcome refused = after([&](int fd) { reply_to(fd, {v}, "a reason"); });
        CHECK(refused.is(
            v == verdict::other_size || v == verdict::version_skew ? errc::mismatch : errc::invalid_argument));
        CHECK(lacks(refused.text(), {"has refused this rank: a reason"}) == "");
    }
}

TEST_CASE("rendezvous: COLLS_INTERFACE chooses the address at which a rank listens", "[rendezvous]") {
    const int port = free_port();
    auto ranks = ranks_of(3, port);
    SECTION("by name, and by address") {
        ranks[0].interface_name = "lo";
        ranks[1].interface_name = "127.0.0.1";
        const auto outcomes = meet_all(ranks);
        check_met(outcomes);
        for (const member& m : outcomes[2].met->members) CHECK(host_text(m.at) == "127.0.0.1");
    }
    SECTION("an unknown one is an error that lists those there are") {
        for (const char* name : {"eth77", "203.0.113.5", "2001:db8::7", "999.1.1.1"})
            for (const int rank : {0, 1}) {
                ranks[static_cast<std::size_t>(rank)].interface_name = name;
                const outcome o = meet_as(ranks[static_cast<std::size_t>(rank)]);
                REQUIRE(o.is(errc::invalid_argument));
                CHECK(lacks(o.text(), {"COLLS_INTERFACE", std::string("'") + name + "'", "lo (127.0.0.1)"}) == "");
            }
    }
    SECTION("an address that other hosts reach, also for the rendezvous") {
        const address outside = outward_address(AF_INET);
        if (outside.is_loopback()) {
            WARN("left out: this host has no address but loopback");
            return;
        }
        const bool all_ranks = GENERATE(false, true);
        for (launch& l : ranks) {
            if (all_ranks)
                l.host = host_text(outside);
            else if (l.rank == 1)
                l.interface_name = host_text(outside);
        }
        const auto outcomes = meet_all(ranks);
        check_met(outcomes);
        for (int r = 0; r < 3; ++r)
            CHECK(outcomes[0].met->members[static_cast<std::size_t>(r)].at.same_host(outside) == (all_ranks || r == 1));
    }
    SECTION("this host's name, which may stand for loopback here and for another address elsewhere") {
        char name[256] = {};
        REQUIRE(gethostname(name, sizeof name - 1) == 0);
        if (resolve(name, port).empty() || std::string(name).compare(0, 9, "localhost") == 0) {
            WARN("left out: this host's name is not known to itself");
            return;
        }
        for (launch& l : ranks) l.host = name;
        const auto outcomes = meet_all(ranks);
        check_met(outcomes);
        if (!outward_address(AF_INET).is_loopback())
            for (const member& m : outcomes[0].met->members) CHECK_FALSE(m.at.is_loopback());
    }
    SECTION("IPv6") {
        if (!listen_at(address::loopback(AF_INET6, port))) {
            WARN("left out: no IPv6 here");
            return;
        }
        for (launch& l : ranks) l.host = "::1";
        const auto outcomes = meet_all(ranks);
        check_met(outcomes);
        for (const member& m : outcomes[1].met->members) CHECK(lacks(text_of(m.at), {"[::1]:"}) == "");
    }
}

TEST_CASE("rendezvous: of an interface's addresses, one of the family counts most, then one that is not link-local",
    "[rendezvous]") {
    const address one = numeric_address("10.0.0.1", 0), two = numeric_address("10.0.0.2", 0),
                  wide = numeric_address("2001:db8::1", 0), local = numeric_address("fe80::1", 0);
    const auto chosen = [](int family, const std::vector<address>& addresses) {
        std::vector<network_interface> all{{"other", numeric_address("192.0.2.1", 0)}};
        for (const address& a : addresses) all.push_back({"some", a});
        return host_text(interface_address("some", family, all));
    };
    CHECK(chosen(AF_INET, {local, wide, one, two}) == "10.0.0.1");
    CHECK(chosen(AF_INET, {two, local, one, wide}) == "10.0.0.2");
    CHECK(chosen(AF_INET6, {one, local, wide}) == "2001:db8::1");
    CHECK(chosen(AF_INET6, {wide, local, one}) == "2001:db8::1");
    CHECK(chosen(AF_INET6, {one, local}) == "fe80::1");
    CHECK(chosen(AF_INET6, {local, one}) == "fe80::1");
    CHECK(chosen(AF_INET, {local, wide}) == "2001:db8::1");
    CHECK(chosen(AF_INET6, {one, two}) == "10.0.0.1");
    const std::vector<network_interface> both{{"some", one}, {"other", two}};
    CHECK(host_text(interface_address("10.0.0.2", AF_INET6, both)) == "10.0.0.2");
    const auto error_of = [](const std::vector<network_interface>& there) -> std::string {
        try {
            interface_address("this one", AF_INET, there);
        } catch (const colls::error& e) {
            return e.what();
        }
        return "no error";
    };
    CHECK(lacks(error_of({}), {"'this one'", "it has none"}) == "");
    CHECK(lacks(error_of(both), {"it has some (10.0.0.1), other (10.0.0.2)"}) == "");
}

TEST_CASE("rendezvous: the host's name is the system's", "[rendezvous]") {
    utsname system;
    REQUIRE(uname(&system) == 0);
    CHECK(std::string(host_name().text) == std::string(system.nodename).substr(0, 63));
    const descriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char id[37] = {};
    if (file && read(file.get(), id, 36) == 36) CHECK(std::string(boot_of_host().text) == id);
}

TEST_CASE("rendezvous: the host identity is equal exactly for processes that can share memory", "[rendezvous]") {
    const std::uint64_t here = host_identity();
    CHECK(here == host_identity());
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const descriptor in(ends[0]), out(ends[1]);
    // Another process; another user; another network namespace, if this process may make one.
    for (const char* what : {"process", "user", "network"}) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            bool apart = true;
            if (*what == 'u') apart = setuid(getuid() + 1000) == 0;
            if (*what == 'n') apart = unshare(CLONE_NEWNET) == 0;
            const std::uint64_t there = apart ? host_identity() : 0;
            _exit(write(out.get(), &there, sizeof there) == sizeof there ? 0 : 1);
        }
        std::uint64_t there = 0;
        REQUIRE(read(in.get(), &there, sizeof there) == sizeof there);
        waitpid(child, nullptr, 0);
        INFO(what);
        if (there == 0)
            WARN("left out: not allowed to be another " << what);
        else
            CHECK((there == here) == (*what == 'p'));
    }
}

TEST_CASE("rendezvous: records are parsed as they were written, and other bytes are rejected", "[rendezvous]") {
    std::mt19937_64 random(5);
    const auto any = [&](auto& bytes) {
        for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
    };
    in6_addr v6;
    for (unsigned char& b : v6.s6_addr) b = static_cast<unsigned char>(random() | 1);
    const member members[] = {{address::of_v4(0x0a000001, 65535), {1, 0, 1, 0}},
        {address::of_v6(v6, 1), {INT32_MAX, UINT32_MAX, INT32_MAX, INT32_MAX}}};
    for (const member& m : members) {
        std::byte bytes[member_bytes];
        encoder{bytes}(m);
        member back;
        decoder in(bytes);
        in(back);
        CHECK(in.sound());
        CHECK(back.at == m.at);
        CHECK(back.cores == m.cores);
    }
    for (const std::int64_t pid : {std::int64_t{0}, std::int64_t{INT64_MAX}}) {
        hello h;
        h.library = 7;
        h.rank = 3;
        h.size = 1 << 20;
        h.pid = pid;
        any(h.once);
        any(h.proof);
        const auto bytes = encode(h);
        const auto back = parse<hello>(bytes);
        REQUIRE(back);
        CHECK(back->library == 7);
        CHECK(back->once == h.once);
        CHECK(back->rank == 3);
        CHECK(back->size == 1 << 20);
        CHECK(back->pid == pid);
        CHECK(back->proof == h.proof);
        // Little-endian on any machine.
        CHECK(bytes[prefix_bytes + 16] == std::byte{3});
        CHECK(bytes[prefix_bytes + 22] == std::byte{16});

        for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(parse<hello>(bytes_view(bytes).first(n)));
        const digest proof = prove("key", {}, h.once, bytes);
        for (std::size_t i = 0; i < bytes.size(); ++i)
            for (int bit = 0; bit < 8; ++bit) {
                auto other = bytes;
                other[i] ^= static_cast<std::byte>(1 << bit);
                const auto parsed = parse<hello>(other);
                if (parsed) CHECK(encode(*parsed) == other);
                // The digest covers every byte but its own.
                CHECK(same(prove("key", {}, h.once, other), proof) == (i >= bytes.size() - 32));
            }
    }
    reply a = reply_of(verdict::broken, 9, random(), "why");
    any(a.proof);
    const auto bytes = encode(a);
    const auto back = parse<reply>(bytes);
    REQUIRE(back);
    CHECK(back->what == a.what);
    CHECK(back->size == 9);
    CHECK(back->group == a.group);
    CHECK(std::string(back->text) == "why");
    CHECK(back->proof == a.proof);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        for (int value = 0; value < 256; ++value) {
            auto other = bytes;
            other[i] = static_cast<std::byte>(value);
            const auto parsed = parse<reply>(other);
            if (parsed) CHECK(encode(*parsed) == other);
        }
    auto escape = bytes;
    escape[prefix_bytes + 16] = std::byte{27};  // no control characters for a terminal
    CHECK_FALSE(parse<reply>(escape));
    auto full = bytes;
    std::fill_n(full.begin() + prefix_bytes + 16, reply::most_text, std::byte{'x'});
    REQUIRE(parse<reply>(full));
    CHECK(std::string(parse<reply>(full)->text).size() == reply::most_text);
    // A refusal says its code, and whom it is about.
    for (const int about : {colls::none, 0, 1, (1 << 30)})
        for (const errc code : {errc::timeout, errc::mismatch, errc::peer_failed}) {
            const auto r = parse<reply>(encode(refusal(code, about, "a\nreason")));
            REQUIRE(r);
            CHECK(code_of(*r) == code);
            CHECK(about_of(*r) == about);
            CHECK(std::string(r->text) == "a?reason");
        }
    CHECK(code_of(reply_of(verdict::failed, 1, 255)) == errc::peer_failed);
    CHECK(code_of(reply_of(verdict::failed, 1, 0)) == errc::peer_failed);
}

TEST_CASE("rendezvous: each field of a record is taken at the ends of its range, and rejected beyond", "[rendezvous]") {
    const auto takes_hello = [](void (*change)(hello&)) {
        hello h;  // all fields at their least
        h.size = 1;
        change(h);
        const auto back = parse<hello>(encode(h));
        if (back) CHECK(encode(*back) == encode(h));
        return back.has_value();
    };
    CHECK(takes_hello([](hello&) {}));
    CHECK(takes_hello([](hello& h) { h.rank = INT32_MAX; }));
    CHECK(takes_hello([](hello& h) { h.size = INT32_MAX; }));
    CHECK_FALSE(takes_hello([](hello& h) { h.rank = -1; }));
    CHECK_FALSE(takes_hello([](hello& h) { h.size = 0; }));
    CHECK_FALSE(takes_hello([](hello& h) { h.size = -1; }));
    CHECK_FALSE(takes_hello([](hello& h) { h.pid = -1; }));

    const auto takes_member = [](void (*change)(member&)) {
        member m{address::of_v4(1, 1), {1, 0, 1, 0}};
        change(m);
        std::byte bytes[member_bytes];
        encoder{bytes}(m);
        decoder in(bytes);
        in(m);
        return in.sound();
    };
    CHECK(takes_member([](member&) {}));
    CHECK(takes_member([](member& m) { m.at = address::of_v4(~0u, 65535); }));
    CHECK_FALSE(takes_member([](member& m) { m.cores.cores = 0; }));
    CHECK_FALSE(takes_member([](member& m) { m.cores.most = 0; }));
    CHECK_FALSE(takes_member([](member& m) { m.cores.launched = -1; }));
    CHECK_FALSE(takes_member([](member& m) { m.at = address::of_v4(1, 0); }));
    CHECK_FALSE(takes_member([](member& m) { m.at = address::of_v4(0, 1); }));
    CHECK_FALSE(takes_member([](member& m) { m.at = address::of_v6(in6addr_any, 1); }));
    CHECK(takes_member([](member& m) { m.at = address::of_v6(in6addr_loopback, 1); }));

    const auto takes_reply = [](void (*change)(reply&)) {
        reply a = reply_of(verdict::accepted, 1, 0);
        change(a);
        const auto back = parse<reply>(encode(a));
        if (back) CHECK(encode(*back) == encode(a));
        return back.has_value();
    };
    CHECK(takes_reply([](reply&) {}));
    CHECK(takes_reply([](reply& a) { a.what = verdict::broken; }));
    CHECK(takes_reply([](reply& a) { a.text[0] = ' '; }));
    CHECK(takes_reply([](reply& a) { a.text[0] = '~'; }));
    CHECK_FALSE(takes_reply([](reply& a) { a.what = verdict(0); }));
    CHECK_FALSE(
        takes_reply([](reply& a) { a.what = verdict(static_cast<std::uint32_t>(verdict::other_endpoint) + 1); }));
    CHECK_FALSE(takes_reply([](reply& a) { a.size = 0; }));
    CHECK_FALSE(takes_reply([](reply& a) { a.text[0] = ' ' - 1; }));
    CHECK_FALSE(takes_reply([](reply& a) { a.text[0] = '~' + 1; }));
    CHECK_FALSE(takes_reply([](reply& a) { a.text[reply::most_text - 1] = 'x'; }));  // behind the end of the text
}

TEST_CASE("rendezvous: a challenge is parsed as it was written, and a prefix of any version", "[rendezvous]") {
    const challenge c = challenge_of(random_bytes<nonce>(), 7);
    const auto bytes = encode(c);
    const auto back = parse<challenge>(bytes);
    REQUIRE(back);
    CHECK(back->library == 7);
    CHECK(back->once == c.once);
    for (std::size_t n = 0; n <= bytes.size(); ++n) {
        const bytes_view part = bytes_view(bytes).first(n);
        CHECK(parse<challenge>(part).has_value() == (n == bytes.size()));
        CHECK(parse_prefix(part).has_value() == (n >= prefix_bytes));
    }
    for (int kind = 0; kind < 256; ++kind) {
        auto other = bytes;
        other[7] = static_cast<std::byte>(kind);
        CHECK(parse_prefix(other).has_value() ==
              (kind == 'c' || kind == 'h' || kind == 'r' || kind == 'k' || kind == 'q'));
        CHECK(parse<challenge>(other).has_value() == (kind == 'c'));
    }
    auto other_protocol = bytes;
    other_protocol[8] ^= std::byte{1};
    CHECK(parse_prefix(other_protocol));
    CHECK_FALSE(parse<challenge>(other_protocol));
}

TEST_CASE("digest: SHA-256 and HMAC give the values of the standards", "[rendezvous]") {
    CHECK(hex(sha256().finish()) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex(sha256().add(raw("abc")).finish()) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex(sha256().add(raw("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")).finish()) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hex(sha256().add(raw(std::string(1'000'000, 'a'))).finish()) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    for (const std::size_t n : {55u, 56u, 63u, 64u, 65u, 119u, 120u}) {  // in pieces as in one
        const std::string text(n, 'q');
        sha256 pieces;
        for (const char& c : text) pieces.add(raw({&c, 1}));
        CHECK(pieces.finish() == sha256().add(raw(text)).finish());
    }
    // RFC 4231, cases 1, 2 and 6.
    CHECK(hex(keyed_digest(raw(std::string(20, '\x0b')), {raw("Hi "), raw("There")})) ==
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    CHECK(hex(keyed_digest(raw("Jefe"), {raw("what do ya want for nothing?")})) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(hex(keyed_digest(
              raw(std::string(131, '\xaa')), {raw("Test Using Larger Than Block-Size Key - Hash Key First")})) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("socket: connect, send and receive by a deadline, and addresses as text", "[rendezvous]") {
    const descriptor listening = listen_at(address::loopback(AF_INET, 0));
    REQUIRE(listening);
    CHECK(port_of(listening.get()) > 0);
    CHECK((fcntl(listening.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((fcntl(listening.get(), F_GETFL) & O_NONBLOCK) != 0);
    descriptor a = start_connect(address::loopback(AF_INET, port_of(listening.get())));
    REQUIRE(wait_for(a.get(), POLLOUT, seconds_now() + ample));
    REQUIRE(connected(a.get()) == 0);
    REQUIRE(wait_for(listening.get(), POLLIN, seconds_now() + ample));
    descriptor b = accept_from(listening.get());
    REQUIRE(b);
    CHECK(local_address(a.get()) == remote_address(b.get()));

    // Transfers in parts; deadlines; the end of the stream.
    std::vector<char> out(5'000'000), in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 7 >> 3);
    int sent = -1;
    std::jthread sender([&] { sent = send_all(a.get(), out.data(), out.size(), seconds_now() + ample); });
    CHECK(receive_all(b.get(), in.data(), in.size(), seconds_now() + ample) == 0);
    sender.join();
    CHECK(sent == 0);
    CHECK(in == out);
    CHECK(receive_all(b.get(), in.data(), 1, seconds_now() + 0.05) == ETIMEDOUT);
    std::vector<char> much(64 << 20);
    CHECK(send_all(b.get(), much.data(), much.size(), seconds_now() + 0.2) == ETIMEDOUT);
    a.close();
    CHECK(send_all(b.get(), much.data(), much.size(), seconds_now() + ample) != 0);
    CHECK(send_all(b.get(), much.data(), much.size(), seconds_now() + ample) == EPIPE);  // and no signal
    descriptor c = start_connect(address::loopback(AF_INET, port_of(listening.get())));
    REQUIRE(wait_for(listening.get(), POLLIN, seconds_now() + ample));
    descriptor d = accept_from(listening.get());
    c.close();
    CHECK(receive_all(d.get(), in.data(), 1, seconds_now() + ample) == ENODATA);

    const int port = free_port();
    const descriptor refused = start_connect(address::loopback(AF_INET, port));
    if (refused) {
        wait_for(refused.get(), POLLOUT, seconds_now() + ample);
        CHECK(connected(refused.get()) == ECONNREFUSED);
    }
    // A socket that is bound to the address to which it connects connects to itself: that is an error.
    const descriptor own(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const address at = address::loopback(AF_INET, port);
    const int yes = 1;  // earlier connections may still be ending at that port
    setsockopt(own.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    REQUIRE(bind(own.get(), at.get(), at.length) == 0);
    connect(own.get(), at.get(), at.length);
    wait_for(own.get(), POLLOUT, seconds_now() + ample);
    CHECK(connected(own.get()) == ECONNREFUSED);

    CHECK(text_of(address::of_v4(0x7f000001, 80)) == "127.0.0.1:80");
    CHECK(text_of(address::loopback(AF_INET6, 80)) == "[::1]:80");
    CHECK(text_of(address{}) == "(no address):0");
    CHECK(numeric_address("10.1.2.3", 4) == address::of_v4(0x0a010203, 4));
    CHECK(numeric_address("localhost", 4).length == 0);
    CHECK(address::of_v4(0x7f000101, 0).is_loopback());
    CHECK_FALSE(address::of_v4(0x0a000001, 0).is_loopback());
}

TEST_CASE("rendezvous: ranks that are missing are named in ranges, and of many ranges the first ten", "[rendezvous]") {
    const auto even = [](int below) { return [=](int r) { return r % 2 == 0 && r < below; }; };
    CHECK(names_of("rank", 9, [](int r) { return r == 3; }) == "rank 3");
    CHECK(names_of("rank", 11, [](int r) { return r > 4 && r != 8; }) == "ranks 5-7, 9, 10");
    CHECK(names_of("rank", 30, even(20)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18");
    for (const int below : {21, 30})
        CHECK(names_of("rank", 30, even(below)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, ...");
}
