// Endpoints, and groups from lists of their handles: join.
#include "catch.hpp"

#include "followed.hpp"
#include "gathered.hpp"
#include "support/random.hpp"
#include "support/raw_socket.hpp"
#include "support/says.hpp"

#include <colls/elastic/detail/call_at.hpp>
#include <colls/elastic/detail/join.hpp>

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

using namespace gathered;
using colls::errc;
using support::lacks;
using support::says;
using support::send_all;

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
/// What is said of a program that listens there, and is none of colls. (It speaks no TLS.)
std::string other_program_at(const std::string& place) {
    return colls::detail::is_covered() ? place + ": the other side does not speak TLS"
                                       : "another program listens at " + place;
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
    try {
        colls::join(e, "c", std::vector{own}, {.timeout = -0.5});
        CHECK(false);
    } catch (const colls::error& x) {
        CHECK(x.code() == errc::invalid_argument);
        CHECK(says(x.what(), "the timeout is -0.5 s"));
    }
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

TEST_CASE("join: a handle is read as it was written, at the ends of what its parts may be", "[elastic]") {
    using namespace colls::detail;
    using endpoints::handle;
    handle h{0x0123456789abcdef, {}, 1, {}};
    for (std::size_t i = 0; i < h.name.size(); ++i) h.name[i] = std::byte(16 * i + 15 - i);
    for (const char* const host : {"10.0.0.3", "::1", "192.168.0.1", "fd00::2"})
        h.at.push_back(numeric_address(host, 65535));
    const std::string name = "0f1e2d3c4b5a69788796a5b4c3d2e1f0", whole = h.text();
    CHECK(whole == "colls1/0123456789abcdef/" + name + "/1/65535/10.0.0.3,::1,192.168.0.1,fd00::2");
    CHECK(h.place() == "process 1 at 10.0.0.3:65535");
    CHECK(endpoints::name_in(whole) == name);
    CHECK(endpoints::name_in("colls1/0123") == "");
    const char* why = "";
    const auto read = endpoints::parse_handle(whole, why);
    REQUIRE(read);
    CHECK(read->host == h.host);
    CHECK(read->name == h.name);
    CHECK(read->pid == 1);
    CHECK(read->at == h.at);

    const auto parses = [&](const std::string& host, const std::string& its_name, const std::string& pid,
                            const std::string& port, const std::string& at) {
        why = "";
        const std::string text = "colls1/" + host + "/" + its_name + "/" + pid + "/" + port + "/" + at;
        const bool is = endpoints::parse_handle(text, why).has_value();
        if (!is) CHECK(says(why, "missing or wrong"));
        return is;
    };
    const std::string host = "0123456789abcdef", at = "10.0.0.3";
    CHECK(parses(host, name, "1", "1", at));
    CHECK(parses("ffffffffffffffff", std::string(32, 'f'), "9223372036854775807", "65535", at));
    CHECK(parses("0000000000000000", std::string(32, '0'), "1", "1", "255.255.255.255"));
    for (const std::string& wrong : {host.substr(1), host + "0", std::string("0123456789ABCDEF"),
             std::string("0x23456789abcdef"), std::string("0123456789abcdeg"), std::string()})
        CHECK(!parses(wrong, name, "1", "1", at));
    std::string other = name;
    other[31] = 'g';
    for (const std::string& wrong : {name.substr(1), name + "0", other, "F" + name.substr(1), std::string()})
        CHECK(!parses(host, wrong, "1", "1", at));
    for (const char* const wrong : {"0", "-1", "01", "+1", "1x", "", "9223372036854775808"})
        CHECK(!parses(host, name, wrong, "1", at));
    for (const char* const wrong : {"0", "-1", "01", "65536", "65537", "131072", "1x", "", "4294967297"})
        CHECK(!parses(host, name, "1", wrong, at));
    for (const char* const wrong : {"", "x", "10.0.0.3,", ",10.0.0.3", "10.0.0.3,,10.0.0.4", "10.0.0", "010.0.0.3",
             "::0001", "::1,::2,::3,::4,::5", "10.0.0.3/1", "10.0.0.3 "})
        CHECK(!parses(host, name, "1", "1", wrong));
    const auto refused_as = [&](const std::string& text) {
        why = "";
        CHECK(!endpoints::parse_handle(text, why));
        return why;
    };
    for (const char* const text : {"", "coll", "tcp://", "Colls1/"}) CHECK(says(refused_as(text), "is no handle"));
    for (const std::string& text : {std::string("colls"), std::string("colls1"), "colls12" + whole.substr(6),
             "colls2" + whole.substr(6), "colls1 " + whole.substr(6)})
        CHECK(says(refused_as(text), "another version"));
    CHECK(says(refused_as("colls1//"), "missing or wrong"));
}

TEST_CASE("join: a knock is of a position in a list, or of none", "[elastic]") {
    using namespace colls::detail;
    const auto parses = [](int position, int size) {
        endpoints::knock k{.set = 5, .position = position, .size = size};
        const auto read = rendezvous::parse<endpoints::knock>(rendezvous::encode(k));
        if (read) CHECK((read->set == 5 && read->position == position && read->size == size));
        return read.has_value();
    };
    // It travels as each version of the library reads it.
    endpoints::knock whole{.set = 0x0807060504030201, .position = 5, .size = 6};
    whole.once.fill(std::byte{1}), whole.to.fill(std::byte{2}), whole.group.fill(std::byte{3});
    whole.list.fill(std::byte{4}), whole.own[0] = 'x', whole.proof.fill(std::byte{7});
    const auto bytes = rendezvous::encode(whole);
    const auto at = [&](std::size_t i) { return std::to_integer<int>(bytes[rendezvous::prefix_bytes + i]); };
    for (const auto& [first, end, value] : {std::tuple{0, 16, 1}, {16, 32, 2}, {32, 48, 3}, {48, 80, 4}, {88, 89, 5},
             {92, 93, 6}, {96, 97, 'x'}, {97, 351, 0}, {351, 383, 7}})
        for (int i = first; i < end; ++i) CHECK(at(static_cast<std::size_t>(i)) == value);
    for (std::size_t i = 0; i < 8; ++i) CHECK(at(80 + i) == static_cast<int>(i + 1));
    for (const auto& [position, size] : {std::pair{0, 1}, {1, 2}, {0, 0}, {5, 0}}) CHECK(parses(position, size));
    for (const auto& [position, size] : {std::pair{1, 1}, {2, 1}, {-1, 1}, {-1, 0}, {0, -1}, {-2, -1}})
        CHECK(!parses(position, size));
}

TEST_CASE(
    "join: what has become of each connection to an endpoint is known, and whether its process is gone", "[elastic]") {
    using namespace colls::detail;
    using endpoints::call_at;
    const descriptor listening = listen_on_loopback();
    const address here = local_address(listening.get());
    descriptor other = listen_on_loopback();
    const address nobody = local_address(other.get());
    other.close();
    const auto to = [](const std::vector<address>& at) { return endpoints::handle{1, {}, 7, at}; };
    // Until it is over, or reached; `serve` is what the other side does.
    const auto run = [](call_at& c, auto serve, auto until) {
        for (const double end = seconds_now() + 30; !until() && seconds_now() < end; usleep(100)) {
            serve();
            expect(!c.step(), "nothing has answered");
        }
        CHECK(until());
    };
    const auto nothing = [] {};
    {
        call_at c(to({nobody}), {}, "");
        run(c, nothing, [&] { return c.over(); });
        CHECK(c.gone());
        CHECK(c.refused());
        CHECK(!c.reached());
        CHECK(c.why() == text_of(nobody) + ": Connection refused");
    }
    {  // one that is stopped
        call_at c(to({here, nobody}), {}, "");
        CHECK(says(c.why(), text_of(here) + " does not answer, "));
        CHECK(!c.reached());
        run(c, nothing, [&] { return c.reached() && says(c.why(), "refused"); });
        CHECK(!c.over());
        CHECK(!c.gone());
        CHECK(!c.refused());
        CHECK(c.why() == text_of(here) + " accepts connections, " + text_of(nobody) + ": Connection refused");
        static_cast<void>(accept_from(listening.get()));
    }
    // One that ends at once may be the process of the handle; one that says something else before it ends is not.
    for (const std::string& said : {std::string(), std::string("SSH-2.0-OpenSSH_9.2")}) {
        call_at c(to({here, nobody}), {}, "");
        run(
            c,
            [&] {
                if (const descriptor guest = accept_from(listening.get()))
                    send_all(guest.get(), said.data(), said.size(), seconds_now() + 5);
            },
            [&] { return c.over(); });
        CHECK(c.gone());
        CHECK(c.refused() == (!said.empty() && !is_covered()));
        CHECK(c.distrusted() == (!said.empty() && is_covered()));
        CHECK(!c.reached());
        CHECK(says(c.why(), said.empty() ? text_of(here) + ": " : other_program_at(text_of(here))));
    }
    {  // a network that is not there
        call_at c(to({address::of_v4(0xffffffff, 9)}), {}, "");
        run(c, nothing, [&] { return c.over(); });
        CHECK(!c.gone());
        CHECK(!c.refused());
    }
    // A later version, which says so first.
    call_at c(to({nobody, here}), {}, "");
    auto challenge = rendezvous::encode(rendezvous::challenge{.library = 3 << 20 | 7 << 10 | 1});
    challenge[8] = std::byte{rendezvous::rendezvous_version + 1};
    channel guest;
    std::optional<rendezvous::reply> answer;
    for (const double end = seconds_now() + 30; !answer && seconds_now() < end; usleep(100)) {
        std::byte more;  // of TLS, where both speak it
        if (!guest.fd && (guest.fd = accept_from(listening.get()))) {
            guest.cover = cover_of(false);
            colls::detail::send_all(guest, challenge.data(), challenge.size(), seconds_now() + 5);
        } else if (guest.fd) {
            static_cast<void>(guest.read(&more, 1));
        }
        answer = c.step();
    }
    REQUIRE(answer);
    CHECK(rendezvous::code_of(*answer) == errc::mismatch);
    CHECK(says(answer->text, "it uses colls 3.7.1 (rendezvous 5), but this process uses colls "));
    CHECK(local_address(c.take().fd(), &getpeername) == here);
    // One that begins as an endpoint does, and goes on as none would.
    call_at odd(to({here}), {}, "");
    const auto begins = rendezvous::encode(rendezvous::challenge{});
    const std::string rest(rendezvous::reply::bytes, 'x');
    channel strange;
    run(
        odd,
        [&] {
            std::byte more;
            if (!strange.fd && (strange.fd = accept_from(listening.get()))) {
                strange.cover = cover_of(false);
                colls::detail::send_all(strange, begins.data(), begins.size(), seconds_now() + 5);
                colls::detail::send_all(strange, rest.data(), rest.size(), seconds_now() + 5);
            } else if (strange.fd) {
                static_cast<void>(strange.read(&more, 1));
            }
        },
        [&] { return odd.over(); });
    CHECK(odd.refused());
    CHECK(odd.why() == "another program listens at " + text_of(here));
}

TEST_CASE("join: an endpoint answers those alone that it can mean, and keeps the others until they are answered",
    "[elastic]") {
    using namespace colls::detail;
    using endpoints::call_at;
    colls::endpoint e = colls::endpoint::open(), visitors = colls::endpoint::open();
    colls::endpoint::state& own = e.opened();
    const auto group = [](const char* uuid) { return endpoints::number_of_group(uuid); };
    own.use(group("failed")), own.use(group("earlier")), own.use(group("now"));
    own.last = group("failed"), own.last_end = "that was why";
    own.joining = group("now");
    const auto knock = [&](const char* uuid, int size) {
        endpoints::knock k{.group = group(uuid), .size = size};
        visitors.handle().copy(k.own, sizeof k.own - 1);
        return k;
    };
    const auto answer_to = [&](const endpoints::knock& k) {
        call_at c(own.own, k, "");
        std::optional<rendezvous::reply> a;
        const std::size_t before = own.visitors.size();
        for (const double end = seconds_now() + 30; !a && !c.over() && seconds_now() < end; usleep(100)) {
            own.serve();
            a = c.step();
            if (own.visitors.size() > before) return std::string("waits");
        }
        return a ? std::string(a->text) : "over: " + c.why();
    };
    CHECK(answer_to(knock("failed", 2)) == "its attempt with that uuid has ended: that was why");
    CHECK(answer_to(knock("earlier", 2)) == "its attempt with that uuid has ended");
    CHECK(answer_to(knock("now", 2)) == "waits");
    own.serve();  // it has gone again
    CHECK(own.visitors.empty());
    CHECK(answer_to(knock("later", 2)) == "waits");
    own.serve();
    CHECK(answer_to(knock("earlier", 0)) == "waits");  // it wants to be admitted
    own.serve();
    endpoints::knock nobody = knock("later", 2);
    nobody.own[0] = 'x';
    CHECK(says(answer_to(nobody), "over: "));
    CHECK(own.visitors.empty());

    // Those that come late for a group are refused; those that want to be admitted wait on.
    call_at late(own.own, knock("later", 2), ""), guest(own.own, knock("later", 0), "");
    const double end = seconds_now() + 30;
    while (own.visitors.size() < 2 && seconds_now() < end)
        own.serve(), expect(!late.step() && !guest.step(), "no answer"), usleep(100);
    own.refuse_late();
    REQUIRE(own.visitors.size() == 1);
    CHECK(own.visitors[0].said.size == 0);
    std::optional<rendezvous::reply> a;
    while (!(a = late.step()) && seconds_now() < end) usleep(100);
    REQUIRE(a);
    CHECK(std::string(a->text) == "that attempt has ended");
    CHECK(!guest.step());

    // The earlier half of many groups is forgotten.
    own.used.clear();
    const auto number = [](std::size_t i) {
        rendezvous::nonce n{};
        std::memcpy(n.data(), &i, sizeof i);
        return n;
    };
    constexpr std::size_t kept = colls::endpoint::state::most_used;
    for (std::size_t i = 0; i < kept; ++i) own.use(number(i));
    CHECK(own.has_used(number(0)));
    own.use(number(kept));
    CHECK(!own.has_used(number(kept / 2 - 1)));
    CHECK(own.has_used(number(kept / 2)));
    CHECK(own.has_used(number(kept)));
    CHECK(own.used.size() == kept / 2 + 1);

    // Where too many wait the first one goes.
    rlimit files{}, before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    files = {before.rlim_max, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const descriptor quiet(ends[0]), here(ends[1]);
    own.visitors.clear();
    constexpr std::size_t most_visitors = colls::endpoint::state::most_waiting;
    const auto come = [&] {
        descriptor fd(fcntl(here.get(), F_DUPFD_CLOEXEC, 0));
        REQUIRE(fd);
        own.visitors.push_back({{std::make_unique<own_socket>(std::move(fd)), {}, {}, {}}, {}, {}});
        own.visitors.back().own.pid = static_cast<int>(own.visitors.size());
    };
    while (own.visitors.size() < most_visitors) come();
    own.serve();
    CHECK(own.visitors.size() == most_visitors);
    come();
    own.serve();
    CHECK(own.visitors.size() == most_visitors);
    CHECK(own.visitors.front().own.pid == 2);
    CHECK(own.visitors.back().own.pid == static_cast<int>(most_visitors + 1));
    own.visitors.clear();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("join: what no process of the list says, and where none is reached, is an error in words", "[elastic]") {
    using namespace colls::detail;
    const auto ended = [](colls::endpoint& e, const std::vector<std::string>& list, double timeout) {
        try {
            colls::join(e, "a", list, {.timeout = timeout});
        } catch (const colls::error& x) {
            return x;
        }
        return colls::error(errc::unsupported, "it has joined");
    };
    const auto step_until = [](auto over) {
        for (const double end = seconds_now() + 30; !over() && seconds_now() < end;) usleep(100);
    };
    struct trial {
        int position, size;
        bool of_list;
        const char* text;
    };
    for (const trial& t : {trial{0, 2, true, " has come as position 0 of the list, which is process"},
             {1, 2, false, " has come as position 1 of the list, which is process"},
             {1, 3, true, " has 3 handles, that of process"}, {70'000, 70'001, true, " has 70001 handles, that of"}}) {
        colls::endpoint e = colls::endpoint::open(), other = colls::endpoint::open(), third = colls::endpoint::open();
        const std::vector<std::string> list{e.handle(), other.handle()};
        const endpoints::join_list l = endpoints::read_list(e.opened().own, "a", list);
        endpoints::knock k{.group = endpoints::number_of_group("a"),
            .list = l.in_order,
            .set = l.set,
            .position = t.position,
            .size = t.size};
        (t.of_list ? other : third).handle().copy(k.own, sizeof k.own - 1);
        colls::error x(errc::unsupported, "");
        std::thread leader([&] { x = ended(e, list, 25); });
        endpoints::call_at call(l.at(0), k, "");
        step_until([&] { return call.step() || call.over(); });
        leader.join();
        INFO(x.what());
        CHECK(x.code() == errc::mismatch);
        CHECK(says(x.what(), t.text));
    }
    {  // one that has accepted, and ends, is asked again
        colls::endpoint e = colls::endpoint::open(), other = colls::endpoint::open();
        colls::error x(errc::timeout, "");
        std::thread leader([&] { x = ended(e, {e.handle(), other.handle()}, 25); });
        int answered = 0;
        step_until([&] {
            other.opened().serve();
            for (endpoints::visitor& v : std::exchange(other.opened().visitors, {})) {
                rendezvous::reply a = rendezvous::refusal(errc::unsupported, 1, "the words");
                if (answered++ == 0) a.what = rendezvous::verdict::accepted;
                v.line.send(a, "");
            }
            return answered == 2;
        });
        leader.join();
        INFO(x.what());
        CHECK(answered == 2);
        CHECK(x.code() == errc::unsupported);
        CHECK(says(x.what(), "has refused: the words"));
    }
    colls::endpoint e = colls::endpoint::open();
    std::vector<std::string> list{e.handle()};
    for (int i = 0; i < 3; ++i)  // in a network that is not there
        list.push_back(
            endpoints::handle{1, random_bytes<endpoints::endpoint_name>(), 7, {address::of_v4(0xffffffff, 9)}}.text());
    const colls::error x = ended(e, list, 0.2);
    INFO(x.what());
    CHECK(x.code() == errc::timeout);
    CHECK(x.peer() == 1);
    CHECK(lacks(x.what(), {"it is not reached: 255.255.255.255:9: ", "; nor have 2 others: positions 2, 3"}) == "");
}

TEST_CASE("join: an endpoint listens at the interface that is named, or at all", "[elastic]") {
    using namespace colls::detail;
    const auto places = [](const colls::endpoint& e) { return e.opened().own.at; };
    for (const bool by_variable : {false, true}) {
        const support::with_environment set("COLLS_INTERFACE", by_variable ? "lo" : "no_such_interface");
        const colls::endpoint e = by_variable ? colls::endpoint::open() : colls::endpoint::open({"127.0.0.1"});
        REQUIRE(places(e).size() == 1);
        CHECK(host_text(places(e)[0]) == "127.0.0.1");
        CHECK(places(e)[0].port() > 0);
    }
    try {
        static_cast<void>(colls::endpoint::open({"no_such_interface"}));
        CHECK(false);
    } catch (const colls::error& x) {
        CHECK(x.code() == errc::invalid_argument);
    }
    const colls::endpoint e = colls::endpoint::open();
    const std::vector<address> at = places(e);
    REQUIRE(!at.empty());
    CHECK(at.size() <= endpoints::handle::most_addresses);
    for (const address& a : at) {  // there it is reached
        CHECK(a.family() == at[0].family());
        CHECK((at.size() == 1 || !a.is_loopback()));
        CHECK(a.port() == at[0].port());
        const descriptor fd = start_connect(a);
        REQUIRE(fd);
        CHECK(wait_for(fd.get(), POLLOUT, seconds_now() + 5));
        CHECK(connected(fd.get()) == 0);
    }
    // Where there is no network, on loopback.
    support::common<int> listens;
    const pid_t child = fork();
    if (child == 0) {
        ifreq lo{};
        std::strcpy(lo.ifr_name, "lo");
        lo.ifr_flags = IFF_UP | IFF_RUNNING;
        *listens = 2;  // another network is not allowed
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
            const descriptor there(socket(AF_INET, SOCK_DGRAM, 0));
            *listens = 0;
            if (ioctl(there.get(), SIOCSIFFLAGS, &lo) == 0) try {
                    const colls::endpoint alone = colls::endpoint::open();
                    const std::vector<address> only = places(alone);
                    const descriptor fd = only.size() == 1 ? start_connect(only[0]) : descriptor();
                    *listens = fd && host_text(only[0]) == "127.0.0.1" &&
                               wait_for(fd.get(), POLLOUT, seconds_now() + 5) && connected(fd.get()) == 0;
                } catch (const colls::error&) {}
        }
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    CHECK(*listens != 0);
}

TEST_CASE("join: a handle of a process that has ended is named at once, wherever it is in the list", "[elastic]") {
    for (const shape& s : shapes)
        for (const int n : {2, 4})
            for (const int dead : {0, 1, n - 1}) {
                processes all(n, s, [&](process& p) {
                    if (p.number == dead) _exit(0);
                    process::wait(p.all.step[0], 1);
                    if (p.number == (dead + 1) % n) usleep(20'000);
                    try {
                        colls::join(p.own, "a", p.list(numbers_to(n)));
                    } catch (const colls::error&) {  // one that comes later is not to find this one gone
                        ++p.all.step[1];
                        while (p.all.step[1] < n - 1) p.own.opened().serve(), usleep(200);
                        throw;
                    }
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
    struct group {
        int n, missing;
        std::unique_ptr<processes> all{};
    };
    for (const shape& s : shapes) {
        group groups[] = {{2, 0}, {2, 1}, {5, 0}, {5, 4}};  // at once, since they wait
        for (group& g : groups) {
            const int n = g.n, missing = g.missing;
            g.all = std::make_unique<processes>(n, s, [&](process& p) {
                if (p.number == missing) return process::wait(p.all.step[0], n - 1);
                std::string text;
                try {
                    colls::join(p.own, "a", p.list(numbers_to(n)), {.timeout = 2});
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
        }
        for (const group& g : groups) {
            g.all->wait();
            for (int i = 0; i < g.n; ++i) {
                INFO(s.name << ", " << g.n << " processes, without " << g.missing << ": " << g.all->text(i));
                CHECK(g.all->of(i).code == 0);
            }
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
    all.all->step[0] = 1;  // it may have been refused before
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
                colls::join(p.own, "a", p.list({0, 1}), {.timeout = 2});
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
                                    const std::string& says_that) {
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
        const std::jthread program([&](const std::stop_token& over) {
            std::vector<descriptor> guests;
            for (; !over.stop_requested(); usleep(200))
                if (descriptor guest = accept_from(listening.get())) {
                    const std::string text = "SSH-2.0-OpenSSH_9.2 and what else such a program says to those that come";
                    send_all(guest.get(), text.data(), text.size(), seconds_now() + 5);
                    guests.push_back(std::move(guest));
                }
        });
        refused_at("d", {p.handle(0), other.text()}, 1, other_program_at(""));
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
        if (p.number == 0)  // the impostor begins once process 1 has come
            p.own.opened().look_beside = [&] {
                for (const endpoints::visitor& v : p.own.opened().visitors)
                    if (v.said.position == 1) p.all.step[0] = 1;
            };
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

TEST_CASE("join: what the first process says, or does not say, is the error of one that waits", "[elastic]") {
    using namespace colls::detail;
    using rendezvous::verdict;
    struct trial {
        verdict what;
        errc said;
        int about;
        errc code;
        int peer;
        const char* text;
    };
    // Where it is accepted it hears no more, and its deadline passes: that is above the time for which it may wait for
    // a core before it hears the rest.
    const trial trials[] = {{verdict::accepted, errc::timeout, 2, errc::timeout, 2, "position 2 of the list"},
        {verdict::waiting, errc::timeout, 1, errc::timeout, 1, "has waited for it, like position 0 of the list"},
        {verdict::accepted, errc::timeout, colls::none, errc::timeout, 0, "said no more within 2 s: is it stopped?"},
        {verdict::accepted, errc::timeout, 0, errc::timeout, 0, "said no more within 2 s: is it stopped?"},
        {verdict::accepted, errc::timeout, 3, errc::timeout, 0, "said no more within 2 s: is it stopped?"},
        {verdict::version_skew, errc::timeout, colls::none, errc::mismatch, 0, "has refused this process: the words"},
        {verdict::broken, errc::timeout, colls::none, errc::peer_failed, 0, "does not come: the words"},
        {verdict::failed, errc::unsupported, 2, errc::unsupported, 2, "join 'a': the words"}};
    std::deque<processes> running;  // all at once, since they wait
    for (const trial& t : trials)
        running.emplace_back(2, shapes[0], [&](process& p) {
            const colls::endpoint third = colls::endpoint::open();
            if (p.number == 0) {
                colls::endpoint::state& e = p.own.opened();
                while (e.visitors.empty()) e.serve(), usleep(200);
                rendezvous::reply a = rendezvous::refusal(t.said, t.about, "the words");
                a.what = t.what;
                e.visitors[0].line.send(a, e.token);
                return process::wait(p.all.step[0], 1);
            }
            try {
                colls::join(p.own, "a", std::vector{p.handle(0), p.handle(1), third.handle()}, {.timeout = 2});
                expect(false, "it has joined");
            } catch (const colls::error& x) {
                p.all.step[0] = 1;
                expect(x.code() == t.code && x.peer() == t.peer && says(x.what(), t.text), x.what());
            }
        });
    for (std::size_t k = 0; k < running.size(); ++k) {
        running[k].wait();
        for (int i = 0; i < 2; ++i) {
            INFO(static_cast<int>(trials[k].what) << ", " << trials[k].about << ": " << running[k].text(i));
            CHECK(running[k].of(i).code == 0);
        }
    }
}

TEST_CASE("join: what one that does not come says at its endpoint is the error of the first process", "[elastic]") {
    using namespace colls::detail;
    using rendezvous::verdict;
    struct trial {
        verdict what;
        errc said, code;
        const char* text;
    };
    // Accepted: it has the list, and does not come.
    const trial trials[] = {{verdict::accepted, errc::timeout, errc::timeout, "it was on its way"},
        {verdict::broken, errc::timeout, errc::peer_failed, "position 1 of the list"},
        {verdict::broken, errc::timeout, errc::peer_failed, "does not come: the words"},
        {verdict::failed, errc::unsupported, errc::unsupported, "has refused: the words"}};
    std::deque<processes> running;  // all at once, since they wait
    for (const trial& t : trials)
        running.emplace_back(2, shapes[0], [&](process& p) {
            if (p.number == 1) {
                colls::endpoint::state& e = p.own.opened();
                for (int answered = 0; p.all.step[0].load() == 0; usleep(200)) {
                    e.serve();
                    for (endpoints::visitor& v : e.visitors) {
                        if (std::exchange(v.said.size, 0) == 0) continue;  // has its answer
                        expect(++answered == 1, "it has knocked again");
                        rendezvous::reply a = rendezvous::refusal(t.said, 1, "the words");
                        a.what = t.what;
                        v.line.send(a, e.token);
                    }
                }
                return;
            }
            try {
                colls::join(p.own, "a", p.list({0, 1}), {.timeout = 2});
                expect(false, "it has joined");
            } catch (const colls::error& x) {
                p.all.step[0] = 1;
                expect(x.code() == t.code && x.peer() == 1 && says(x.what(), t.text), x.what());
            }
        });
    for (std::size_t k = 0; k < running.size(); ++k) {
        running[k].wait();
        for (int i = 0; i < 2; ++i) {
            INFO(static_cast<int>(trials[k].what) << ": " << running[k].text(i));
            CHECK(running[k].of(i).code == 0);
        }
    }
}

TEST_CASE("join: one that has come hears which handle the first process waits for, and no more while that is so",
    "[elastic]") {
    processes all(2, shapes[0], [&](process& p) {
        using namespace colls::detail;
        using rendezvous::verdict;
        const colls::endpoint third = colls::endpoint::open();
        std::strncpy(p.all.handles[2 + p.number], third.handle().c_str(), 255);
        p.meet(0, 2);
        const std::vector<std::string> list = p.list({0, 1, 2});
        if (p.number == 0) {
            try {
                colls::join(p.own, "a", list, {.timeout = 2});
                expect(false, "it has joined");
            } catch (const colls::error& x) {
                expect(x.code() == errc::timeout && x.peer() == 2, x.what());
            }
            return process::wait(p.all.step[1], 1);
        }
        const endpoints::join_list l = endpoints::read_list(p.own.opened().own, "a", list);
        endpoints::knock k{
            .group = endpoints::number_of_group("a"), .list = l.in_order, .set = l.set, .position = 1, .size = 3};
        p.handle(1).copy(k.own, sizeof k.own - 1);
        const char* why = "";
        endpoints::call_at call(*endpoints::parse_handle(p.handle(0), why), k, "");
        const double until = seconds_now() + 30;
        std::optional<rendezvous::reply> a;
        while (!(a = call.step()) && seconds_now() < until) usleep(100);
        expect(a && a->what == verdict::accepted && rendezvous::about_of(*a) == 2 && says(a->text, "position 2"),
            a ? a->text : "no answer");
        const peer_line answers = call.take();
        for (int waiting = 0; a->what != verdict::failed;) {
            std::array<std::byte, rendezvous::reply::bytes> bytes;
            expect(colls::detail::receive_all(*answers.socket, bytes.data(), bytes.size(), until) == 0,
                "it has closed the connection");
            a = rendezvous::parse<rendezvous::reply>(bytes);
            expect(a && rendezvous::about_of(*a) == 2 && says(a->text, "position 2"), a ? a->text : "no reply");
            if (a->what == verdict::waiting) expect(++waiting <= 1, "it says so again and again");
        }
        expect(rendezvous::code_of(*a) == errc::timeout && says(a->text, "has not come within 2 s"), a->text);
        p.all.step[1] = 1;
    });
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
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
