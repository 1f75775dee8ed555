// The record in which a process shows its ranks (status/), read while groups come and go, and read where it holds
// whatever bytes.
#include "../catch.hpp"
#include "../support/launch.hpp"
#include "../support/ports.hpp"
#include "../support/random.hpp"
#include "../support/raw_socket.hpp"
#include "../support/says.hpp"

#include <colls/detail/group/wait_site.hpp>
#include <colls/status/detail/door.hpp>
#include <colls/status/detail/own_record.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

namespace {

using namespace colls::detail;
using namespace colls::detail::status;

std::string text_of(const char* text) { return text; }

/// This process's own, which has had a group.
int own_record() {
    char name[64] = {};
    for (int fd = 3; fd < 1000; ++fd)
        if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name - 1) > 0 &&
            std::string(name).rfind(std::string("/memfd:") + file_name, 0) == 0)
            return fd;
    FAIL("there is no record");
    return -1;
}

}  // namespace

TEST_CASE("what is read of a group is of one group, while others are made and dropped in its place") {
    // Colors are the sizes of the parts, so the label of each group says how large it is.
    std::atomic<bool> over{false};
    std::thread ranks([&] {
        colls::threads::run(6, [&](colls::communicator& comm) {
            for (int turn = 0;; ++turn) {
                int last = over;
                colls::all_reduce(comm, std::span(&last, 1), colls::max);
                if (last) return;
                const int size = turn % 2 == 0 ? (comm.rank() < 4 ? 4 : 2) : (comm.rank() < 5 ? 5 : 1);
                auto part = comm.split(size, 0);
                colls::barrier(part);
            }
        });
    });
    std::size_t parts = 0, whole = 0, several = 0;
    const double until = seconds_now() + 60;  // for ranks that have hardly run meanwhile
    for (int look = 0;
        (look < 20'000 && (look < 2'000 || parts < 1'000)) || ((parts == 0 || whole == 0) && seconds_now() < until);
        ++look) {
        std::vector<seen_rank> all;
        try {
            all = ranks_of_process(getpid());
        } catch (const colls::error&) {
            continue;  // before the first group
        }
        for (const seen_rank& r : all) {
            const std::string label = text_of(r.label);
            if (const std::size_t color = label.find(':'); color != label.npos) {
                ++parts;
                if (std::to_string(r.size) != label.substr(color + 1)) ++several;
            } else if (label.find('.') == label.npos) {
                ++whole;
                if (r.size != 6) ++several;
            }
        }
    }
    over = true;
    ranks.join();
    CHECK(parts > 0);
    CHECK(whole > 0);
    CHECK(several == 0);
    CHECK(ranks_of_process(getpid()).empty());  // all places are free again
}

TEST_CASE("what is read of a place is of one use of it, however short") {
    take_status().reset();
    const int fd = own_record();
    std::atomic<bool> over{false};
    std::thread writes([&] {
        support::random_source random(2);
        for (int turn = 0; !over; ++turn) {
            const status_place p = take_status();
            const int n = 1 + turn % 7;
            const std::string text(20, static_cast<char>('a' + n));
            p->show(static_cast<std::uint64_t>(n), n - 1, n, rank_status::memory_of_threads, text.c_str());
            p->add_error(text.c_str());
            for (std::size_t i = random.below(200); i > 0; --i) colls::detail::pause();
        }
    });
    int found = 0, with_error = 0, wrong = 0;
    for (int look = 0; look < 1'000'000 && (look < 200'000 || found < 1'000); ++look) {
        std::vector<seen_rank> all;
        add_record(all, fd, getpid(), getpid());
        for (const seen_rank& r : all) {
            const std::string text(20, static_cast<char>('a' + r.size));
            ++found;
            with_error += r.errors == 1;
            wrong += r.rank != r.size - 1 || r.group != static_cast<std::uint64_t>(r.size) ||
                     text_of(r.label) != text || (r.error[0] != '\0' && text_of(r.error) != text);
        }
    }
    over = true;
    writes.join();
    CHECK(found > 0);
    CHECK(with_error > 0);
    CHECK(wrong == 0);
}

TEST_CASE("calls, messages, bytes and errors are counted") {
    colls::threads::run(2, [](colls::communicator& comm) {
        std::vector<std::int64_t> x(100, 1), y(100);
        const auto own = [&] {
            for (const seen_rank& r : ranks_of_process(getpid()))
                if (r.rank == comm.rank() && r.size == 2) return r;
            throw std::runtime_error("this rank is not there");
        };
        const seen_rank first = own();
        bool right = first.calls == 0 && first.bytes == 0 && first.messages == 0 && !first.in_call && first.errors == 0;
        colls::all_reduce(comm, std::span(x), colls::sum);                  // by the eager path
        colls::all_reduce<colls::ring>(comm, std::span(x), colls::sum);     // by a plan
        auto o = colls::start::all_reduce(comm, std::span(x), colls::sum);  // started
        o.wait();
        seen_rank now = own();
        right = right && now.calls == 3 && now.bytes == 2400 &&
                now.latest == static_cast<std::uint64_t>(colls::collective::all_reduce);
        if (comm.rank() == 0)
            colls::send(comm, std::span(x), 1);
        else
            colls::recv(comm, std::span(y), 0);
        now = own();
        right = right && now.calls == 3 && now.messages == 1 && now.bytes == 3200;
        right = right && now.latest == (comm.rank() == 0 ? long_wait::send : long_wait::recv) && !now.in_call;
        try {
            colls::broadcast(comm, std::span(x), 7);  // there is no such root
            right = false;
        } catch (const colls::error&) {}
        now = own();
        right = right && now.errors == 1 && text_of(now.error).find("root 7") != std::string::npos;
        if (!right) throw std::runtime_error("a count is wrong");
    });
}

TEST_CASE("whatever a record holds, what is read of it is sound") {
    support::random_source random(1);
    const int fd = memfd_create("any", MFD_CLOEXEC);
    constexpr std::uint32_t places = 5;
    for (int turn = 0; turn < 2'000; ++turn) {
        std::vector<unsigned char> bytes(record_head::bytes + places * sizeof(rank_status));
        for (unsigned char& b : bytes) b = static_cast<unsigned char>(random.next());
        record_head h{};
        std::memcpy(h.magic, record_head::begin, sizeof h.magic);
        h.form = format;
        h.place_bytes = sizeof(rank_status);
        h.process = 1;
        h.used = places;
        std::memcpy(bytes.data(), static_cast<void*>(&h), sizeof h);
        for (std::uint32_t i = 0; i < places; ++i) {  // some of them are possible
            unsigned char* const p = &bytes[record_head::bytes + i * sizeof(rank_status)];
            const auto by = static_cast<std::uint32_t>(random.below(i % 2 == 0 ? 3 : 5));
            std::memcpy(p + offsetof(rank_status, by), &by, 4);
            if (i % 2 != 0) continue;
            const std::int32_t rank = random.between(0, 3), size = 4;
            std::memcpy(p + offsetof(rank_status, rank), &rank, 4);
            std::memcpy(p + offsetof(rank_status, size), &size, 4);
        }
        REQUIRE(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
        std::vector<seen_rank> all;
        REQUIRE(add_record(all, fd, 1, 1));
        REQUIRE(all.size() >= 3);
        for (const seen_rank& r : all) {
            REQUIRE(r.rank >= 0);
            REQUIRE(r.rank < r.size);
            REQUIRE(r.by <= rank_status::no_memory);
            for (const char* text : {r.label, r.error, r.host})
                for (; *text; ++text) REQUIRE((static_cast<unsigned char>(*text) >= ' ' && *text != 127));
        }
    }
    close(fd);
}

TEST_CASE("what a record shows is read as it was written, and one that is damaged or of another version is refused") {
    constexpr std::uint32_t places = 3;
    struct file {
        record_head head{};
        std::byte rest[record_head::bytes - sizeof(record_head)] = {};
        rank_status at[places] = {};
    };
    const auto whole = std::make_unique<file>();
    std::memcpy(whole->head.magic, record_head::begin, sizeof whole->head.magic);
    whole->head.form = format;
    whole->head.version = 3 << 20 | 7 << 10 | 1;
    whole->head.place_bytes = sizeof(rank_status);
    whole->head.process = 7;
    whole->head.used = places;
    for (const int i : {0, 2}) {  // nothing is shown at place 1
        rank_status& s = whole->at[i];
        s.show(90 + static_cast<std::uint64_t>(i), i, 3, rank_status::memory_of_processes, "world");
        for (int call = 0; call < 11; ++call) s.begin(s.calls, 4, call == 0 ? 100 : 0);
        s.begin(s.messages, long_wait::send, 20);
        s.in_call = 1, s.epoch = 6;
    }
    whole->at[1].rank = 1, whole->at[1].size = 3;
    whole->at[0].waits = 1, whole->at[0].waits_from = milliseconds_now() - 5'000;
    whole->at[2].waits = 1, whole->at[2].waits_from = milliseconds_now() + 1'000'000;
    whole->at[2].add_error("an error");
    const auto read = [&](std::size_t bytes = sizeof(file)) {
        const descriptor fd(memfd_create("any", MFD_CLOEXEC));
        REQUIRE(pwrite(fd.get(), static_cast<void*>(whole.get()), bytes, 0) == static_cast<ssize_t>(bytes));
        std::vector<seen_rank> all;
        const bool of_that_one = add_record(all, fd.get(), 4711, 7);
        CHECK(of_that_one);
        return all;
    };
    const std::vector<seen_rank> all = read();
    REQUIRE(all.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const seen_rank& r = all[i];
        CHECK(r.group == 90 + 2 * i);
        CHECK(r.rank == static_cast<int>(2 * i));
        CHECK(r.size == 3);
        CHECK(r.by == rank_status::memory_of_processes);
        CHECK(r.calls == 11);
        CHECK(r.messages == 1);
        CHECK(r.latest == long_wait::send);
        CHECK(r.bytes == 120);
        CHECK(r.epoch == 6);
        CHECK(r.in_call == 1);
        CHECK(r.process == 4711);
        CHECK(text_of(r.host) == host_name().text);
        CHECK(text_of(r.label) == "world");
        CHECK(r.errors == i);
        CHECK(text_of(r.error) == (i == 1 ? "an error" : ""));
    }
    CHECK(all[0].waited >= 5'000);
    CHECK(all[0].waited < 1'000'000);
    CHECK(all[1].waited == 0);

    const auto why = [&](std::size_t bytes = sizeof(file)) -> std::string {
        try {
            read(bytes);
            return "";
        } catch (const colls::error& x) {
            CHECK(x.code() == colls::errc::invalid_argument);
            return x.what();
        }
    };
    using support::says;
    CHECK(says(why(0), "process 4711 has a damaged record: it is cut off, or none"));
    CHECK(says(why(sizeof(record_head) - 1), "has a damaged record: it is cut off, or none"));
    CHECK(says(why(sizeof(file) - 1), "has a damaged record: it is cut off"));
    CHECK(says(why(sizeof(record_head)), "has a damaged record: it is cut off"));
    const auto changed = [&](auto& field, auto to) {
        const auto before = static_cast<decltype(to)>(field);
        field = to;
        const std::string text = why();
        field = before;
        return text;
    };
    for (const int i : {0, 5, 12}) CHECK(says(changed(whole->head.magic[i], 'x'), "none of colls"));
    CHECK(says(changed(whole->head.form, format + 1), "uses colls 3.7.1, whose record has form 2"));
    CHECK(says(changed(whole->head.place_bytes, std::uint32_t{sizeof(rank_status)} + 64), "uses colls 3.7.1"));
    CHECK(says(changed(whole->head.used, record_head::most + 1), "names too many places"));
    CHECK(says(changed(whole->head.used, std::uint32_t{record_head::most}), "cut off"));
    CHECK(says(changed(whole->head.used, places + 1), "cut off"));
    CHECK(why() == "");
    // That of a process from which this one was forked.
    const descriptor fd(memfd_create("any", MFD_CLOEXEC));
    REQUIRE(pwrite(fd.get(), static_cast<void*>(whole.get()), sizeof(file), 0) == ssize_t{sizeof(file)});
    std::vector<seen_rank> none;
    CHECK(!add_record(none, fd.get(), 4711, 8));
    CHECK(none.empty());
}

TEST_CASE("a rank is sound where its numbers are possible; ranks of one group are told from others") {
    seen_rank r;
    r.group = 5, r.process = 1, r.rank = 0, r.size = 1, r.by = rank_status::no_memory;
    CHECK(r.sound());
    const auto with = [&](auto change) {
        seen_rank other = r;
        change(other);
        return other;
    };
    CHECK(with([](seen_rank& x) { x.rank = 2, x.size = 3; }).sound());
    CHECK(!with([](seen_rank& x) { x.rank = 1; }).sound());
    CHECK(!with([](seen_rank& x) { x.rank = -1; }).sound());
    CHECK(!with([](seen_rank& x) { x.rank = -1, x.size = 0; }).sound());
    CHECK(!with([](seen_rank& x) { x.by = rank_status::no_memory + 1; }).sound());
    seen_rank texts = r;
    std::memset(texts.host, 'h', sizeof texts.host);
    std::memcpy(texts.label, "a\x1f \x7f~\x80", 7);
    std::memset(texts.error, 'e', sizeof texts.error);
    CHECK(texts.sound());
    CHECK(text_of(texts.host) == std::string(sizeof texts.host - 1, 'h'));
    CHECK(text_of(texts.label) == "a? ?~\x80");
    CHECK(text_of(texts.error) == std::string(sizeof texts.error - 1, 'e'));

    const auto together = [](const seen_rank& a, const seen_rank& b) {
        CHECK(a.is_in_group_of(b) == b.is_in_group_of(a));
        return a.is_in_group_of(b);
    };
    for (const std::uint32_t by :
        {rank_status::memory_of_threads, rank_status::memory_of_processes, rank_status::no_memory})
        for (const std::uint64_t group : {std::uint64_t{0}, std::uint64_t{5}}) {
            CAPTURE(by, group);
            r.by = by, r.group = group;
            CHECK(together(r, with([](seen_rank& x) { x.rank = 1; })));
            const bool can_be_apart = by != rank_status::memory_of_threads && group != 0;
            CHECK(together(r, with([](seen_rank& x) { x.process = 2; })) == can_be_apart);
            CHECK(together(r, with([](seen_rank& x) { x.host[0] = 'x'; })) == can_be_apart);
            CHECK(!together(r, with([](seen_rank& x) { x.group = 6; })));
            CHECK(!together(r, with([](seen_rank& x) { x.size = 2; })));
            CHECK(!together(r, with([](seen_rank& x) { x.by = x.by == 0; })));
            CHECK(!together(r, with([](seen_rank& x) { x.label[0] = 'x'; })));
        }
}

TEST_CASE("the files of the system that say what a process is are read") {
    const std::string text = "Name:\tx\nNSpid:\t812\t7\nNSsid:\t1 2\n";
    CHECK(last_word(text, "NSpid:") == "7");
    CHECK(last_word(text, "NSsid:") == "2");
    CHECK(last_word("NSpid:\t9", "NSpid:") == "9");
    CHECK(last_word(text, "NSpgid:") == "");
    CHECK(state_of("/proc/self") == 'R');
    CHECK(state_of("/proc/there-is-none") == '\0');
    // The name of a program may hold what ends it in that file.
    char before[16];
    prctl(PR_GET_NAME, before);
    for (const char* const name : {"a) Z (b", ") T", "x"}) {
        prctl(PR_SET_NAME, name);
        CHECK(state_of("/proc/" + std::to_string(getpid())) == 'R');
    }
    prctl(PR_SET_NAME, before);
}

TEST_CASE("a process that has ended, is not there, or has no group says so") {
    const auto why = [](pid_t process) -> std::string {
        try {
            ranks_of_process(process);
        } catch (const colls::error& x) {
            return x.code() == colls::errc::invalid_argument ? x.what() : "another code";
        }
        return "it shows something";
    };
    using support::says;
    take_status().reset();  // a child has a copy of this process's record
    const pid_t child = fork();
    if (child == 0)
        for (;;) ::pause();
    CHECK(says(why(child), ("process " + std::to_string(child) + " shows no group of colls").c_str()));
    kill(child, SIGKILL);
    siginfo_t how;
    waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOWAIT);
    CHECK(says(why(child), "has ended"));
    waitpid(child, nullptr, 0);
    CHECK(says(why(child), "no process of this host has that number"));
    errno = EACCES;  // of something else
    CHECK(ranks_of_process(getpid()).empty());
    CHECK(ranks_around(getpid()).empty());
}

TEST_CASE("the ranks around a process are those of its groups, in all processes of them") {
    // Each of two processes also has a group of its own, and one of threads.
    colls::processes::run(2, [](colls::communicator& pair) {
        const auto shows = [](bool right, const char* what) {
            if (!right) throw std::runtime_error(what);
        };
        colls::communicator alone = pair.split(pair.rank(), 0);
        colls::threads::run(3, [&](colls::communicator& three) {
            colls::barrier(three);  // all of its ranks are shown
            if (three.rank() == 0) colls::barrier(pair);
            colls::barrier(three);
            if (three.rank() == 1 && pair.rank() == 1) {
                const std::vector<seen_rank> own = ranks_of_process(getpid()), around = ranks_around(getpid()),
                                             all = ranks_around(0);
                const auto count = [](const std::vector<seen_rank>& in, auto is) {
                    return std::count_if(in.begin(), in.end(), is);
                };
                const auto here = [](const seen_rank& r) { return r.process == getpid(); };
                const auto of_pair = [](const seen_rank& r) { return r.size == 2; };
                shows(own.size() == 5 && count(own, here) == 5, "its own ranks");
                shows(count(around, here) == 5, "its own ranks among those around it");
                shows(around.size() == 6 && count(around, of_pair) == 2, "the other rank of the pair, and no more");
                shows(count(all, of_pair) >= 2 && count(all, here) == 5, "all of the host");
                shows(all.size() >= 10, "those of the other process, too");
            }
            colls::barrier(three);
            if (three.rank() == 0) colls::barrier(pair);
            colls::barrier(three);  // until the other process has looked, all ranks are there
        });
    });
}

TEST_CASE("where COLLS_STATUS listens is a port, or a host and a port") {
    const auto read = [](const char* text) {
        const place p = read_place("it", text);
        return p.host + "|" + std::to_string(p.port);
    };
    CHECK(read("7000") == "|7000");
    CHECK(read("1") == "|1");
    CHECK(read("65535") == "|65535");
    CHECK(read("node3:7000") == "node3|7000");
    CHECK(read("[::1]:7000") == "::1|7000");
    CHECK(read("[]:7000") == "[]|7000");
    CHECK(read("[x:7000") == "[x|7000");
    CHECK(read("x]:7000") == "x]|7000");
    CHECK(read_place("it", std::string_view("h:70001").substr(0, 6)).port == 7000);
    for (const char* const wrong :
        {"", "x", "0", "-1", "65536", "7000x", "70 00", ":7000", "node3:", "node3:0", "node3:65536", "node3:x"}) {
        CAPTURE(wrong);
        CHECK_THROWS_AS(read(wrong), colls::error);
    }
    const char* why = "";
    for (const address& a : place{"", 7000}.addresses(&why)) {
        CHECK(a.is_loopback());
        CHECK(a.port() == 7000);
    }
    REQUIRE(place{"127.0.0.1", 7000}.addresses(&why).size() == 1);
    CHECK(text_of(place{"127.0.0.1", 7000}.addresses(&why)[0]) == "127.0.0.1:7000");
}

TEST_CASE("a question travels as each version of the library reads it") {
    inquiry q;
    for (std::size_t i = 0; i < q.once.size(); ++i) q.once[i] = std::byte(100 + i);
    q.form = 0x04030201;
    q.proof.fill(std::byte{9});
    const auto bytes = rendezvous::encode(q);
    for (std::size_t i = 0; i < bytes.size() - rendezvous::prefix_bytes; ++i) {
        const std::size_t wanted = i < 16 ? 100 + i : i < 20 ? i - 15 : 9;
        CHECK(std::to_integer<std::size_t>(bytes[rendezvous::prefix_bytes + i]) == wanted);
    }
    CHECK(rendezvous::parse<inquiry>(bytes)->form == q.form);
}

TEST_CASE("where COLLS_STATUS cannot listen a process says so once and tries again; it answers no other version") {
    const support::claimed_ports ports;
    descriptor other = listen_at(address::loopback(AF_INET, ports.first()));
    REQUIRE(other);
    take_status().reset();  // a child has a copy of this process's record
    int said[2];
    REQUIRE(pipe2(said, O_CLOEXEC) == 0);
    const pid_t child = fork();
    if (child == 0) {
        other.close();  // it would listen for the child, too
        dup2(said[1], 2);
        answering({"127.0.0.1", ports.first()}, "a token").run();
    }
    close(said[1]);
    const descriptor words(said[0]);
    char words_said[500] = {};
    CHECK(::read(words.get(), words_said, sizeof words_said - 1) > 0);
    const std::string place = "127.0.0.1:" + std::to_string(ports.first());
    CHECK(
        support::says(words_said, "cannot listen at COLLS_STATUS=" + place + ": Address already in use; trying again"));
    usleep(1'200'000);  // it has tried again, in vain
    other.close();
    const double end = seconds_now() + 30;
    const auto answer = [&](std::uint32_t form) {
        descriptor fd;
        for (bool there = false; !there && seconds_now() < end; usleep(1000)) {
            fd = start_connect(address::loopback(AF_INET, ports.first()));
            there = fd && wait_for(fd.get(), POLLOUT, end) && connected(fd.get()) == 0;
        }
        std::array<std::byte, rendezvous::challenge::bytes> first;
        REQUIRE(support::receive_all(fd.get(), first.data(), first.size(), end) == 0);
        const auto host = rendezvous::parse<rendezvous::challenge>(first);
        REQUIRE(host);
        inquiry q{.form = form};
        q.once = random_bytes<rendezvous::nonce>();
        const auto asks = rendezvous::sealed(q, "a token", host->once, q.once);
        REQUIRE(support::send_all(fd.get(), asks.data(), asks.size(), end) == 0);
        std::array<std::byte, rendezvous::reply::bytes> reply;
        REQUIRE(support::receive_all(fd.get(), reply.data(), reply.size(), end) == 0);
        const auto a = rendezvous::parse<rendezvous::reply>(reply);
        REQUIRE(a);
        CHECK(same(a->proof, rendezvous::prove("a token", host->once, q.once, reply)));
        CHECK(a->what == rendezvous::verdict::failed);
        return std::pair(rendezvous::code_of(*a), std::string(a->text));
    };
    for (const std::uint32_t form : {format - 1, format + 1})
        CHECK(answer(form) ==
              std::pair(colls::errc::mismatch, std::string("the two are of different versions of colls")));
    CHECK(answer(format) == std::pair(colls::errc::invalid_argument,
                                "process " + std::to_string(child) +
                                    " shows no group of colls: it has made none yet, uses an earlier version, or "
                                    "cannot make files in memory (memfd_create, ulimit -f)"));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CHECK(::read(words.get(), words_said, sizeof words_said) == 0);
}

TEST_CASE("groups beyond the places of a record, and without a record, work and are not shown") {
    std::vector<colls::communicator> many;
    colls::threads::run(1, [&](colls::communicator& comm) {
        for (std::uint32_t i = 0; i < record_head::most + 10; ++i) many.push_back(comm.split(0, 0));
        int x = 1;
        colls::all_reduce(many.back(), std::span(&x, 1), colls::sum);
        CHECK(ranks_of_process(getpid()).size() == record_head::most);
        many.clear();
        CHECK(ranks_of_process(getpid()).size() == 1);
    });
    // A child that may make no file of that size shows nothing, and its groups work.
    constexpr std::size_t whole = record::bytes;
    for (const std::size_t limit : {std::size_t{4096}, whole - 1, whole}) {
        CAPTURE(limit);
        const pid_t child = fork();
        if (child == 0) {
            const rlimit small{limit, limit};
            setrlimit(RLIMIT_FSIZE, &small);
            int status = 1;
            colls::threads::run(2, [&](colls::communicator& comm) {
                int x = 1;
                colls::all_reduce(comm, std::span(&x, 1), colls::sum);
                if (comm.rank() == 0 && x == 2) try {
                        status = ranks_of_process(getpid()).size() == 2 && limit == whole ? 0 : 1;
                    } catch (const colls::error&) {
                        status = limit < whole ? 0 : 1;
                    }
                colls::barrier(comm);  // until then both ranks are there
            });
            _exit(status);
        }
        int status = 1;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
}
