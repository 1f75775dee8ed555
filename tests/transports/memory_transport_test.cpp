// The shared-memory transport, between ranks that are threads, and between processes.
#include "catch.hpp"

#include "support/message_transports.hpp"
#include "support/shared_block.hpp"

#include <colls/net/detail/connection/memory_transport.hpp>

#include <atomic>
#include <mutex>
#include <thread>

using namespace support;

namespace {

/// Runs f(rank, transport, complain) on a thread for each rank. Returns what the ranks complained of.
template <class F>
std::string over_memory(int n, const memory_shape& shape, F f) {
    const shared_block shared(memory_transport::bytes(n, shape));
    // The bytes that need not be zero are not.
    const std::size_t zeroed = memory_transport::zeroed_bytes(n, shape), whole = memory_transport::bytes(n, shape);
    std::memset(shared.at() + zeroed, 0xa5, std::min(whole - zeroed, std::size_t{1} << 20));
    std::mutex mutex;
    std::string complaints;
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            const auto complain = [&](const std::string& what) {
                const std::lock_guard lock(mutex);
                complaints += "rank " + std::to_string(r) + ": " + what + "\n";
            };
            auto w = std::make_unique<memory_transport>(shared.at(), r, n, nullptr, shape);
            f(r, w, complain);
        });
    for (std::thread& t : ranks) t.join();
    return complaints;
}

const memory_shape tiny{64, 64}, usual{};

/// This process is one rank and runs f(transport, listener, child, ready); a forked one is the other, and ends with the
/// status that other(transport, listener, ready) returns, without destroying its transport. Each transport can tell
/// whether the other's process has ended.
template <class G, class F>
void two_processes(int own, const memory_shape& shape, G other, F f) {
    const shared_block shared(memory_transport::bytes(2, shape));
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t parent = getpid();
    child c([&]() -> int {
        memory_transport w(shared.at(), 1 - own, 2, [=](int) { return getppid() != parent; }, shape);
        ear e;
        w.listening = &e;
        _exit(other(w, e, ready[1]));
    });
    close(ready[1]);
    {
        memory_transport w(shared.at(), own, 2, [&](int rank) { return rank == 1 - own && c.ended(); }, shape);
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

// ---- the ring -------------------------------------------------------------------------------------------------------

TEST_CASE("message ring: bytes are read as they were written, and never more than the capacity is held",
    "[memory_transport]") {
    random_source random(3);
    for (const std::size_t capacity : {64u, 128u, 1024u, 65536u})
        for (const std::size_t stream_from : {std::size_t{100}, ~std::size_t{0}}) {
            auto state = std::make_unique<ring_state>();
            std::vector<std::byte> data(capacity + 128, std::byte{0xee});
            std::byte* const in = data.data() + 64;
            ring_writer w(*state, in, capacity, stream_from);
            ring_reader r(*state, in, capacity);
            std::vector<std::byte> all;  // that was ever written
            std::size_t got = 0;
            for (int turn = 0; turn < (capacity > 10'000 ? 400 : 3000); ++turn) {
                std::vector<std::vector<std::byte>> parts(random.below(5));
                std::vector<iovec> v;
                std::size_t whole = 0;
                for (auto& p : parts) {
                    p.resize(random.below(random.one_in(3) ? 2 * capacity : 40));
                    v.push_back({p.data(), p.size()});
                    whole += p.size();
                }
                const std::size_t inside = all.size() - got;
                if (random.one_in(2)) {
                    std::vector<std::byte> flat;
                    for (auto& p : parts) {
                        for (std::byte& b : p) b = static_cast<std::byte>(random.next());
                        flat.insert(flat.end(), p.begin(), p.end());
                    }
                    const std::size_t n = w.write(v.data(), static_cast<int>(v.size()));
                    REQUIRE(n == std::min(whole, capacity - inside));
                    all.insert(all.end(), flat.begin(), flat.begin() + static_cast<std::ptrdiff_t>(n));
                    REQUIRE(w.full() == (all.size() - got == capacity));
                } else {
                    const std::size_t n = r.read(v.data(), static_cast<int>(v.size()));
                    REQUIRE(n == std::min(whole, inside));
                    std::size_t left = n;
                    for (auto& p : parts) {
                        const std::size_t part = std::min(left, p.size());
                        REQUIRE((part == 0 || std::memcmp(p.data(), all.data() + got, part) == 0));
                        got += part;
                        left -= part;
                    }
                    REQUIRE(r.empty() == (got == all.size()));
                }
            }
            CHECK(got > 20 * capacity);
            CHECK(std::count(data.begin(), data.begin() + 64, std::byte{0xee}) == 64);
            CHECK(std::count(data.end() - 64, data.end(), std::byte{0xee}) == 64);
        }
}

// ---- messages -------------------------------------------------------------------------------------------------------

TEST_CASE("memory: the contract", "[memory_transport]") {
    for (const memory_shape& shape : {usual, tiny, memory_shape{1024, 512, 1000}}) {
        std::unique_ptr<shared_block> shared;  // of the latest group
        const auto make = [&](int n) {
            shared = std::make_unique<shared_block>(memory_transport::bytes(n, shape));
            colls::testing::message_transports_of_group all;
            for (int r = 0; r < n; ++r)
                all.push_back(std::make_unique<memory_transport>(shared->at(), r, n, nullptr, shape));
            return all;
        };
        CHECK(breach_of_contract(make, {2, 3}, {shape.messages}, shape.messages < 1000 ? 20'000 : 400'000) == "");
    }
}

TEST_CASE("memory: random messages and control messages both ways through rings of all sizes, between threads",
    "[memory_transport]") {
    struct form {
        int n, messages;
        std::size_t largest;
        memory_shape shape;
    };
    const int before = open_descriptors();
    for (const form& s : {form{2, 60, 3'000'000, usual}, form{3, 30, 1'500'000, usual},
             form{7, 16, 300'000, {10'000, 1000}}, form{2, 40, 40'000, tiny}, form{3, 20, 20'000, tiny},
             form{2, 60, 200'000, {1024, 64}}, form{2, 60, 1'000'000, {65536, 512, 1000}}}) {
        const std::uint64_t seed = setting("COLLS_TEST_SEED", 1) + static_cast<std::uint64_t>(s.n);
        const random_traffic t{seed, s.messages, s.messages / 2, s.largest};
        INFO(s.n << " ranks, seed " << t.seed << ", rings of " << s.shape.messages << " and " << s.shape.control);
        CHECK(over_memory(s.n, s.shape, [&](int r, auto& w, auto complain) {
            const std::string wrong = exchange(t, r, s.n, *w);
            if (!wrong.empty()) complain(wrong);
        }) == "");
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("memory: random messages and control messages between processes", "[memory_transport]") {
    for (const int n : {2, 3, 7})
        for (const bool small : {false, true}) {
            const memory_shape shape = small ? tiny : usual;
            const random_traffic t{500 + static_cast<std::uint64_t>(n), 40 / n, 20 / n,
                (small ? 30'000u : 3'000'000u) / static_cast<unsigned>(n)};
            const shared_block shared(memory_transport::bytes(n, shape));
            std::vector<std::unique_ptr<child>> ranks;
            for (int r = 0; r < n; ++r)
                ranks.push_back(std::make_unique<child>([&] {
                    memory_transport w(shared.at(), r, n, nullptr, shape);
                    const std::string wrong = exchange(t, r, n, w);
                    if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", r, wrong.c_str());
                    return wrong.empty() ? 0 : 1;
                }));
            INFO(n << " ranks, small rings: " << small);
            for (auto& r : ranks) CHECK(r->wait() == 0);
        }
}

TEST_CASE("memory: control messages that a rank does not read are refused once a queue is full", "[memory_transport]") {
    for (const memory_shape& shape : {usual, tiny}) {
        std::atomic<std::uint64_t> taken{0};
        CHECK(over_memory(2, shape, [&](int r, auto& own, auto complain) {
            ear e;
            own->listening = &e;
            if (const std::string found = fill_control(r, *own, e, taken); !found.empty()) complain(found);
        }) == "");
    }
}

TEST_CASE("memory: a report that makes progress gets no other report meanwhile", "[memory_transport]") {
    const shared_block shared(memory_transport::bytes(2));
    memory_transport w(shared.at(), 0, 2, nullptr), other(shared.at(), 1, 2, nullptr);
    other.linger = 0;  // its peer ends later, on this thread
    CHECK(depth_of_reports(w, other) == 1);
}

TEST_CASE("memory: rings that carry nothing take no pages", "[memory_transport]") {
    constexpr int n = 16;
    const shared_block shared(memory_transport::bytes(n));
    const std::size_t before = shared.pages_used();
    {
        std::vector<std::unique_ptr<memory_transport>> all;
        for (int r = 0; r < n; ++r) all.push_back(std::make_unique<memory_transport>(shared.at(), r, n, nullptr));
        std::uint64_t out = 5, in = 0;
        const piece po{reinterpret_cast<std::byte*>(&out), 8}, pi{reinterpret_cast<std::byte*>(&in), 8};
        all[3]->receive(4, {}, &pi, 1);
        all[4]->send(3, {}, &po, 1);
        for (auto& w : all) w->progress(), w->idle(1e-5);
        CHECK(in == 5);
        // The states of all rings, and one page of the ring that was used.
        const std::size_t counters = (n * n * 2 * sizeof(ring_state) + n * line) / 4096 + 2;
        CHECK(shared.pages_used() - before <= counters + 1);
        for (auto& w : all)
            w->tell_all({control_kind::broken, 1, 0, 0, ""});  // otherwise each would wait for the others to leave
    }
}

// ---- the end of a peer ----------------------------------------------------------------------------------------------

TEST_CASE("memory: a killed process is reported as lost, after what it sent before", "[memory_transport]") {
    for (const memory_shape& shape : {usual, memory_shape{4096, 64}})
        for (const int how : {0, 1, 2, 3, 4}) {
            INFO("ring of " << shape.messages << ", case " << how);
            std::vector<std::byte> there(1000, std::byte{1}), here(1000);
            const piece out{there.data(), there.size()}, in{here.data(), here.size()};
            std::vector<std::byte> long_one(10'000'000);
            const piece long_piece{long_one.data(), long_one.size()};
            two_processes(
                0, shape,
                [&](memory_transport& w, ear&, int ready) {
                    if (how == 1) {
                        for (std::uint64_t i = 0; i < 2; ++i) w.send(0, label_of(0, 0, i), &out, 1);
                        until(w, [&] { return w.sent(0) == 2; });
                    }
                    if (how == 4) w.send(0, label_of(0, 0, 0), &long_piece, 1);
                    if (how != 0) w.tell(0, {control_kind::board, 0, 0, 0, ""});
                    say_ready(ready);
                    if (how == 4) idle(w, patience_s);  // goes on sending
                    for (;;) ::pause();
                    return 0;
                },
                [&](memory_transport& w, ear& e, child& c, int ready) {
                    wait_ready(ready);
                    if (how == 0) w.receive(1, label_of(0, 0, 0), &in, 1);
                    if (how == 2) CHECK(w.tell(1, {control_kind::board, 0, 0, 0, ""}));
                    if (how == 3) w.send(1, label_of(0, 0, 0), &long_piece, 1);
                    if (how == 4) {
                        w.receive(1, label_of(0, 0, 0), &long_piece, 1);  // in the middle of it
                        for (int i = 0; i < 5; ++i) w.progress();
                    }
                    if (how == 0 || how == 2 || how == 3) idle(w, 0.1);
                    CHECK(e.count("lost") == 0);
                    c.kill();
                    c.wait();
                    if (how == 1)  // nothing has been read before
                        for (std::uint64_t i = 0; i < 3; ++i) w.receive(1, label_of(0, 0, i), &in, 1);
                    CHECK(until(w, [&] { return e.count("lost") > 0; }));
                    INFO(e.text());
                    if (how != 4) CHECK(w.received(1) == (how == 1 ? 2u : 0u));
                    if (how == 1) CHECK((here == there));
                    CHECK(e.count(said_board) == (how == 0 ? 0 : 1));
                    CHECK(e.events.back() == "lost 1");
                    CHECK(e.reasons.back() == "its process has ended");
                    CHECK(e.count(said_leave) == 0);
                    CHECK_FALSE(w.tell(1, {control_kind::board, 0, 0, 0, ""}));
                    idle(w, 0.02);
                    CHECK(e.count("lost") == 1);
                });
        }
}

TEST_CASE("memory: `broken` is reported before the loss of its sender", "[memory_transport]") {
    const std::string why(400, 'y');
    std::vector<std::byte> big(5'000'000);
    const piece p{big.data(), big.size()};
    for (const int how : {0, 1, 2, 3}) {
        INFO("case " << how);
        two_processes(
            0, usual,
            [&](memory_transport& w, ear&, int ready) {
                // At once; behind a message without a receive; behind one that is cut off; and with the transport
                // destroyed.
                if (how == 1 || how == 2) w.send(0, {}, &p, 1);
                if (how == 2) w.abandon();
                w.tell(0, {control_kind::broken, 1, 2, 3, why.c_str()});
                if (how == 3) w.~memory_transport();
                say_ready(ready);
                if (how == 3)
                    for (;;) ::pause();
                return 0;
            },
            [&](memory_transport& w, ear& e, child& c, int ready) {
                wait_ready(ready);
                if (how != 3) c.wait();
                if (how == 0) w.receive(1, {}, &p, 1);
                CHECK(until(w, [&] { return e.count("lost") > 0; }));
                INFO(e.text());
                REQUIRE(e.events.size() == 2);
                CHECK(e.count(said_broken) == 1);
                CHECK(e.all[0].text == why);
                CHECK((e.all[0].what.a == 1 && e.all[0].what.b == 2 && e.all[0].what.c == 3));
                c.kill();
            });
    }
}

TEST_CASE("memory: what a process wrote until its death is received", "[memory_transport]") {
    const shared_block shared(memory_transport::bytes(2));
    std::unique_ptr<memory_transport> other;
    std::uint64_t out = 5, in = 0;
    const piece po{reinterpret_cast<std::byte*>(&out), 8}, pi{reinterpret_cast<std::byte*>(&in), 8};
    const auto dies = [&](int) {  // it writes while it is checked whether it is dead
        if (other->sent(0) == 0) {
            other->send(0, {}, &po, 1);
            other->tell(0, {control_kind::broken, 1, 2, 3, "last words"});
        }
        return true;
    };
    memory_transport w(shared.at(), 0, 2, dies);
    other = std::make_unique<memory_transport>(shared.at(), 1, 2, nullptr);
    ear e;
    w.listening = &e;
    w.receive(1, {}, &pi, 1);
    CHECK(until(w, [&] { return e.count("lost") > 0; }));
    CHECK(in == 5);
    CHECK(w.received(1) == 1);
    CHECK(e.text() == said_broken + " from 1; lost 1; (its process has ended) ");
}

TEST_CASE("memory: a rank that left before its process ended is not reported as lost", "[memory_transport]") {
    two_processes(
        0, usual,
        [&](memory_transport& w, ear&, int ready) {
            w.~memory_transport();
            say_ready(ready);
            return 0;
        },
        [&](memory_transport& w, ear& e, child& c, int ready) {
            wait_ready(ready);
            c.wait();
            CHECK(until(w, [&] { return !e.events.empty(); }));
            idle(w, 0.02);
            CHECK(e.text() == said_leave + " from 1; ");
        });
}

TEST_CASE("memory: all ranks leave at once, repeatedly, and none is reported as lost", "[memory_transport]") {
    constexpr int n = 3;
    const std::size_t bytes = memory_transport::bytes(n, tiny);
    REQUIRE(bytes % line == 0);
    const shared_block shared(40 * bytes);
    std::mutex mutex;
    std::string complaints;
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            for (std::uint64_t turn = 0; turn < 40; ++turn) {
                memory_transport w(shared.at() + turn * bytes, r, n, nullptr, tiny);
                ear e;
                w.listening = &e;
                std::uint64_t out = turn, in[n] = {};
                for (int p = 0; p < n; ++p) {
                    if (p == r) continue;
                    const piece there{reinterpret_cast<std::byte*>(&out), 8},
                        here{reinterpret_cast<std::byte*>(&in[p]), 8};
                    w.receive(p, label_of(0, 0, turn), &here, 1);
                    w.send(p, label_of(0, 0, turn), &there, 1);
                }
                const int a = (r + 1) % n, b = (r + 2) % n;
                const bool done =
                    until(w, [&] { return w.received(a) + w.received(b) == 2 && w.sent(a) + w.sent(b) == 2; });
                const std::lock_guard lock(mutex);
                if (!done || in[a] != turn || in[b] != turn || e.count("lost") > 0) {
                    complaints += "rank " + std::to_string(r) + ": " + e.text();
                    return;
                }
            }
        });
    for (std::thread& t : ranks) t.join();
    CHECK(complaints == "");
}

TEST_CASE("memory: a rank that writes garbage is reported as lost", "[memory_transport]") {
    for (const bool in_control : {false, true}) {
        const shared_block shared(memory_transport::bytes(2));
        memory_transport w(shared.at(), 0, 2, nullptr);
        ear e;
        w.listening = &e;
        std::uint64_t value = 0;
        const piece p{reinterpret_cast<std::byte*>(&value), 8};
        {
            memory_transport other(shared.at(), 1, 2, nullptr);
            // A second transport in the rank's name begins to number its frames anew, so the reader sees a wrong
            // number.
            other.send(0, {}, &p, 1);
            other.tell(0, {control_kind::board, 1, 2, 3, "\x1b[31m"});
            w.receive(1, {}, &p, 1);
            w.progress();
            REQUIRE(w.received(1) == 1);
            REQUIRE(e.all.at(0).text == " [31m");  // without control characters for a terminal
            memory_transport again(shared.at(), 1, 2, nullptr);
            w.receive(1, {}, &p, 1);
            if (in_control)
                again.tell(0, {control_kind::board, 1, 2, 3, ""});
            else
                again.send(0, {}, &p, 1);
            w.progress();
            CHECK(e.count("lost 1") == 1);
            CHECK(w.received(1) == 1);
            for (memory_transport* x : {&other, &again}) x->tell_all({control_kind::broken, 1, 0, 0, ""});
        }
    }
}

TEST_CASE(
    "memory: `idle` lets the next `progress` find a death, however seldom both are called", "[memory_transport]") {
    const shared_block shared(memory_transport::bytes(2));
    bool dead = false;
    memory_transport w(shared.at(), 0, 2, [&](int r) { return r == 1 && dead; });
    ear e;
    w.listening = &e;
    std::uint64_t value = 0;
    const piece p{reinterpret_cast<std::byte*>(&value), 8};
    w.receive(1, label_of(0, 0, 0), &p, 1);
    for (int i = 0; i < 4; ++i) w.idle(0.01), w.progress();
    CHECK(e.count("lost") == 0);
    dead = true;
    for (int i = 0; i < 4; ++i) w.idle(0.01), w.progress();
    CHECK(e.text() == "lost 1; (its process has ended) ");
}
