// The TCP transport and the trunk, between ranks that are threads, each with sockets of its own, and between processes.
#include "catch.hpp"

#include "support/message_transports.hpp"
#include "support/raw_socket.hpp"

#include <colls/net/detail/connection/trunk.hpp>

#include <sys/resource.h>

#include <atomic>
#include <numeric>
#include <utility>

using namespace support;

namespace {

/// A rank's transport with connections of its own, or over a trunk whose ranks are those of the group.
class tested final : public message_transport {
public:
    static inline bool over_trunk = false;
    tested(tcp_node& node, std::uint64_t group, int rank, const std::vector<address>& members) {
        if (over_trunk) {
            std::vector<int> all(members.size());
            std::iota(all.begin(), all.end(), 0);
            trunk_ = std::make_unique<trunk>(node, group + 1'000'000, rank, members);
            inner_ = trunk_->join(group, rank, all);
        } else {
            inner_ = std::make_unique<tcp_transport>(node, group, rank, members);
        }
    }
    ~tested() override { inner(); }
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        return inner().send(peer, label, pieces, count);
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        return inner().receive(peer, label, pieces, count);
    }
    std::uint64_t sent(int peer) const override { return inner_->sent(peer); }
    std::uint64_t received(int peer) const override { return inner_->received(peer); }
    void abandon() override { inner().abandon(); }
    bool tell(int peer, const control_message& what) override { return inner().tell(peer, what); }
    void tell_all(const control_message& what) override { inner().tell_all(what); }
    void progress() override { inner().progress(); }
    void idle(double seconds) override { inner().idle(seconds); }
    /// With connections of its own: something that was said or sent is still to be written.
    bool is_leaving(int peer) const { return static_cast<tcp_transport&>(*inner_).peer(peer).is_leaving(true); }

private:
    message_transport& inner() {
        inner_->listening = listening;
        inner_->linger = linger;
        return *inner_;
    }
    std::unique_ptr<trunk> trunk_;
    std::unique_ptr<message_transport> inner_;
};

// A trunk runs on a transport with connections of its own: under a sanitizer it alone is enough.
#define EACH_WAY                                                   \
    tested::over_trunk = sanitized ? true : GENERATE(false, true); \
    INFO((tested::over_trunk ? "over a trunk" : "with connections of its own"))

}  // namespace

// ---- frames ---------------------------------------------------------------------------------------------------------

TEST_CASE("tcp: messages that are dropped are counted no more, and their memory is forgotten", "[tcp_transport]") {
    std::byte memory[6]{};
    const piece of_three[] = {{memory, 1}, {memory + 1, 0}, {memory + 1, 2}}, of_one{memory + 3, 3};
    posted_messages m;
    CHECK(m.post({1, 2, 3}, of_three, 3) == 0);
    CHECK(m.post({4, 5, 6}, &of_one, 1) == 1);
    CHECK(m.size() == 2);
    CHECK(m[1].bytes == 3);
    CHECK(m.pieces().bytes() == 6);
    m.pieces().skip(3);
    m.finish();
    CHECK(m.finished() == 1);
    CHECK(m.front().label == message_label{4, 5, 6});
    CHECK(m.pieces().bytes() == 3);
    CHECK_FALSE(m.dropping());
    m.drop();
    CHECK(m.dropping());
    for (int i = 0; i < 2; ++i) {
        CHECK(m.empty());
        CHECK(m.pieces().bytes() == 0);
        CHECK(m.finished() == 1);
        CHECK(m.post({7, 8, 9}, &of_one, 1) == 2u + static_cast<unsigned>(i));  // later ones have numbers still
    }
    frame_writer w;
    iovec v[4];
    w.post({1, 2, 3}, of_three, 3);
    w.post({4, 5, 6}, &of_one, 1);
    CHECK(w.gather(v, 4, 0) >= 2);
    CHECK(w.advance(frame_bytes) == 0);
    CHECK(w.within());
    w.drop();
    CHECK(w.cut());
    CHECK_FALSE(w.within());
    CHECK(w.pieces().bytes() == 0);
    CHECK(w.gather(v, 4, 1) == 0);
    frame_writer whole;
    whole.drop();
    CHECK_FALSE(whole.cut());
}

TEST_CASE("tcp: frames and hellos are parsed as they were written, and other bytes are rejected", "[tcp_transport]") {
    random_source random(11);
    for (int turn = 0; turn < 2000; ++turn) {
        frame f;
        f.kind = static_cast<frame_kind>(random.between(1, 3));
        f.number = random.next();
        if (f.kind == frame_kind::message) {
            f.bytes = random.next() >> random.between(2, 60);
            f.label = {random.next(), random.next(), static_cast<std::uint32_t>(random.next())};
        } else if (f.kind == frame_kind::control) {
            f.what = static_cast<control_kind>(random.between(0, 7));
            f.text_bytes = static_cast<std::uint16_t>(random.between(0, 400));
            f.a = random.next(), f.b = random.next(), f.c = random.next();
        }
        std::byte bytes[frame_bytes];
        encode(f, bytes);
        REQUIRE(parse_frame(bytes) == f);
        REQUIRE_FALSE(parse_frame({bytes, frame_bytes - 1}));
        // With any bit flipped the bytes are no frame, or exactly those of another frame.
        bytes[random.below(frame_bytes)] ^= static_cast<std::byte>(1 << random.below(8));
        if (const auto other = parse_frame(bytes)) {
            std::byte again[frame_bytes];
            encode(*other, again);
            REQUIRE(std::memcmp(bytes, again, frame_bytes) == 0);
            REQUIRE_FALSE(*other == f);
        }
    }
    const auto rejected = [](frame f, auto change) {
        std::byte bytes[frame_bytes];
        encode(f, bytes);
        REQUIRE(parse_frame(bytes));
        change(bytes);
        return !parse_frame(bytes);
    };
    frame message, control;
    message.kind = frame_kind::message;
    control.kind = frame_kind::control;
    CHECK(rejected(message, [](std::byte* b) { b[0] ^= std::byte{1}; }));
    CHECK(rejected(message, [](std::byte* b) { b[4] = std::byte{0}; }));
    CHECK(rejected(message, [](std::byte* b) { b[4] = std::byte{4}; }));
    CHECK(rejected(message, [](std::byte* b) { b[5] = std::byte{1}; }));
    CHECK(rejected(message, [](std::byte* b) { b[6] = std::byte{1}; }));
    CHECK(rejected(message, [](std::byte* b) { b[23] = std::byte{0xff}; }));  // more bytes than a message may have
    CHECK(rejected(message, [](std::byte* b) { b[44] = std::byte{1}; }));
    CHECK(rejected(
        control, [](std::byte* b) { b[5] = static_cast<std::byte>(static_cast<int>(last_control_kind) + 1); }));
    CHECK(rejected(control, [](std::byte* b) { put_little(b + 6, std::uint16_t{401}); }));
    CHECK(rejected(control, [](std::byte* b) { b[40] = std::byte{1}; }));
    CHECK(rejected(frame{}, [](std::byte* b) { b[16] = std::byte{1}; }));

    const peer_hello h{0x0123456789abcdef, 3, 70'000};
    std::byte bytes[peer_hello_bytes];
    encode(h, bytes);
    REQUIRE(parse_peer_hello(bytes) == h);
    REQUIRE(std::memcmp(bytes, "colls", 5) == 0);
    CHECK(bytes[16] == std::byte{0xef});
    CHECK_FALSE(parse_peer_hello({bytes, peer_hello_bytes - 1}));
    for (const std::size_t i : {0u, 7u, 8u, 12u, 27u, 31u}) {  // magic, version, reserved, the ranks' signs
        std::byte other[peer_hello_bytes];
        std::memcpy(other, bytes, peer_hello_bytes);
        other[i] ^= std::byte{0x80};
        CHECK_FALSE(parse_peer_hello(other));
    }
    encode(peer_hello{1, 5, 5}, bytes);
    CHECK_FALSE(parse_peer_hello(bytes));
}

TEST_CASE("tcp: no character of a peer's text moves the cursor of a terminal", "[tcp_transport]") {
    std::byte from[256];
    char to[257];
    for (int i = 0; i < 256; ++i) from[i] = static_cast<std::byte>(i);
    print(from, 256, to);
    for (int i = 0; i < 256; ++i) {
        INFO(i);
        const bool moves = i < 32 || i == 127;
        CHECK(to[i] == (moves ? ' ' : static_cast<char>(i)));
    }
    CHECK(to[256] == '\0');
}

TEST_CASE("tcp: one read takes a large message, and puts back what was no part of it", "[tcp_transport]") {
    const std::vector<std::byte> small(8, std::byte{1}), large = [] {
        std::vector<std::byte> bytes(300'000);
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
        return bytes;
    }();
    for (const bool control : {false, true}) {
        INFO("a control message comes before it: " << control);
        std::vector<std::byte> stream;
        std::uint64_t number = 0;
        const auto write = [&](std::uint64_t part, const std::vector<std::byte>& data) {
            std::byte head[frame_bytes];
            encode(frame{.kind = frame_kind::message, .number = number++, .bytes = data.size(), .label = {1, part, 0}},
                head);
            stream.insert(stream.end(), head, head + frame_bytes);
            stream.insert(stream.end(), data.begin(), data.end());
        };
        write(0, small);
        if (control) {
            control_frame f(control_message{control_kind::board, 7, 8, 9, "text"});
            f.set_number(number++);
            stream.insert(stream.end(), f.data, f.data + f.bytes);
        }
        write(1, large);
        write(2, small);
        posted_messages to;
        frame_reader r;
        r.receives = &to;
        r.open(frame_bytes + most_text);
        std::vector<std::byte> first(8), second(large.size()), third(8);
        std::uint64_t sequence = 0;
        const auto post = [&](std::vector<std::byte>& memory) {
            const piece p{memory.data(), memory.size()};
            to.post({1, sequence++, 0}, &p, 1);
        };
        std::size_t at = 0;
        const auto read = [&](std::size_t most) {
            iovec v[4];
            const int n = r.room(v, 4);
            std::size_t bytes = 0;
            for (int i = 0; i < n; ++i) {
                const std::size_t part = std::min({v[i].iov_len, stream.size() - at, most - bytes});
                std::memcpy(v[i].iov_base, stream.data() + at, part);
                at += part;
                bytes += part;
            }
            r.add(bytes);
        };
        post(first);
        read(frame_bytes + small.size());
        CHECK(r.next() == arrival::nothing);
        CHECK(to.finished() == 1);
        post(second);
        post(third);
        read(stream.size());
        CHECK(at >= 2 * frame_bytes + small.size() + large.size());
        if (control) {
            CHECK(r.next() == arrival::control);
            CHECK(r.control().b == 8);
        }
        CHECK(r.next() == arrival::nothing);
        if (at < stream.size()) read(stream.size());
        CHECK(r.next() == arrival::nothing);
        CHECK(to.finished() == 3);
        CHECK((first == small && second == large && third == small));
    }
}

TEST_CASE("tcp: within a host no rate is kept, and to other hosts what the system says", "[tcp_transport]") {
    const auto control_of = [](const descriptor& fd) {
        char name[16] = "";
        socklen_t length = sizeof name;
        getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length);
        return std::string(name);
    };
    const descriptor listening = listen_on_loopback();
    const descriptor from = start_connect(local_address(listening.get()));
    REQUIRE(wait_for(listening.get(), POLLIN, seconds_now() + patience_s));
    const descriptor to = accept_from(listening.get());
    REQUIRE((from && to));
    CHECK(control_of(from) == "reno");
    CHECK(control_of(to) == "reno");
    const descriptor plain = stream_socket(AF_INET), away = stream_socket(AF_INET);
    tune(away.get(), address::of_v4(0x0a000001, 1));
    CHECK(control_of(away) == control_of(plain));
}

// ---- messages -------------------------------------------------------------------------------------------------------

TEST_CASE(
    "tcp: a frame that is cut off stays the end of its stream when the rest is dropped again", "[tcp_transport]") {
    for (const bool a_part : {false, true}) {
        colls::detail::frame_writer w;
        std::vector<std::byte> data(1000);
        const piece p{data.data(), data.size()};
        iovec v[4];
        w.post(label_of(0, 0, 0), &p, 1);
        w.post(label_of(0, 0, 1), &p, 1);
        CHECK(w.gather(v, 4, 0) > 0);
        CHECK(w.advance(a_part ? colls::detail::frame_bytes + 1000 : 500) ==
              (a_part ? 1u : 0u));  // the first, or a part of it
        CHECK(w.within() != a_part);
        w.drop(a_part);
        CHECK((w.cut() && w.empty() && !w.within()));
        w.drop();
        CHECK(w.cut());
        CHECK(w.finished() == (a_part ? 1u : 0u));
    }
    colls::detail::frame_writer w;
    w.drop();
    CHECK(!w.cut());
}

TEST_CASE("tcp: the contract", "[tcp_transport]") {
    EACH_WAY;
    std::vector<std::unique_ptr<tcp_node>> nodes;  // of the latest group
    const auto make = [&](int n) {
        meeting_place place(n);
        nodes.clear();
        colls::testing::message_transports_of_group all;
        for (int r = 0; r < n; ++r) {
            nodes.push_back(std::make_unique<tcp_node>(place.take(r)));
            all.push_back(std::make_unique<tested>(*nodes.back(), 5, r, place.members));
        }
        return all;
    };
    CHECK(breach_of_contract(make, {2, 3}, {16'384 - 48, 65'536}, 700'000) == "");
}

TEST_CASE("tcp: random messages and control messages both ways at once, between threads", "[tcp_transport]") {
    EACH_WAY;
    const int before = open_descriptors();
    struct shape {
        int n, messages;
        std::size_t largest;
    };
    for (const shape s : {shape{2, 60, 3'000'000}, shape{3, 30, 1'500'000}, shape{7, 16, 300'000}}) {
        const std::uint64_t seed = setting("COLLS_TEST_SEED", 1) + static_cast<std::uint64_t>(s.n);
        const random_traffic t{seed, s.messages, s.messages / 2, s.largest};
        INFO(s.n << " ranks, seed " << t.seed);
        CHECK(ranks_as_threads(s.n, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            tested w(node, 99, r, members);
            const std::string wrong = exchange(t, r, s.n, w);
            if (!wrong.empty()) complain(wrong);
        }) == "");
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("tcp: random messages and control messages between processes", "[tcp_transport]") {
    EACH_WAY;
    for (const int n : {2, 3, 7}) {
        const random_traffic t{
            500 + static_cast<std::uint64_t>(n), 40 / n, 20 / n, 3'000'000u / static_cast<unsigned>(n)};
        meeting_place place(n);
        std::vector<std::unique_ptr<child>> ranks;
        for (int r = 0; r < n; ++r)
            ranks.push_back(std::make_unique<child>([&] {
                tcp_node node(place.take(r));
                place.listening.clear();
                tested w(node, 99, r, place.members);
                const std::string wrong = exchange(t, r, n, w);
                if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", r, wrong.c_str());
                return wrong.empty() ? 0 : 1;
            }));
        INFO(n << " ranks");
        for (auto& r : ranks) CHECK(r->wait() == 0);
    }
}

TEST_CASE("tcp: control messages that a rank does not read are refused once a queue is full", "[tcp_transport]") {
    EACH_WAY;
    std::atomic<std::uint64_t> taken{0};
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        tested w(node, 99, r, members);
        ear e;
        w.listening = &e;
        if (const std::string found = fill_control(r, w, e, taken); !found.empty()) complain(found);
    }) == "");
}

// ---- the end of a peer ----------------------------------------------------------------------------------------------

namespace {

/// This process is one rank and runs f(transport, listener, child, ready); a forked one is the other, and ends with the
/// status that other(transport, listener, ready) returns, without destroying its transport.
template <class G, class F>
void two_processes(int own, G other, F f) {
    meeting_place place(2);
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    child c([&]() -> int {
        tcp_node node(place.take(1 - own));
        place.listening.clear();
        tested w(node, 5, 1 - own, place.members);
        ear e;
        w.listening = &e;
        const int status = other(w, e, ready[1]);
        _exit(status);  // the transport does not leave
    });
    close(ready[1]);
    place.listening[static_cast<std::size_t>(1 - own)].close();
    {
        tcp_node node(place.take(own));
        tested w(node, 5, own, place.members);
        ear e;
        w.listening = &e;
        f(w, e, c, ready[0]);
    }
    close(ready[0]);
}
void say_ready(int fd) { REQUIRE(write(fd, "x", 1) == 1); }
void wait_ready(int fd) {
    char x;
    REQUIRE(::read(fd, &x, 1) == 1);
}

}  // namespace

TEST_CASE("tcp: a killed peer is reported as lost, after what it sent before", "[tcp_transport]") {
    EACH_WAY;
    for (const int own : {0, 1})
        for (const int how : {0, 1, 2, 3}) {
            INFO("rank " << own << ", case " << how);
            std::vector<std::byte> there(1000, std::byte{1}), here(1000);
            const piece out{there.data(), there.size()}, in{here.data(), here.size()};
            two_processes(
                own,
                [&](tested& w, ear& e, int ready) {
                    const int peer = own;
                    if (how == 1) {
                        until(w, [&] { return e.count(said_board) > 0; });
                        for (std::uint64_t i = 0; i < 2; ++i) w.send(peer, label_of(0, 0, i), &out, 1);
                        until(w, [&] { return w.sent(peer) == 2; });
                    }
                    if (how != 0) w.tell(peer, {control_kind::board, 0, 0, 0, ""});
                    idle(w, 0.1);
                    say_ready(ready);
                    idle(w, patience_s);
                    return 0;
                },
                [&](tested& w, ear& e, child& c, int ready) {
                    const int peer = 1 - own;
                    if (how == 1) {
                        w.tell(peer, {control_kind::board, 0, 0, 0, ""});
                        CHECK(until(w, [&] { return e.count(said_board) > 0; }));
                    }
                    wait_ready(ready);
                    if (how == 0) w.receive(peer, label_of(0, 0, 0), &in, 1);
                    if (how == 2) CHECK(w.tell(peer, {control_kind::board, 0, 0, 0, ""}));
                    if (how == 3) w.send(peer, label_of(0, 0, 0), &out, 1);
                    if (how == 0 || how >= 2) idle(w, 0.1);
                    CHECK(e.count("lost") == 0);
                    c.kill();
                    c.wait();
                    if (how == 1) {  // nothing has been read before
                        w.receive(peer, label_of(0, 0, 0), &in, 1);
                        w.receive(peer, label_of(0, 0, 1), &in, 1);
                        w.receive(peer, label_of(0, 0, 2), &in, 1);
                    }
                    CHECK(until(w, [&] { return e.count("lost") > 0; }));
                    INFO(e.text());
                    CHECK(w.received(peer) == (how == 1 ? 2u : 0u));
                    if (how == 1) CHECK((here == there));
                    CHECK(e.events.back() == "lost " + std::to_string(peer));
                    CHECK_FALSE(e.reasons.back().empty());
                    CHECK(e.count(said_leave) == 0);
                    CHECK_FALSE(w.tell(peer, {control_kind::board, 0, 0, 0, ""}));
                    idle(w, 0.02);
                    CHECK(e.count("lost") == 1);
                });
        }
}

TEST_CASE("tcp: a peer that no longer listens is reported as lost, once something is to be sent or received",
    "[tcp_transport]") {
    EACH_WAY;
    for (const int what : {0, 1, 2}) {
        meeting_place place(2);
        // A port that is kept, but listens to nobody. (If it were closed, another program might get it.)
        place.listening[1] = stream_socket(AF_INET);
        const address any = address::loopback(AF_INET, 0);
        REQUIRE(bind(place.listening[1].get(), any.get(), any.length) == 0);
        place.members[1] = local_address(place.listening[1].get());
        tcp_node node(place.take(0));
        tested w(node, 5, 0, place.members);
        ear e;
        w.listening = &e;
        std::byte b{};
        const piece p{&b, 1};
        idle(w, 0.01);
        CHECK(e.events.empty());  // this rank has not connected
        if (what == 0) w.receive(1, {}, &p, 1);
        if (what == 1) w.send(1, {}, &p, 1);
        if (what == 2) w.tell(1, {control_kind::board, 0, 0, 0, ""});
        CHECK(until(w, [&] { return e.count("lost") > 0; }));
        REQUIRE(e.reasons.size() == 1);
        CHECK(e.reasons[0] == "cannot connect: Connection refused");
    }
}

TEST_CASE(
    "tcp: a rank that has no descriptor for a connection says so, and reports the peer as lost", "[tcp_transport]") {
    for (const int what : {0, 1, 2}) {
        INFO(what);
        meeting_place place(2);
        child rank([&] {  // which cannot raise the limit any more
            tcp_node node(place.take(0));
            tcp_transport w(node, 5, 0, place.members);
            ear e;
            w.listening = &e;
            w.linger = 0;
            std::byte b{};
            const piece p{&b, 1};
            const control_message board{control_kind::board, 0, 0, 0, ""};
            const rlimit none_more{3, 3};
            if (setrlimit(RLIMIT_NOFILE, &none_more) != 0) return 1;
            if (what == 0) w.receive(1, {}, &p, 1);
            if (what == 1) w.send(1, {}, &p, 1);
            if (what == 2 && w.tell(1, board)) return 2;
            if (!e.events.empty()) return 7;  // reports come from `progress` alone
            if (!until(w, [&] { return e.count("lost 1") > 0; }, 30)) return 3;
            idle(w, 0.01);
            if (e.events != std::vector<std::string>{"failed 1", "lost 1"}) return 4;
            for (const std::string& why : e.reasons)
                if (why.find("Too many open files") == std::string::npos) return 5;
            return w.tell(1, board) ? 6 : 0;
        });
        CHECK(rank.wait() == 0);
    }
}

TEST_CASE("tcp: `broken` is reported before the loss of its sender", "[tcp_transport]") {
    EACH_WAY;
    const std::string why(400, 'y');
    std::vector<std::byte> big(20'000'000);
    const piece p{big.data(), big.size()};
    for (const int own : {0, 1})
        for (const int how : {0, 1, 2, 3}) {
            // Over a trunk, what the higher rank says goes when the lower one has connected, too.
            if (how == 0 && tested::over_trunk) continue;
            INFO("rank " << own << ", case " << how);
            two_processes(
                own,
                [&](tested& w, ear& e, int ready) {
                    // At once; behind a message without a receive; behind one that is cut off; after a control message
                    // of the other rank.
                    if (how == 1 || how == 2) w.send(own, {}, &p, 1);
                    if (how != 0) until(w, [&] { return e.count(said_board) > 0; });
                    if (how == 2) {
                        idle(w, 0.05);
                        w.abandon();
                    }
                    w.tell(own, {control_kind::broken, 1, 2, 3, why.c_str()});
                    if (how != 2) w.progress();
                    if (how == 0)
                        until(w, [&] { return !w.is_leaving(own); });  // the system may connect a moment later
                    if (tested::over_trunk) idle(w, 0.2);  // it goes behind what the trunk has taken already
                    say_ready(ready);
                    return 0;
                },
                [&](tested& w, ear& e, child& c, int ready) {
                    const int peer = 1 - own;
                    if (how != 0) w.tell(peer, {control_kind::board, 0, 0, 0, ""});
                    if (how == 0) wait_ready(ready), c.wait();
                    if (how == 0) w.receive(peer, {}, &p, 1);
                    CHECK(until(w, [&] { return e.count("lost") > 0; }));
                    INFO(e.text());
                    REQUIRE(e.events.size() == 2);
                    CHECK(e.count(said_broken) == 1);
                    CHECK(e.all[0].text == why);
                    CHECK((e.all[0].what.a == 1 && e.all[0].what.b == 2 && e.all[0].what.c == 3));
                });
        }
}

TEST_CASE(
    "tcp: a rank that leaves is not reported as lost, and its messages are received, however late", "[tcp_transport]") {
    EACH_WAY;
    // The rank that leaves has ended before the other begins to read. In one of the cases it has never accepted the
    // other's connection.
    for (const int leaver : {0, 1})
        for (const bool met : {false, true}) {
            if (leaver == 1 && !met) continue;
            std::atomic<bool> gone{false};
            INFO("rank " << leaver << " leaves, met " << met);
            CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
                constexpr std::uint64_t many = 5;
                std::vector<std::byte> data(20'000, static_cast<std::byte>(7));
                const piece p{data.data(), data.size()};
                ear e;
                if (r == leaver) {
                    {
                        tested w(node, 5, r, members);
                        w.listening = &e;
                        if (met && !until(w, [&] { return e.count(said_board) > 0; })) complain("not met");
                        for (std::uint64_t i = 0; i < many; ++i) w.send(1 - r, label_of(0, 0, i), &p, 1);
                        if (!until(w, [&] { return w.sent(1 - r) == many; })) complain("not sent; " + e.text());
                        if (e.count("lost") > 0) complain(e.text());
                    }
                    gone = true;
                    return;
                }
                tested w(node, 5, r, members);
                w.listening = &e;
                if (met) w.tell(1 - r, {control_kind::board, 0, 0, 0, ""});
                while (!gone) {
                    if (met) w.progress();
                    sched_yield();
                }
                for (std::uint64_t i = 0; i < many; ++i) {
                    idle(w, 0.1);
                    if (e.count(said_leave) > 0) complain("left before its messages");
                    std::fill(data.begin(), data.end(), std::byte{0});
                    w.receive(1 - r, label_of(0, 0, i), &p, 1);
                    if (!until(w, [&] { return w.received(1 - r) == i + 1; }))
                        return complain("not received; " + e.text());
                    if (std::count(data.begin(), data.end(), std::byte{7}) != 20'000) complain("other bytes");
                }
                if (!until(w, [&] { return e.count(said_leave) > 0; })) complain("no leave; " + e.text());
                idle(w, 0.5);
                if (e.count("lost") > 0 || e.count(said_leave) != 1) complain(e.text());
            }) == "");
        }
}

TEST_CASE("tcp: a rank that leaves with more queued than sockets hold is received to the end", "[tcp_transport]") {
    EACH_WAY;
    // The peer accepts the connection, and so writes to it, only when the other rank is leaving. If that rank closed
    // the connection, what its own socket still holds would be lost.
    for (const int leaver : {0, 1}) {
        std::atomic<bool> leaving{false};
        INFO("rank " << leaver << " leaves");
        CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            // Over a trunk, what exceeds the window leaves only when the receiver has taken some of it.
            const std::size_t bytes = tested::over_trunk ? 200'000 : 1'000'000;
            std::vector<std::byte> data(bytes, static_cast<std::byte>(r));
            const piece p{data.data(), data.size()};
            ear e;
            tested w(node, 5, r, members);
            w.listening = &e;
            w.linger = patience_s;
            if (r == leaver) {
                w.send(1 - r, label_of(0, 0, 0), &p, 1);
                if (!until(w, [&] { return w.sent(1 - r) == 1; })) complain("not sent; " + e.text());
                leaving = true;
                return;
            }
            if (leaver == 1)
                w.tell(1 - r, {control_kind::board, 0, 0, 0, ""});  // its messages go over this rank's connection
            while (!leaving) {
                if (leaver == 1) w.progress();
                sched_yield();
            }
            usleep(200'000);
            idle(w, 0.05);
            w.receive(1 - r, label_of(0, 0, 0), &p, 1);
            if (!until(w, [&] { return w.received(1 - r) == 1; })) return complain("not received; " + e.text());
            if (data != std::vector<std::byte>(data.size(), static_cast<std::byte>(leaver))) complain("other bytes");
            if (!until(w, [&] { return e.count(said_leave) > 0; })) complain("no leave; " + e.text());
            if (e.count("lost") > 0) complain(e.text());
        }) == "");
    }
}

TEST_CASE("tcp: likewise if the socket is full, and a control message waits to be written behind the messages",
    "[tcp_transport]") {
    for (const std::size_t bytes : {0u, 8u, 16u, 48u, 112u}) {
        INFO("messages of " << bytes << " bytes");
        std::atomic<std::uint64_t> posted{0};
        CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            std::vector<std::byte> data(bytes);
            const piece p{data.data(), data.size()};
            ear e;
            tcp_transport w(node, 5, r, members);
            w.listening = &e;
            w.linger = patience_s;
            if (r == 0) {
                std::uint64_t n = 0;
                // Until the socket has taken nothing for a while.
                for (int idle = 0; idle < 10; ++idle) {
                    for (; w.sent(1) == n; idle = 0)
                        for (int i = 0; i < 8; ++i) n = w.send(1, label_of(0, 0, n), &p, 1) + 1;
                    w.progress();
                    w.idle(1e-3);
                }
                w.tell(1, {control_kind::board, 1, 2, 0, ""});
                posted = n;
                return;
            }
            while (posted == 0) usleep(1000);
            usleep(20'000);  // the other rank is leaving by now
            for (std::uint64_t i = 0; i < posted; ++i) w.receive(0, label_of(0, 0, i), &p, 1);
            const auto over = [&] { return e.count(said_leave) + e.count("unexpected") + e.count("lost") > 0; };
            if (!until(w, over)) complain("not received");
            idle(w, 0.01);
            if (w.received(0) != posted || e.count(said_board) != 1 || e.count("lost") > 0) complain(e.text());
        }) == "");
    }
}

TEST_CASE("tcp: all ranks leave at once, repeatedly, and none is reported as lost", "[tcp_transport]") {
    EACH_WAY;
    CHECK(ranks_as_threads(3, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        for (std::uint64_t turn = 0; turn < 40; ++turn) {
            tested w(node, 1000 + turn, r, members);
            ear e;
            w.listening = &e;
            std::uint64_t out = turn, in[3] = {};
            for (int p = 0; p < 3; ++p) {
                if (p == r) continue;
                const piece there{reinterpret_cast<std::byte*>(&out), 8}, here{reinterpret_cast<std::byte*>(&in[p]), 8};
                w.receive(p, label_of(0, 0, turn), &here, 1);
                w.send(p, label_of(0, 0, turn), &there, 1);
            }
            const int a = (r + 1) % 3, b = (r + 2) % 3;
            if (!until(w, [&] { return w.received(a) + w.received(b) == 2 && w.sent(a) + w.sent(b) == 2; }))
                return complain("not done; " + e.text());
            if (in[a] != turn || in[b] != turn) complain("other bytes");
            if (e.count("lost") > 0) complain(e.text());
        }
    }) == "");
}

// ---- abandon --------------------------------------------------------------------------------------------------------

TEST_CASE("tcp: `broken`, sent before the peer has connected, is received although the messages before it are not",
    "[tcp_transport]") {
    EACH_WAY;
    std::atomic<bool> said{false}, heard{false};
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        tested w(node, 5, r, members);
        ear e;
        w.listening = &e;
        std::vector<std::byte> data(20'000);
        const piece p{data.data(), data.size()};
        if (r == 0) {
            w.send(1, label_of(0, 0, 0), &p, 1);
            if (!until(w, [&] { return w.sent(1) == 1; })) complain("not sent; " + e.text());
            w.tell(1, {control_kind::broken, 1, 2, 3, "why"});
            said = true;
            until(w, [&] { return heard.load(); });
        } else {
            while (!said) sched_yield();
            if (!until(w, [&] { return e.count(said_broken) > 0; })) complain("not heard; " + e.text());
            idle(w, 0.05);
            if (e.count(said_broken) != 1) complain(e.text());
            heard = true;
        }
    }) == "");
}

TEST_CASE(
    "tcp: likewise if the socket is full, and another control message is before `broken`", "[tcp_transport][full]") {
    for (const std::size_t bytes : {0u, 8u, 16u, 48u, 112u})
        for (const std::size_t text : {0u, 150u}) {
            INFO("messages of " << bytes << " bytes, control messages of " << text);
            std::atomic<bool> said{false}, heard{false};
            CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
                tested w(node, 5, r, members);
                ear e;
                w.listening = &e;
                w.linger = 0.1;
                if (r == 0) {
                    std::vector<std::byte> data(bytes);
                    const piece p{data.data(), data.size()};
                    std::uint64_t posted = 0;
                    // Until the socket has taken nothing for a while.
                    for (int idle = 0; idle < 30; ++idle) {
                        for (; w.sent(1) == posted; idle = 0)
                            for (int i = 0; i < 8; ++i) posted = w.send(1, label_of(0, 0, 0), &p, 1) + 1;
                        w.progress();
                        w.idle(1e-3);
                    }
                    w.tell(1, {control_kind::board, 1, 2, 0, std::string(text, 'x').c_str()});
                    w.tell(1, {control_kind::broken, 1, 2, 3, "why"});
                    w.progress();
                    w.abandon();
                    w.abandon();  // once when the group breaks, once at the next call
                    said = true;
                    until(w, [&] { return heard.load(); });
                } else {
                    while (!said) usleep(1000);
                    if (!until(w, [&] { return e.count(said_broken) > 0; })) complain("not heard; " + e.text());
                    if (e.count(said_broken) != 1 || e.count(said_board) > 1) complain(e.text());
                    w.abandon();
                    heard = true;
                }
            }) == "");
        }
}

// ---- stray connections, and early ones ------------------------------------------------------------------------------

TEST_CASE("tcp: a connection that ends before it has said whose it is, is dropped at once", "[tcp_transport]") {
    CHECK(ranks_as_threads(1, [&](int, tcp_node& node, const std::vector<address>& members, auto complain) {
        for (const auto& [length, reset] : {std::pair{std::size_t{0}, false}, {5u, false},
                 {peer_hello_bytes - 1, false}, {std::size_t{0}, true}, {std::size_t{5}, true}}) {
            const auto pending_are = [&](std::size_t wanted) {
                const double until = seconds_now() + 2;  // less than a silent connection may take
                do node.poll_events();
                while (node.pending() != wanted && seconds_now() < until);
                return node.pending() == wanted;
            };
            {
                const descriptor fd = start_connect(members[0]);
                std::byte bytes[peer_hello_bytes];
                encode(peer_hello{1234, 0, 0}, bytes);
                if (!fd || !wait_for(fd.get(), POLLOUT, seconds_now() + 1)) complain("no connection");
                if (length > 0) send_all(fd.get(), bytes, length, seconds_now() + 1);
                if (!pending_are(1)) complain("it is not there");
                const linger none{1, 0};
                if (reset) setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
            }
            if (!pending_are(0)) complain("it is still there after " + std::to_string(length) + " bytes");
        }
    }) == "");
}

namespace {
struct ended_owner final : tcp_connection_owner {
    std::uint64_t number = 0;
    std::uint64_t group() const override { return number; }
    void accept_connection(const peer_hello&, channel&&) override {}
    void socket_ready(watched_socket&) override {}
    void connections_exhausted(int) override {}
};
}  // namespace

TEST_CASE(
    "tcp: a node drops what comes for the latest groups that have ended, 1,024 of them or more", "[tcp_transport]") {
    meeting_place place(1);
    tcp_node node(place.take(0));
    std::uint64_t ended = 0;
    const auto end_groups_to = [&](std::uint64_t last) {
        ended_owner o;
        for (; ended < last; node.remove(o)) {
            o.number = ++ended;
            node.add(o);
        }
    };
    // Whether a connection for the group is kept, as if it were early.
    const auto waits = [&](std::uint64_t group) {
        const descriptor fd = start_connect(place.members[0]);
        REQUIRE(wait_for(fd.get(), POLLOUT, seconds_now() + patience_s));
        std::byte hello[peer_hello_bytes];
        encode(peer_hello{group, 1, 0}, hello);
        REQUIRE(send_all(fd.get(), hello, sizeof hello, seconds_now() + patience_s) == 0);
        const std::size_t before = node.pending();
        char x;
        for (int turn = 0; turn < 200; ++turn) {
            node.poll_events();
            if (recv(fd.get(), &x, 1, MSG_DONTWAIT) == 0) return false;
            usleep(1'000);
        }
        REQUIRE(node.pending() == before + 1);
        return true;
    };
    end_groups_to(2048);
    CHECK_FALSE(waits(1));
    CHECK_FALSE(waits(2048));
    end_groups_to(2049);
    CHECK(waits(1));
    CHECK(waits(1024));
    CHECK_FALSE(waits(1025));
    CHECK_FALSE(waits(2049));
    end_groups_to(3072);
    CHECK_FALSE(waits(1025));
    end_groups_to(3073);
    CHECK(waits(2048));
    CHECK_FALSE(waits(2049));
}

TEST_CASE(
    "tcp: a peer whose port another world has by now is lost; early ranks of that world wait", "[tcp_transport]") {
    EACH_WAY;
    meeting_place place(2);
    tcp_node own(place.take(0)), other(place.take(1), 300, 64);
    ear e;
    for (const std::uint64_t group : {5U, 63U, 72U}) {
        INFO(group);
        e = {};
        tested w(own, group, 0, place.members);
        w.listening = &e;
        w.linger = 0;
        w.tell(1, {control_kind::board, 0, 0, 0, ""});
        CHECK(until(w, [&] { return other.poll_events(), e.count("lost 1") == 1; }));
        REQUIRE(e.reasons.size() == 1);  // closed, or reset, as the hello was read or not
        CHECK(e.reasons[0].starts_with("the connection to it: "));
    }
    if (tested::over_trunk) return;
    std::vector<std::unique_ptr<tcp_transport>> early;
    for (const std::uint64_t group : {64U, 71U}) {
        e = {};
        auto& w = *early.emplace_back(std::make_unique<tcp_transport>(own, group, 0, place.members));
        w.listening = &e;
        w.linger = 0;
        w.tell(1, {control_kind::board, 0, 0, 0, ""});
        CHECK(until(w, [&] { return other.poll_events(), other.pending() == early.size(); }));
        idle(w, 0.3);
        CHECK(e.events.empty());
    }
}

TEST_CASE("tcp: of too many connections that are silent, or too early, the oldest are dropped", "[tcp_transport]") {
    meeting_place place(1);
    tcp_node node(place.take(0));
    for (const bool early : {false, true}) {
        INFO("early " << early);
        const std::size_t most = early ? tcp_node::most_early : tcp_node::most_silent, before = node.pending();
        std::vector<descriptor> all;
        std::vector<double> begun;
        for (std::size_t i = 0; i < most + 20; ++i) {
            begun.push_back(seconds_now());
            all.push_back(start_connect(place.members[0]));
            REQUIRE(wait_for(all.back().get(), POLLOUT, seconds_now() + patience_s));
            std::byte hello[peer_hello_bytes];
            encode(peer_hello{1234, 1, 0}, hello);
            if (early) REQUIRE(send_all(all.back().get(), hello, sizeof hello, seconds_now() + patience_s) == 0);
            node.poll_events();
        }
        for (int i = 0; i < 20; ++i) usleep(1'000), node.poll_events();  // the last ones may come a little later
        const std::size_t kept = node.pending() - before;
        // On a slow machine, the first silent ones are dropped since their time is over.
        const double late = early ? 0 : seconds_now() - tcp_node::hello_timeout;
        const auto in_time = static_cast<std::size_t>(std::ranges::count_if(begun, [&](double t) { return t > late; }));
        CHECK(kept >= std::min(most, in_time) - 1);
        CHECK(kept <= most);
        for (std::size_t i = 0; i < all.size(); ++i) {
            char x;
            const bool is_open = recv(all[i].get(), &x, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
            if (is_open != (i + kept >= all.size())) FAIL_CHECK("connection " << i << " is open: " << is_open);
        }
        for (descriptor& fd : all) fd.close();
        node.poll_events();
    }
}

TEST_CASE("tcp: a hello that has come in time is taken, however late it is read", "[tcp_transport]") {
    meeting_place place(1);
    tcp_node node(place.take(0));
    const auto connected_to_it = [&] {
        descriptor fd = start_connect(place.members[0]);
        REQUIRE(wait_for(fd.get(), POLLOUT, seconds_now() + patience_s));
        return fd;
    };
    const descriptor said = connected_to_it(), silent = connected_to_it();
    for (const double end = seconds_now() + patience_s; node.pending() < 2 && seconds_now() < end;) node.poll_events();
    std::byte hello[peer_hello_bytes];
    encode(peer_hello{1234, 1, 0}, hello);
    REQUIRE(send_all(said.get(), hello, sizeof hello, seconds_now() + patience_s) == 0);
    sleep_seconds(tcp_node::hello_timeout + 0.1);
    node.poll_events();
    CHECK(node.pending() == 1);
    char x;
    CHECK((recv(said.get(), &x, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN));
    CHECK(recv(silent.get(), &x, 1, 0) == 0);
}

TEST_CASE("tcp: stray connections to the listening socket do not disturb the ranks", "[tcp_transport]") {
    EACH_WAY;
    const random_traffic t{77, 30, 10, 400'000};
    std::atomic<int> done{0};
    std::atomic<std::size_t> most_pending{0};
    CHECK(ranks_as_threads(3, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        if (r == 2) {  // no rank: it connects to both ranks, with all kinds of wrong hellos
            random_source random(5);
            std::vector<descriptor> kept;
            for (int turn = 0; done < 2 || turn < 400; ++turn) {
                descriptor fd = start_connect(members[static_cast<std::size_t>(turn % 2)]);
                if (!fd || !wait_for(fd.get(), POLLOUT, seconds_now() + 1)) continue;
                std::byte bytes[peer_hello_bytes];
                for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
                std::size_t length = peer_hello_bytes;
                switch (turn % 7) {
                    case 0:
                        length = 0;
                        break;  // silent
                    case 1:
                        break;  // garbage
                    case 2:
                        encode(peer_hello{1234, 1 - turn % 2, turn % 2}, bytes);
                        break;  // another group
                    case 3:
                        encode(peer_hello{99, 7, turn % 2}, bytes);
                        break;  // no such rank
                    case 4:
                        encode(peer_hello{99, turn % 2, 1 - turn % 2}, bytes);
                        break;  // for another rank
                    case 5:
                        length = random.below(peer_hello_bytes);
                        break;  // breaks off
                    case 6:
                        encode(peer_hello{99, 1 - turn % 2, turn % 2}, bytes), length = peer_hello_bytes - 1;
                        break;
                }
                if (length > 0) send_all(fd.get(), bytes, length, seconds_now() + 1);
                kept.push_back(std::move(fd));
                // Both nodes keep 256 early ones at most: all have room where a process may open 1,024.
                if (kept.size() > 150) kept.erase(kept.begin(), kept.begin() + 50);
                // Nor may thousands come while a rank does not run: it would drop the other rank's as the oldest.
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                if (done >= 2 && turn > 3000) break;
            }
            return;
        }
        const std::vector<address> two(members.begin(), members.begin() + 2);
        for (std::uint64_t group = 99; group < 102; ++group) {
            tested w(node, group, r, two);
            const std::string wrong = exchange(t, r, 2, w);
            if (!wrong.empty()) complain(wrong);
        }
        most_pending = std::max(most_pending.load(), node.pending());
        ++done;
    }) == "");
    CHECK(most_pending <= tcp_node::most_silent + tcp_node::most_early);
}

TEST_CASE(
    "tcp: a second connection in the name of a rank is closed; a rank that sends garbage is lost", "[tcp_transport]") {
    meeting_place place(4);
    tcp_node node(place.take(0));
    tcp_transport w(node, 5, 0, place.members);
    ear e;
    w.listening = &e;
    const auto connect_as = [&](int rank, int to = 0) {
        descriptor fd = start_connect(place.members[0]);
        REQUIRE(wait_for(fd.get(), POLLOUT, seconds_now() + patience_s));
        std::byte hello[peer_hello_bytes];
        encode(peer_hello{5, rank, to}, hello);
        REQUIRE(send_all(fd.get(), hello, peer_hello_bytes, seconds_now() + patience_s) == 0);
        return fd;
    };
    // Reads what arrives while the transport makes progress. True: the connection is closed.
    const auto closed = [&](descriptor& fd) {
        int got = -1;
        char x[100];
        until(w, [&] {
            while ((got = static_cast<int>(recv(fd.get(), x, sizeof x, MSG_DONTWAIT))) > 0) {}
            return got == 0 || errno != EAGAIN;
        });
        return got == 0 || errno == ECONNRESET;
    };
    descriptor wrong_rank = connect_as(1, 2), no_rank = connect_as(4);
    CHECK(closed(wrong_rank));
    CHECK(closed(no_rank));
    CHECK(w.accepted() == 0);
    descriptor first = connect_as(1);
    CHECK(until(w, [&] { return w.accepted() == 1; }));
    descriptor second = connect_as(1);
    CHECK(closed(second));
    CHECK(e.count("lost") == 0);
    control_frame n(control_message{control_kind::board, 1, 2, 3, "tab\tand\x1b[31m"});
    n.set_number(0);
    REQUIRE(send_all(first.get(), n.data, n.bytes, seconds_now() + patience_s) == 0);
    CHECK(until(w, [&] { return e.count(said_board) == 1; }));
    CHECK(e.all[0].text == "tab and [31m");  // without control characters for a terminal
    // The same frame again: its number is wrong.
    REQUIRE(send_all(first.get(), n.data, n.bytes, seconds_now() + patience_s) == 0);
    CHECK(until(w, [&] { return e.count("lost 1") == 1; }));
    CHECK(e.reasons.at(0) == "its connection: not of this protocol");
    CHECK(e.count(said_board) == 1);
    descriptor other = connect_as(2);
    const char text[] = "GET / HTTP/1.0\r\n\r\nmore than the size of a header, whatever that is";
    REQUIRE(send_all(other.get(), text, sizeof text, seconds_now() + patience_s) == 0);
    CHECK(until(w, [&] { return e.count("lost 2") == 1; }));
    // A message on the socket of control messages.
    descriptor third = connect_as(3);
    std::byte message[frame_bytes];
    encode(frame{.kind = frame_kind::message, .label = {1, 0, 0}}, message);
    REQUIRE(send_all(third.get(), message, sizeof message, seconds_now() + patience_s) == 0);
    CHECK(until(w, [&] { return e.count("lost 3") == 1; }));
}

TEST_CASE(
    "tcp: a peer that has said `leave`, and ends before it has written all its messages, has left", "[tcp_transport]") {
    meeting_place place(2);
    tcp_node node(place.take(0));
    tcp_transport w(node, 5, 0, place.members);
    ear e;
    w.listening = &e;
    std::uint64_t data = 7;
    const piece p{reinterpret_cast<std::byte*>(&data), 8};
    {
        const descriptor listening = place.take(1), control = start_connect(place.members[0]);
        REQUIRE(wait_for(control.get(), POLLOUT, seconds_now() + patience_s));
        std::byte hello[peer_hello_bytes];
        encode(peer_hello{5, 1, 0}, hello);
        REQUIRE(send_all(control.get(), hello, sizeof hello, seconds_now() + patience_s) == 0);
        w.send(1, label_of(0, 1, 0), &p, 1);
        w.receive(1, label_of(1, 0, 0), &p, 1);
        descriptor messages;
        REQUIRE(until(w, [&] { return bool(messages = accept_from(listening.get())); }));
        REQUIRE(until(w, [&] { return w.sent(1) == 1; }));
        control_frame leave(control_message{control_kind::leave});
        leave.set_number(0);
        REQUIRE(send_all(control.get(), leave.data, leave.bytes, seconds_now() + patience_s) == 0);
    }
    CHECK(until(w, [&] { return !e.events.empty(); }));
    CHECK(e.count(said_leave) == 1);
    CHECK(e.count("lost") == 0);
    CHECK(w.received(1) == 0);
}

TEST_CASE("tcp: a rank whose connection is dropped before it was taken connects again, or reports its peer as lost",
    "[tcp_transport]") {
    // Rank 1 is this test: what takes connections there drops the first one, as a process without descriptors does.
    for (const auto& [written, connected] : {std::pair(false, false), {false, true}, {true, false}}) {
        INFO("a message has been written there: " << written << ", it has connected itself: " << connected);
        meeting_place place(2);
        tcp_node node(place.take(0));
        tcp_transport w(node, 5, 0, place.members);
        ear e;
        w.listening = &e;
        w.linger = 0;
        const descriptor listening = place.take(1);
        std::uint64_t data = 7;
        const piece p{reinterpret_cast<std::byte*>(&data), 8};
        const auto taken = [&] {
            descriptor fd;
            until(w, [&] { return bool(fd = accept_from(listening.get())); });
            return fd;
        };
        const auto hello_of = [&](const descriptor& fd) {
            std::byte hello[peer_hello_bytes];
            until(w, [&] { return recv(fd.get(), hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT) == sizeof hello; });
            recv(fd.get(), hello, sizeof hello, 0);
            return parse_peer_hello(hello);
        };
        const descriptor theirs = start_connect(place.members[0]);
        REQUIRE(wait_for(theirs.get(), POLLOUT, seconds_now() + patience_s));
        std::byte hello[peer_hello_bytes];
        encode(peer_hello{5, 1, 0}, hello);
        REQUIRE(send_all(theirs.get(), hello, sizeof hello, seconds_now() + patience_s) == 0);
        // What it takes from the peer is no further reason to connect then.
        if (connected) REQUIRE(until(w, [&] { return w.accepted() == 1; }));
        if (written)
            w.send(1, label_of(0, 1, 0), &p, 1);
        else
            w.receive(1, label_of(1, 0, 0), &p, 1);
        {
            const descriptor dropped = taken();
            REQUIRE(hello_of(dropped));
            if (written) REQUIRE(until(w, [&] { return w.sent(1) == 1; }));
        }
        if (written) {
            CHECK(until(w, [&] { return e.count("lost 1") == 1; }));
            continue;
        }
        const descriptor again = taken();
        const auto second = hello_of(again);
        REQUIRE(second);
        CHECK(second->group == 5);
        CHECK(second->from == 0);
        w.send(1, label_of(0, 1, 0), &p, 1);
        std::byte frame[frame_bytes];
        CHECK(
            until(w, [&] { return recv(again.get(), frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT) == sizeof frame; }));
        const auto head = parse_frame(frame);
        REQUIRE(head);
        CHECK(head->kind == frame_kind::message);
        CHECK(head->number == 0);
        CHECK(e.all.empty());
    }
}

TEST_CASE("tcp: connections of a group may come in before its transport exists", "[tcp_transport]") {
    EACH_WAY;
    std::atomic<int> early{0};
    CHECK(ranks_as_threads(4, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        tested world(node, 1, r, members);
        ear e, f;
        world.listening = &e;
        // In reverse order; rank 0 of the whole group, the last of the part, comes late.
        const std::vector<address> part(members.rbegin(), members.rend());
        const int own = 3 - r;
        std::uint64_t out = 40 + static_cast<std::uint64_t>(own), in[4] = {};
        if (r == 0) {
            while (early < 3) world.progress();
            if (!until(world, [&] { return node.pending() == 3; }))
                complain("pending connections: " + std::to_string(node.pending()));
            idle(world, 0.05);
        }
        tested w(node, 2, own, part);
        w.listening = &f;
        for (int p = 0; p < 4; ++p)
            if (p != own) {
                const piece there{reinterpret_cast<std::byte*>(&out), 8}, here{reinterpret_cast<std::byte*>(&in[p]), 8};
                w.send(p, label_of(own, p, 0), &there, 1);
                w.receive(p, label_of(p, own, 0), &here, 1);
            }
        const auto all = [&] {
            for (int p = 0; p < 4; ++p)
                if (p != own && (w.received(p) != 1 || w.sent(p) != 1)) return false;
            return true;
        };
        until(w, [&] { return w.sent(3) == 1 || own == 3; });
        ++early;
        if (!until(w, all)) return complain("not done; " + f.text());
        for (int p = 0; p < 4; ++p)
            if (p != own && in[p] != 40 + static_cast<std::uint64_t>(p)) complain("other bytes");
        if (e.count("lost") + f.count("lost") > 0) complain(e.text() + f.text());
    }) == "");
}

TEST_CASE("tcp: a connection on which nothing can be done lets its rank sleep, and soon looks at a peer's end",
    "[tcp_transport]") {
    meeting_place place(2);
    tcp_node nodes[2] = {tcp_node(place.take(0)), tcp_node(place.take(1))};
    tcp_transport w(nodes[0], 5, 0, place.members);
    auto peer = std::make_unique<tcp_transport>(nodes[1], 5, 1, place.members);
    ear e, of_peer;
    w.listening = &e;
    peer->listening = &of_peer;
    std::uint64_t in = 0, out = 7;
    const piece here{reinterpret_cast<std::byte*>(&in), 8}, there{reinterpret_cast<std::byte*>(&out), 8};
    for (std::uint64_t i = 0; i < 2; ++i) w.receive(1, label_of(1, 0, i), &here, 1);
    peer->send(0, label_of(1, 0, 0), &there, 1);
    w.tell(1, {control_kind::board, 0, 0, 0, ""});
    REQUIRE(until(w, [&] { return peer->progress(), w.received(1) == 1 && of_peer.count(said_board) == 1; }));
    double seconds = 100;
    CHECK(until(w, [&] { return !w.peer(1).prepare_idle(seconds); }));  // though the second message is awaited
    CHECK(seconds == 100);
    // It ends without `leave`, as a process that is killed does.
    peer->tell(0, {control_kind::broken, 1, 0, 0, "the end"});
    w.linger = peer->linger = 0;
    peer.reset();
    REQUIRE(until(w, [&] {
        seconds = 100;
        return w.peer(1).prepare_idle(seconds) || seconds < 100 || e.count("lost 1") == 1;
    }));
    CHECK(until(w, [&] { return e.count("lost 1") == 1; }));
    seconds = 100;
    CHECK_FALSE(w.peer(1).prepare_idle(seconds));
    CHECK(seconds == 100);
}

TEST_CASE("tcp: `idle` ends when something arrives, on any transport of the node", "[tcp_transport]") {
    EACH_WAY;
    // Otherwise this would take an hour.
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        tested first(node, 1, r, members), second(node, 2, r, members);
        ear e;
        std::vector<std::byte> value(2 * envelope_capacity);
        for (std::uint64_t turn = 0; turn < 50; ++turn)
            for (tested* w : {&first, &second}) {
                w->listening = &e;
                const piece p{value.data(), turn % 4 < 2 ? 8 : value.size()};
                const bool receiving = (turn % 2 == 0) == (r == 0);
                const auto before = receiving ? w->received(1 - r) : w->sent(1 - r);
                if (receiving)
                    w->receive(1 - r, label_of(0, 0, turn), &p, 1);
                else
                    w->send(1 - r, label_of(0, 0, turn), &p, 1);
                while ((receiving ? w->received(1 - r) : w->sent(1 - r)) == before) {
                    (w == &first ? second : first).progress();
                    w->progress();
                    if ((receiving ? w->received(1 - r) : w->sent(1 - r)) == before) first.idle(70);
                }
            }
        if (e.count("lost") > 0) complain(e.text());
    }) == "");
}

TEST_CASE("tcp: a report that makes progress gets no other report meanwhile", "[tcp_transport]") {
    EACH_WAY;
    meeting_place place(2);
    tcp_node node(place.take(0)), others(place.take(1));
    tested w(node, 5, 0, place.members), other(others, 5, 1, place.members);
    w.linger = other.linger = 0;  // one thread drives both
    CHECK(depth_of_reports(w, other) == 1);
}

TEST_CASE(
    "tcp: a rank that has no descriptor for a peer's connection says so of a peer that it waits for, not of one "
    "that is lost",
    "[tcp_transport]") {
    meeting_place place(3);
    child rank([&] {  // which cannot raise the limit any more
        tcp_node node(place.take(2));
        tcp_transport w(node, 5, 2, place.members);
        ear e;
        w.listening = &e;
        w.linger = 0;
        {
            tcp_node others(place.take(0));
            tcp_transport lost(others, 5, 0, place.members);
            lost.tell(2, {control_kind::broken, 0, 0, 0, ""});
            if (!until(w, [&] { return lost.progress(), e.count(said_broken) > 0; })) return 1;
        }
        if (!until(w, [&] { return e.count("lost 0") > 0; })) return 2;
        std::byte b{};
        const piece p{&b, 1};
        w.receive(1, {}, &p, 1);
        idle(w, 0.01);
        const descriptor comes = stream_socket(AF_INET), next(dup(comes.get()));
        const rlimit none_more{static_cast<rlim_t>(next.get()), static_cast<rlim_t>(next.get())};
        if (setrlimit(RLIMIT_NOFILE, &none_more) != 0) return 3;
        const address& here = place.members[2];
        if (connect(comes.get(), here.get(), here.length) != 0 && errno != EINPROGRESS) return 4;
        if (!until(w, [&] { return e.count("failed") > 0; })) return 5;
        return e.count("failed 1") == 1 && e.count("lost 1") == 0 ? 0 : 6;
    });
    CHECK(rank.wait() == 0);
}

// ---- many groups over one trunk -------------------------------------------------------------------------------------

namespace {

std::vector<int> all_of(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

}  // namespace

TEST_CASE("trunk: groups of other ranks and orders at the same time, over the same connections", "[tcp_transport]") {
    constexpr int n = 4;
    const int before = open_descriptors();
    CHECK(ranks_as_threads(n, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        // Exchanges of one group after the other while the other groups' messages wait: some have arrived, some are in
        // sockets, some wait for the window.
        const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {3, 1, 0}, {2, 0}, {1, 2, 3, 0}, {3, 2}};
        struct one {
            std::unique_ptr<message_transport> w;
            int rank;
            std::vector<std::vector<std::byte>> in, out;
            ear e;
        };
        std::vector<one> own(groups.size());
        const auto bytes = [](std::size_t g, int from, int to) {
            return (g + 1) * 100'000 + static_cast<std::size_t>(from) * 1000 + static_cast<std::size_t>(to);
        };
        const auto value = [](std::size_t g, int from, int to) {
            return static_cast<std::byte>(g * 16) | static_cast<std::byte>(from * 4 + to);
        };
        for (std::size_t g = 0; g < groups.size(); ++g) {
            const auto found = std::find(groups[g].begin(), groups[g].end(), r);
            if (found == groups[g].end()) continue;
            one& o = own[g];
            o.rank = static_cast<int>(found - groups[g].begin());
            o.w = shared.join(100 + g, o.rank, groups[g]);
            o.w->listening = &o.e;
            o.in.resize(groups[g].size());
            o.out.resize(groups[g].size());
            for (int p = 0; p < static_cast<int>(groups[g].size()); ++p) {
                if (p == o.rank) continue;
                auto& out = o.out[static_cast<std::size_t>(p)];
                out.assign(bytes(g, o.rank, p), value(g, o.rank, p));
                const piece from{out.data(), out.size()};
                o.w->send(p, label_of(o.rank, p, 0), &from, 1);
            }
        }
        for (std::size_t i = 0; i < groups.size(); ++i) {
            const std::size_t g = r % 2 == 0 ? i : groups.size() - 1 - i;  // the receives in other orders
            one& o = own[g];
            if (!o.w) continue;
            const int peers = static_cast<int>(groups[g].size());
            for (int p = 0; p < peers; ++p) {
                if (p == o.rank) continue;
                auto& in = o.in[static_cast<std::size_t>(p)];
                in.resize(bytes(g, p, o.rank));
                const piece to{in.data(), in.size()};
                o.w->receive(p, label_of(p, o.rank, 0), &to, 1);
                if (!until(*o.w, [&] { return o.w->received(p) == 1; })) return complain("not received; " + o.e.text());
                if (in != std::vector<std::byte>(in.size(), value(g, p, o.rank))) complain("other bytes");
            }
        }
        for (std::size_t g = 0; g < groups.size(); ++g)
            for (int p = 0; own[g].w && p < static_cast<int>(groups[g].size()); ++p)
                if (p != own[g].rank && !until(*own[g].w, [&] { return own[g].w->sent(p) == 1; })) complain("not sent");
        for (one& o : own)
            if (o.e.count("lost") + o.e.count("failed") + o.e.count("unexpected") > 0) complain(o.e.text());
    }) == "");
    CHECK(open_descriptors() == before);
}

TEST_CASE("trunk: a thousand groups cost no descriptor but those of the first", "[tcp_transport]") {
    constexpr int n = 3;
    std::atomic<int> most{0};
    CHECK(ranks_as_threads(n, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        std::vector<std::unique_ptr<message_transport>> kept;
        std::vector<std::unique_ptr<ear>> ears;
        std::uint64_t in[n] = {};
        for (std::uint64_t g = 0; g < 1000; ++g) {
            kept.push_back(shared.join(100 + g, r, all_of(n)));
            ears.push_back(std::make_unique<ear>());
            message_transport& w = *kept.back();
            w.listening = ears.back().get();
            std::uint64_t out = g;
            for (int p = 0; p < n; ++p) {
                if (p == r) continue;
                const piece from{reinterpret_cast<std::byte*>(&out), 8}, to{reinterpret_cast<std::byte*>(&in[p]), 8};
                w.send(p, label_of(r, p, g), &from, 1);
                w.receive(p, label_of(p, r, g), &to, 1);
            }
            const int a = (r + 1) % n, b = (r + 2) % n;
            if (!until(w, [&] { return w.received(a) + w.received(b) == 2 && w.sent(a) + w.sent(b) == 2; }))
                return complain("not done; " + ears.back()->text());
            if (in[a] != g || in[b] != g) complain("other bytes");
            if (g == 0 || g == 999) {
                const int now = open_descriptors();
                for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {}
            }
            if (r == 0 && g % 2 == 0) {  // some end meanwhile
                kept.pop_back();
                ears.pop_back();
            }
        }
        for (auto& e : ears)
            if (e->count("lost") > 0) complain(e->text());
    }) == "");
    // Each rank has the listening socket, epoll, and two sockets for each peer; and there is what the process had.
    CHECK(most < 60);
}

TEST_CASE("trunk: a group that is broken or abandoned leaves the others whole", "[tcp_transport]") {
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        const auto first = shared.join(100, r, all_of(2)), second = shared.join(101, r, all_of(2));
        ear e, f;
        first->listening = &e;
        second->listening = &f;
        const int peer = 1 - r;
        {  // a message of which a part has been written, and a receive of which a part has arrived
            std::vector<std::byte> data(5'000'000, std::byte{1});
            const piece p{data.data(), data.size()};
            r == 0 ? first->send(peer, {}, &p, 1) : first->receive(peer, {}, &p, 1);
            for (int i = 0; i < 20; ++i) first->progress();
            first->abandon();
        }  // and its memory is gone
        if (r == 0) first->tell(peer, {control_kind::broken, 1, 0, 0, "enough"});
        std::vector<std::byte> out(1'000'000, std::byte{2}), in(out.size());
        const piece from{out.data(), out.size()}, to{in.data(), in.size()};
        second->send(peer, label_of(r, peer, 0), &from, 1);
        second->receive(peer, label_of(peer, r, 0), &to, 1);
        if (!until(*second, [&] { return second->received(peer) == 1 && second->sent(peer) == 1; }))
            return complain("the other group stands still; " + f.text());
        if (in != out) complain("other bytes");
        if (r == 1 && !until(*first, [&] { return e.count(said_broken) == 1; })) complain("not told; " + e.text());
        if (f.count(said_broken) > 0) complain("told in the wrong group");
    }) == "");
}

TEST_CASE("trunk: what is under way when its group is abandoned arrives as it was sent", "[tcp_transport]") {
    constexpr std::uint64_t groups = 40;
    constexpr std::size_t bytes = 500'000;
    std::atomic<bool> abandoned{false};
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        const auto meeting = shared.join(99, r, all_of(2));
        ear m;
        meeting->listening = &m;
        meeting->tell(1 - r, {control_kind::board, 0, 0, 0, ""});
        if (!until(*meeting, [&] { return m.count(said_board) >= 1; })) return complain("not met; " + m.text());
        idle(*meeting, 0.05);
        std::vector<std::unique_ptr<message_transport>> all;
        for (std::uint64_t g = 0; g < groups; ++g) all.push_back(shared.join(100 + g, r, all_of(2)));
        std::vector<std::vector<std::byte>> data(groups, std::vector<std::byte>(bytes, static_cast<std::byte>(r + 5)));
        if (r == 0) {  // sends more than the sockets hold, while the other one does not look
            for (std::uint64_t g = 0; g < groups; ++g) {
                const piece p{data[g].data(), bytes};
                all[g]->send(1, label_of(0, 1, g), &p, 1);
            }
            idle(*meeting, 0.05);
            for (auto& w : all) w->abandon();
            for (auto& d : data) std::fill(d.begin(), d.end(), std::byte{99});
            abandoned = true;
            meeting->tell(1, {control_kind::board, 0, 0, 0, ""});
            if (!until(*meeting, [&] { return m.count(said_board) >= 2; })) complain("no answer; " + m.text());
            std::uint64_t left = 0;
            for (auto& w : all) left += w->sent(1);
            if (left == groups) complain("nothing was under way");
            return;
        }
        while (!abandoned) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        for (std::uint64_t g = 0; g < groups; ++g) {
            const piece p{data[g].data(), bytes};
            all[g]->receive(0, label_of(0, 1, g), &p, 1);
        }
        if (!until(*meeting, [&] { return m.count(said_board) >= 2; })) complain("no end; " + m.text());
        std::uint64_t arrived = 0;
        for (std::uint64_t g = 0; g < groups; ++g) {
            if (all[g]->received(0) == 0) continue;
            ++arrived;
            if (data[g] != std::vector<std::byte>(bytes, std::byte{5}))
                complain("group " + std::to_string(g) + ": other bytes");
        }
        if (arrived == 0 || arrived == groups) complain("arrived: " + std::to_string(arrived));
        meeting->tell(0, {control_kind::board, 0, 0, 0, ""});
    }) == "");
}

TEST_CASE("trunk: groups that end while they wait for room are forgotten", "[tcp_transport]") {
    std::atomic<bool> ended{false};
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        const auto meeting = shared.join(99, r, all_of(2));
        ear m;
        meeting->listening = &m;
        if (meeting->tell(r, {control_kind::board, 0, 0, 0, ""})) complain("it can tell itself something");
        meeting->tell(1 - r, {control_kind::board, 0, 0, 0, ""});
        if (!until(*meeting, [&] { return m.count(said_board) == 1; })) return complain("not met; " + m.text());
        std::vector<std::byte> data(3'000'000, static_cast<std::byte>(r + 1));
        const piece p{data.data(), data.size()};
        if (r == 0) {  // nothing is read meanwhile: more than a few segments are not under way at once
            for (int turn = 0; turn < 3; ++turn) {
                std::vector<std::unique_ptr<message_transport>> all;
                for (std::uint64_t g = 0; g < 20; ++g) {
                    all.push_back(shared.join(100 + 20 * static_cast<std::uint64_t>(turn) + g, 0, all_of(2)));
                    all.back()->linger = 0;
                    all.back()->send(1, label_of(0, 1, g), &p, 1);
                }
                for (auto& w : all) w->abandon();
            }
            ended = true;
        }
        while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const auto last = shared.join(98, r, all_of(2));
        r == 0 ? last->send(1, label_of(0, 1, 1), &p, 1) : last->receive(0, label_of(0, 1, 1), &p, 1);
        if (!until(*last, [&] { return last->sent(1 - r) + last->received(1 - r) == 1; }, 20)) complain("stands still");
        if (data != std::vector<std::byte>(data.size(), std::byte{1})) complain("other bytes");
    }) == "");
}

TEST_CASE("trunk: a rank that joins a group which its peer has left is told so", "[tcp_transport]") {
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        auto meeting = shared.join(99, r, all_of(2));
        ear e, m;
        meeting->listening = &m;
        if (r == 0) shared.join(100, r, all_of(2));  // has exchanged nothing
        meeting->tell(1 - r, {control_kind::board, 0, 0, 0, ""});
        if (!until(*meeting, [&] { return m.count(said_board) >= 1; })) return complain("not met; " + m.text());
        if (r == 1) {
            const auto late = shared.join(100, r, all_of(2));
            late->listening = &e;
            late->tell(0, {control_kind::board, 0, 0, 0, ""});
            if (!until(*late, [&] { return e.count(said_leave) == 1; })) complain("not told; " + e.text());
            idle(*late, 0.02);
            if (late->tell(0, {control_kind::board, 0, 0, 0, ""})) complain("it can be told something");
            if (e.events.size() != 1) complain(e.text());
        }
        meeting->tell(1 - r, {control_kind::board, 0, 0, 0, ""});
        if (!until(*meeting, [&] { return m.count(said_board) >= 2; })) complain("no end; " + m.text());
    }) == "");
}

namespace {

/// Rank 1 of a trunk whose rank 0 is real: played envelope by envelope.
class played_trunk {
public:
    played_trunk(tcp_node& node, const std::vector<address>& world) : below_(node, 9, 1, world) {
        below_.listening = &heard;
    }
    ear heard;

    void put(std::uint64_t group, const frame& f, std::uint64_t consumed = 0) {
        std::byte* const envelope = out_.emplace_back(new std::byte[envelope_bytes]()).get();
        encode(envelope_prefix{group, 1, 0, consumed}, envelope);
        encode(f, envelope + envelope_prefix_bytes);
        const piece p{envelope, envelope_bytes};
        below_.send(0, {}, &p, 1);
    }
    void put_garbage() {
        const piece p{out_.emplace_back(new std::byte[envelope_bytes]()).get(), envelope_bytes};
        below_.send(0, {}, &p, 1);
    }
    /// The next envelope, whose segment is taken as well. None: it does not come.
    std::optional<parcel> get() {
        if (!take(envelope_, envelope_bytes)) return {};
        const auto p = parse_envelope(envelope_);
        if (p && p->bytes == nullptr && !take(segment_.data(), p->prefix.bytes)) return {};
        return p;
    }
    /// Moves what is under way until `holds()`.
    template <class F>
    bool until(F holds) {
        return support::until(below_, holds);
    }

private:
    bool take(std::byte* to, std::size_t bytes) {
        const piece p{to, bytes};
        below_.receive(0, {}, &p, 1);
        ++taken_;
        return until([&] { return below_.received(0) == taken_; });
    }
    std::vector<std::unique_ptr<std::byte[]>> out_;  // outlives the transport
    std::byte envelope_[envelope_bytes];
    std::vector<std::byte> segment_ = std::vector<std::byte>(segment_bytes);
    std::uint64_t taken_ = 0;
    tcp_transport below_;
};

}  // namespace

TEST_CASE("trunk: more small messages than a window holds, each way alone", "[tcp_transport]") {
    // Each takes an envelope of the window, and gives it back.
    constexpr std::uint64_t most = 10'000;
    static_assert(most * envelope_bytes > 2 * 4 * segment_bytes);
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        const auto w = shared.join(100, r, all_of(2));
        ear e;
        w->listening = &e;
        const int peer = 1 - r;
        for (const int from : {0, 1}) {
            std::vector<std::uint32_t> x(most, 7);
            std::uint64_t posted = 0;
            const auto done = [&] { return r == from ? w->sent(peer) : w->received(peer); };
            const std::uint64_t end = done() + most;
            for (const std::uint64_t begin = done(); posted < most;) {
                const piece p{reinterpret_cast<std::byte*>(&x[posted]), posted % 5 == 0 ? 0u : 4u};
                const message_label label = label_of(from, 1 - from, posted++);
                r == from ? w->send(peer, label, &p, 1) : w->receive(peer, label, &p, 1);
                if (posted % 500 == 0 && !until(*w, [&] { return done() + 400 >= begin + posted; }, 20))
                    return complain("stands at " + std::to_string(done() - begin) + "; " + e.text());
            }
            if (!until(*w, [&] { return done() == end; }, 20)) return complain("not all; " + e.text());
        }
    }) == "");
}

TEST_CASE("trunk: more bytes than a window holds, each way alone", "[tcp_transport]") {
    constexpr std::size_t sizes[] = {400, envelope_capacity, envelope_capacity + 1, 300'000, segment_bytes, 1'500'000};
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        trunk shared(node, 9, r, world);
        const auto w = shared.join(100, r, all_of(2));
        ear e;
        w->listening = &e;
        const int peer = 1 - r;
        std::vector<std::byte> x(sizes[5]);
        std::uint64_t number = 0;
        for (const int from : {0, 1})
            for (const std::size_t bytes : sizes)
                for (std::size_t all = 0; all < 3 * 4 * segment_bytes; all += std::max<std::size_t>(bytes, 100'000)) {
                    std::fill(x.begin(), x.end(), r == from ? static_cast<std::byte>(number) : std::byte{});
                    const piece p{x.data(), bytes};
                    const auto done = [&] { return r == from ? w->sent(peer) : w->received(peer); };
                    const std::uint64_t end = done() + 1;
                    const message_label label = label_of(from, 1 - from, ++number);
                    r == from ? w->send(peer, label, &p, 1) : w->receive(peer, label, &p, 1);
                    if (!until(*w, [&] { return done() == end; }, 20))
                        return complain(std::to_string(all) + " bytes went in messages of " + std::to_string(bytes));
                    if (x[0] != static_cast<std::byte>(number - 1) || x[bytes - 1] != x[0]) complain("other bytes");
                }
    }) == "");
}

TEST_CASE(
    "trunk: a group that is joined when the connection is lost, or the peer has left, hears so", "[tcp_transport]") {
    for (const bool by_garbage : {false, true})
        CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
            if (r == 0) {
                trunk shared(node, 9, r, world);
                for (const std::uint64_t g : {100u, 101u, 102u}) {
                    const auto w = shared.join(g, 0, all_of(2));
                    ear e;
                    w->listening = &e;
                    w->tell(1, {control_kind::board, 0, 0, 0, ""});
                    const auto heard = [&] { return by_garbage ? e.count("lost 1") : e.count(said_leave); };
                    if (!until(*w, [&] { return heard() > 0; }, 20)) return complain("not heard; " + e.text());
                    idle(*w, 0.01);
                    if (e.events.size() != 1) complain(e.text());
                    if (by_garbage && e.reasons != std::vector<std::string>{"what it sends is not of this protocol"})
                        complain(e.text());
                    if (w->tell(1, {control_kind::board, 0, 0, 0, ""})) complain("it can be told something");
                }
                return;
            }
            played_trunk peer(node, world);
            if (by_garbage) peer.put_garbage();
            while (const auto p = peer.get())  // the first group's board has come: rank 0 knows this one
                if (p->prefix.group == 100) break;
            if (by_garbage && !peer.until([&] { return !peer.heard.events.empty(); })) complain("no end");
        }) == "");
}

TEST_CASE("trunk: a sender keeps to the window, which what its peer has taken opens", "[tcp_transport]") {
    // Counted by the peer's hand: a message and its envelope against what is allowed.
    constexpr std::size_t bytes = 400'000, most_under_way = 4 * segment_bytes, most = 64;
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        const auto fitting = [&](std::uint64_t taken) {  // the last one may begin below the end
            return (most_under_way + taken + bytes + envelope_bytes - 1) / (bytes + envelope_bytes);
        };
        const std::uint64_t taken[] = {0, 0, 3 * bytes, 3 * bytes + 1'000'000};
        if (r == 0) {
            trunk shared(node, 9, r, world);
            const auto w = shared.join(100, r, all_of(2));
            ear e;
            w->listening = &e;
            const std::vector<std::byte> x(bytes, std::byte{5});
            const piece p{const_cast<std::byte*>(x.data()), bytes};
            for (std::uint64_t i = 0; i < most; ++i) w->send(1, label_of(0, 1, i), &p, 1);
            for (int turn = 0; turn < 4; ++turn) {
                // A control message has no part in the window: it comes behind all that went.
                if (!until(*w, [&] { return w->sent(1) >= fitting(taken[turn]) && e.count(said_board) > turn; }))
                    return complain("stands at " + std::to_string(w->sent(1)) + "; " + e.text());
                idle(*w, 0.02);
                w->tell(1, {control_kind::board, 0, 0, 0, ""});
            }
            if (!until(*w, [&] { return e.count(said_board) > 4; })) complain("no end; " + e.text());
            w->abandon();
            w->tell(1, {control_kind::broken, 0, 0, 0, "over"});
            return;
        }
        played_trunk peer(node, world);
        std::uint64_t came = 0;
        for (int turn = 0; turn < 4; ++turn) {
            peer.put(100, frame_of({control_kind::board}), taken[turn]);
            for (;;) {
                const auto p = peer.get();
                if (!p) return complain("no envelope");
                if (p->head.kind == frame_kind::control) break;
                if (p->head.kind == frame_kind::message) ++came;
            }
            if (came != fitting(taken[turn]))
                complain(std::to_string(came) + " messages for " + std::to_string(taken[turn]) + " bytes taken");
        }
        peer.put(100, frame_of({control_kind::board}), 3 * bytes + 1'000'000);
        while (const auto p = peer.get())
            if (p->head.what == control_kind::broken) break;
    }) == "");
}

TEST_CASE("trunk: a receiver tells what it has taken whenever that is half a window more", "[tcp_transport]") {
    constexpr std::uint64_t half = 2 * segment_bytes, most = 3 * half / envelope_bytes;
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        if (r == 0) {
            trunk shared(node, 9, r, world);
            const auto w = shared.join(100, r, all_of(2));
            ear e;
            w->listening = &e;
            const piece nothing{nullptr, 0};
            for (std::uint64_t i = 0; i < most; ++i) w->receive(1, label_of(1, 0, i), &nothing, 1);
            if (!until(*w, [&] { return w->received(1) == most; })) complain("not all; " + e.text());
            w->tell(1, {control_kind::board, 0, 0, 0, ""});
            if (!until(*w, [&] { return e.count(said_board) > 0; })) complain("no end; " + e.text());
            w->tell(1, {control_kind::broken, 0, 0, 0, "over"});
            return;
        }
        played_trunk peer(node, world);
        for (std::uint64_t i = 0; i < most; ++i)
            peer.put(100, {.kind = frame_kind::message, .label = label_of(1, 0, i)});
        std::vector<std::uint64_t> told;
        for (;;) {
            const auto p = peer.get();
            if (!p) return complain("no envelope");
            if (p->head.kind == frame_kind::control) break;
            told.push_back(p->prefix.consumed);
        }
        if (told != std::vector<std::uint64_t>{half, 2 * half, 3 * half})
            complain("told " + std::to_string(told.size()) + " times");
        peer.put(100, frame_of({control_kind::board}));
        while (const auto p = peer.get())
            if (p->head.what == control_kind::broken) break;
    }) == "");
}

TEST_CASE("trunk: what comes for a group that has ended is answered once, and an answer never", "[tcp_transport]") {
    // Two ranks that answer each other's `leave` would do so for ever.
    std::atomic<bool> ended{
        false};  // the groups: what comes before that is theirs, and they say `leave` in their order
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& world, auto complain) {
        if (r == 0) {
            trunk shared(node, 9, r, world);
            for (const std::uint64_t g : {100u, 101u, 102u}) shared.join(g, 0, all_of(2));  // and left
            ended = true;
            const auto meeting = shared.join(99, 0, all_of(2));
            ear m;
            meeting->listening = &m;
            if (!until(*meeting, [&] { return m.count(said_board) == 1; })) return complain("not met; " + m.text());
            meeting->tell(1, {control_kind::board, 0, 0, 0, ""});
            if (!until(*meeting, [&] { return m.count(said_leave) == 1; })) complain("no end; " + m.text());
            return;
        }
        played_trunk peer(node, world);
        while (!ended) std::this_thread::yield();
        peer.put(100, frame_of({control_kind::leave}));
        peer.put(101, frame{});  // room in the window
        peer.put(102, frame_of({control_kind::board}));
        frame message;
        message.kind = frame_kind::message;
        peer.put(100, message);
        peer.put(99, frame_of({control_kind::board}));
        for (const std::uint64_t g : {102u, 100u}) {
            const auto p = peer.get();
            if (!p) return complain("no answer");
            if (p->prefix.group != g || p->prefix.from != 0 || p->head != frame_of({control_kind::leave}))
                complain("other than the answer for " + std::to_string(g) + ": of " + std::to_string(p->prefix.group));
        }
        const auto last = peer.get();
        if (!last || last->prefix.group != 99) complain("another answer");
        peer.put(99, frame_of({control_kind::leave}));
        if (!peer.until([&] { return peer.heard.count(said_leave) == 1; })) complain("no end");
    }) == "");
}

TEST_CASE("trunk: envelopes are parsed as they were written, and other bytes are rejected", "[tcp_transport]") {
    std::byte envelope[envelope_bytes] = {};
    const auto written = [&](std::uint32_t bytes, std::uint64_t at, std::uint64_t whole) {
        frame f;
        f.kind = frame_kind::message;
        f.number = at;
        f.bytes = whole;
        f.label = {1, 2, 3};
        encode(envelope_prefix{7, 3, bytes, 1000}, envelope);
        encode(f, envelope + envelope_prefix_bytes);
        return parse_envelope(envelope);
    };
    const auto p = written(10, 5, 15);
    REQUIRE(p);
    CHECK((p->prefix.group == 7 && p->prefix.from == 3 && p->prefix.bytes == 10 && p->prefix.consumed == 1000));
    CHECK((p->head.number == 5 && p->head.bytes == 15 && p->bytes == envelope + envelope_bytes - envelope_capacity));
    CHECK(written(0, 0, 0));
    CHECK(written(envelope_capacity, 0, envelope_capacity)->bytes != nullptr);
    CHECK(written(envelope_capacity + 1, 0, envelope_capacity + 1)->bytes == nullptr);
    CHECK(written(segment_bytes, 100, segment_bytes + 100));
    CHECK_FALSE(written(segment_bytes + 1, 0, segment_bytes + 1));  // more than a segment
    CHECK_FALSE(written(10, 6, 15));                                // beyond the end of its message
    CHECK_FALSE(written(1, 16, 15));
    CHECK_FALSE(written(0, 0, 15));  // a part that gets no further
    encode(frame{}, envelope + envelope_prefix_bytes);
    encode(envelope_prefix{7, 3, 1, 0}, envelope);
    CHECK_FALSE(parse_envelope(envelope));  // bytes without a message
    envelope[envelope_prefix_bytes] ^= std::byte{1};
    CHECK_FALSE(parse_envelope(envelope));
}
