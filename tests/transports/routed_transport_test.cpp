// The routed transport: shared memory within hosts, TCP between them. The hosts are simulated; ranks are threads and
// processes.
#include "catch.hpp"

#include "support/message_transports.hpp"
#include "support/shared_block.hpp"

#include <colls/net/detail/connection/memory_transport.hpp>
#include <colls/net/detail/connection/tcp_transport.hpp>
#include <colls/net/detail/node/routed_transport.hpp>

#include <atomic>

using namespace support;
using colls::none;

namespace {

/// Which host each rank is on, and memory for each host.
struct landscape {
    std::vector<int> host;
    memory_shape shape;
    std::vector<std::unique_ptr<shared_block>> memory;

    landscape(std::vector<int> hosts, const memory_shape& s) : host(std::move(hosts)), shape(s) {
        for (int h = 0; h <= *std::max_element(host.begin(), host.end()); ++h)
            memory.push_back(std::make_unique<shared_block>(memory_transport::bytes(on(h), shape)));
    }
    int n() const { return static_cast<int>(host.size()); }
    int of(int rank) const { return host[static_cast<std::size_t>(rank)]; }
    int on(int h) const { return static_cast<int>(std::count(host.begin(), host.end(), h)); }
    /// Numbers among the ranks of that rank's host, in reverse order, so that they differ from ranks of the group.
    std::vector<int> near_ranks(int rank) const {
        std::vector<int> near(host.size(), none);
        int next = on(of(rank));
        for (int r = 0; r < n(); ++r)
            if (of(r) == of(rank)) near[static_cast<std::size_t>(r)] = --next;
        return near;
    }
    /// `dead` takes ranks of the group.
    std::unique_ptr<routed_transport> transport_of(int rank, std::uint64_t group, tcp_node& node,
        const std::vector<address>& members, std::function<bool(int)> dead = nullptr) const {
        const std::vector<int> near = near_ranks(rank);
        std::function<bool(int)> dead_near;
        if (dead)
            dead_near = [dead, near](int number) {
                return dead(static_cast<int>(std::find(near.begin(), near.end(), number) - near.begin()));
            };
        std::byte* const at = memory[static_cast<std::size_t>(of(rank))]->at();
        const int own = near[static_cast<std::size_t>(rank)];
        return std::make_unique<routed_transport>(rank, near,
            std::make_unique<memory_transport>(at, own, on(of(rank)), dead_near, shape),
            std::make_unique<tcp_transport>(node, group, rank, members));
    }
};

template <class F>
std::string over_both(const landscape& land, F f) {
    return ranks_as_threads(land.n(), [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        auto w = land.transport_of(r, 99, node, members);
        f(r, w, complain);
    });
}

const memory_shape tiny{64, 64}, usual{};

/// A transport that records calls, and whose listener the test calls.
struct puppet final : message_transport {
    std::vector<std::pair<int, std::string>> calls;
    std::uint64_t numbers[8] = {}, numbers_in[8] = {};  // posted to and from each peer
    std::uint64_t out[8] = {}, in[8] = {};              // over
    std::vector<double> idled;                          // for how many seconds at most
    double* lingered = nullptr;                         // set as it ends

    ~puppet() override {
        if (lingered != nullptr) *lingered = linger;
    }
    std::uint64_t send(int peer, const message_label&, const piece*, int) override {
        calls.emplace_back(peer, "send");
        return numbers[peer]++;
    }
    std::uint64_t receive(int peer, const message_label&, const piece*, int) override { return numbers_in[peer]++; }
    std::uint64_t sent(int peer) const override { return out[peer]; }
    std::uint64_t received(int peer) const override { return in[peer]; }
    void abandon() override {}
    bool tell(int peer, const control_message&) override { return calls.emplace_back(peer, "tell"), true; }
    void tell_all(const control_message&) override { calls.emplace_back(none, "tell all"); }
    void progress() override { calls.emplace_back(none, "progress"); }
    void idle(double seconds) override {
        calls.emplace_back(none, "idle");
        idled.push_back(seconds);
    }
};

}  // namespace

TEST_CASE("routed: the contract", "[routed_transport]") {
    std::vector<std::unique_ptr<tcp_node>> nodes;  // of the latest group
    std::unique_ptr<landscape> land;
    const auto make = [&](int n) {
        meeting_place place(n);
        nodes.clear();
        std::vector<int> hosts;
        for (int r = 0; r < n; ++r) hosts.push_back(r == 3 ? 0 : r % 2);  // 0, 1, 0, 0, 0
        land = std::make_unique<landscape>(hosts, usual);
        colls::testing::message_transports_of_group all;
        for (int r = 0; r < n; ++r) {
            nodes.push_back(std::make_unique<tcp_node>(place.take(r)));
            all.push_back(land->transport_of(r, 5, *nodes.back(), place.members));
        }
        return all;
    };
    CHECK(breach_of_contract(make) == "");
}

TEST_CASE("routed: random messages and control messages between threads of several hosts", "[routed_transport]") {
    struct form {
        std::vector<int> host;
        int messages;
        std::size_t largest;
        memory_shape shape;
    };
    const int before = open_descriptors();
    for (const form& s : {form{{0, 0, 1, 1}, 20, 600'000, usual}, form{{0, 1, 0, 1, 2, 0}, 12, 200'000, usual},
             form{{0, 1, 1}, 20, 40'000, tiny}, form{{0, 1, 2}, 10, 100'000, usual},
             form{{0, 0, 0}, 20, 100'000, usual}}) {
        const landscape land(s.host, s.shape);
        const std::uint64_t seed = setting("COLLS_TEST_SEED", 1) + s.host.size() * 10;
        const random_traffic t{seed, s.messages, s.messages / 2, s.largest};
        INFO(land.n() << " ranks, seed " << t.seed);
        CHECK(over_both(land, [&](int r, auto& w, auto complain) {
            const std::string wrong = exchange(t, r, land.n(), *w);
            if (!wrong.empty()) complain(wrong);
        }) == "");
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("routed: random messages and control messages between processes of two hosts", "[routed_transport]") {
    const landscape land({0, 1, 1, 0, 0}, usual);
    const random_traffic t{700, 12, 6, 500'000};
    meeting_place place(land.n());
    std::vector<std::unique_ptr<child>> ranks;
    for (int r = 0; r < land.n(); ++r)
        ranks.push_back(std::make_unique<child>([&] {
            tcp_node node(place.take(r));
            place.listening.clear();
            auto w = land.transport_of(r, 99, node, place.members);
            const std::string wrong = exchange(t, r, land.n(), *w);
            if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", r, wrong.c_str());
            w.reset();
            return wrong.empty() ? 0 : 1;
        }));
    for (auto& r : ranks) CHECK(r->wait() == 0);
}

TEST_CASE(
    "routed: a killed process is reported as lost once, whichever transport sees it first", "[routed_transport]") {
    for (const bool same_host : {true, false})
        for (const bool waiting : {true, false}) {
            INFO("same host " << same_host << ", waited for " << waiting);
            const landscape land({0, same_host ? 0 : 1, same_host ? 1 : 0}, usual);
            meeting_place place(3);
            int ready[2];
            REQUIRE(pipe(ready) == 0);
            const auto meet = [](routed_transport& w, ear& e, int own) {
                for (int q = 0; q < 3; ++q)
                    if (q != own) w.tell(q, {control_kind::offer, 0, 0, 0, ""});
                return until(w, [&] { return e.count("heard 0") == 2; });
            };
            std::vector<std::unique_ptr<child>> others(3);
            for (int r = 1; r < 3; ++r)
                others[static_cast<std::size_t>(r)] = std::make_unique<child>([&] {
                    tcp_node node(place.take(r));
                    place.listening.clear();
                    auto w = land.transport_of(r, 99, node, place.members);
                    ear e;
                    w->listening = &e;
                    meet(*w, e, r);
                    if (write(ready[1], "x", 1) != 1) return 1;
                    until(*w, [] { return false; }, patience_s);
                    return 0;
                });
            close(ready[1]);
            {
                tcp_node node(place.take(0));
                place.listening.clear();
                const auto dead = [&](int r) { return r > 0 && others[static_cast<std::size_t>(r)]->ended(); };
                auto w = land.transport_of(0, 99, node, place.members, dead);
                ear e;
                w->listening = &e;
                CHECK(meet(*w, e, 0));
                char x;
                for (int i = 0; i < 2; ++i) REQUIRE(read(ready[0], &x, 1) == 1);
                std::uint64_t value = 0;
                const piece p{reinterpret_cast<std::byte*>(&value), 8};
                if (waiting) w->receive(1, {}, &p, 1);
                idle(*w, 0.05);
                CHECK(e.count("lost") == 0);
                others[1]->kill();
                CHECK(until(*w, [&] { return e.count("lost 1") > 0; }));
                CHECK_FALSE(w->tell(1, {control_kind::board, 0, 0, 0, ""}));
                CHECK(w->tell(2, {control_kind::board, 0, 0, 0, ""}));
                idle(*w, 0.4);
                INFO(e.text());
                CHECK(e.count("lost") == 1);
                w->tell_all({control_kind::broken, 1, 0, 0, ""});
            }
            close(ready[0]);
        }
}

TEST_CASE("routed: an end that both transports report is reported once; `leave` counts on that of the messages only",
    "[routed_transport]") {
    auto a = std::make_unique<puppet>(), b = std::make_unique<puppet>();
    puppet &near = *a, &far = *b;
    // Ranks 1, 3 and 4 of the group are on `near`, with the numbers 2, 0 and 1; this is rank 3.
    routed_transport w(3, {none, 2, none, 0, 1}, std::move(a), std::move(b));
    ear e;
    w.listening = &e;
    near.listening->lost(2, "its process");
    far.listening->lost(1, "its connection");
    CHECK(e.text() == "lost 1; (its process) ");
    far.listening->lost(4, "its connection");
    near.listening->lost(1, "its process");
    CHECK(e.count("lost 4") == 1);
    e.events.clear();
    far.listening->lost(2, "its connection");
    far.listening->lost(2, "its connection");
    CHECK(e.count("lost 2") == 1);
    e.events.clear();
    far.listening->heard(0, {control_kind::leave});
    far.listening->lost(0, "its connection");
    CHECK(e.text().find(said_leave + " from 0; (") == 0);
    far.listening->heard(0, {control_kind::board, 1, 2, 3, ""});
    CHECK(e.count(said_board + " from 0") == 1);
    near.listening->lost(7, "no such number");
    near.listening->heard(5, {control_kind::board, 1, 2, 3, ""});
    CHECK(e.count("lost") == 0);
    CHECK(e.count(said_board) == 1);

    auto c = std::make_unique<puppet>(), d = std::make_unique<puppet>();
    puppet &near2 = *c, &far2 = *d;
    routed_transport v(0, {0, 1, none}, std::move(c), std::move(d));
    ear f;
    v.listening = &f;
    far2.listening->heard(1, {control_kind::leave});  // its messages go on the other transport
    CHECK(f.events.empty());
    near2.listening->heard(1, {control_kind::leave});
    near2.listening->heard(1, {control_kind::leave});
    CHECK(f.text() == said_leave + " from 1; ");
    using call_list = std::vector<std::pair<int, std::string>>;
    v.tell_all({control_kind::board, 1, 2, 3, ""});
    CHECK(v.send(2, {}, nullptr, 0) == 0);
    CHECK(v.send(2, {}, nullptr, 0) == 1);
    CHECK(v.send(1, {}, nullptr, 0) == 0);
    CHECK((far2.calls == call_list{{none, "tell all"}, {2, "send"}, {2, "send"}}));
    CHECK((near2.calls == call_list{{none, "tell all"}, {1, "send"}}));
}

TEST_CASE("routed: each of its transports lingers as long as it is to linger itself", "[routed_transport]") {
    for (const double seconds : {0.0, 0.25, 7.0}) {
        double lingered[2] = {-1, -1};
        auto near = std::make_unique<puppet>(), far = std::make_unique<puppet>();
        near->lingered = &lingered[0];
        far->lingered = &lingered[1];
        {
            routed_transport w(0, {0, none}, std::move(near), std::move(far));
            w.linger = seconds;
        }
        CHECK(lingered[0] == seconds);
        CHECK(lingered[1] == seconds);
    }
}

TEST_CASE("routed: `far` is looked at rarely while messages are under way on `near` alone, and else always",
    "[routed_transport]") {
    auto a = std::make_unique<puppet>(), b = std::make_unique<puppet>();
    puppet &near = *a, &far = *b;
    routed_transport w(0, {0, 1, none}, std::move(a), std::move(b));
    // How many of 16 calls of `progress` look at `far`; and the transport that `idle` sleeps on.
    const auto looks = [&] {
        far.calls.clear();
        for (int i = 0; i < 16; ++i) w.progress();
        return far.calls.size();
    };
    const auto sleeps_on_near = [&] {
        near.calls.clear();
        w.idle(1);
        return !near.calls.empty();
    };
    CHECK(looks() == 16);
    CHECK_FALSE(sleeps_on_near());
    for (int turn = 0; turn < 3; ++turn)
        for (const bool receives : {false, true}) {
            INFO("turn " << turn << ", receives " << receives);
            const auto post = [&](int peer) {
                receives ? w.receive(peer, {}, nullptr, 0) : w.send(peer, {}, nullptr, 0);
            };
            const auto over = [&](puppet& on, int number) { ++(receives ? on.in : on.out)[number]; };
            for (int i = 0; i < 2; ++i) post(1);
            CHECK(looks() == 1);
            CHECK(sleeps_on_near());
            over(near, 1);
            CHECK(looks() == 1);
            post(2);
            CHECK(looks() == 16);
            over(far, 2);
            w.progress();
            CHECK(looks() == 1);
            over(near, 1);
            w.progress();
            CHECK(looks() == 16);
            CHECK_FALSE(sleeps_on_near());
        }
}

TEST_CASE("routed: which of its transports `idle` sleeps on, and for how long", "[routed_transport]") {
    auto near_owned = std::make_unique<puppet>(), far_owned = std::make_unique<puppet>();
    puppet &near = *near_owned, &far = *far_owned;
    routed_transport w(0, {0, 1, none}, std::move(near_owned), std::move(far_owned));
    using sleeps = std::vector<double>;
    const auto expect_idle = [&](double seconds, const sleeps& on_near, const sleeps& on_far) {
        near.idled.clear();
        far.idled.clear();
        w.idle(seconds);
        CHECK(near.idled == on_near);
        CHECK(far.idled == on_far);
    };
    const auto forget_quiet = [&](auto after) {  // which lets it yield again, as often as after a start
        after();
        for (int i = 0; i < 32; ++i) expect_idle(1, {10e-6}, {});
        expect_idle(1, {}, {50e-6});
        expect_idle(1e-6, {}, {1e-6});
    };
    expect_idle(1, {}, {1e-3});  // nothing is to come on `near`
    expect_idle(1e-4, {}, {1e-4});
    w.receive(1, {}, nullptr, 0);
    forget_quiet([] {});
    forget_quiet([&] { near.listening->heard(1, {control_kind::board, 1, 2, 3, ""}); });
    forget_quiet([&] { far.listening->heard(2, {control_kind::board, 1, 2, 3, ""}); });
    forget_quiet([&] {  // a message arrives
        near.in[1] = 1;
        w.progress();
        w.receive(1, {}, nullptr, 0);
    });
    w.receive(2, {}, nullptr, 0);
    near.listening->heard(1, {control_kind::board, 1, 2, 3, ""});
    expect_idle(1, {10e-6}, {0});  // something is to come on both
}

TEST_CASE("routed: `idle` sleeps on the only one of its transports that has peers", "[routed_transport]") {
    for (const bool has_near : {false, true}) {
        auto near_owned = std::make_unique<puppet>(), far_owned = std::make_unique<puppet>();
        puppet &near = *near_owned, &far = *far_owned;
        routed_transport w(0, {0, has_near ? 1 : none}, std::move(near_owned), std::move(far_owned));
        w.receive(1, {}, nullptr, 0);
        w.idle(1);
        CHECK(near.idled == std::vector<double>(has_near ? 1 : 0, 1.0));
        CHECK(far.idled == std::vector<double>(has_near ? 0 : 1, 1.0));
    }
}
