// Endpoints, and groups from lists of their handles: join.
#include "catch.hpp"

#include "followed.hpp"
#include "gathered.hpp"
#include "support/random.hpp"
#include "support/says.hpp"

#include <colls/elastic/detail/call_at.hpp>
#include <colls/elastic/detail/join.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

using namespace gathered;
using colls::errc;
using support::lacks;
using support::says;

namespace {

std::vector<int> numbers_to(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}
/// What join says of a list that is wrong, or "".
std::string refusal_of(colls::endpoint& e, const char* uuid, const std::vector<std::string>& list) {
    bool accepted = false;
    try {
        colls::join(e, uuid, list, {.accepted = [&] { accepted = true; }});
    } catch (const colls::error& x) {
        if (accepted) return "accepted, and then refused";
        return x.code() == errc::invalid_argument ? x.what() : std::string("another code: ") + x.what();
    }
    return "";
}
std::size_t entries(const char* folder) {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}
std::size_t mapped_pages() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
}

}  // namespace

TEST_CASE("join: ranks are in the order of the list, for every size and shape of hosts", "[elastic]") {
    support::random_source random(support::setting("COLLS_TEST_SEED", 1));
    for (const shape& s : shapes)
        for (const int n : {1, 2, 3, 4, 5, 7, 9}) {
            std::vector<int> order = numbers_to(n);
            for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
            processes all(n, s, [&](process& p) {
                colls::communicator comm = colls::join(p.own, "a", p.list(order));
                check_group(comm, order, p.number);
            });
            all.wait();
            for (int i = 0; i < n; ++i) {
                INFO(s.name << ", " << n << " processes: " << all.text(i));
                CHECK(all.of(i).code == 0);
            }
        }
}

TEST_CASE("join: a wrong list is refused in words, before anything is sent", "[elastic]") {
    colls::endpoint e = colls::endpoint::open(), other = colls::endpoint::open();
    const std::string own = e.handle();
    CHECK(own.size() <= 255);
    CHECK(std::all_of(own.begin(), own.end(), [](char c) { return c > ' ' && c <= '~'; }));
    CHECK(says(refusal_of(e, "a", {}), "the list of handles is empty"));
    CHECK(says(refusal_of(e, "", {own}), "the uuid is empty"));
    CHECK(lacks(refusal_of(e, "a", {other.handle()}), {"own handle is not among the 1 of the list"}) == "");
    CHECK(lacks(refusal_of(e, "a", {own, other.handle(), own}), {"positions 0 and 2", "same handle"}) == "");
    CHECK(lacks(refusal_of(e, "a", {own, "tcp://10.0.0.1"}), {"position 1", "no handle", "tcp://"}) == "");
    CHECK(lacks(refusal_of(e, "a", {"colls2" + own.substr(6), own}), {"position 0", "another version"}) == "");
    for (const std::string& wrong : {own + "x", own.substr(0, own.rfind('/')), own.substr(0, own.size() - 1) + "/",
             "colls1/" + own.substr(8), own.substr(0, 7) + "G" + own.substr(8), std::string("colls1/")})
        CHECK(lacks(refusal_of(e, "a", {own, wrong}), {"position 1", "missing or wrong"}) == "");
    for (std::size_t i = 7; i < own.size(); ++i) {  // no byte of it can be something else
        std::string wrong = own;
        wrong[i] = wrong[i] == '1' ? '2' : '1';
        CHECK(refusal_of(e, "a", {wrong}) != "");
    }
    colls::communicator comm = colls::join(e, "a", std::vector{own});
    check_group(comm, {0}, 0);
    CHECK(says(refusal_of(e, "a", {own}), "used that uuid before"));
    int accepted = 0;
    colls::communicator again = colls::join(e, "b", std::vector{own}, {.accepted = [&] { ++accepted; }});
    check_group(again, {0}, 0);
    CHECK(accepted == 1);

    colls::endpoint moved = std::move(other);
    CHECK(says(refusal_of(other, "a", {own}), "it is closed"));
    other = std::move(moved);
    other.close();
    CHECK_THROWS_AS(other.handle(), colls::error);
    support::common<int> child_refused;
    const pid_t child = fork();
    if (child == 0) {
        *child_refused = says(refusal_of(e, "c", {own}), "this is a fork of that one");
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    CHECK(*child_refused == 1);
}

TEST_CASE("join: a handle of a process that has ended is named at once, wherever it is in the list", "[elastic]") {
    for (const shape& s : shapes)
        for (const int n : {2, 4})
            for (const int dead : {0, 1, n - 1}) {
                processes all(n, s, [&](process& p) {
                    if (p.number == dead) _exit(0);
                    process::wait(p.all.step[0], 1);
                    if (p.number == (dead + 1) % n) usleep(20'000);
                    colls::join(p.own, "a", p.list(numbers_to(n)));
                });
                waitpid(all.pids[static_cast<std::size_t>(dead)], nullptr, 0);
                all.all->step[0] = 1;
                all.wait();
                for (int i = 0; i < n; ++i) {
                    if (i == dead) continue;
                    INFO(s.name << ", " << n << " processes, " << dead << " is dead: " << all.text(i));
                    CHECK(all.of(i).code == of(errc::peer_failed));
                    CHECK(all.of(i).peer == dead);
                    CHECK(lacks(all.of(i).text, {"position " + std::to_string(dead) + " of the list (process ",
                                                    "not there any more"}) == "");
                }
            }
}

TEST_CASE("join: one that does not come by the deadline is named, and the living can join without it", "[elastic]") {
    for (const shape& s : shapes)
        for (const int n : {2, 5})
            for (const int missing : {0, n - 1}) {
                processes all(n, s, [&](process& p) {
                    if (p.number == missing) return process::wait(p.all.step[0], n - 1);
                    std::string text;
                    try {
                        colls::join(p.own, "a", p.list(numbers_to(n)), {.timeout = 0.6});
                    } catch (const colls::error& x) {
                        expect(x.code() == errc::timeout && x.peer() == missing, x.what());
                        text = x.what();
                    }
                    const std::string lacking =
                        lacks(text, {"position " + std::to_string(missing) + " of the list", "has not come within"});
                    expect(lacking.empty(), lacking.c_str());
                    p.all.step[0].fetch_add(1);
                    std::vector<int> living = numbers_to(n);
                    living.erase(living.begin() + missing);
                    colls::communicator comm = colls::join(p.own, "b", p.list(living));
                    check_group(comm, living, p.number);
                });
                all.wait();
                for (int i = 0; i < n; ++i) {
                    INFO(s.name << ", " << n << " processes, without " << missing << ": " << all.text(i));
                    CHECK(all.of(i).code == 0);
                }
            }
}

TEST_CASE("join: lists that differ are found at once by all, whoever leads by them", "[elastic]") {
    struct lists {
        std::vector<std::vector<int>> all;
        const char* says;
    };
    const lists cases[] = {{{{0, 1, 2}, {0, 1, 2}, {0, 2, 1}}, "in another order"},
        {{{0, 1}, {1, 0}}, "in another order"}, {{{0, 1, 2}, {0, 1}, {0, 1, 2}}, "handles, that of"},
        {{{0, 1, 2}, {1, 2}, {0, 1, 2}}, "handles, that of"}, {{{0, 1, 3}, {0, 1, 2}, {0, 1, 2}, {0, 1, 3}}, "others"}};
    for (const lists& c : cases) {
        const int n = static_cast<int>(c.all.size());
        processes all(n, shapes[1],
            [&](process& p) { colls::join(p.own, "a", p.list(c.all[static_cast<std::size_t>(p.number)])); });
        all.wait();
        for (int i = 0; i < n; ++i) {
            INFO(c.says << ": " << all.text(i));
            CHECK((all.of(i).code == of(errc::mismatch) || all.of(i).code == of(errc::peer_failed)));
        }
        int said = 0;
        for (int i = 0; i < n; ++i) said += says(all.of(i).text, "the lists differ") && says(all.of(i).text, c.says);
        CHECK(said >= 2);
    }
}

TEST_CASE("join: a process with another token is refused, and keeps nobody else from joining", "[elastic]") {
    processes all(3, shapes[0], [&](process& p) {
        if (p.number == 2) {
            setenv("COLLS_TOKEN", "another", 1);
            colls::endpoint stranger = colls::endpoint::open();
            std::vector<std::string> list = p.list({0, 1});
            list.push_back(stranger.handle());
            colls::join(stranger, "a", list);
            return;
        }
        colls::communicator comm = colls::join(p.own, "a", p.list({0, 1}));
        check_group(comm, {0, 1}, p.number);
        process::wait(p.all.step[0], 1);
    });
    process::wait(all.all->open, 3);
    while (waitpid(all.pids[2], nullptr, WNOHANG) == 0 && all.of(2).done == 0) {
        // It is refused where the first process serves its endpoint: in join.
        if (all.of(0).done) break;
        all.all->step[0] = 1;
        usleep(1000);
    }
    all.wait();
    INFO(all.text(0) << all.text(1) << all.text(2));
    CHECK(all.of(0).code == 0);
    CHECK(all.of(1).code == 0);
    CHECK(all.of(2).code >= 100);
    CHECK((says(all.of(2).text, "COLLS_TOKEN") || says(all.of(2).text, "not there any more")));
}

TEST_CASE("join: the error at the deadline says that a process with another token has come", "[elastic]") {
    processes all(2, shapes[0], [&](process& p) {
        if (p.number == 0) {
            try {
                colls::join(p.own, "a", p.list({0, 1}), {.timeout = 0.7});
            } catch (const colls::error& x) {
                const std::string lacking = lacks(x.what(), {"position 1", "different token (COLLS_TOKEN)"});
                p.all.step[0] = 1;
                expect(lacking.empty(), lacking.c_str());
                return;
            }
            expect(false, "it has joined");
        }
        using namespace colls::detail;
        const char* why = "";
        const auto to = endpoints::parse_handle(p.handle(0), why);
        endpoints::knock k{.group = endpoints::number_of_group("a"), .position = 1, .size = 2};
        p.handle(1).copy(k.own, sizeof k.own - 1);
        endpoints::call_at call(*to, k, "a wrong token");
        std::optional<rendezvous::reply> a;
        while (!a && !call.over()) a = call.step(), usleep(100);
        expect(a && says(a->text, "the tokens differ"), "it was not refused");
        process::wait(p.all.step[0], 1);
    });
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
    }
}

TEST_CASE(
    "join: a handle at whose address somebody else listens is named at once, as where containers have one address",
    "[elastic]") {
    using namespace colls::detail;
    processes all(2, shapes[1], [&](process& p) {
        if (p.number == 1) {  // answers for itself alone
            const double until = seconds_now() + 60;
            while (p.all.step[0] == 0 && seconds_now() < until) p.own.opened().serve(), usleep(200);
            return;
        }
        const char* why = "";
        const auto refused_at = [&](const char* uuid, const std::vector<std::string>& list, int position,
                                    const char* says_that) {
            try {
                colls::join(p.own, uuid, list);
            } catch (const colls::error& x) {
                const std::string lacking = lacks(
                    x.what(), {("position " + std::to_string(position)).c_str(), "not there any more", says_that});
                expect(lacking.empty() && x.code() == errc::peer_failed && x.peer() == position, x.what());
                return;
            }
            expect(false, "it has joined");
        };
        auto other = *endpoints::parse_handle(p.handle(1), why);
        other.name[3] ^= std::byte{1};
        refused_at("a", {p.handle(0), other.text()}, 1, "another endpoint listens at");
        refused_at("b", {other.text(), p.handle(0)}, 0, "another endpoint listens at");
        other.host ^= 1;
        refused_at("c", {p.handle(0), other.text()}, 1, "another endpoint listens at");
        p.all.step[0] = 1;
        // And one that speaks first, as another program may.
        const descriptor listening = listen_on_loopback();
        other.at = {local_address(listening.get())};
        std::atomic<bool> over = false;
        std::thread program([&] {
            std::vector<descriptor> guests;
            for (; !over; usleep(200))
                if (descriptor guest = accept_from(listening.get())) {
                    const std::string text = "SSH-2.0-OpenSSH_9.2 and what else such a program says to those that come";
                    send_all(guest.get(), text.data(), text.size(), seconds_now() + 5);
                    guests.push_back(std::move(guest));
                }
        });
        refused_at("d", {p.handle(0), other.text()}, 1, "another program listens at");
        over = true;
        program.join();
    });
    all.end_with_others();
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).done == 1);
        CHECK(all.of(i).code == 0);
    }
}

TEST_CASE(
    "join: a process of another version is refused with both versions, and keeps nobody from joining", "[elastic]") {
    processes all(2, shapes[0], [&](process& p) {
        using namespace colls::detail;
        if (p.number == 1) {
            const char* why = "";
            const auto to = endpoints::parse_handle(p.handle(0), why);
            endpoints::knock k{.library = rendezvous::library_version + 100,
                .group = endpoints::number_of_group("a"),
                .position = 1,
                .size = 2};
            p.handle(1).copy(k.own, sizeof k.own - 1);
            endpoints::call_at call(*to, k, "");
            std::optional<rendezvous::reply> a;
            while (!a && !call.over()) a = call.step(), usleep(100);
            expect(a && a->what == rendezvous::verdict::version_skew, a ? a->text : call.why().c_str());
            expect(rendezvous::code_of(*a) == errc::mismatch, "the code");
            expect(says(a->text, "a process on ") && says(a->text, ", but the process at "), a->text);
        }
        colls::communicator comm = colls::join(p.own, "a", p.list({0, 1}));
        check_group(comm, {0, 1}, p.number);
    });
    all.end_with_others();
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
    }
}

TEST_CASE("join: strangers at the endpoint, and a second process with one handle, are refused", "[elastic]") {
    processes all(3, shapes[0], [&](process& p) {
        using namespace colls::detail;
        const char* why = "";
        const auto to = endpoints::parse_handle(p.handle(0), why);
        std::vector<descriptor> strangers;
        if (p.number != 0)
            for (const std::size_t bytes : {0u, 3u, 16u, 5000u}) {
                strangers.push_back(start_connect(to->at[0]));
                const std::vector<char> waste(bytes, bytes == 16 ? 'c' : '\xff');
                wait_for(strangers.back().get(), POLLOUT, seconds_now() + 5);
                send_all(strangers.back().get(), waste.data(), bytes, seconds_now() + 5);
            }
        if (p.number == 2) {  // says that it is process 1, which has come already
            process::wait(p.all.step[0], 1);
            const std::vector<std::string> list = p.list({0, 1, 2});
            const auto own = endpoints::parse_handle(p.handle(1), why);
            const endpoints::join_list l = endpoints::read_list(*own, "a", list);
            endpoints::knock k{
                .group = endpoints::number_of_group("a"), .list = l.in_order, .set = l.set, .position = 1, .size = 3};
            p.handle(1).copy(k.own, sizeof k.own - 1);
            for (bool second = false; !second;) {
                endpoints::call_at call(*to, k, "");
                std::optional<rendezvous::reply> a;
                while (!a && !call.over()) a = call.step(), usleep(100);
                expect(a.has_value(), call.why().c_str());
                second = says(a->text, "position 1 of the list") && says(a->text, "has come twice");
                expect(second, a->text);
            }
        }
        if (p.number == 1) {
            // Its own connection is the first: the impostor begins a moment later.
            std::thread later([&] { usleep(300'000), p.all.step[0] = 1; });
            colls::communicator comm = colls::join(p.own, "a", p.list({0, 1, 2}));
            later.join();
            return check_group(comm, {0, 1, 2}, 1);
        }
        colls::communicator comm = colls::join(p.own, "a", p.list({0, 1, 2}));
        check_group(comm, {0, 1, 2}, p.number);
    });
    all.wait();
    for (int i = 0; i < 3; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
    }
}

TEST_CASE(
    "join: processes that are ahead, in a later group, wait for those that are still in an earlier one", "[elastic]") {
    for (const shape& s : shapes) {
        processes all(4, s, [&](process& p) {
            if (p.number != 3) {
                if (p.number == 0) process::wait(p.all.step[0], 1), usleep(50'000);
                colls::communicator first = colls::join(p.own, "a", p.list({0, 1, 2}));
                check_group(first, {0, 1, 2}, p.number);
            }
            if (p.number == 3) p.all.step[0] = 1;
            if (p.number == 0 || p.number == 3) {
                colls::communicator second = colls::join(p.own, "b", p.list({0, 3}));
                check_group(second, {0, 3}, p.number);
            }
        });
        all.wait();
        for (int i = 0; i < 4; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).code == 0);
        }
    }
}

TEST_CASE("join: an endpoint joins groups one after the other, and uses no more for it", "[elastic]") {
    const int times = support::long_run ? 1000 : 150;
    for (const shape& s : {shapes[0], shapes[2]}) {
        processes all(3, s, [&](process& p) {
            std::size_t descriptors = 0, pages = 0, threads = 0;
            colls::communicator comm;
            for (int k = 0; k < times; ++k) {
                std::vector<int> order = {k % 3, (k + 1) % 3, (k + 2) % 3};
                if (k % 4 == 3) std::swap(order[1], order[2]);
                comm = colls::join(p.own, "epoch " + std::to_string(k), p.list(order));
                int x = p.number;
                colls::all_reduce(comm, std::span(&x, 1), colls::sum);
                expect(x == 3, "the sum");
                comm = {};
                if (k == 30) {
                    descriptors = entries("/proc/self/fd"), pages = mapped_pages();
                    threads = entries("/proc/self/task");
                }
            }
            const auto says_more = [&](const char* what, std::size_t now, std::size_t before, std::size_t room) {
                if (now > before + room)
                    throw std::runtime_error(
                        std::string(what) + ": " + std::to_string(before) + ", then " + std::to_string(now));
            };
            says_more("descriptors", entries("/proc/self/fd"), descriptors, 2);
            says_more("threads", entries("/proc/self/task"), threads, 0);
            says_more("pages", mapped_pages(), pages, 2048);
        });
        all.wait();
        for (int i = 0; i < 3; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).code == 0);
        }
    }
}

#if defined(__x86_64__)
namespace {

/// A join of n processes of which `victim` is killed at its system call number `at` within join (0: it lives), or is
/// stopped there until the others have ended, where there is a time (in seconds) for which they wait. Returns the
/// number of such calls.
int run_killed(const shape& s, int n, int victim, int at, const std::function<void(const processes&)>& judge,
    double stopped_for = 0) {
    const bool stops = stopped_for > 0;
    processes all(
        n, s,
        [&](process& p) {
            if (p.number == victim) be_followed();
            colls::communicator comm = colls::join(p.own, "a", p.list(numbers_to(n)), {.timeout = stopped_for});
            if (p.number == victim) mark();
            if (stops) comm.set_timeout(std::chrono::duration<double>(stopped_for));
            check_group(comm, numbers_to(n), p.number);
        },
        stops ? "1000" : "30");
    const followed seen = follow(all.pids[static_cast<std::size_t>(victim)], at, stops);
    if (seen.is_stopped) all.end_with_others(victim);
    all.wait();
    judge(all);
    return seen.calls;
}

}  // namespace

TEST_CASE("join: a process that dies at any of its system calls is named in the others' errors, before their deadlines",
    "[elastic]") {
    const int n = 3;
    for (const shape& s : shapes)
        for (const int victim : {0, 1, n - 1}) {
            const int calls = run_killed(s, n, victim, 0, [&](const processes& all) {
                for (int i = 0; i < n; ++i) {
                    INFO(s.name << ": " << all.text(i));
                    REQUIRE(all.of(i).code == 0);
                }
            });
            REQUIRE(calls > 10);
            const int every = support::long_run ? 1 : calls / 20 + 1;
            for (int at = 1; at <= calls; at += every) {
                const int made = run_killed(s, n, victim, at, [&](const processes& all) {
                    for (int i = 0; i < n; ++i) {
                        if (i == victim || all.of(victim).done) continue;
                        INFO(s.name << ", process " << victim << " killed at call " << at << " of " << calls << ": "
                                    << all.text(i));
                        CHECK(all.of(i).done == 1);
                        CHECK(all.of(i).code == of(errc::peer_failed));
                        // Or the first process, which has heard it first, and has ended with its error.
                        CHECK((says(all.of(i).text, "position " + std::to_string(victim)) ||
                               says(all.of(i).text, "rank " + std::to_string(victim)) ||
                               (i != 0 && says(all.of(i).text, "position 0") &&
                                   says(all.of(i).text, "is not there any more"))));
                    }
                });
                if (made < at) break;  // it waited less often this time
            }
        }
}

TEST_CASE(
    "join: a process that is stopped at any of its system calls keeps the others no longer than they want to wait",
    "[elastic]") {
    const int n = 3;
    for (const shape& s : {shapes[2], shapes[0], shapes[1]}) {
        for (const int victim : {n - 1, 0}) {
            const int calls = run_killed(s, n, victim, 0, [&](const processes&) {});
            REQUIRE(calls > 10);
            const int first = support::long_run ? 1 : calls / 2, every = calls / (support::long_run ? 60 : 10) + 1;
            for (int at = first; at <= calls; at += every)
                run_killed(
                    s, n, victim, at,
                    [&](const processes& all) {
                        for (int i = 0; i < n; ++i) {
                            if (i == victim || all.of(victim).done) continue;
                            INFO(s.name << ", process " << victim << " stopped at call " << at << " of " << calls
                                        << ": " << all.text(i));
                            CHECK((all.of(i).code == of(errc::timeout) || all.of(i).code == of(errc::peer_failed)));
                        }
                    },
                    0.25);
            if (!support::long_run) return;
        }
    }
}
#endif
