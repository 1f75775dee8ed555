// A group whose members come, go and die: elastic::member.
#include "catch.hpp"

#include "followed.hpp"
#include "gathered.hpp"
#include "support/random.hpp"
#include "support/raw_socket.hpp"
#include "support/says.hpp"

#include <colls/elastic/detail/member.hpp>

#include <sys/socket.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <numeric>
#include <optional>

using namespace gathered;
using colls::errc;
using colls::elastic::member;
using support::receive_all;
using support::says;
using support::send_all;

namespace {

std::vector<int> numbers(int first, int end) {
    std::vector<int> all(static_cast<std::size_t>(end - first));
    std::iota(all.begin(), all.end(), first);
    return all;
}
/// The epoch has the same members for everyone that has ever seen it.
void note_epoch(process& p, member& m) {
    std::uint64_t hash = 14695981039346656037u;
    for (const std::string& h : m.handles())
        for (const char c : h) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    expect(m.epoch() >= 1 && m.epoch() < 256, "the epoch's number");
    expect(m.comm().size() == static_cast<int>(m.handles().size()), "the number of handles");
    expect(m.handles()[static_cast<std::size_t>(m.comm().rank())] == p.all.handles[p.number], "the own place");
    std::uint64_t before = 0;
    if (!p.all.history[m.epoch()].compare_exchange_strong(before, hash)) expect(before == hash, "two histories");
}
/// A step of the program: false after an error that a change can mend. A result is right.
bool step(process& p, member& m) {
    try {
        std::vector<std::uint64_t> x(3000 + 2, 5);
        for (std::size_t i = 1; i <= 3000; ++i) x[i] = i * static_cast<std::uint64_t>(p.number + 1);
        std::vector<std::uint64_t> who(static_cast<std::size_t>(m.comm().size()));
        const std::uint64_t mine[1] = {static_cast<std::uint64_t>(p.number)};
        colls::all_gather(m.comm(), std::span(mine), who);
        colls::all_reduce(m.comm(), std::span(x.data() + 1, 3000), colls::sum);
        std::uint64_t sum = 0;
        for (std::size_t r = 0; r < who.size(); ++r) {
            expect(m.handles()[r] == p.all.handles[who[r]], "the order of the ranks");
            sum += who[r] + 1;
        }
        expect(x.front() == 5 && x.back() == 5, "guards");
        for (std::size_t i = 1; i <= 3000; ++i) expect(x[i] == i * sum, "a sum");
        return true;
    } catch (const colls::error& e) {
        expect(e.code() == errc::peer_failed || e.code() == errc::timeout, e.what());
        return false;
    }
}

}  // namespace

TEST_CASE("member: newcomers are admitted at a boundary, and hear what has been done; one leaves", "[elastic]") {
    for (const shape& s : shapes) {
        processes all(5, s, [&](process& p) {
            const std::vector<std::string> founders = p.list({0, 1, 2});
            if (p.number >= 3) process::wait(p.all.step[0], p.number - 2);
            // Newcomers know a different door each.
            member m(std::move(p.own), p.number < 3 ? founders : p.list({p.number - 3, p.number - 2}));
            note_epoch(p, m);
            std::uint64_t done = p.number < 3 ? 10 : m.done_by_all() + 1;
            expect(p.number < 3 || m.done_by_all() >= 10, "what has been done");
            for (;; ++done) {
                expect(step(p, m), "a step");
                if (p.number == 0 && m.comm().size() == 3) p.all.step[0] = 1;
                if (p.number == 0 && m.comm().size() == 4) p.all.step[0] = 2;
                if (m.comm().size() == 5) break;
                const std::uint64_t before = m.epoch();
                const bool changed = m.update(done);
                expect(changed == (m.epoch() != before), "update says that the epoch has changed");
                expect(m.done_by_all() == done && m.done_by_any() == done, "done");
                if (changed) {
                    expect(m.came().size() == 1 && m.gone().empty(), "who came");
                    note_epoch(p, m);
                }
            }
            expect(m.epoch() == 3, "the third epoch");
            if (p.number == 1) return m.leave();
            expect(m.update(done), "one has left");
            expect(m.gone() == p.list({1}) && m.came().empty() && m.comm().size() == 4, "who has gone");
            note_epoch(p, m);
            expect(step(p, m), "a step");
            m.leave();
        });
        all.wait();
        for (int i = 0; i < 5; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).code == 0);
        }
    }
}

TEST_CASE("member: those that are left go on when others die, down to the last one over memory", "[elastic]") {
    for (const shape& s : shapes) {
        const int n = 5, most_dead = s.name == shapes[0].name ? 4 : 2;
        processes all(n, s, [&](process& p) {
            member m(std::move(p.own), p.list(numbers(0, n)));
            std::uint64_t k = 0;
            for (int dead = 0; dead < most_dead;) {
                if (p.number == dead && k == 3) raise(SIGKILL);
                const bool right = step(p, m);
                k += right;
                if (m.update(k)) {
                    dead += static_cast<int>(m.gone().size());
                    expect(m.done_by_any() - m.done_by_all() <= 1, "done");
                    k = 0;
                    note_epoch(p, m);
                }
                expect(m.comm().size() == n - dead, "the size");
            }
            expect(step(p, m), "a step");
            m.leave();
        });
        all.wait();
        for (int i = most_dead; i < n; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).code == 0);
        }
    }
}

TEST_CASE("member: one that does not come is waited for as long as patience says, whatever the deadline", "[elastic]") {
    for (const shape& s : shapes) {
        processes all(
            3, s,
            [&](process& p) {
                const double began = colls::detail::seconds_now();
                member m(std::move(p.own), p.list({0, 1, 2}), {.patience = 0.5});
                expect(step(p, m), "a step");
                p.meet(0, 3);
                if (p.number == 1) raise(SIGSTOP);
                m.comm().abort("one is stopped");
                expect(!step(p, m), "a step of a broken group");
                p.meet(1, 2);  // from here on one waits for the other as long as patience says, too
                expect(m.update() && m.comm().size() == 2, "the stopped one is left behind");
                expect(colls::detail::seconds_now() < began + 900, "before the deadline");
                expect(m.comm().context().env.timeout == 1000, "the new group has its deadline again");
                expect(step(p, m), "a step of two");
                m.leave();
            },
            "1000");
        all.end_with_others(1);
        for (const int i : {0, 2}) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).code == 0);
        }
        all.wait();
    }
}

TEST_CASE("member: options and lists that cannot be are refused in words", "[elastic]") {
    const auto refusal = [](const colls::elastic::options& how, const std::vector<std::string>* handles = nullptr) {
        colls::endpoint own = colls::endpoint::open();
        const std::vector<std::string> alone{own.handle()};
        try {
            member(std::move(own), handles ? *handles : alone, how);
        } catch (const colls::error& e) {
            CHECK(e.code() == errc::invalid_argument);
            return std::string(e.what());
        }
        return std::string();
    };
    for (const colls::elastic::options& how : {colls::elastic::options{.min = 0}, {.min = -1}, {.min = 3, .max = 2},
             {.min = 1, .max = 0}, {.admission_timeout = 0}, {.admission_timeout = -1}, {.patience = -1}}) {
        const std::string why = refusal(how);
        CHECK(says(why, "1 <= min <= max is needed, an admission_timeout above 0, and a patience of 0 or more"));
        CHECK(says(why, "min is " + std::to_string(how.min) + " and max is " + std::to_string(how.max)));
    }
    CHECK(refusal({.min = 1, .max = 1, .admission_timeout = 1e-3, .patience = 0}) == "");
    const std::vector<std::string> none, wrong{"colls1/and so on", "x"};
    CHECK(says(refusal({}, &none), "the list of handles is empty"));
    CHECK(says(refusal({}, &wrong), "elastic: 'colls1/and so on' is a handle with a part that is missing or wrong"));

    colls::endpoint own = colls::endpoint::open();
    const std::vector<std::string> alone{own.handle()};
    member m(std::move(own), alone), moved = std::move(m);
    CHECK_THROWS_AS(m.epoch(), colls::error);
    CHECK(moved.epoch() == 1);
    CHECK(moved.came() == alone);
    CHECK(moved.gone().empty());
    CHECK(!moved.update(5));
    CHECK(moved.done_by_all() == 5);
    CHECK(moved.done_by_any() == 5);
    m = std::move(moved);
    CHECK(m.epoch() == 1);
    CHECK_THROWS_AS(moved.epoch(), colls::error);
    m.leave();
    CHECK(m.comm().size() == 0);
}

TEST_CASE("member: the error of founders names in printable words the one that is missing, whatever the digest",
    "[elastic]") {
    using namespace colls::detail;
    colls::endpoint own = colls::endpoint::open();
    const char* why = "";
    auto gone = *endpoints::parse_handle(colls::endpoint::open().handle(), why);  // it is closed by now
    std::vector<std::string> list{own.handle(), gone.text()};
    const auto has_zero = [&] {
        const std::string all = list[0] + list[1];
        const digest d = sha256().add(std::as_bytes(std::span(all))).finish();
        return std::find(d.begin(), d.begin() + 16, std::byte{0}) != d.begin() + 16;
    };
    while (!has_zero()) {
        gone.name = random_bytes<endpoints::endpoint_name>();
        list[1] = gone.text();
    }
    const auto check = [](const char* opening, auto f) {
        try {
            f();
            CHECK(false);
        } catch (const colls::error& x) {
            const std::string text = x.what();
            INFO(text);
            CHECK(says(text, opening));
            CHECK(says(text, "position 1 of the list"));
            CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }));
        }
    };
    check("join 'a?[7m?b?': ", [&] { colls::join(own, std::string_view("a\x1b[7m\0b\xff", 8), list); });
    check("join 'a?': ", [&] { colls::join(own, "a\n", std::vector{list[0], std::string("x")}); });
    check("join 'founders ", [&] { colls::elastic::member(std::move(own), list); });
}

TEST_CASE("member: a newcomer hears why it is not admitted, and knocks no more where that was refused", "[elastic]") {
    processes all(2, shapes[0], [&](process& p) {
        using namespace colls::detail;
        if (p.number == 0) {  // a door that refuses, in turn, with two codes
            colls::endpoint::state& e = p.own.opened();
            for (int refused = 0; p.all.step[0].load() == 0; usleep(200)) {
                e.serve();
                for (endpoints::visitor& v : std::exchange(e.visitors, {})) {
                    const errc code = refused++ == 0 ? errc::peer_failed : errc::invalid_argument;
                    v.line.send(rendezvous::refusal(code, colls::none, "not today"), e.token);
                    expect(refused <= 2, "it has knocked again");
                    p.all.step[1].fetch_add(1);
                    process::wait(p.all.step[1], 2 * refused);  // it has read that
                }
            }
            return;
        }
        for (const errc code : {errc::peer_failed, errc::invalid_argument}) {
            try {
                colls::elastic::member m(colls::endpoint::open(), p.list({0}), {.timeout = 25});
                expect(false, "it was admitted");
            } catch (const colls::error& x) {
                const bool ended = code == errc::peer_failed;
                expect(x.code() == code, x.what());
                expect(says(x.what(), ended ? "none of the 1 members that are listed is there any more (not today)"
                                            : "not admitted: not today"),
                    x.what());
            }
            p.all.step[1].fetch_add(1);
        }
        p.all.step[0] = 1;
    });
    all.end_with_others();
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).done == 1);
        CHECK(all.of(i).code == 0);
    }
}

TEST_CASE("member: an invitation arrives as it was written, or not at all", "[elastic]") {
    using namespace colls::detail;
    using namespace endpoints;
    const std::vector<std::string> handles{"a", std::string(handle::most_text, 'b'), "", "colls1/0/1"};
    CHECK(decode_handles(encode_handles(handles)) == handles);
    CHECK(decode_handles(encode_handles({std::string(handle::most_text + 10, 'c'), "d"})) ==
          std::vector{std::string(handle::most_text, 'c'), std::string("d")});
    CHECK(decode_handles(std::vector<std::byte>(handle_bytes, std::byte{'e'})) ==
          std::vector{std::string(handle_bytes, 'e')});

    const invitation sent{"epoch 7/123", 7, handles};
    const auto arrives = [&](const char* token, auto change) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        visitor v{{std::make_unique<own_socket>(descriptor(ends[0])), {}, {}, {}}, {}, {}};
        peer_line at{std::make_unique<own_socket>(descriptor(ends[1])), {}, {}, {}};
        v.line.host[0] = at.host[0] = std::byte{1}, v.line.guest[3] = at.guest[3] = std::byte{2};
        CHECK(invite(v, sent, "a token"));
        std::array<std::byte, rendezvous::reply::bytes> bytes;
        REQUIRE(receive_all(at.fd(), bytes.data(), bytes.size(), seconds_now() + 5) == 0);
        auto a = rendezvous::parse<rendezvous::reply>(bytes);
        REQUIRE(a);
        CHECK(same(a->proof, rendezvous::prove("a token", at.host, at.guest, bytes)));
        change(*a, at);
        v.line.socket.reset();
        const auto i = read_invitation(*a, at, token, seconds_now() + 5);
        if (i) CHECK((i->uuid == sent.uuid && i->epoch == 7 && i->handles == handles));
        return i.has_value();
    };
    using reply = rendezvous::reply;
    CHECK(arrives("a token", [](reply&, peer_line&) {}));
    CHECK(!arrives("another", [](reply&, peer_line&) {}));
    CHECK(!arrives("a token", [](reply& a, peer_line&) { a.what = rendezvous::verdict::accepted; }));
    CHECK(!arrives("a token", [](reply& a, peer_line&) { a.size = 0; }));
    CHECK(!arrives("a token", [](reply& a, peer_line&) { a.size = -1; }));
    CHECK(!arrives("a token", [](reply& a, peer_line&) { ++a.size; }));
    CHECK(!arrives("a token", [](reply& a, peer_line&) { --a.size; }));
    CHECK(!arrives("a token", [](reply& a, peer_line&) { a.size = 0x7fffffff; }));
    CHECK(!arrives("a token", [](reply&, peer_line& at) { at.host[0] = std::byte{2}; }));
    CHECK(!arrives("a token", [](reply&, peer_line& at) { at.guest[3] = std::byte{3}; }));
    // The others do not wait for one that does not read, or has gone.
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const visitor gone{{std::make_unique<own_socket>(descriptor(ends[0])), {}, {}, {}}, {}, {}};
    close(ends[1]);
    CHECK(!invite(gone, sent, "a token"));
}

TEST_CASE("member: min is waited for, max is not passed, and a stranger to all is told so", "[elastic]") {
    processes all(4, shapes[0], [&](process& p) {
        colls::elastic::options how{.min = 2, .max = 2, .timeout = p.number == 2 ? 0.7 : 20};
        if (p.number == 3) {
            process::wait(p.all.step[1], 1);
            try {
                member m(std::move(p.own), p.list({2}), how);
            } catch (const colls::error& e) {
                expect(says(e.what(), "none of the 1 members that are listed is there any more"), e.what());
                return;
            }
            expect(false, "it was admitted");
        }
        if (p.number == 2) {
            try {
                process::wait(p.all.step[0], 1);
                member m(std::move(p.own), p.list({0}), how);
            } catch (const colls::error& e) {
                expect(e.code() == errc::timeout && says(e.what(), "Is the group full?"), e.what());
                p.all.step[1] = 1;
                return;
            }
            expect(false, "it was admitted");
        }
        member m(std::move(p.own), p.list({0}), how);  // 0 is alone, and waits for 1
        expect(m.comm().size() == 2, "min");
        while (p.all.step[2].load() == 0) {
            expect(step(p, m), "a step");
            p.all.step[0] = 1;
            const std::uint64_t calls = m.comm().context().log.count;
            expect(!m.update(), "nothing has changed");
            expect(m.comm().context().log.count == calls + 1, "a full group asks nobody who has knocked");
            int stop = p.all.step[1].load();
            colls::all_reduce(m.comm(), std::span(&stop, 1), colls::max);
            if (stop) break;
        }
        m.leave();
    });
    all.wait();
    for (int i = 0; i < 4; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
    }
}

TEST_CASE("member: by a folder, one founds the group and others come; one history, also where the majority is lost",
    "[elastic]") {
    // All shapes at once, since most of the time the last one waits for the deadline. That is long, since the first
    // three have to meet within it, and may wait for a core.
    std::deque<std::string> folders;
    std::deque<processes> groups;
    for (const shape& s : shapes) {
        const std::string& name =
            folders.emplace_back((std::filesystem::temp_directory_path() / "colls-elastic-XXXXXX").string());
        REQUIRE(mkdtemp(folders.back().data()) != nullptr);
        groups.emplace_back(
            4, s,
            [&](process& p) {
                colls::elastic::folder door(name);
                const colls::elastic::options how{.min = p.number < 3 ? 3 : 1};
                if (p.number == 3) process::wait(p.all.step[0], 1);
                std::optional<member> m;
                m.emplace(std::move(p.own), door, "job", how);
                note_epoch(p, *m);
                if (p.number == 3) {  // all others have been killed
                    expect(m->comm().size() == 1 && m->epoch() > 3, "it has taken over");
                    return m->leave();
                }
                while (m->comm().size() < 3)
                    if (step(p, *m), m->update()) note_epoch(p, *m);
                expect(step(p, *m), "a step of three");
                p.meet(2, 3);  // none is still in it
                if (p.number != 1) raise(SIGKILL);
                step(p, *m);
                const std::uint64_t before = m->epoch();
                // Two of three have died: over messages there is no majority. (min is 3: nobody comes, and it waits.)
                p.all.step[1] = 1;
                try {
                    m->update();
                } catch (const colls::error& e) {
                    expect(e.code() == errc::timeout && says(e.what(), "are needed (min)"), e.what());
                    expect(m->comm().size() == 1 && m->epoch() > before, "it went on alone");
                    raise(SIGKILL);
                }
                expect(false, "three, where two have died");
            },
            "8");
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
        processes& all = groups[g];
        waitpid(all.pids[0], nullptr, 0);
        waitpid(all.pids[1], nullptr, 0);
        waitpid(all.pids[2], nullptr, 0);
        all.all->step[0] = 1;
        all.wait();
        for (int i = 0; i < 4; ++i) {
            INFO(shapes[g].name << ": " << all.text(i));
            CHECK((i == 3 ? all.of(i).code == 0 : all.of(i).done == 0));
        }
        std::filesystem::remove_all(folders[g]);
    }
}

TEST_CASE("member: by a folder, members that live and do not admit a newcomer are not replaced", "[elastic]") {
    std::string name = (std::filesystem::temp_directory_path() / "colls-elastic-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    processes all(2, shapes[0], [&](process& p) {
        colls::elastic::folder door(name);
        if (p.number == 0) {
            member m(std::move(p.own), door, "job");
            p.all.step[0] = 1;
            process::wait(p.all.step[1], 1);  // it computes for long
            expect(m.comm().size() == 1 && m.epoch() == 1, "it is the only member");
            return;
        }
        process::wait(p.all.step[0], 1);
        const std::string before = door.read("job");
        try {
            member m(std::move(p.own), door, "job", {.timeout = 0.3});
            expect(false, "it was admitted, or has founded another group");
        } catch (const colls::error& x) {
            expect(x.code() == errc::timeout && says(x.what(), "not admitted within 0.3 s"), x.what());
        }
        expect(door.read("job") == before, "the list is that of the members");
        p.all.step[1] = 1;
    });
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
    }
    std::filesystem::remove_all(name);
}

TEST_CASE("member: by a folder, members of another version that live are not replaced; others may admit the newcomer",
    "[elastic]") {
    std::string name = (std::filesystem::temp_directory_path() / "colls-elastic-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    processes all(3, shapes[0], [&](process& p) {
        using namespace colls::detail;
        // First an invitation that is cut; then as the door of another version refuses, and as one that is told the
        // version does.
        if (p.number == 0) {
            colls::endpoint::state& e = p.own.opened();
            for (; p.all.step[0].load() == 0; usleep(200)) {
                e.serve();
                for (endpoints::visitor& v : std::exchange(e.visitors, {})) {
                    rendezvous::reply a = rendezvous::refusal(errc::mismatch, colls::none, "another version");
                    const int before = p.all.step[1].fetch_add(1);
                    if (before != 2) a.what = rendezvous::verdict::version_skew;
                    if (before == 0) a.what = rendezvous::verdict::complete;
                    v.line.send(a, e.token);
                }
            }
            return;
        }
        if (p.number == 2) {
            colls::elastic::member m(std::move(p.own), p.list({2}));
            process::wait(p.all.step[1], 4);  // process 0 has refused the newcomer before this one admits it
            while (m.comm().size() < 2) m.update(), usleep(200);
            p.all.step[0] = 1;
            return m.leave();
        }
        colls::elastic::folder door(name);
        const std::string record = "7\n" + p.handle(0) + "\n";
        expect(door.compare_and_set("job", "", record), "the record of the others");
        for (int i = 0; i < 2; ++i) {
            try {
                colls::elastic::member m(colls::endpoint::open(), door, "job", {.timeout = 25});
                expect(false, "it was admitted, or has founded another group");
            } catch (const colls::error& x) {
                expect(x.code() == errc::mismatch && says(x.what(), "not admitted: another version"), x.what());
            }
            expect(door.read("job") == record, "the list is that of the members");
        }
        colls::elastic::member m(std::move(p.own), p.list({0, 2}), {.timeout = 25});
        expect(m.comm().size() == 2, "one of those that are listed has admitted it");
        m.leave();
    });
    all.end_with_others();
    all.wait();
    for (int i = 0; i < 3; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).done == 1);
        CHECK(all.of(i).code == 0);
    }
    std::filesystem::remove_all(name);
}

TEST_CASE("member: what the store throws is the error of its member, and breaks no group", "[elastic]") {
    struct failing final : colls::elastic::store {
        explicit failing(const std::string& path) : to(path) {}
        std::string read(std::string_view key) override { return to.read(key); }
        bool compare_and_set(std::string_view key, std::string_view expected, std::string_view value) override {
            if (++changes > 1) throw colls::error(errc::timeout, "colls: the store is not reached");
            return to.compare_and_set(key, expected, value);
        }
        colls::elastic::folder to;
        int changes = 0;
    };
    for (const shape& s : {shapes[0], shapes[1]}) {
        std::string name = (std::filesystem::temp_directory_path() / "colls-elastic-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        processes all(2, s, [&](process& p) {
            failing door(name);
            if (p.number == 0) {
                member m(std::move(p.own), door, "job");
                p.all.step[0] = 1;
                bool failed = false;
                for (; !failed; usleep(200)) try {
                        m.update();
                    } catch (const colls::error& x) {
                        failed = x.code() == errc::timeout && says(x.what(), "colls: the store is not reached");
                        expect(failed, x.what());
                    }
                expect(door.changes == 2, "it has asked the store once");
                return process::wait(p.all.step[1], 1);
            }
            process::wait(p.all.step[0], 1);
            const std::string before = door.read("job");
            try {
                member m(std::move(p.own), door, "job");
                expect(false, "its list is in no store");
            } catch (const colls::error& x) {
                expect(x.code() == errc::unsupported && x.peer() == 0, x.what());
                expect(says(x.what(), "rank 0 cannot write the list of the members of 'job'"), x.what());
            }
            expect(door.read("job") == before && door.changes == 0, "the list");
            p.all.step[1] = 1;
        });
        all.end_with_others();
        all.wait();
        for (int i = 0; i < 2; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).done == 1);
            CHECK(all.of(i).code == 0);
        }
        std::filesystem::remove_all(name);
    }
}

TEST_CASE("member: where the store has another list of the members by now, those of that one go on", "[elastic]") {
    struct replaced final : colls::elastic::store {
        replaced(const std::string& path, const std::string& other) : to(path), others(other) {}
        std::string read(std::string_view key) override { return to.read(key); }
        bool compare_and_set(std::string_view key, std::string_view expected, std::string_view value) override {
            if (changes++ == 1) to.compare_and_set(key, to.read(key), others);
            return to.compare_and_set(key, expected, value);
        }
        colls::elastic::folder to;
        std::string others;
        int changes = 0;
    };
    for (const shape& s : {shapes[0], shapes[1]}) {
        std::string name = (std::filesystem::temp_directory_path() / "colls-elastic-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        processes all(2, s, [&](process& p) {
            if (p.number == 0) {
                replaced door(name, "9\n" + colls::endpoint::open().handle() + "\n");  // of a process that has ended
                member m(std::move(p.own), door, "job");
                p.all.step[0] = 1;
                try {
                    for (const double until = colls::detail::seconds_now() + 30; colls::detail::seconds_now() < until;)
                        m.update(), usleep(200);
                    expect(false, "its list is in the store, or nobody has come");
                } catch (const colls::error& x) {
                    expect(x.code() == errc::peer_failed && m.comm().size() == 2, x.what());
                    expect(
                        says(x.what(), "the store has another list of the members of 'job': others go on"), x.what());
                }
                return process::wait(p.all.step[1], 1);
            }
            process::wait(p.all.step[0], 1);
            colls::elastic::folder door(name);
            const std::string own = p.handle(1);
            member m(std::move(p.own), door, "job");  // refused likewise, it comes to the other list, and replaces it
            expect(m.epoch() == 10 && m.comm().size() == 1, "it has founded another group");
            expect(door.read("job") == "10\n" + own + "\n", "the list");
            p.all.step[1] = 1;
        });
        all.end_with_others();
        all.wait();
        for (int i = 0; i < 2; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).done == 1);
            CHECK(all.of(i).code == 0);
        }
        std::filesystem::remove_all(name);
    }
}

TEST_CASE("member: one that shrinks the group interrupts the others in an admission", "[elastic]") {
    for (const shape& s : shapes) {
        processes all(
            4, s,
            [&](process& p) {
                const colls::elastic::options how{.admission_timeout = p.number == 3 ? 1.0 : 400.0};
                if (p.number == 3) process::wait(p.all.step[0], 3);
                const std::vector<std::string> list = p.list(p.number == 3 ? std::vector{1, 2} : std::vector{0, 1, 2});
                const colls::detail::endpoints::handle own = p.own.opened().own;
                member m(std::move(p.own), list, how);
                p.all.step[0].fetch_add(1);
                if (p.number == 0) {
                    // As update does, until a newcomer is to be admitted; then as after an error that it alone has.
                    std::uint64_t all_say[3] = {};
                    while (all_say[0] == 0) {
                        all_say[0] = all_say[1] = 0, all_say[2] = ~std::uint64_t{0};
                        colls::all_reduce(m.comm(), std::span(all_say), colls::max);
                    }
                    using colls::detail::endpoints::report;
                    std::vector<report> reports(3);
                    const report mine[1] = {{.who = own.name, .is_member = 1, .has_done = 1}};
                    colls::all_gather(m.comm(), std::span(mine), reports);
                    std::vector<std::size_t> counts;
                    for (const report& r : reports) counts.push_back(r.knocks * colls::detail::endpoints::handle_bytes);
                    std::vector<std::byte> handles(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
                    colls::all_gather_v(m.comm(), std::span<const std::byte>(), handles, counts);
                    expect(m.comm().shrink().size() == 3, "all are there");
                    return;
                }
                while (m.comm().size() != 3 || m.handles()[2] != p.handle(3))
                    if (m.update()) note_epoch(p, m);
                expect(m.handles() == p.list({1, 2, 3}), "the members");
                expect(step(p, m), "a step");
                m.leave();
            },
            "1000");
        all.end_with_others();
        all.wait();
        for (int i = 0; i < 4; ++i) {
            INFO(s.name << ": " << all.text(i));
            CHECK(all.of(i).done == 1);
            CHECK(all.of(i).code == 0);
        }
    }
}

#if defined(__x86_64__)
namespace {

/// All of `lives` end as they should, where `victim` has died, or was stopped, at its call number `at`.
void check_lives(const processes& all, const std::vector<int>& lives, const std::string& what) {
    for (const int i : lives) {
        INFO(what << ": " << all.text(i));
        CHECK(all.of(i).done == 1);
        CHECK(all.of(i).code == 0);
    }
}
/// f(0) is the number of the system calls that there are to try, f(at) tries one of them.
template <class F>
void for_some_calls(int tries, F f) {
    const int calls = f(0);
    REQUIRE(calls > 5);
    const int every = calls / tries + 1;
    for (int at = 1; at <= calls; at += every) f(at);
}

}  // namespace

TEST_CASE(
    "member: the others go on where one dies, or is stopped, at any of its system calls while they leave out another",
    "[elastic]") {
    struct trial {
        shape on;
        int dead, victim;
    };
    // The last ones: two hosts with two that are left each; and one, where nobody is left on the other.
    const trial trials[] = {{shapes[0], 0, 1}, {shapes[1], 5, 0}, {{"two hosts", "shm", 3}, 0, 3},
        {{"two hosts", "shm", 3}, 0, 2}, {{"one host of two", "shm", 5}, 5, 0}};
    for (const bool stops : {false, true})
        for (const trial& t : trials) {
            if (stops && !support::long_run) continue;
            std::vector<int> lives = numbers(0, 6);
            std::erase_if(lives, [&](int i) { return i == t.dead || i == t.victim; });
            for_some_calls(!support::long_run ? 3
                           : stops            ? 8
                                              : 40,
                [&](int at) {
                    processes all(
                        6, t.on,
                        [&](process& p) {
                            member m(std::move(p.own), p.list(numbers(0, 6)));
                            expect(step(p, m), "a step");
                            p.meet(0, 6);
                            if (p.number == t.dead) raise(SIGKILL);
                            if (p.number == t.victim) be_followed();
                            while (m.comm().size() > 4) {
                                step(p, m);
                                if (m.update()) note_epoch(p, m);
                                if (p.number == t.victim && m.comm().size() == 5) mark(), raise(SIGKILL);
                            }
                            expect(step(p, m), "a step of those that are left");
                            m.leave();
                        },
                        stops ? "1" : "1000");
                    const followed seen = follow(all.pids[static_cast<std::size_t>(t.victim)], at, stops);
                    all.end_with_others(t.victim);
                    all.wait();
                    check_lives(all, lives,
                        std::string(t.on.name) + ", process " + std::to_string(t.victim) +
                            (stops ? " stopped" : " killed") + " at call " + std::to_string(at));
                    return seen.calls;
                });
        }
}

TEST_CASE("member: one that dies at any of its system calls in an admission keeps nobody waiting", "[elastic]") {
    for (const shape& s : shapes)
        for (const int victim : {0, 1, 2}) {
            std::vector<int> lives = numbers(0, 4);
            lives.erase(lives.begin() + victim);
            for_some_calls(support::long_run ? 40 : 3, [&](int at) {
                processes all(
                    4, s,
                    [&](process& p) {
                        // A newcomer that has been invited for nothing knocks again after a second.
                        const colls::elastic::options how{.admission_timeout = p.number == 3 ? 1.0 : 400.0};
                        if (p.number == 3) process::wait(p.all.step[0], 3);
                        member m(std::move(p.own), p.list({0, 1, 2}), how);
                        p.all.step[0].fetch_add(1);
                        const auto has = [&](int i) {
                            return std::find(m.handles().begin(), m.handles().end(), p.handle(i)) != m.handles().end();
                        };
                        if (p.number == victim) be_followed();
                        while (!has(3) || has(victim)) {
                            step(p, m);
                            if (m.update()) note_epoch(p, m);
                            if (p.number == victim && has(3)) mark(), raise(SIGKILL);
                        }
                        expect(step(p, m), "a step of those that are left");
                        m.leave();
                    },
                    "1000");
                const followed seen = follow(all.pids[static_cast<std::size_t>(victim)], at, false);
                all.end_with_others(victim);
                all.wait();
                check_lives(all, lives,
                    std::string(s.name) + ", process " + std::to_string(victim) + " killed at call " +
                        std::to_string(at));
                return seen.calls;
            });
        }
}
#endif
