// TLS of the connections of groups: the cover of one connection, whose bytes a test passes on as it likes; and groups
// of processes with certificates that fit, or do not.
#include "catch.hpp"

#include "elastic/gathered.hpp"
#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/message_transports.hpp"
#include "support/random.hpp"
#include "support/says.hpp"

#include <colls/elastic.hpp>
#include <colls/net/detail/connection/tcp_transport.hpp>
#include <colls/net/detail/forming/door.hpp>
#include <colls/tls.hpp>
#include <colls/world.hpp>

#include <linux/if_ether.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using namespace support;
using colls::detail::channel;
using colls::detail::cover_of;

namespace {

/// Two authorities, and certificates by them, in files of a folder that goes with the test.
struct authority_files {
    std::string folder = std::filesystem::temp_directory_path() / "colls_tls_XXXXXX";
    authority_files() {
        if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder");
        for (const std::string ca : {"ca", "other_ca"})
            openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" + ca +
                    " -keyout " + at(ca + ".key") + " -out " + at(ca + ".pem"));
        for (const auto& [name, ca, days] :
            {std::tuple{"rank", "ca", "2"}, {"stranger", "other_ca", "2"}, {"late", "ca", "-1"}}) {
            const std::string key = at(name) + ".key", request = at(name) + ".csr";
            openssl("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + std::string(name) +
                    " -keyout " + key + " -out " + request);
            openssl("x509 -req -in " + request + " -CA " + at(ca) + ".pem -CAkey " + at(ca) +
                    ".key -CAcreateserial -days " + days + " -out " + at(name) + ".pem");
        }
    }
    authority_files(const authority_files&) = delete;
    authority_files& operator=(const authority_files&) = delete;
    ~authority_files() { std::filesystem::remove_all(folder); }
    std::string at(const std::string& name) const { return folder + "/" + name; }
    /// A value of COLLS_TLS.
    std::string of(const std::string& name, const std::string& ca = "ca") const {
        return at(name) + ".pem," + at(name) + ".key," + at(ca) + ".pem";
    }

private:
    void openssl(const std::string& command) const {
        if (std::system(("openssl " + command + " > " + at("log") + " 2>&1").c_str()) != 0)
            throw std::runtime_error("openssl " + command + " fails: see " + at("log"));
    }
};
const authority_files& files() {
    static const authority_files all;
    return all;
}

/// Two covered ends, and the bytes between them, which pass when the test says so.
struct wire {
    channel client, server;
    descriptor of_client, of_server;
    std::string to_server{}, to_client{};  ///< all that has passed

    wire(const std::string& first, const std::string& second) {
        int a[2], b[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a) == 0);
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b) == 0);
        client.fd = descriptor(a[0]), of_client = descriptor(a[1]);
        server.fd = descriptor(b[0]), of_server = descriptor(b[1]);
        {
            const with_environment set("COLLS_TLS", first.empty() ? nullptr : first.c_str());
            client.cover = cover_of(true);
        }
        const with_environment set("COLLS_TLS", second.empty() ? nullptr : second.c_str());
        server.cover = cover_of(false);
    }
    /// Passes on up to so many bytes each way.
    void pass(std::size_t most = 1 << 20) {
        pass(of_client, of_server, to_server, passed_to_server_, most);
        pass(of_server, of_client, to_client, passed_to_client_, most);
    }

private:
    static void pass(
        const descriptor& from, const descriptor& to, std::string& all, std::size_t& passed, std::size_t most) {
        std::vector<char> part(most);
        const ssize_t n = ::recv(from.get(), part.data(), most, MSG_DONTWAIT);
        if (n > 0) all.append(part.data(), static_cast<std::size_t>(n));
        const ssize_t k = ::send(to.get(), all.data() + passed, all.size() - passed, MSG_NOSIGNAL);
        if (k > 0) passed += static_cast<std::size_t>(k);
        if (n == 0 && passed == all.size()) shutdown(to.get(), SHUT_WR);
    }
    std::size_t passed_to_server_ = 0, passed_to_client_ = 0;
};
/// Reads what is there; returns "", or how the connection has ended.
std::string read_into(channel& from, std::string& all, std::size_t most = 5000) {
    std::vector<char> part(most);
    const ssize_t n = from.read(part.data(), most);
    if (n > 0) all.append(part.data(), static_cast<std::size_t>(n));
    if (n == 0) return "the end";
    return n < 0 && !colls::detail::may_try_again(errno) ? from.why(errno) : "";
}
/// Until both ends have said how it ended, or nothing happens any more.
std::pair<std::string, std::string> ends_of(wire& w, std::string& at_client, std::string& at_server) {
    std::string c, s;
    for (int i = 0; i < 50 && (c.empty() || s.empty()); ++i) {
        w.pass();
        if (s.empty()) s = read_into(w.server, at_server);
        if (!s.empty()) shutdown(w.server.fd.get(), SHUT_WR);
        w.pass();
        if (c.empty()) c = read_into(w.client, at_client);
        if (!c.empty()) shutdown(w.client.fd.get(), SHUT_WR);
    }
    return {c, s};
}

}  // namespace

TEST_CASE("tls: bytes arrive as they were written, in pieces of any size, and none of them is seen between", "[tls]") {
    random_source random(GENERATE(1U, 2U, 3U));
    wire w(files().of("rank"), files().of("rank"));
    std::string sent[2], got[2];
    const std::string secret = "all that a stranger must not see ";
    for (int i = 0; i < 3000; ++i) {
        const int from = random.between(0, 1);
        channel &out = from == 0 ? w.client : w.server, &in = from == 0 ? w.server : w.client;
        std::string pieces[3];
        iovec v[3];
        for (int p = 0; p < 3; ++p) {
            const int most[] = {1, 40, 3000, 17000, 70000};
            const int bytes = random.between(0, most[random.below(5)]);
            while (pieces[p].size() < static_cast<std::size_t>(bytes)) pieces[p] += secret;
            pieces[p].resize(static_cast<std::size_t>(bytes));
            v[p] = {pieces[p].data(), pieces[p].size()};
        }
        if (pieces[0].size() + pieces[1].size() + pieces[2].size() > 0 &&
            sent[from].size() < got[1 - from].size() + 500'000) {
            const ssize_t n = out.cover->write(out.fd.get(), v, 3);
            if (n < 0) REQUIRE(errno == EAGAIN);
            if (n > 0) sent[from].append((pieces[0] + pieces[1] + pieces[2]).substr(0, static_cast<std::size_t>(n)));
        }
        w.pass(1 + random.below(100'000));
        REQUIRE(read_into(in, got[1 - from], 1 + random.below(30'000)) == "");
    }
    for (int i = 0; i < 10'000 && (got[1] != sent[0] || got[0] != sent[1]); ++i) {
        for (channel* c : {&w.client, &w.server}) c->cover->flush(c->fd.get());
        w.pass();
        read_into(w.server, got[1], 100'000);
        read_into(w.client, got[0], 100'000);
    }
    CHECK((got[1] == sent[0] && got[0] == sent[1]));
    CHECK(sent[0].size() + sent[1].size() > 10'000'000);
    CHECK_FALSE((w.client.cover->has_unsent() || w.server.cover->has_unsent()));
    CHECK_FALSE((w.client.has_unread() || w.server.has_unread()));
    CHECK(w.to_server.find("stranger") == std::string::npos);
    CHECK(w.to_client.find("stranger") == std::string::npos);
    // The end is the end, for both.
    w.client.fd.close();
    std::string none;
    for (int i = 0; i < 10; ++i) w.pass();
    CHECK(read_into(w.server, none) == "the end");
}

TEST_CASE("tls: what one read leaves can be seen, half a record cannot", "[tls]") {
    wire w(files().of("rank"), files().of("rank"));
    std::string got;
    w.client.write("one", 3);
    for (int i = 0; i < 10 && got != "o"; ++i) w.pass(), read_into(w.server, got, 1), read_into(w.client, got, 1);
    CHECK(w.server.has_unread());  // of the record that was begun
    read_into(w.server, got);
    CHECK(got == "one");
    CHECK_FALSE(w.server.has_unread());
    w.client.write("two", 3);
    w.client.write("three", 5);
    w.pass();
    read_into(w.server, got, 3);
    CHECK(wait_for(w.server.fd.get(), POLLIN, seconds_now()));  // another record: the socket still shows it
    read_into(w.server, got);
    CHECK(got == "onetwothree");
    w.client.write("four", 4);
    w.pass(9);
    read_into(w.server, got);
    CHECK_FALSE(w.server.has_unread());
    w.pass();
    read_into(w.server, got);
    CHECK(got == "onetwothreefour");
}

TEST_CASE("tls: a certificate that does not fit is refused on both sides, in words", "[tls]") {
    std::string got;
    const auto ends = [&](const std::string& client, const std::string& server) {
        wire w(client, server);
        w.client.write("some plain text", 15);
        const auto [c, s] = ends_of(w, got, got);
        CHECK_FALSE((w.client.has_unread() || w.server.has_unread()));
        return c + " | " + s;
    };
    const std::string unknown =
                          "TLS: the other side's certificate is not accepted: unable to get local issuer certificate",
                      refused = "TLS: the other side does not accept this one's certificate: ";
    CHECK(says(ends(files().of("stranger", "ca"), files().of("rank")), (refused).c_str()));
    CHECK(says(ends(files().of("stranger", "ca"), files().of("rank")), (" | " + unknown).c_str()));
    CHECK(says(ends(files().of("rank"), files().of("stranger", "ca")), (unknown + " | " + refused).c_str()));
    CHECK(says(ends(files().of("stranger", "other_ca"), files().of("rank")),
        "the other side's certificate is not accepted: "));
    CHECK(got.empty());
    // One of the two without TLS.
    CHECK(says(ends("", files().of("rank")), "does not speak TLS"));
    wire plain(files().of("rank"), "");
    plain.server.write("colls speaks first", 18);
    std::string c;
    for (int i = 0; i < 10 && c.empty(); ++i) plain.pass(), c = read_into(plain.client, got);
    CHECK(says(c, "does not speak TLS: is COLLS_TLS set on all ranks?"));
    CHECK(got.empty());
}

TEST_CASE("tls: forged bytes end the connection, and nothing of them arrives", "[tls]") {
    random_source random(7);
    for (int i = 0; i < 200; ++i) {
        INFO(i);
        wire w(files().of("rank"), files().of("rank"));
        std::string got;
        w.client.write("hello", 5);
        const bool early = i % 2 == 0;  // while the two make themselves known
        for (int k = 0; k < 10 && !early; ++k) w.pass(), read_into(w.server, got), read_into(w.client, got);
        if (!early) REQUIRE(got == "hello");
        w.client.write("world", 5);
        std::vector<char> bytes(20'000);
        const ssize_t n = ::recv(w.of_client.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        REQUIRE(n > 0);
        char& any = bytes[random.below(static_cast<std::size_t>(n))];
        any = static_cast<char>(any ^ 1 << random.below(8));
        REQUIRE(::send(w.of_server.get(), bytes.data(), static_cast<std::size_t>(n), 0) == n);
        for (int k = 0; k < 10; ++k) w.pass(), read_into(w.server, got), read_into(w.client, got);
        CHECK(got == (early ? "" : "hello"));
    }
}

TEST_CASE("tls: what waits for a peer that has gone is given up, with an error", "[tls]") {
    wire w(files().of("rank"), files().of("rank"));
    std::string got;
    w.client.write("hello", 5);
    for (int i = 0; i < 10 && got != "hello"; ++i) w.pass(), read_into(w.server, got), read_into(w.client, got);
    REQUIRE(w.client.cover->is_known());
    const std::string much(1'000'000, 'x');
    while (w.client.write(much.data(), much.size()) > 0) {}
    REQUIRE(errno == EAGAIN);
    CHECK(w.client.cover->has_unsent());
    w.of_client.close();
    CHECK(w.client.cover->flush(w.client.fd.get()));
    CHECK_FALSE(w.client.cover->has_unsent());
    CHECK(colls::detail::send_all(w.client, "x", 1, seconds_now() + 5) == EPIPE);
    CHECK(read_into(w.client, got) != "");
}

TEST_CASE("tls: files that are of no use are named before anything moves", "[tls]") {
    const auto refusal = [](const std::string& value) {
        const with_environment set("COLLS_TLS", value.c_str());
        const with_environment over("COLLS_TRANSPORT", "tcp");
        try {
            cover_of(true);
        } catch (const colls::error& e) {
            CHECK(e.code() == colls::errc::invalid_argument);
            return std::string(e.what());
        }
        return std::string("none");
    };
    const std::string rank = files().at("rank.pem"), key = files().at("rank.key"), ca = files().at("ca.pem");
    for (const std::string& value :
        {std::string("x"), rank + "," + key, rank + "," + key + "," + ca + ",", std::string(",,"), rank + ",," + ca})
        CHECK(says(refusal(value), "not three files with commas between them: CERTIFICATE,KEY,CA"));
    CHECK(says(
        refusal("/nowhere," + key + "," + ca), "the certificate '/nowhere' cannot be used: No such file or directory"));
    CHECK(says(refusal(rank + ",/nowhere," + ca), "the key '/nowhere' cannot be used"));
    CHECK(says(refusal(rank + "," + key + ",/nowhere"), "the CA '/nowhere' cannot be used"));
    CHECK(says(refusal(key + "," + key + "," + ca), "the certificate '"));
    CHECK(says(refusal(rank + "," + files().at("stranger.key") + "," + ca), "the key '"));
    CHECK(says(refusal(files().of("late")), "it has expired"));
    CHECK(refusal(files().of("rank")) == "none");
}

TEST_CASE("tls: groups over TCP, in every collective and of awkward sizes", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    for (const int n : {1, 2, 3, 5}) {
        INFO(n);
        CHECK_NOTHROW(run_over("tcp", n, [n](colls::communicator& comm) {
            for (const std::size_t count : {1U, 7U, 1001U, 40'000U, 1'000'001U}) {
                std::vector<long> x(count), all(count * static_cast<std::size_t>(n));
                const auto value = [](int rank, std::size_t i) { return static_cast<long>(i % 977) * (rank + 1); };
                for (std::size_t i = 0; i < count; ++i) x[i] = value(comm.rank(), i);
                colls::all_gather(comm, x, all);
                for (std::size_t i = 0; i < all.size(); ++i)
                    expect(all[i] == value(static_cast<int>(i / count), i % count), "all_gather");
                colls::all_reduce(comm, x, colls::sum);
                for (std::size_t i = 0; i < count; ++i)
                    expect(x[i] == static_cast<long>(i % 977) * n * (n + 1) / 2, "all_reduce");
                std::vector<long> turned(all.size());
                colls::all_to_all(comm, all, turned);
                for (std::size_t i = 0; i < count; ++i) expect(turned[i] == value(comm.rank(), i), "all_to_all");
            }
            colls::communicator part = comm.split(comm.rank() % 2, 0);
            std::vector<int> one{1};
            colls::all_reduce(part, one, colls::sum);
            expect(one[0] == part.size(), "a part");
        }));
    }
}

TEST_CASE("tls: a rank that leaves at once has sent all", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    for (int i = 0; i < 5; ++i)
        CHECK_NOTHROW(run_over("tcp", 3, [](colls::communicator& comm) {
            std::vector<int> x(300'000, 7);
            if (comm.rank() != 1) std::fill(x.begin(), x.end(), 0);
            colls::broadcast(comm, x, 1);
            expect(x == std::vector<int>(300'000, 7), "broadcast");
        }));
}

namespace {
struct seen_ranks {
    std::atomic<int> right;
    char text[4][600];
};
/// A world of processes of two hosts, with these values of COLLS_TLS. What the ranks say that fail.
void world_of(seen_ranks& seen, const std::vector<std::string>& tls, const char* timeout, auto f) {
    const with_environment limit("COLLS_TIMEOUT", timeout);
    const claimed_ports port;
    std::vector<std::unique_ptr<child>> ranks;
    for (std::size_t r = 0; r < tls.size(); ++r)
        ranks.push_back(std::make_unique<child>([&, r] {
            const std::string rank = std::to_string(r), size = std::to_string(tls.size()),
                              at = std::to_string(port.first()), host = "host " + std::to_string(r % 2);
            for (const auto& [name, value] : {std::pair{"COLLS_RANK", rank}, {"COLLS_SIZE", size},
                     {"COLLS_MASTER_ADDR", std::string("127.0.0.1")}, {"COLLS_MASTER_PORT", at}, {"COLLS_HOST", host}})
                setenv(name, value.c_str(), 1);
            if (!tls[r].empty()) setenv("COLLS_TLS", tls[r].c_str(), 1);
            try {
                colls::communicator comm = colls::world();
                seen.right += f(comm);
            } catch (const std::exception& e) {
                std::snprintf(seen.text[r], sizeof seen.text[r], "%s", e.what());
            }
            return 0;
        }));
    for (auto& r : ranks) r->wait();
}
bool adds(colls::communicator& comm) {
    std::vector<int> x(100'000, comm.rank() + 1);
    colls::all_reduce(comm, x, colls::sum);
    return x == std::vector<int>(x.size(), comm.size() * (comm.size() + 1) / 2);
}
}  // namespace

TEST_CASE("tls: a world on two hosts forms, and works", "[tls]") {
    common<seen_ranks> seen;
    const std::string all = files().of("rank");
    world_of(*seen, {all, all, all, all}, "30", adds);
    INFO(seen->text[0] << seen->text[1] << seen->text[2] << seen->text[3]);
    CHECK(seen->right == 4);
}

TEST_CASE("tls: a rank whose certificate does not fit is refused in words on all ranks", "[tls]") {
    const std::string right = files().of("rank");
    for (const std::string& wrong : {files().of("stranger", "ca"), std::string()}) {
        common<seen_ranks> seen;
        world_of(*seen, {right, right, wrong}, "8", adds);
        INFO(seen->text[0] << "\n" << seen->text[1] << "\n" << seen->text[2]);
        CHECK(seen->right == 0);
        CHECK(says(seen->text[0], "rank 2"));
        CHECK(says(seen->text[0],
            wrong.empty() ? "has not begun TLS: is COLLS_TLS set there?" : "certificate is not accepted"));
        CHECK(says(seen->text[1], "rank 2"));
        CHECK(says(seen->text[2], wrong.empty() ? "COLLS_TLS" : "does not accept this one's certificate"));
    }
    // And rank 0 itself.
    for (const std::string& wrong : {files().of("stranger", "ca"), std::string()}) {
        common<seen_ranks> seen;
        world_of(*seen, {wrong, right}, "4", adds);
        INFO(seen->text[0] << "\n" << seen->text[1]);
        CHECK(seen->right == 0);
        CHECK(says(seen->text[1], wrong.empty() ? "does not speak TLS" : "certificate is not accepted"));
    }
}

TEST_CASE("tls: a door that is served seldom waits for an answer from when it has sent its challenge", "[tls]") {
    using namespace colls::detail::rendezvous;
    using hall = colls::detail::door<hello>;
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    meeting_place place(1);
    hall here(place.take(0), "", "this process");
    const double end = seconds_now() + patience_s;
    channel guest{start_connect(place.members[0]), cover_of(true)};
    REQUIRE(wait_for(guest.fd.get(), POLLOUT, end));
    colls::detail::arriving in;
    while (in.read(guest, challenge::bytes) == colls::detail::arriving::not_yet && !guest.cover->is_known()) {
        here.serve();
        wait_for(guest.fd.get(), POLLIN, seconds_now() + 0.01);
    }
    // From now on nothing but `serve` lets it in. All places are taken, so it has half a second.
    std::vector<descriptor> crowd;
    while (crowd.size() + 1 < hall::most_silent) {
        crowd.push_back(start_connect(place.members[0]));
        REQUIRE(wait_for(crowd.back().get(), POLLOUT, end));
    }
    sleep_seconds(hall::crowded_patience * 1.2);
    here.serve();
    while (in.read(guest, challenge::bytes) == colls::detail::arriving::not_yet && seconds_now() < end)
        wait_for(guest.fd.get(), POLLIN, end);
    const auto c = parse<challenge>(in.bytes());
    REQUIRE(c);
    const hello h{.once = random_bytes<nonce>(), .rank = 1, .size = 2};
    send_record(guest, sealed(h, "", c->once, h.once), end);
    here.serve();
    REQUIRE(here.guests.size() == 1);
    CHECK(here.guests[0].said.rank == 1);
}

TEST_CASE("tls: what was sent to a peer that drops the connection before it is known goes on another one", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    for (const int sender : {0, 1}) {
        INFO("from rank " << sender);
        meeting_place place(2);
        const int receiver = 1 - sender;
        tcp_node from(place.take(sender)), to(place.take(receiver));
        colls::detail::tcp_transport here(from, 5, sender, place.members), there(to, 5, receiver, place.members);
        ear e, at_peer;
        here.listening = &e, there.listening = &at_peer;
        here.linger = there.linger = 0;
        long sent = 7, got = 0;
        const message_label label{1, 2, 3};
        const piece out{reinterpret_cast<std::byte*>(&sent), sizeof sent},
            in{reinterpret_cast<std::byte*>(&got), sizeof got};
        here.send(receiver, label, &out, 1);
        here.tell(receiver, {control_kind::board, 0, 0, 0, "a word"});
        REQUIRE(until(here, [&] { return to.poll_events(), to.pending() == 1; }));
        CHECK(here.sent(receiver) == 0);
        std::vector<descriptor> crowd;  // which drives it out
        while (crowd.size() < tcp_node::most_silent) {
            crowd.push_back(start_connect(place.members[static_cast<std::size_t>(receiver)]));
            REQUIRE(wait_for(crowd.back().get(), POLLOUT, seconds_now() + patience_s));
            to.poll_events();
        }
        crowd.clear();
        const std::uint64_t wanted = there.receive(sender, label, &in, 1);
        CHECK(until(there, [&] {
            here.progress();
            return (there.received(sender) > wanted && at_peer.count(said_board) == 1) || e.count("lost") > 0;
        }));
        INFO(e.text() << at_peer.text());
        CHECK(got == 7);
        CHECK(e.events.empty());
    }
}

TEST_CASE("tls: a rank that leaves does not wait for a peer that it only waited for, and that makes no call", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    for (const int leaver : {0, 1}) {
        INFO("rank " << leaver);
        meeting_place place(2);
        const int peer = 1 - leaver;
        tcp_node to(place.take(peer));
        colls::detail::tcp_transport there(to, 5, peer, place.members);
        long got = 0;
        const piece in{reinterpret_cast<std::byte*>(&got), sizeof got};
        {
            tcp_node from(place.take(leaver));
            colls::detail::tcp_transport here(from, 5, leaver, place.members);
            ear e;
            here.listening = &e;
            here.linger = 1e6;  // it would not come back
            here.receive(peer, message_label{1, 2, 3}, &in, 1);
            REQUIRE(until(here, [&] { return here.peer(peer).is_connected(); }));
        }
        ear at_peer;  // it hears of the end in its next call
        there.listening = &at_peer;
        there.receive(leaver, message_label{1, 2, 3}, &in, 1);
        CHECK(until(there, [&] { return at_peer.count("lost") + at_peer.count(said_leave) > 0; }));
        there.linger = 0;
    }
}

TEST_CASE("tls: a death is noticed as without it, and the others shrink", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    common<seen_ranks> seen;
    try {
        run_over("tcp", 4, [&](colls::communicator& comm) {
            if (comm.rank() == 2) {
                colls::barrier(comm);
                raise(SIGKILL);
            }
            bool failed = false;
            try {
                for (;;) colls::barrier(comm);
            } catch (const colls::error& e) {
                failed = e.code() == colls::errc::peer_failed;
            }
            colls::communicator rest = comm.shrink();
            seen->right += failed && rest.size() == 3 && adds(rest);
        });
    } catch (const std::exception&) {}
    CHECK(seen->right == 3);
}

TEST_CASE("tls: groups from handles of endpoints, and a stranger among them", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    for (const gathered::shape& s : gathered::shapes)
        for (const int n : {2, 3, 5}) CHECK(gathered::joined_twice(n, s) == "");
    for (const std::string& wrong : {files().of("stranger", "ca"), std::string()}) {
        gathered::processes all(
            3, gathered::shapes[1],
            [&](gathered::process& p) {
                if (p.number == 1) setenv("COLLS_TLS", wrong.c_str(), 1);
                if (p.number == 1 && wrong.empty()) unsetenv("COLLS_TLS");
                colls::join(p.own, "a", p.list({0, 1, 2}));
            },
            "6");
        all.wait();
        for (int i = 0; i < 3; ++i) {
            INFO(all.text(i));
            CHECK(all.of(i).code >= 100);
            // Process 0 may have left for that reason before 2 has come to it.
            const bool came_late = i == 2 && all.of(i).peer == 0 && says(all.of(i).text, "is not there any more");
            if (i != 1 && !came_late) CHECK(all.of(i).peer == 1);
        }
        INFO(all.text(1));
        CHECK((says(all.of(1).text, "certificate") || says(all.of(1).text, "TLS")));
    }
}

TEST_CASE("tls: a newcomer that living members do not trust does not replace them in their store", "[tls]") {
    const with_environment set("COLLS_TLS", files().of("rank").c_str());
    const std::string folder = files().at("store");
    REQUIRE(std::filesystem::create_directory(folder));
    gathered::processes all(2, gathered::shapes[1], [&](gathered::process& p) {
        using gathered::expect;
        if (p.number == 1) setenv("COLLS_TLS", files().of("stranger", "ca").c_str(), 1);
        colls::elastic::folder door(folder);
        if (p.number == 0) {
            colls::elastic::member m(std::move(p.own), door, "job");
            p.all.step[0] = 1;
            while (p.all.step[1].load() == 0) m.update(), usleep(200);
            expect(m.comm().size() == 1 && m.epoch() == 1, "it is the only member");
            return;
        }
        gathered::process::wait(p.all.step[0], 1);
        const std::string before = door.read("job");
        try {
            colls::elastic::member m(colls::endpoint::open(), door, "job", {.timeout = 20});
            expect(false, "it was admitted, or has founded another group");
        } catch (const colls::error& x) {
            expect(x.code() == colls::errc::invalid_argument && says(x.what(), "not admitted: "), x.what());
        }
        expect(door.read("job") == before, "the list is that of the members");
        p.all.step[1] = 1;
    });
    all.end_with_others();
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).done == 1);
        CHECK(all.of(i).code == 0);
    }
}

namespace {
/// What passes over the loopback of a network of its own while f() runs there, in a process of its own. "": none can
/// be made here.
std::string captured(auto f) {
    struct capture {
        std::atomic<std::size_t> bytes;
        std::atomic<bool> ended;
        char data[64 << 20];
    };
    common<capture> seen;
    child network([&] {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 0;
        const descriptor control(socket(AF_INET, SOCK_DGRAM, 0));
        ifreq lo{};
        std::strcpy(lo.ifr_name, "lo");
        lo.ifr_flags = IFF_UP | IFF_RUNNING;
        const descriptor all(socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL)));
        const int room = 64 << 20;
        if (ioctl(control.get(), SIOCSIFFLAGS, &lo) != 0 || all.get() < 0 ||
            setsockopt(all.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0) {
            setsockopt(all.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
        }
        std::thread reader([&] {
            std::vector<char> packet(70'000);
            for (;;) {
                const bool last = seen->ended;  // then nothing is added to what waits to be read
                const ssize_t n = recv(all.get(), packet.data(), packet.size(), MSG_DONTWAIT);
                if (n <= 0) {
                    if (last) break;
                    usleep(100);
                    continue;
                }
                const std::size_t at = seen->bytes;
                if (at + static_cast<std::size_t>(n) > sizeof seen->data) break;
                std::memcpy(seen->data + at, packet.data(), static_cast<std::size_t>(n));
                seen->bytes = at + static_cast<std::size_t>(n);
            }
        });
        f();
        seen->ended = true;
        reader.join();
        return 0;
    });
    network.wait();
    return {seen->data, seen->bytes};
}
}  // namespace

TEST_CASE("tls: a capture shows neither what is sent nor the token", "[tls]") {
    const std::string token = "a token that no one may read", secret = "what ranks say to one another ";
    for (const bool covered : {false, true}) {
        common<seen_ranks> seen;
        const std::string bytes = captured([&] {
            const with_environment set("COLLS_TOKEN", token.c_str());
            world_of(*seen, std::vector<std::string>(3, covered ? files().of("rank") : ""), "30", [&](auto& comm) {
                std::string said;
                for (int i = 0; i < 3000; ++i) said += secret;
                if (comm.rank() != 0) said.assign(said.size(), ' ');
                colls::broadcast(comm, said, 0);
                return said.starts_with(secret) && said.ends_with(secret);
            });
        });
        INFO(seen->text[0] << "\n" << seen->text[1] << "\n" << seen->text[2] << "\n" << bytes.size() << " bytes");
        if (bytes.empty()) {
            WARN("no network of one's own can be made here");
            continue;
        }
        CHECK(seen->right == 3);
        CHECK(bytes.size() > 3000 * secret.size());
        CHECK((bytes.find(secret) == std::string::npos) == covered);
        CHECK(bytes.find(token) == std::string::npos);  // never: forming proves that both know it
    }
}
