// The verbs transport on a simulated device within this process; ranks are threads.
#include "catch.hpp"

#include "support/message_transports.hpp"
#include "support/says.hpp"
#include "support/verbs_dry_run.hpp"

#include <colls/net/detail/connection/tcp_transport.hpp>
#include <colls/verbs/detail/lanes.hpp>
#include <colls/verbs/detail/verbs_transport.hpp>

#include <malloc.h>
#include <atomic>
#include <functional>

using namespace support;
using colls::none;
using colls::testing::dry_network;

namespace {

const verbs_shape usual{}, tiny{.slots = 2, .slot_bytes = 64, .notices = 2, .least_stripe = 600};

/// Which memory of a rank is registered with its device.
enum class reach_of { nothing, everything };

std::shared_ptr<rdma::memory_registry> registry_on(const std::shared_ptr<dry_network>& net, int rank, int lanes = 1) {
    std::vector<std::shared_ptr<rdma::device>> all;
    for (int k = 0; k < lanes; ++k) all.push_back(net->device(rank, k));
    return std::make_shared<rdma::memory_registry>(std::make_shared<rdma::several_devices>(all));
}

/// The memory that is registered with a rank's devices, and transports on them.
struct rank_device {
    std::shared_ptr<rdma::memory_registry> registry;
    rank_device(const std::shared_ptr<dry_network>& net, int rank, reach_of what, int lanes = 1)
        : registry(registry_on(net, rank, lanes)) {
        if (what == reach_of::everything) registry->add(nullptr, ~std::size_t{0} / 2);
    }
    std::unique_ptr<verbs_transport> transport(
        tcp_node& node, std::uint64_t group, int rank, const std::vector<address>& members, const verbs_shape& shape) {
        return std::make_unique<verbs_transport>(std::make_unique<tcp_transport>(node, group, rank, members), registry,
            rank, static_cast<int>(members.size()), shape);
    }
};

struct setting_of {
    bool lazy = true;
    reach_of reach = reach_of::nothing;
    verbs_shape shape = usual;
    std::uint32_t inlined = 256, gathers = 16;
    std::uint64_t bytes = 1 << 30;
    int lanes = 1;
    /// A rank of odd number has a lane less.
    int lanes_of(int rank) const { return std::max(lanes - rank % 2, 1); }
};
std::vector<setting_of> settings() {
    std::vector<setting_of> all;
    for (const reach_of r : {reach_of::nothing, reach_of::everything})
        for (const verbs_shape& s : {usual, tiny})
            for (const bool lazy : {false, true}) all.push_back({lazy, r, s, 256, 16, 1 << 30});
    all.push_back({true, reach_of::everything, usual, 0, 2, 1 << 30});
    all.push_back({true, reach_of::nothing, usual, 0, 1, 1 << 30});
    for (const reach_of r : {reach_of::nothing, reach_of::everything}) all.push_back({true, r, usual, 500, 3, 1000});
    for (const int lanes : {3, 4})
        for (const verbs_shape& s : {usual, tiny})
            all.push_back({true, reach_of::everything, s, 256, 16, lanes == 3 ? 2000u : 1u << 30, lanes});
    // What ranks as threads share, the network and the registry, is the same in all of them.
    if (sanitized_threads) std::erase_if(all, [i = 0](const setting_of&) mutable { return i++ % 3 != 0; });
    return all;
}
std::ostream& operator<<(std::ostream& out, const setting_of& s) {
    return out << (s.lazy ? "lazy, " : "at once, ")
               << (s.reach == reach_of::everything ? "registered, " : "not registered, ") << s.shape.slots
               << " slots of " << s.shape.slot_bytes << " bytes, inlined " << s.inlined << ", " << s.gathers
               << " pieces, " << s.bytes << " bytes, " << s.lanes << " lanes";
}

/// f(rank, transport as unique_ptr, complain) on a thread a rank.
template <class F>
std::string over_verbs(int n, const setting_of& s, F f, std::shared_ptr<dry_network> net = nullptr) {
    if (!net) net = std::make_shared<dry_network>(s.lazy, s.inlined, s.gathers, s.bytes);
    std::vector<std::unique_ptr<rank_device>> devices;  // they end together, as processes do
    for (int r = 0; r < n; ++r) devices.push_back(std::make_unique<rank_device>(net, r, s.reach, s.lanes_of(r)));
    std::string complaints =
        ranks_as_threads(n, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            auto w = devices[static_cast<std::size_t>(r)]->transport(node, 99, r, members, s.shape);
            f(r, w, complain);
        });
    devices.clear();
    if (net->regions() > 0) complaints += "memory is still registered\n";
    return complaints;
}

}  // namespace

TEST_CASE("verbs: the contract", "[verbs_transport]") {
    for (const setting_of& s : settings()) {
        INFO(s);
        std::vector<std::unique_ptr<tcp_node>> nodes;  // of the latest group
        std::vector<std::unique_ptr<rank_device>> devices;
        // A rank that abandons takes its queue pairs with it. Its peers hear the cause only some steps later.
        verbs_shape shape = s.shape;
        shape.failure_grace = patience_s;
        const auto make = [&](int n) {
            meeting_place place(n);
            devices.clear(), nodes.clear();
            const auto net = std::make_shared<dry_network>(s.lazy, s.inlined, s.gathers, s.bytes);
            colls::testing::message_transports_of_group all;
            for (int r = 0; r < n; ++r) {
                nodes.push_back(std::make_unique<tcp_node>(place.take(r)));
                devices.push_back(std::make_unique<rank_device>(net, r, s.reach, s.lanes_of(r)));
                all.push_back(devices.back()->transport(*nodes.back(), 5, r, place.members, shape));
            }
            return all;
        };
        const std::size_t slot = s.shape.slot_bytes;
        const std::vector<int> groups = s.lazy && s.inlined == 256 ? std::vector{2, 3} : std::vector{2};
        CHECK(breach_of_contract(make, groups, {slot, s.inlined + 1}, slot < 1000 ? 20'000 : 900'000) == "");
    }
}

TEST_CASE("verbs: random messages and control messages both ways at once arrive in order", "[verbs_transport]") {
    const int before = open_descriptors();
    struct form {
        int n, messages;
        std::size_t largest;
    };
    for (const setting_of& s : settings())
        for (const form& f : {form{2, 40, 600'000}, form{3, 20, 200'000}, form{5, 12, 50'000}}) {
            const bool small = s.shape.slot_bytes < 1000;
            const std::uint64_t seed = setting("COLLS_TEST_SEED", 1) + static_cast<std::uint64_t>(f.n);
            const random_traffic t{seed, f.messages, f.messages / 2, small ? f.largest / 20 : f.largest};
            INFO(f.n << " ranks, seed " << t.seed << ", " << s);
            CHECK(over_verbs(f.n, s, [&](int r, auto& w, auto complain) {
                const std::string wrong = exchange(t, r, f.n, *w);
                if (!wrong.empty()) complain(wrong);
            }) == "");
        }
    CHECK(open_descriptors() == before);
}

TEST_CASE("verbs: a large message is not copied on a side where its memory is registered", "[verbs_transport]") {
    for (const bool here : {true, false})
        for (const bool there : {true, false}) {
            const auto net = std::make_shared<dry_network>(true);
            constexpr std::size_t bytes = 1'000'000;
            std::vector<std::unique_ptr<rank_device>> devices;
            for (int r = 0; r < 2; ++r)
                devices.push_back(std::make_unique<rank_device>(
                    net, r, (r == 0 ? here : there) ? reach_of::everything : reach_of::nothing));
            CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
                auto w = devices[static_cast<std::size_t>(r)]->transport(node, 99, r, members, usual);
                std::vector<std::byte> data(bytes, static_cast<std::byte>(7 * r));
                // Two pieces at the sender, three of other sizes at the receiver.
                const piece from[] = {{data.data(), 300'000}, {data.data() + 300'000, bytes - 300'000}};
                const piece to[] = {
                    {data.data() + 500'000, 500'000}, {data.data(), 1000}, {data.data() + 1000, 499'000}};
                if (r == 0)
                    w->send(1, label_of(0, 1, 0), from, 2);
                else
                    w->receive(0, label_of(0, 1, 0), to, 3);
                if (!until(*w, [&] { return r == 0 ? w->sent(1) == 1 : w->received(0) == 1; })) complain("not done");
                if (data != std::vector<std::byte>(bytes, std::byte{0})) complain("other bytes");
                if (r == 0 && w->copied().out != (here ? 0 : bytes))
                    complain("copied at its source: " + std::to_string(w->copied().out));
                if (r == 1 && w->copied().in != (here && there ? 0 : bytes))
                    complain("copied where it landed: " + std::to_string(w->copied().in));
            }) == "");
        }
}

TEST_CASE("verbs: placement notices long before their messages never exceed the posted receives", "[verbs_transport]") {
    constexpr std::uint64_t many = 300;
    for (const auto& [shape, lanes] : {std::pair{tiny, 1}, {usual, 1}, {tiny, 3}}) {
        const std::size_t bytes = shape.slot_bytes + 1200;
        INFO(bytes << " bytes each");
        CHECK(over_verbs(2, {.lazy = false, .reach = reach_of::everything, .shape = shape, .lanes = lanes},
                  [&](int r, auto& own, auto complain) {
                      verbs_transport& w = *own;
                      ear e;
                      w.listening = &e;
                      std::vector<std::byte> data(bytes * many);
                      for (std::uint64_t i = 0; i < many; ++i) {
                          const piece p{data.data() + bytes * i, bytes};
                          if (r == 0) std::fill_n(p.data, bytes, static_cast<std::byte>(i));
                          if (r == 1) w.receive(0, label_of(0, 1, i), &p, 1);
                      }
                      if (r == 0) {
                          std::uint64_t first = 0;
                          const piece hello{reinterpret_cast<std::byte*>(&first), 8};
                          w.receive(1, label_of(1, 0, 0), &hello, 1);  // so that the queues are there
                          if (!until(w, [&] { return w.received(1) == 1; })) return complain("no hello; " + e.text());
                          idle(w, 0.05);
                          for (std::uint64_t i = 0; i < many; ++i) {
                              const piece p{data.data() + bytes * i, bytes};
                              w.send(1, label_of(0, 1, i), &p, 1);
                          }
                          if (!until(w, [&] { return w.sent(1) == many || e.count("failed") > 0; }) ||
                              e.count("failed") > 0)
                              complain("not sent; " + e.text());
                      } else {
                          std::uint64_t first = 0;
                          const piece hello{reinterpret_cast<std::byte*>(&first), 8};
                          w.send(0, label_of(1, 0, 0), &hello, 1);
                          if (!until(w, [&] { return w.received(0) == many || e.count("failed") > 0; }) ||
                              e.count("failed") > 0)
                              return complain("not received; " + e.text());
                          for (std::uint64_t i = 0; i < many; ++i)
                              if (data[bytes * i] != static_cast<std::byte>(i) ||
                                  data[bytes * (i + 1) - 1] != static_cast<std::byte>(i))
                                  return complain("other bytes");
                      }
                  }) == "");
    }
}

TEST_CASE("verbs: all ranks leave at once, forty times", "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>(true);
    std::vector<std::unique_ptr<rank_device>> devices;
    for (int r = 0; r < 3; ++r) devices.push_back(std::make_unique<rank_device>(net, r, reach_of::nothing));
    CHECK(ranks_as_threads(3, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        for (std::uint64_t turn = 0; turn < 40; ++turn) {
            auto w = devices[static_cast<std::size_t>(r)]->transport(node, 1000 + turn, r, members, usual);
            ear e;
            w->listening = &e;
            std::uint64_t out = turn, in[3] = {};
            const int a = (r + 1) % 3, b = (r + 2) % 3;
            for (const int p : {a, b}) {
                const piece there{reinterpret_cast<std::byte*>(&out), 8}, here{reinterpret_cast<std::byte*>(&in[p]), 8};
                w->receive(p, label_of(0, 0, turn), &here, 1);
                w->send(p, label_of(0, 0, turn), &there, 1);
            }
            if (!until(*w, [&] { return w->received(a) + w->received(b) == 2 && w->sent(a) + w->sent(b) == 2; }))
                return complain("not done; " + e.text());
            if (in[a] != turn || in[b] != turn) complain("other bytes");
            if (e.count("lost") + e.count("failed") > 0) complain(e.text());
        }
    }) == "");
}

// ---- failures ------------------------------------------------------------------------------------------------

TEST_CASE("verbs: a completion with an error is reported on both sides, once, with its status where it is known",
    "[verbs_transport]") {
    struct fault {
        const char* status;
        bool large;
    };
    for (const bool lazy : {false, true})
        for (const fault f : {fault{"remote operation error", false}, fault{"local protection error", true},
                 fault{"RNR retry counter exceeded", false}}) {
            const auto net = std::make_shared<dry_network>(lazy);
            net->fault = [&](const dry_network::entry& e) -> const char* {
                const bool direct = rdma::kind_of(e.what.immediate) == rdma::write_kind::direct;
                return e.from == 0 && direct == f.large && rdma::kind_of(e.what.immediate) != rdma::write_kind::notice
                           ? f.status
                           : nullptr;
            };
            INFO(f.status << (lazy ? ", lazy" : ""));
            CHECK(over_verbs(
                      3, {.lazy = lazy, .reach = reach_of::everything, .shape = {.failure_grace = 0.02}},
                      [&](int r, auto& own, auto complain) {
                          verbs_transport& w = *own;
                          ear e;
                          w.listening = &e;
                          std::vector<std::byte> data(f.large ? 100'000 : 100);
                          const piece p{data.data(), data.size()};
                          // Rank 2 is not concerned.
                          if (r == 2) {
                              w.receive(1, label_of(0, 0, 0), &p, 1);
                              if (!until(w, [&] { return w.received(1) == 1 && e.count(said_leave) == 1; }))
                                  complain("not received: " + e.text());
                              if (e.count("failed") > 0) complain(e.text());
                              return;
                          }
                          if (r == 0)
                              w.send(1, label_of(0, 0, 0), &p, 1);
                          else
                              w.receive(0, label_of(0, 0, 0), &p, 1), w.send(2, label_of(0, 0, 0), &p, 1);
                          if (r == 0) {
                              if (!until(w, [&] { return e.count("failed 1") == 1; }))
                                  return complain("not reported: " + e.text());
                              if (e.reasons.back().find(f.status) == std::string::npos)
                                  complain("not its status: " + e.reasons.back());
                              w.tell(1, {control_kind::board, 0, 0, 0, ""});
                          }
                          if (r == 1 && !until(w, [&] { return e.count(said_board) == 1; }))
                              complain("no control message: " + e.text());
                          idle(w, 0.1);
                          if (r == 0 && e.count("failed") != 1) complain(e.text());
                          if (w.received(1 - r) != 0) complain("arrived");
                          if (e.count("lost") > 0) complain(e.text());
                          if (r == 1 && !until(w, [&] { return w.sent(2) == 1; }))
                              complain("nothing goes to others any more: " + e.text());
                          w.abandon();
                      },
                      net) == "");
            CHECK(net->opened() == 4);
            CHECK(net->stopped() >= 3);  // rank 2 may just end
        }
}

TEST_CASE("verbs: a wrong key is reported at once by the rank that used it, by the other after a grace period",
    "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>(true);
    std::vector<std::unique_ptr<rank_device>> devices;
    for (int r = 0; r < 2; ++r) devices.push_back(std::make_unique<rank_device>(net, r, reach_of::nothing));
    std::atomic<bool> dropped{false};
    std::atomic<int> told{0};
    std::vector<std::byte> there(100'000), here(100'000, std::byte{5});
    const auto known_here = devices[0]->registry->add(here.data(), here.size());
    auto known_there = devices[1]->registry->add(there.data(), there.size());
    CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        auto w =
            devices[static_cast<std::size_t>(r)]->transport(node, 99, r, members, verbs_shape{.failure_grace = 0.02});
        ear e;
        w->listening = &e;
        if (r == 1) {
            // The place is granted, and no longer registered when it is written.
            const piece to{there.data(), there.size()};
            w->receive(0, label_of(0, 1, 0), &to, 1);
            if (!until(*w, [&] { return net->log().size() > 0; })) complain("no notice");
            idle(*w, 0.01);
            devices[1]->registry->drop(known_there);
            dropped = true;
        } else {
            while (!dropped) w->progress();
            const piece from{here.data(), here.size()};
            w->send(1, label_of(0, 1, 0), &from, 1);
        }
        if (!until(*w, [&] { return e.count("failed") == 1; })) complain("not reported; " + e.text());
        if (r == 0 && e.reasons.back().find("remote access error") == std::string::npos) complain(e.reasons.back());
        if (!meet(*w, told, 2)) complain("not told both");
        idle(*w, 0.1);
        if (e.count("failed") != 1 || e.count("lost") > 0) complain(e.text());
        w->abandon();
    }) == "");
    CHECK(there == std::vector<std::byte>(there.size()));
    devices[0]->registry->drop(known_here);
    devices.clear();
    CHECK(net->regions() == 0);
}

TEST_CASE(
    "verbs: memory that cannot be registered is reported at the first message to a peer, and nothing is left over",
    "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>();
    net->most_registered = 100'000;
    CHECK(over_verbs(
              2, {.lazy = false},
              [&](int r, auto& own, auto complain) {
                  verbs_transport& w = *own;
                  ear e;
                  w.listening = &e;
                  std::uint64_t value = 0;
                  const piece p{reinterpret_cast<std::byte*>(&value), 8};
                  w.send(1 - r, label_of(0, 0, 0), &p, 1);
                  if (!until(w, [&] { return e.count("failed") == 1; })) complain("not reported; " + e.text());
                  if (e.reasons.back().find("cannot register") == std::string::npos) complain(e.reasons.back());
                  if (w.queue_pairs() != 0) complain("there is a queue");
                  w.abandon();
              },
              net) == "");
    rdma::memory_registry registry(net->device(7));
    CHECK_THROWS_AS(registry.take(200'000), colls::error);
    CHECK_THROWS_AS(registry.take(20'000'000), colls::error);
    CHECK(net->regions() == 0);
}

TEST_CASE("memory_registry: an idle range is used again for what takes half of it or more", "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>();
    rdma::memory_registry registry(net->device(0));
    constexpr std::size_t half = 2 << 20;
    std::byte* const first = registry.take(2 * half);
    registry.give(first, 2 * half);
    std::byte* const second = registry.take(half);
    CHECK(second == first);
    registry.give(second, half);
    std::byte* const third = registry.take(half - 100'000);
    CHECK(third != first);
    registry.give(third, half - 100'000);
}

TEST_CASE("memory_registry: what is cut from slabs, rounded to pages, and kept idle", "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>();
    constexpr std::size_t most_cut = 256 << 10, page = 4096, large = 32 << 20;
    {
        rdma::memory_registry registry(net->device(0));
        std::byte* const smallest = registry.take(0);
        registry.give(smallest, 0);
        CHECK(registry.take(256) == smallest);
        registry.give(smallest, 256);
        CHECK(registry.take(257) != smallest);
        const std::size_t before = net->regions();
        std::byte* const cut = registry.take(most_cut);
        CHECK(registry.find(cut, most_cut).bytes == most_cut);
        registry.give(cut, most_cut);
        CHECK(registry.take(most_cut) == cut);
        CHECK(net->regions() == before + 2);
        for (const std::size_t bytes : {most_cut + 1, most_cut + page - 1, most_cut + page}) {
            std::byte* const own = registry.take(bytes);
            CHECK(registry.find(own, bytes).bytes == most_cut + page);
            CHECK(registry.find(own, most_cut + page + 1).bytes == 0);
        }
        CHECK_THROWS_AS(registry.take(~std::size_t{0}), std::bad_alloc);
        CHECK_THROWS_AS(registry.take(~std::size_t{0} - page + 2), std::bad_alloc);
        std::byte of_others[1];
        registry.give(of_others, large);  // is none of its ranges
        // 64 MB are kept, two ranges, also after one of them has been used again.
        std::byte* all[3];
        for (std::byte*& at : all) at = registry.take(large);
        const std::size_t taken = net->regions();
        registry.give(all[0], large), registry.give(all[1], large);
        CHECK(net->regions() == taken);
        CHECK(registry.take(large) == all[0]);
        registry.give(all[0], large);
        CHECK(net->regions() == taken);
        registry.give(all[2], large);
        CHECK(net->regions() == taken - 2);
        CHECK(registry.find(all[2], 1).bytes == 0);
        CHECK(registry.find(all[1], large).bytes == large);
    }
    CHECK(net->regions() == 0);
}

TEST_CASE("memory_registry: the pool's memory is registered, and used again; ranges may overlap", "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>();
    {
        rdma::memory_registry registry(net->device(0));
        random_source random(3);
        std::vector<std::pair<std::byte*, std::size_t>> taken;
        for (int turn = 0; turn < 3000; ++turn) {
            if (taken.size() > 40 || (!taken.empty() && random.one_in(3))) {
                const std::size_t i = random.below(taken.size());
                const auto [at, bytes] = taken[i];
                for (std::size_t k = 0; k < bytes; k += 1000) REQUIRE(at[k] == static_cast<std::byte>(bytes));
                registry.give(at, bytes);
                taken[i] = taken.back();
                taken.pop_back();
                continue;
            }
            const std::size_t bytes = random.below(std::size_t{1} << random.between(0, 22));
            std::byte* const at = registry.take(bytes);
            REQUIRE(reinterpret_cast<std::uintptr_t>(at) % 128 == 0);
            REQUIRE(registry.find(at, bytes).holds(at, bytes));
            REQUIRE(registry.find(at, bytes).bytes > 0);
            for (const auto& [other, size] : taken) REQUIRE((at + bytes <= other || other + size <= at));
            std::fill_n(at, bytes, static_cast<std::byte>(bytes));
            taken.emplace_back(at, bytes);
        }
        for (const auto& [at, bytes] : taken) registry.give(at, bytes);
        // Ranges within one another, as a user may register them.
        std::vector<std::byte> own(1000);
        const auto whole = registry.add(own.data(), 1000), part = registry.add(own.data() + 100, 10);
        CHECK(registry.find(own.data() + 105, 3).bytes > 0);
        CHECK(registry.find(own.data() + 105, 30).bytes == 1000);
        CHECK(registry.find(own.data() + 990, 11).bytes == 0);
        registry.drop(whole);
        CHECK(registry.find(own.data() + 105, 30).bytes == 0);
        CHECK(registry.find(own.data() + 105, 5).bytes == 10);
        registry.drop(part);
        // The longer one comes later.
        const auto inner = registry.add(own.data() + 500, 10), outer = registry.add(own.data(), 1000);
        CHECK(registry.find(own.data() + 900, 50).bytes == 1000);
        registry.drop(outer);
        CHECK(registry.find(own.data() + 900, 50).bytes == 0);
        registry.drop(inner);
    }
    {
        rdma::memory_registry registry(net->device(0));
        std::vector<std::byte> own(1000);
        registry.add(own.data() + 500, 10);
        registry.add(own.data(), 1000);  // dropped with the registry
        CHECK(registry.find(own.data() + 900, 50).bytes == 1000);
    }
    CHECK(net->regions() == 0);
}

TEST_CASE("verbs: memory of another device is moved directly, or the failure is reported with its cause",
    "[verbs_transport]") {
    struct form {
        std::size_t bytes;
        int pieces;
        // Memory of another device at the sender, at the receiver; whether other memory is registered.
        bool out, in, known;
        int fails;  // the rank that reports a failure, or none
    };
    for (const form& f : {form{100'000, 1, true, true, true, none}, form{100'000, 4, true, false, true, none},
             form{100'000, 4, false, true, true, none},
             form{100, 1, true, false, true, none},  // the device reads it where it lies
             form{5000, 100, true, false, true, 0},  // but not in so many pieces
             form{100, 1, false, true, true, 1}, form{100'000, 1, false, true, false, 1},
             form{100'000, 1, true, false, false, none}, form{40'000, 20, false, true, true, 1}})
        for (const bool lazy : {false, true}) {
            INFO(f.bytes << " bytes in " << f.pieces << " pieces, " << (f.out ? "from" : "not from") << " and "
                         << (f.in ? "to" : "not to") << " another device"
                         << (f.known ? "" : ", the rest not registered"));
            const auto net = std::make_shared<dry_network>(lazy);
            std::vector<std::unique_ptr<rank_device>> devices;
            for (int r = 0; r < 2; ++r) devices.push_back(std::make_unique<rank_device>(net, r, reach_of::nothing));
            CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
                rank_device& own = *devices[static_cast<std::size_t>(r)];
                std::vector<std::byte> data(2 * f.bytes, static_cast<std::byte>(r));  // every other piece of it
                const bool foreign = r == 0 ? f.out : f.in;
                if (foreign || f.known) {
                    rdma::region all = own.registry->device().add(data.data(), data.size());
                    all.foreign = foreign;
                    own.registry->insert(all);
                }
                std::vector<piece> pieces;
                const std::size_t each = f.bytes / static_cast<std::size_t>(f.pieces);
                for (int i = 0; i < f.pieces; ++i)
                    pieces.push_back({data.data() + 2 * each * static_cast<std::size_t>(i), each});
                auto w = own.transport(node, 99, r, members, usual);
                ear e;
                w->listening = &e;
                if (r == 0)
                    w->send(1, label_of(0, 1, 0), pieces.data(), f.pieces);
                else
                    w->receive(0, label_of(0, 1, 0), pieces.data(), f.pieces);
                const auto over = [&] { return r == 0 ? w->sent(1) == 1 : w->received(0) == 1; };
                if (f.fails == none) {
                    if (!until(*w, over)) return complain("not done; " + e.text());
                    if (r == 1 && (data.front() != std::byte{0} || pieces.back().data[each - 1] != std::byte{0}))
                        complain("other bytes");
                } else if (f.fails == r) {
                    if (!until(*w, [&] { return e.count("failed") > 0; })) return complain("not told; " + e.text());
                    if (e.reasons.back().find("memory of another device") == std::string::npos)
                        complain(e.reasons.back());
                    w->tell(1 - r, {control_kind::board, 0, 0, 0, ""});
                } else if (!until(*w, [&] { return e.count(said_board) > 0; })) {
                    complain("no control message; " + e.text());
                }
                if ((r == 0 ? w->copied().out : w->copied().in) > 0 && foreign) complain("the processor has copied it");
                if (f.fails != none) w->abandon();
                w.reset();
            }) == "");
        }
}

TEST_CASE("verbs: messages in a GPU's memory that both ranks have added are all moved directly, however small",
    "[verbs_transport]") {
    for (const int lanes : {1, 2})
        for (const bool lazy : {false, true}) {
            INFO(lanes << " lanes" << (lazy ? ", lazy" : ""));
            const auto net = std::make_shared<dry_network>(lazy);
            std::vector<std::unique_ptr<rank_device>> devices;
            for (int r = 0; r < 2; ++r)
                devices.push_back(std::make_unique<rank_device>(net, r, reach_of::nothing, lanes));
            CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
                // In one order: a message of no bytes, of pieces of a few bytes, as many as may be, and large ones.
                const std::vector<std::vector<std::size_t>> sizes{{1}, {}, std::vector<std::size_t>(16, 3),
                    {5, 1, 700, 2}, {8192}, {200'000}, {1, 300'000}, {9}, {100}, std::vector<std::size_t>(16, 1)};
                std::size_t all = 0;
                for (const auto& m : sizes)
                    for (const std::size_t bytes : m) all += bytes + 1;
                std::vector<std::byte> out(all), in(all);
                for (std::size_t i = 0; i < all; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251);
                auto w = devices[static_cast<std::size_t>(r)]->transport(node, 99, r, members, usual);
                for (std::vector<std::byte>* memory : {&out, &in})
                    if (w->add_gpu_memory(memory->data(), memory->size(), -1, 0) != "") complain("not added");
                ear e;
                w->listening = &e;
                for (int turn = 0; turn < 3; ++turn) {
                    std::fill(in.begin(), in.end(), std::byte{0});
                    std::size_t at = 0;
                    for (const auto& m : sizes) {
                        std::vector<piece> from, to;
                        for (const std::size_t bytes : m) {
                            from.push_back({out.data() + at, bytes});
                            to.push_back({in.data() + at, bytes});
                            at += bytes + 1;
                        }
                        w->receive(1 - r, label_of(0, 1, 0), to.data(), static_cast<int>(to.size()));
                        w->send(1 - r, label_of(0, 1, 0), from.data(), static_cast<int>(from.size()));
                    }
                    w->flush();
                    w->request_completion(1 - r);
                    const std::uint64_t count = sizes.size() * static_cast<std::uint64_t>(turn + 1);
                    if (!until(*w, [&] { return w->sent(1 - r) == count && w->received(1 - r) == count; }))
                        return complain("not done; " + e.text());
                    at = 0;
                    for (const auto& m : sizes)
                        for (const std::size_t bytes : m) {
                            if (!std::equal(in.begin() + static_cast<std::ptrdiff_t>(at),
                                    in.begin() + static_cast<std::ptrdiff_t>(at + bytes),
                                    out.begin() + static_cast<std::ptrdiff_t>(at)))
                                return complain("other bytes");
                            if (in[at + bytes] != std::byte{0}) return complain("a byte beside a piece has changed");
                            at += bytes + 1;
                        }
                }
                if (w->copied().out > 0 || w->copied().in > 0) complain("the processor has copied it");
                w.reset();
                if (devices[static_cast<std::size_t>(r)]->registry->find(out.data(), 1).bytes > 0)
                    complain("what the transport has added is still registered");
            }) == "");
        }
}

namespace {

/// A control transport that keeps what it is given; the test delivers it.
struct scripted_control final : message_transport {
    ~scripted_control() override {
        if (at_end) at_end();
    }
    std::function<void()> at_end;
    std::vector<std::string> texts;
    std::vector<control_message> said;  // without texts
    std::uint64_t send(int, const message_label&, const piece*, int) override { return 0; }
    std::uint64_t receive(int, const message_label&, const piece*, int) override { return 0; }
    std::uint64_t sent(int) const override { return 0; }
    std::uint64_t received(int) const override { return 0; }
    void abandon() override {}
    bool tell(int, const control_message& what) override {
        texts.emplace_back(what.text);
        said.push_back(what);
        return true;
    }
    void tell_all(const control_message&) override {}
    void progress() override {}
    void idle(double) override {}
};

}  // namespace

namespace {

/// Two transports, and the control messages between them, on one thread.
struct two_transports {
    /// `bytes`: the most of one request.
    explicit two_transports(
        const verbs_shape& shape = {}, int lanes = 1, int lanes_of_peer = 1, std::uint64_t bytes = 1 << 30)
        : net(std::make_shared<dry_network>(false, 256, 16, bytes)) {
        for (int r = 0; r < 2; ++r) {
            auto control = std::make_unique<scripted_control>();
            controls[r] = control.get();
            registries[r] = registry_on(net, r, r == 0 ? lanes : lanes_of_peer);
            transports[r] = std::make_unique<verbs_transport>(std::move(control), registries[r], r, 2, shape);
            transports[r]->linger = 0.01;
            transports[r]->listening = &listeners[r];
        }
    }
    /// Delivers all control messages, until none is left.
    void exchange_control() {
        for (bool any = true; any;) {
            any = false;
            for (int r = 0; r < 2; ++r) {
                std::vector<std::string> texts;
                std::vector<control_message> said;
                texts.swap(controls[r]->texts), said.swap(controls[r]->said);
                for (std::size_t i = 0; i < said.size(); ++i) {
                    said[i].text = texts[i].c_str();
                    controls[1 - r]->listening->heard(r, said[i]);
                    any = true;
                }
            }
        }
    }
    const std::shared_ptr<dry_network> net;
    ear listeners[2];
    std::shared_ptr<rdma::memory_registry> registries[2];
    scripted_control* controls[2];
    std::unique_ptr<verbs_transport> transports[2];
};

}  // namespace

TEST_CASE("verbs: a large message is cut over the cards that both ranks have, and arrives when all of its parts have",
    "[verbs_transport]") {
    struct form {
        int lanes[2];
        std::size_t bytes;
        std::vector<std::uint64_t> parts;  // by card
    };
    for (const form& f :
        {form{{2, 2}, 1999, {1999}}, form{{2, 2}, 2000, {1000, 1000}}, form{{3, 2}, 3001, {1500, 1501}},
            form{{2, 4}, 9001, {4500, 4501}}, form{{1, 2}, 9000, {9000}}, form{{4, 1}, 9000, {9000}},
            form{{4, 4}, 3002, {1000, 1001, 1001}}, form{{4, 4}, 9000, {2250, 2250, 2250, 2250}}}) {
        INFO(f.lanes[0] << " and " << f.lanes[1] << " lanes, " << f.bytes << " bytes");
        two_transports t({.slot_bytes = 64, .least_stripe = 1000}, f.lanes[0], f.lanes[1]);
        verbs_transport &from = *t.transports[0], &to = *t.transports[1];
        const auto progress = [&] {
            for (int i = 0; i < 8; ++i) from.progress(), to.progress(), t.exchange_control();
        };
        std::vector<std::byte> out(f.bytes), in(f.bytes);
        for (std::size_t i = 0; i < f.bytes; ++i) out[i] = static_cast<std::byte>(i * 7 / 3);
        // Pieces that no part ends with.
        const std::size_t cut = 700;
        const piece out_pieces[] = {{out.data(), cut}, {out.data() + cut, f.bytes - cut}},
                    in_pieces[] = {{in.data(), f.bytes - cut}, {in.data() + f.bytes - cut, cut}};
        for (int r = 0; r < 2; ++r)
            for (const auto& memory : {&out, &in}) t.registries[r]->add(memory->data(), memory->size());
        std::uint64_t before = 5, after = 6, got[2] = {};
        const auto word = [](std::uint64_t& w) { return piece{reinterpret_cast<std::byte*>(&w), sizeof w}; };
        const piece first = word(before), last = word(after), place[] = {word(got[0]), word(got[1])};
        const int used = static_cast<int>(f.parts.size());
        for (const std::uint64_t earlier : {0u, 3u}) {
            got[0] = got[1] = 0;
            std::fill(in.begin(), in.end(), std::byte{0});
            from.send(1, label_of(0, 1, 0), &first, 1);
            from.send(1, label_of(0, 1, 1), out_pieces, 2);
            from.send(1, label_of(0, 1, 2), &last, 1);
            from.request_completion(1);
            to.receive(0, label_of(0, 1, 0), &place[0], 1);
            to.receive(0, label_of(0, 1, 1), in_pieces, 2);
            to.receive(0, label_of(0, 1, 2), &place[1], 1);
            // Nothing passes on the last card that is used.
            t.net->stuck = used - 1;
            progress();
            CHECK(to.received(0) == earlier + (used > 1));
            CHECK(from.sent(1) == earlier + 1);
            CHECK(t.net->open_now() == 2 * static_cast<std::size_t>(std::min(f.lanes[0], f.lanes[1])));
            CHECK(got[0] == (used > 1 ? 5 : 0));
            CHECK(got[1] == 0);
            t.net->stuck = none;
            progress();
            CHECK(to.received(0) == earlier + 3);
            CHECK(until(from, [&] { return to.progress(), from.sent(1) == earlier + 3; }));
            CHECK(in == out);
            CHECK(got[1] == 6);
            if (earlier == 0) t.net->clear_log();
        }
        std::vector<std::uint64_t> parts(f.parts.size());
        for (const auto& e : t.net->log())
            if (rdma::kind_of(e.what.immediate) == rdma::write_kind::direct && e.bytes > 0)
                parts.at(static_cast<std::size_t>(e.card)) += e.bytes;
        CHECK(parts == f.parts);
        for (const ear& e : t.listeners) CHECK(e.text() == "");
        for (const auto& w : t.transports) w->abandon();
    }
}

TEST_CASE("verbs: parts of a message of more requests than a queue holds go one after the other", "[verbs_transport]") {
    two_transports t({.slot_bytes = 64, .least_stripe = 1000, .signal_after = 1e6}, 2, 2, 256);
    verbs_transport &from = *t.transports[0], &to = *t.transports[1];
    std::vector<std::byte> data(256 * 800);
    const piece all{data.data(), data.size()}, small{data.data(), 8};
    for (const auto& r : t.registries) r->add(all.data, all.bytes);
    from.send(1, label_of(0, 1, 0), &small, 1);  // which is not signalled
    from.send(1, label_of(0, 1, 1), &all, 1);
    to.receive(0, label_of(0, 1, 0), &small, 1);
    to.receive(0, label_of(0, 1, 1), &all, 1);
    for (int i = 0; i < 20; ++i) from.progress(), to.progress(), t.exchange_control();
    CHECK(to.received(0) == 2);
    CHECK(from.sent(1) == 2);
    for (const auto& w : t.transports) w->abandon();
}

namespace {

/// A queue pair that moves nothing, and has these completions.
struct made_queue final : rdma::queue {
    made_queue(const rdma::queue_limits& l, int& s, std::vector<rdma::completion> c, const char* r)
        : most(l), stopped(s), completions(std::move(c)), refuses(r) {}
    const rdma::queue_limits most;
    int& stopped;
    std::vector<rdma::completion> completions;
    const char* const refuses;
    void stop() noexcept override { ++stopped; }
    rdma::queue_limits limits() const override { return most; }
    rdma::queue_name name() const override { return {std::byte{1}}; }
    const char* connect(const rdma::queue_name&) override { return nullptr; }
    const char* post(const rdma::write_request*, int, const rdma::gather*) override { return refuses; }
    const char* receive(int) override { return nullptr; }
    int poll(rdma::completion* into, int n) override {
        const auto given = std::min(completions.size(), static_cast<std::size_t>(n));
        std::copy_n(completions.begin(), given, into);
        completions.erase(completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(given));
        return static_cast<int>(given);
    }
};

}  // namespace

TEST_CASE("verbs: lanes have the limits of all cards, and tell the first failure of each", "[verbs_transport]") {
    using rdma::completion;
    int stopped = 0;
    std::vector<completion> failures(40, {completion::failed, true, 0, 0, "flushed"});
    failures[0] = {completion::failed, false, 0, 0, "access error"};
    std::vector<rdma::several_queues::lane> all;
    for (const rdma::queue_limits& l : {rdma::queue_limits{200, 5, 60, 7, 8192}, {100, 4, 50, 7, 4096}})
        all.push_back({std::make_unique<made_queue>(l, stopped, failures, "it is full"), all.empty() ? "one" : "two"});
    rdma::several_queues q(std::move(all));
    const rdma::queue_limits l = q.limits();
    CHECK((l.inlined == 100 && l.gathers == 4 && l.requests == 50 && l.bytes == 4096 && l.lanes == 2));
    CHECK(q.connect(q.name()) == nullptr);
    CHECK(q.limits().lanes == 2);
    completion c[32];
    REQUIRE(q.poll(c, 32) == 2);
    CHECK(std::string(c[0].status) == "access error, on one");
    CHECK(std::string(c[1].status) == "access error, on two");
    CHECK(!c[0].secondary);
    CHECK(q.poll(c, 32) == 0);
    rdma::write_request r{};
    r.lane = 1;
    CHECK(std::string(q.post(&r, 1, nullptr)) == "it is full, on two");
    q.stop();
    CHECK(stopped == 2);
    // A part has arrived behind more completions than one look takes.
    const std::uint32_t direct = rdma::immediate_of(rdma::write_kind::direct, 5);
    std::vector<completion> sent;
    for (std::uint64_t i = 0; i < 40; ++i) sent.push_back({completion::sent, false, i, 0, ""});
    sent.push_back({completion::arrived, false, 0, direct, ""});
    const std::vector<completion> announced{{completion::arrived, false, 0, direct | 1u << rdma::beside_shift, ""}};
    std::vector<rdma::several_queues::lane> others;
    for (const auto& those : {announced, sent})
        others.push_back({std::make_unique<made_queue>(rdma::queue_limits{}, stopped, those, nullptr), "one"});
    rdma::several_queues behind(std::move(others));
    for (; r.id < 40; ++r.id) CHECK(behind.post(&r, 1, nullptr) == nullptr);
    REQUIRE(behind.poll(c, 32) == 2);
    CHECK((c[0].what == completion::sent && c[0].id == 39));
    CHECK((c[1].what == completion::arrived && c[1].immediate == direct));
}

TEST_CASE("verbs: a card that fails is named, and one that registers no memory leaves none with the others",
    "[verbs_transport]") {
    for (const int card : {0, 1}) {
        two_transports t({.slot_bytes = 64, .least_stripe = 1000}, 2, 2);
        t.net->fault = [&](const dry_network::entry& e) {
            return e.card == card && e.bytes == 1500 ? "remote operation error" : nullptr;
        };
        std::vector<std::byte> data(3000);
        const piece all{data.data(), data.size()};
        for (const auto& r : t.registries) r->add(all.data, all.bytes);
        t.transports[0]->send(1, label_of(0, 1, 0), &all, 1);
        t.transports[1]->receive(0, label_of(0, 1, 0), &all, 1);
        for (int i = 0; i < 8; ++i) t.transports[1]->progress(), t.transports[0]->progress(), t.exchange_control();
        CHECK(t.listeners[0].count("failed 1") == 1);
        REQUIRE(t.listeners[0].reasons.size() == 1);
        CHECK(t.listeners[0].reasons[0] ==
              "a work request ended with status: remote operation error, on card" + std::to_string(card));
        CHECK(t.transports[1]->received(0) == 0);
        for (const auto& w : t.transports) w->abandon();
    }
    const auto net = std::make_shared<dry_network>();
    net->most_registered = 250;
    const auto registry = registry_on(net, 0, 3);
    std::vector<std::byte> data(100);
    CHECK_THROWS_AS(registry->add(data.data(), 100), colls::error);
    CHECK(net->regions() == 0);
    const rdma::region all = registry->add(data.data(), 80);
    CHECK(net->regions() == 6);
    registry->drop(all);
    CHECK(net->regions() == 0);
}

TEST_CASE(
    "verbs: messages written before a peer was lost have arrived when the loss is reported", "[verbs_transport]") {
    two_transports two;
    auto& [receiver, sender] = two.transports;
    std::uint64_t out = 7, in = 0;
    const piece po{reinterpret_cast<std::byte*>(&out), 8}, pi{reinterpret_cast<std::byte*>(&in), 8};
    receiver->receive(1, label_of(1, 0, 0), &pi, 1);
    sender->send(0, label_of(1, 0, 0), &po, 1);
    two.exchange_control();
    sender->progress();  // it writes
    REQUIRE(receiver->received(1) == 0);
    two.controls[0]->listening->lost(1, "the end");
    CHECK(receiver->received(1) == 1);
    CHECK(in == 7);
    CHECK(two.listeners[0].text() == "lost 1; (the end) ");
    receiver->abandon();
}

TEST_CASE("verbs: a peer's leave is reported behind its messages, or at once where they are expected no more",
    "[verbs_transport]") {
    const auto said_by = [](colls::detail::rdma::wiring step, std::uint64_t b) {
        return control_message{control_kind::wiring, static_cast<std::uint64_t>(step), b, 0, ""};
    };
    for (const char* const how :
        {"in order", "abandoned", "mismatched", "before any message", "without a queue pair of its own"}) {
        INFO(how);
        const std::string what = how;
        std::uint64_t out = 7, in = 0;  // where the sender leaves, it writes what is left
        two_transports two;
        auto& [receiver, sender] = two.transports;
        ear& heard = two.listeners[0];
        const piece po{reinterpret_cast<std::byte*>(&out), 8}, pi{reinterpret_cast<std::byte*>(&in), 8};
        const auto leave = [&] {
            two.controls[0]->listening->heard(1, said_by(colls::detail::rdma::wiring::closing, 1));
            two.controls[0]->listening->heard(1, {control_kind::leave, 0, 0, 0, ""});
        };
        if (what == "before any message") {
            two.controls[0]->listening->heard(1, {control_kind::leave, 0, 0, 0, ""});
            CHECK(heard.count(said_leave) == 1);
        } else if (what == "without a queue pair of its own") {
            receiver->receive(1, label_of(1, 0, 0), &pi, 1);  // whose greeting it does not read any more
            two.controls[0]->listening->heard(1, {control_kind::leave, 0, 0, 0, ""});
        } else {
            receiver->receive(1, label_of(1, 0, what == "mismatched" ? 1 : 0), &pi, 1);
            sender->send(0, label_of(1, 0, 0), &po, 1);
            two.exchange_control();
        }
        if (what == "in order") {
            leave();
            for (int i = 0; i < 10; ++i) receiver->progress();
            CHECK(heard.count(said_leave) == 0);
            sender->progress();  // it writes
            receiver->progress();
            CHECK(receiver->received(1) == 1);
        }
        if (what == "abandoned") {
            receiver->abandon();
            leave();
        }
        if (what == "mismatched") {
            sender->progress();
            receiver->progress();
            CHECK(heard.count("unexpected") == 1);
            leave();
        }
        receiver->progress();
        CHECK(heard.count(said_leave) == 1);
        two.controls[0]->listening->heard(1, {control_kind::leave, 0, 0, 0, ""});
        for (int i = 0; i < 10; ++i) receiver->progress();
        CHECK(heard.count(said_leave) == 1);
        CHECK(heard.count("failed") + heard.count("lost") == 0);
    }
}

TEST_CASE("verbs: no queue pair is made to a peer that is lost, or after abandon", "[verbs_transport]") {
    for (const bool lost : {true, false}) {
        INFO((lost ? "lost" : "abandoned"));
        std::uint64_t value = 0;
        two_transports two;
        auto& [own, peer] = two.transports;
        const piece p{reinterpret_cast<std::byte*>(&value), 8};
        if (lost)
            two.controls[0]->listening->lost(1, "the end");
        else
            own->abandon();
        own->send(1, label_of(0, 1, 0), &p, 1);
        own->receive(1, label_of(1, 0, 0), &p, 1);
        for (int i = 0; i < 300; ++i) own->progress();
        CHECK(two.controls[0]->said.empty());
        CHECK(own->queue_pairs() == 0);
        CHECK(own->sent(1) == 0);
        CHECK(own->received(1) == 0);
        CHECK(two.listeners[0].events == (lost ? std::vector<std::string>{"lost 1"} : std::vector<std::string>{}));
        // It still connects to nobody when the peer greets.
        peer->send(0, label_of(1, 0, 0), &p, 1);
        two.exchange_control();
        CHECK(own->queue_pairs() == 0);
        CHECK(two.net->opened() == 1);
        peer->abandon();
    }
}

TEST_CASE("verbs: a rank that leaves keeps its queue pairs until its control messages have gone", "[verbs_transport]") {
    two_transports two;
    auto& [own, peer] = two.transports;
    std::uint64_t value = 0;
    const piece p{reinterpret_cast<std::byte*>(&value), 8};
    own->receive(1, label_of(1, 0, 0), &p, 1);
    peer->send(0, label_of(1, 0, 0), &p, 1);
    two.exchange_control();
    peer->progress();
    own->progress();
    REQUIRE(own->received(1) == 1);
    std::size_t open_then = 0, closing = 0;
    two.controls[0]->at_end = [&] {
        open_then = two.net->open_now();
        for (const control_message& m : two.controls[0]->said)
            closing += m.what == control_kind::wiring &&
                       m.a == static_cast<std::uint64_t>(colls::detail::rdma::wiring::closing);
    };
    own.reset();
    CHECK(open_then == 2);
    CHECK(closing == 1);
    CHECK(two.net->open_now() == 1);
    peer->abandon();
}

TEST_CASE("verbs: asking how many messages have left changes nothing; waiting posts one signalled request",
    "[verbs_transport]") {
    for (const bool asks : {false, true}) {
        INFO((asks ? "with" : "without") << " calls of sent");
        two_transports two(verbs_shape{.signal_after = 1e-3});
        auto& [receiver, sender] = two.transports;
        std::vector<std::byte> data(1000);  // too long to be inlined: the device reads it where it lies
        two.registries[1]->add(data.data(), data.size());
        const piece p{data.data(), data.size()};
        sender->send(0, label_of(1, 0, 0), &p, 1);
        two.exchange_control();
        sender->progress();
        REQUIRE(two.net->log().size() == 1);
        CHECK(!two.net->log()[0].what.signalled);
        // The peer does not progress, so it does not acknowledge.
        for (int i = 0; asks && i < 1000; ++i) CHECK(sender->sent(0) == 0);
        CHECK(two.net->log().size() == 1);
        const double begin = seconds_now();
        while (two.net->log().size() < 2 && seconds_now() < begin + patience_s) {
            sender->progress();
            if (asks) CHECK(sender->sent(0) == 0);
        }
        CHECK(seconds_now() - begin > 1e-3);
        for (int i = 0; i < 100; ++i) sender->progress();
        CHECK(sender->sent(0) == 1);
        const auto log = two.net->log();
        REQUIRE(log.size() == 2);
        CHECK((log[1].what.signalled && !log[1].what.announces));
    }
}

TEST_CASE(
    "verbs: a connection goes through its states in order, and ignores events out of order", "[verbs_transport]") {
    using s = rdma::connection_state;
    using e = rdma::connection_event;
    using rdma::state_after;
    // The own greeting goes first, or the peer's does.
    CHECK(state_after(s::unopened, e::open) == s::opened);
    CHECK(state_after(s::opened, e::greet) == s::greeted);
    CHECK(state_after(s::greeted, e::connect) == s::connected);
    CHECK(state_after(s::opened, e::connect) == s::connected);
    CHECK(state_after(s::connected, e::greet) == s::connected);
    CHECK(state_after(s::connected, e::confirm) == s::ready);
    for (const s from : {s::opened, s::greeted, s::connected, s::ready, s::closed})
        CHECK(state_after(from, e::close) == s::closed);
    CHECK(state_after(s::unopened, e::close) == s::unopened);
    for (const e event : {e::greet, e::connect, e::confirm}) {
        CHECK(state_after(s::unopened, event) == s::unopened);
        CHECK(state_after(s::ready, event) == s::ready);
    }
    CHECK(state_after(s::opened, e::confirm) == s::opened);
    CHECK(state_after(s::greeted, e::confirm) == s::greeted);
    for (const e event : {e::open, e::greet, e::connect, e::confirm}) CHECK(state_after(s::closed, event) == s::closed);
    for (const s from : {s::unopened, s::ready, s::closed}) CHECK(!rdma::is_connecting(from));
    for (const s from : {s::opened, s::greeted, s::connected}) CHECK(rdma::is_connecting(from));
}

TEST_CASE("verbs: queue pairs are made on first use, to the peers of messages only", "[verbs_transport]") {
    CHECK(over_verbs(4, {}, [&](int r, auto& own, auto complain) {
        verbs_transport& w = *own;
        ear e;
        w.listening = &e;
        std::uint64_t out = 1, in = 0;
        const piece po{reinterpret_cast<std::byte*>(&out), 8}, pi{reinterpret_cast<std::byte*>(&in), 8};
        if (w.queue_pairs() != 0) complain("queues from the start");
        for (std::uint64_t i = 0; i < 3; ++i) {
            w.receive((r + 3) % 4, label_of(0, 0, i), &pi, 1);
            w.send((r + 1) % 4, label_of(0, 0, i), &po, 1);
            if (!until(w, [&] { return w.received((r + 3) % 4) == i + 1 && w.sent((r + 1) % 4) == i + 1; }))
                complain("not done: " + e.text());
            if (w.queue_pairs() != 2) complain("queues: " + std::to_string(w.queue_pairs()));
        }
    }) == "");
}

TEST_CASE("verbs: a malformed greeting, or one of another version or shape, is refused", "[verbs_transport]") {
    const auto net = std::make_shared<dry_network>();
    std::string good;
    for (int turn = 0; turn < 5; ++turn) {
        auto control = std::make_unique<scripted_control>();
        scripted_control& peer = *control;
        verbs_transport w(std::move(control), std::make_shared<rdma::memory_registry>(net->device(0)), 0, 2);
        w.linger = 0.01;
        ear e;
        w.listening = &e;
        std::uint64_t value = 0;
        const piece p{reinterpret_cast<std::byte*>(&value), 8};
        w.receive(1, label_of(0, 0, 0), &p, 1);
        REQUIRE(peer.texts.size() == 1);
        if (turn == 0) good = peer.texts[0];
        std::string text = good;
        if (turn == 1) text.pop_back();
        if (turn == 2) text[5] = 'x';
        if (turn == 3) text[0] = text[0] == '0' ? '1' : '0';
        if (turn == 4) text[2 * 20] = text[2 * 20] == 'f' ? 'e' : 'f';  // slots
        peer.listening->heard(1, {control_kind::wiring, 0, 0, 0, text.c_str()});
        w.progress();
        INFO("case " << turn << ": " << e.text());
        CHECK(e.count("failed 1") == (turn == 0 ? 0 : 1));
        w.progress();
        CHECK(e.count("failed") == (turn == 0 ? 0 : 1));
        w.abandon();
    }
}

namespace {

/// A transport, rank 0, and the other side of its connection, rank 1, which writes what a test says.
struct scripted_peer {
    explicit scripted_peer(const verbs_shape& s, message_transport::listener* listening = nullptr, int lanes = 1)
        : shape(s), here(registry_on(net, 0, lanes)) {
        auto c = std::make_unique<scripted_control>();
        control = c.get();
        transport = std::make_unique<verbs_transport>(std::move(c), here, 0, 2, shape);
        transport->linger = 0.01;
        transport->listening = listening ? listening : &heard;
        using rdma::wiring;
        if (!queue.open()) throw std::runtime_error(queue.why());
        say(wiring::greeting, rdma::encode(queue.greet()).text);
        queue.accept(control->texts.at(0).c_str());
        say(wiring::ready, "");
        queue.confirm();
        net->clear_log();
    }
    ~scripted_peer() { transport->abandon(); }

    static message_label label(std::uint64_t i = 0) { return label_of(1, 0, i); }
    static rdma::message_header header(std::uint64_t number, std::uint64_t bytes, std::size_t entries) {
        return header(label(number), number, bytes, entries);
    }
    static rdma::message_header header(
        const message_label& l, std::uint64_t number, std::uint64_t bytes, std::size_t entries) {
        return {l.fingerprint, l.sequence, number, bytes, l.part, static_cast<std::uint32_t>(entries), {}};
    }
    // What it writes, and with which immediate.
    void slot(const rdma::message_header& h, std::uint64_t count, std::uint32_t with = 0) {
        const std::size_t at = own.layout.slot_at(queue.slots_written());
        std::memcpy(queue.outbound(at), &h, sizeof h);
        std::memset(queue.outbound(at + sizeof h), 7, shape.slot_bytes);
        write(at, sizeof h + shape.slot_bytes, rdma::write_kind::slot, count, with);
        queue.slot_written();
    }
    void slot(const rdma::message_header& h) { slot(h, queue.slots_written()); }
    void notice(const rdma::placement_notice& n, std::uint64_t count) {
        const std::size_t at = own.layout.notice_at(queue.notices_written());
        std::memcpy(queue.outbound(at), &n, sizeof n);
        write(at, sizeof n, rdma::write_kind::notice, count, 0);
        queue.notice_written();
    }
    void notice(const rdma::placement_notice& n) { notice(n, queue.notices_written()); }
    void direct(std::uint64_t count, std::uint32_t with = 0) { write(0, 0, rdma::write_kind::direct, count, with); }
    void unknown() { write(0, 0, static_cast<rdma::write_kind>(3), 0, 0); }
    static rdma::placement_notice notice_of(rdma::notice_kind kind, const rdma::message_header& what) {
        rdma::placement_notice n{};
        n.what = what, n.kind = kind;
        return n;
    }
    /// What the transport has written there.
    rdma::placement_notice notice_from_transport(std::uint64_t i) const {
        rdma::placement_notice n{};
        std::memcpy(static_cast<void*>(&n), queue.inbound(own.layout.notice_at(i)), sizeof n);
        return n;
    }
    /// Memory of the transport's side; where messages are to land, or to go from.
    std::byte* memory(std::size_t bytes, bool known = false) {
        data.push_back(std::make_unique<std::byte[]>(bytes));
        if (known) here->add(data.back().get(), bytes);
        return data.back().get();
    }
    void receive(std::uint64_t i, std::size_t bytes, bool known = false) {
        const piece p{memory(bytes, known), bytes};
        transport->receive(1, label(i), &p, 1);
    }
    void progress() {
        for (int i = 0; i < 4; ++i) transport->progress();
    }
    bool refused() const { return heard.count("failed 1") == 1 && heard.reasons.back() == rdma::protocol_violation; }
    /// The transport's requests, by what they announce.
    int written(rdma::write_kind what) const {
        int n = 0;
        for (const auto& e : net->log())
            n += e.from == 0 && e.what.announces && rdma::kind_of(e.what.immediate) == what;
        return n;
    }
    int counters_written() const {
        int n = 0;
        for (const auto& e : net->log()) n += e.from == 0 && !e.what.announces;
        return n;
    }

    const verbs_shape shape;
    const std::shared_ptr<dry_network> net = std::make_shared<dry_network>();
    const std::shared_ptr<rdma::memory_registry> here, there = registry_on(net, 1);
    message_transport::listener* nobody = nullptr;
    rdma::rank_resources own{there, shape, nobody};
    rdma::connection queue{own};
    std::vector<std::unique_ptr<std::byte[]>> data;
    ear heard;
    scripted_control* control;
    std::unique_ptr<verbs_transport> transport;

private:
    void say(rdma::wiring step, const char* text) {
        control->listening->heard(1, {control_kind::wiring, static_cast<std::uint64_t>(step), 0, 0, text});
    }
    void write(std::size_t at, std::size_t bytes, rdma::write_kind what, std::uint64_t count, std::uint32_t with) {
        rdma::write_request& r = queue.add(at, what, count, false);
        r.immediate |= with;
        if (bytes > 0) queue.add_piece(r, queue.outbound(at), static_cast<std::uint32_t>(bytes), queue.local_key());
        queue.post(false);
    }
};

}  // namespace

TEST_CASE("verbs: what a peer writes is taken where it follows the protocol, and else fails the connection",
    "[verbs_transport]") {
    using rdma::notice_kind;
    const verbs_shape shape{.slots = 4, .slot_bytes = 64, .notices = 4};
    using peer = scripted_peer;
    const auto h = [](std::uint64_t number, std::uint64_t bytes, std::size_t entries) {
        return peer::header(number, bytes, entries);
    };
    // How many messages arrive of receives of these sizes; where the connection fails, -1 less as many. The peer hears
    // where larger ones may land, unless `late`: then it writes before.
    const auto arrive = [&](const std::vector<std::size_t>& sizes, auto writes, bool late = false) {
        peer p(shape);
        for (std::size_t i = 0; i < sizes.size(); ++i) p.receive(i, sizes[i], true);
        if (!late) p.transport->flush();
        writes(p);
        p.progress();
        const int arrived = static_cast<int>(p.transport->received(1));
        if (!p.refused()) CHECK(p.heard.text() == "");
        return p.refused() ? -1 - arrived : arrived;
    };
    // Slots.
    CHECK(arrive({8}, [&](peer& p) { p.slot(h(0, 8, 8)); }) == 1);
    CHECK(arrive({0}, [&](peer& p) { p.slot(h(0, 0, 0)); }) == 1);
    CHECK(arrive({64, 8}, [&](peer& p) { p.slot(h(0, 64, 64)), p.slot(h(1, 8, 8)); }) == 2);
    CHECK(arrive({72}, [&](peer& p) { p.slot(h(0, 72, 64)); }) == 0);
    CHECK(arrive({72}, [&](peer& p) { p.slot(h(0, 72, 64)), p.slot(h(0, 72, 8)); }) == 1);
    CHECK(arrive({72}, [&](peer& p) { p.slot(h(0, 72, 64)), p.slot(h(0, 72, 9)); }) == -1);
    CHECK(arrive({600}, [&](peer& p) { p.slot(h(0, 600, 65)); }) == -1);
    CHECK(arrive({8}, [&](peer& p) { p.slot(h(0, 8, 9)); }) == -1);
    CHECK(arrive({8}, [&](peer& p) { p.slot(h(0, 8, 8), 1); }) == -1);
    CHECK(arrive({8}, [&](peer& p) { p.slot(h(1, 8, 8)); }) == -1);
    CHECK(arrive({8}, [&](peer& p) { p.slot(h(1, 8, 8)), p.slot(h(0, 8, 8)); }) == -1);  // nor what follows it
    for (const int slots : {4, 5})
        CHECK(arrive({}, [&](peer& p) {
            for (int i = 0; i < slots; ++i) p.slot(h(static_cast<std::uint64_t>(i), 8, 8));
        }) == (slots == 4 ? 0 : -1));
    // Straight to the place.
    CHECK(arrive({600}, [&](peer& p) { p.direct(0); }) == 1);
    CHECK(arrive({8, 600}, [&](peer& p) { p.slot(h(0, 8, 8)), p.direct(1); }) == 2);
    CHECK(arrive({600}, [&](peer& p) { p.direct(1); }) == -1);
    CHECK(arrive({}, [&](peer& p) { p.direct(0); }) == -1);
    for (const int lanes : {1, 2}) {  // of which the peer has one
        peer p(shape, nullptr, lanes);
        p.receive(0, 600, true);
        p.transport->flush();
        p.direct(0, 1u << rdma::beside_shift);
        p.progress();
        CHECK(p.refused());
    }
    CHECK(arrive({8}, [&](peer& p) { p.direct(0); }) == -1);
    CHECK(arrive({600}, [&](peer& p) { p.direct(0); }, true) == -1);
    CHECK(arrive({600}, [&](peer& p) { p.slot(h(0, 600, 64)), p.direct(0); }) == -1);
    // Notices.
    for (const std::size_t places : {std::size_t{16}, std::size_t{17}})
        CHECK(arrive({8}, [&](peer& p) {
            p.notice(peer::notice_of(notice_kind::direct, h(0, 200, places)));
            if (places == 16) p.slot(h(0, 8, 8));
        }) == (places == 16 ? 1 : -1));
    CHECK(arrive({8}, [&](peer& p) { p.notice(peer::notice_of(notice_kind::offer, h(0, 8, 0)), 1); }) == -1);
    CHECK(arrive({8}, [&](peer& p) {
        for (std::uint64_t i = 0; i < 4; ++i) p.notice(peer::notice_of(notice_kind::by_slots, h(i, 200, 0)));
        p.slot(h(0, 8, 8));
    }) == 1);
    CHECK(arrive({8}, [&](peer& p) { p.unknown(); }) == -1);
}

TEST_CASE(
    "verbs: a message or an offer with another label is reported once, when it is the next one", "[verbs_transport]") {
    using rdma::notice_kind;
    using peer = scripted_peer;
    const verbs_shape shape{.slots = 4, .slot_bytes = 64, .notices = 4};
    const auto offer = [](const message_label& l, std::uint64_t number, std::uint64_t bytes) {
        return peer::notice_of(notice_kind::offer, peer::header(l, number, bytes, 0));
    };
    const message_label other = label_of(1, 0, 77);
    {  // in a slot; what follows is thrown away, and the peer is told so
        peer p(shape);
        p.receive(0, 8), p.receive(1, 600, true), p.receive(2, 8);
        p.transport->flush();
        p.slot(peer::header(other, 0, 12, 12));
        p.slot(peer::header(1, 8, 8));
        p.direct(1);
        p.progress();
        CHECK(p.heard.text() == "unexpected from 1; ");
        CHECK(p.heard.labels == std::vector{peer::label(0), other});
        CHECK(p.heard.sizes == std::vector<std::size_t>{8, 12});
        CHECK(p.transport->received(1) == 0);
        CHECK(p.notice_from_transport(1).kind == notice_kind::discard);
        for (std::uint64_t i = 2; i < 20; ++i) p.slot(peer::header(i, 8, 8)), p.progress();  // its credits return
        CHECK(p.heard.count("") == 1);
    }
    for (const bool by_size : {false, true}) {  // offered, and the next one already
        peer p(shape);
        p.receive(0, 100);
        p.notice(offer(by_size ? peer::label(0) : other, 0, by_size ? 101 : 100));
        p.progress();
        CHECK(p.heard.text() == "unexpected from 1; ");
    }
    {  // offered, and right
        peer p(shape);
        p.receive(0, 100);
        p.notice(offer(peer::label(0), 0, 100));
        p.progress();
        p.notice(offer(other, 0, 100));  // it would have been compared now
        p.slot(peer::header(0, 100, 64)), p.slot(peer::header(0, 100, 36));
        p.transport->progress();
        CHECK(p.transport->received(1) + static_cast<std::uint64_t>(p.heard.count("unexpected")) == 1);
    }
    {  // offered before its receive, and before the message that precedes it
        peer p(shape);
        p.notice(offer(other, 1, 100));
        p.progress();
        p.receive(0, 8);
        p.progress();
        p.receive(1, 100);
        p.progress();
        CHECK(p.heard.text() == "");
        p.slot(peer::header(0, 8, 8));
        p.progress();
        CHECK(p.transport->received(1) == 1);
        CHECK(p.heard.text() == "unexpected from 1; ");
        CHECK(p.heard.labels == std::vector{peer::label(1), other});
    }
    {  // offered late: it has arrived
        peer p(shape);
        p.receive(0, 8), p.receive(1, 8);
        p.slot(peer::header(0, 8, 8));
        p.progress();
        p.notice(offer(other, 0, 100));
        p.slot(peer::header(1, 8, 8));
        p.progress();
        CHECK(p.transport->received(1) == 2);
        CHECK(p.heard.text() == "");
    }
    {  // a listener that gives the group up
        struct abandons final : message_transport::listener {
            verbs_transport* transport = nullptr;
            int told = 0;
            void heard(int, const control_message&) override { ++told; }
            void lost(int, const char*) override { ++told; }
            void unexpected(int, const message_label&, const message_label&, std::size_t, std::size_t) override {
                ++told;
                transport->abandon();
            }
        } listening;
        for (const bool by_slot : {false, true}) {
            listening.told = 0;
            peer p(shape, &listening);
            listening.transport = p.transport.get();
            p.receive(0, 100), p.receive(1, 600, true);
            p.transport->flush();
            if (by_slot)
                p.slot(peer::header(other, 0, 8, 8)), p.slot(peer::header(1, 8, 8)), p.direct(1);
            else
                p.notice(offer(other, 0, 100)), p.slot(peer::header(0, 8, 8)), p.direct(0);
            p.progress();
            CHECK(listening.told == 1);
            CHECK(p.transport->queue_pairs() == 0);
            CHECK(p.transport->received(1) == 0);
        }
    }
}

TEST_CASE("verbs: the peer hears where a message above a slot may land, if its pieces are few and large and registered",
    "[verbs_transport]") {
    using rdma::notice_kind;
    const verbs_shape shape{.slots = 4, .slot_bytes = 1024, .notices = 4};
    struct form {
        std::vector<std::size_t> pieces;
        bool known;
        int notices;  ///< 0: none is written
        std::size_t places;
    };
    const std::vector<std::size_t> most(16, 512), more(17, 512);
    std::vector<std::size_t> with_empty = most;
    with_empty.insert(with_empty.begin() + 5, 0);
    std::vector<std::size_t> with_short = most;
    with_short[15] = 511;
    for (const form& f : {form{{1024}, true, 0, 0}, form{{1025}, true, 1, 1}, form{{1025}, false, 1, 0},
             form{{512, 512}, true, 0, 0}, form{{512, 513}, true, 1, 2}, form{{1025, 511}, true, 1, 0},
             form{most, true, 1, 16}, form{more, true, 1, 0}, form{with_empty, true, 1, 16},
             form{with_short, true, 1, 0}, form{{}, true, 0, 0}}) {
        scripted_peer p(shape);
        std::size_t bytes = 0;
        std::vector<piece> pieces;
        for (const std::size_t b : f.pieces) pieces.push_back({p.memory(b, f.known && b > 0), b}), bytes += b;
        p.transport->receive(1, p.label(), pieces.data(), static_cast<int>(pieces.size()));
        p.progress();
        INFO(bytes << " bytes in " << f.pieces.size() << " pieces");
        CHECK(p.written(rdma::write_kind::notice) == f.notices);
        if (f.notices == 0) continue;
        const rdma::placement_notice n = p.notice_from_transport(0);
        CHECK(n.kind == (f.places > 0 ? notice_kind::direct : notice_kind::by_slots));
        CHECK(n.what.label() == p.label());
        CHECK(n.what.number == 0);
        CHECK(n.what.bytes == bytes);
        REQUIRE(n.what.entries == f.places);
        std::erase_if(pieces, [](const piece& x) { return x.bytes == 0; });
        for (std::size_t i = 0; i < f.places; ++i) {
            CHECK(n.places[i].at == reinterpret_cast<std::uintptr_t>(pieces[i].data));
            CHECK(n.places[i].bytes == pieces[i].bytes);
            CHECK(n.places[i].key[0] == p.here->find(pieces[i].data, pieces[i].bytes).remote);
        }
    }
    // As many places as there are notices, until the messages arrive; none of a message that has come by slots.
    scripted_peer p(shape);
    for (std::uint64_t i = 0; i < 6; ++i) p.receive(i, 2000, true);
    p.slot(p.header(0, 2000, 1024));
    p.progress();
    const std::size_t before = p.net->log().size();
    CHECK(p.written(rdma::write_kind::notice) == 4);
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(p.notice_from_transport(i).what.number == 1 + i);
    p.slot(p.header(0, 2000, 976));
    p.direct(1);
    p.progress();
    CHECK(p.transport->received(1) == 2);
    CHECK(p.net->log().size() == before + 2);  // the peer's: it has taken none of the notices
    p.queue.taken.notices = 4;
    rdma::placement_notice taken = p.notice_of(notice_kind::by_slots, p.header(0, 8, 0));
    taken.what.returned = {0, 4, 0};
    p.notice(taken);
    p.progress();
    CHECK(p.notice_from_transport(0).what.number == 5);
    CHECK(p.written(rdma::write_kind::notice) == 5);
}

TEST_CASE("verbs: a message goes through slots, or waits for its place and goes there", "[verbs_transport]") {
    using rdma::notice_kind;
    using rdma::write_kind;
    const verbs_shape shape{.slots = 16, .slot_bytes = 1024, .notices = 4, .offer_after = 1e-4};
    struct form {
        std::vector<std::size_t> pieces;
        bool known, waits;
    };
    const std::vector<std::size_t> enough(8, 512);
    std::vector<std::size_t> less = enough;
    less[3] = 511;
    const message_label own = label_of(0, 1, 0);
    const form forms[] = {{{1024}, true, false}, {{1025}, true, true}, {{1025}, false, false},
        {{0, 2000, 0}, true, true}, {enough, true, true}, {less, true, false},
        {{4089, 1, 1, 1, 1, 1, 1, 1}, true, true}, {{4088, 1, 1, 1, 1, 1, 1, 1}, true, false}, {{}, true, false}};
    for (const form& f : forms)
        for (const std::string how : {"named", "named before", "by slots", "other label", "other size"}) {
            scripted_peer p(shape);
            std::size_t bytes = 0;
            std::vector<piece> pieces;
            for (const std::size_t b : f.pieces) {
                pieces.push_back({p.memory(b, f.known && b > 0), b});
                for (std::size_t i = 0; i < b; ++i) pieces.back().data[i] = static_cast<std::byte>((bytes + i) * 7 / 3);
                bytes += b;
            }
            INFO(bytes << " bytes in " << f.pieces.size() << " pieces, " << (f.known ? "" : "not ") << "registered, "
                       << how);
            const auto right = [&](const std::byte* at, std::size_t first, std::size_t n) {
                for (std::size_t i = 0; i < n; ++i)
                    if (at[i] != static_cast<std::byte>((first + i) * 7 / 3)) return false;
                return true;
            };
            const int slots = bytes == 0 ? 1 : static_cast<int>((bytes + 1023) / 1024);
            const auto check_slots = [&] {
                CHECK(p.written(write_kind::direct) == 0);
                REQUIRE(p.written(write_kind::slot) == slots);
                for (std::size_t i = 0, done = 0; i < static_cast<std::size_t>(slots); ++i) {
                    const std::byte* const at = p.queue.inbound(p.own.layout.slot_at(i));
                    rdma::message_header h;
                    std::memcpy(&h, at, sizeof h);
                    CHECK(h.label() == own);
                    CHECK(h.number == 0);
                    CHECK(h.bytes == bytes);
                    REQUIRE(h.entries == std::min<std::size_t>(bytes - done, 1024));
                    CHECK(right(at + sizeof h, done, h.entries));
                    done += h.entries;
                }
            };
            // Two places, of which the first is behind the second.
            std::vector<std::byte> to(bytes + 1, std::byte{0xee});
            const std::size_t first = bytes / 3;
            const rdma::region known = p.there->add(to.data(), to.size());
            rdma::placement_notice n = p.notice_of(how == "by slots" ? notice_kind::by_slots : notice_kind::direct,
                p.header(how == "other label" ? label_of(0, 1, 9) : own, 0, bytes + (how == "other size"), 2));
            n.places[0] = {reinterpret_cast<std::uintptr_t>(to.data() + bytes - first), first, {known.remote}};
            n.places[1] = {reinterpret_cast<std::uintptr_t>(to.data()), bytes - first, {known.remote}};
            if (how == "named before") p.notice(n), p.progress();
            p.transport->send(1, own, pieces.data(), static_cast<int>(pieces.size()));
            p.transport->flush();
            if (!f.waits) {
                check_slots();
                CHECK(p.written(write_kind::notice) == 0);
                continue;
            }
            CHECK(p.written(write_kind::slot) == 0);
            CHECK(p.written(write_kind::direct) == (how == "named before"));
            if (how != "named before") {
                // After a moment the peer hears what it is, once.
                CHECK(until(*p.transport, [&] { return p.written(write_kind::notice) > 0; }));
                idle(*p.transport, 1e-3);
                const rdma::placement_notice offered = p.notice_from_transport(0);
                CHECK(offered.kind == notice_kind::offer);
                CHECK(offered.what.label() == own);
                CHECK(offered.what.number == 0);
                CHECK(offered.what.bytes == bytes);
                CHECK(offered.what.entries == 0);
                p.notice(n);
                p.progress();
            }
            CHECK(p.written(write_kind::notice) == (how != "named before"));
            if (says(how, "named")) {
                CHECK(p.written(write_kind::slot) == 0);
                CHECK(p.written(write_kind::direct) == 1);
                CHECK(right(to.data() + bytes - first, 0, first));
                CHECK(right(to.data(), first, bytes - first));
                CHECK(to.back() == std::byte{0xee});
            } else {
                check_slots();
            }
            CHECK(until(*p.transport, [&] { return p.transport->sent(1) == 1; }));
            CHECK(p.heard.text() == "");
        }
}

TEST_CASE("verbs: the last message of an operation is signalled where the device reads it from a caller's memory",
    "[verbs_transport]") {
    // Nothing is signalled because time has passed.
    const verbs_shape shape{.signal_after = 1e6};
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1000}})  // inlined, and read
        for (const bool before : {false, true}) {
            INFO(bytes << " bytes, completion requested " << (before ? "before" : "after") << " they were written");
            scripted_peer p(shape);
            const piece out{p.memory(bytes, true), bytes};
            const auto signalled = [&] {
                std::vector<bool> all;
                for (const auto& e : p.net->log()) all.push_back(e.what.signalled);
                return all;
            };
            for (std::uint64_t i = 0; i < 3; ++i) p.transport->send(1, label_of(0, 1, i), &out, 1);
            if (before) p.transport->request_completion(1);
            p.transport->flush();
            const bool reads = bytes == 1000;
            CHECK(signalled() == std::vector{false, false, before && reads});
            if (!before) p.transport->request_completion(1);
            p.transport->flush();
            std::vector<bool> all{false, false, before && reads};
            if (!before && reads) all.push_back(true);  // the counters
            CHECK(signalled() == all);
            p.progress();
            CHECK(signalled() == all);
            CHECK(p.transport->sent(1) == 3);
            p.transport->request_completion(1);  // it is known already
            p.transport->flush();
            CHECK(signalled() == all);
        }
    // Half of the queue's 256 places are used without a signal.
    scripted_peer p({.slots = 512, .slot_bytes = 64, .signal_after = 1e6});
    const piece out{p.memory(8), 8};
    for (std::uint64_t i = 0; i < 300; ++i) p.transport->send(1, label_of(0, 1, i), &out, 1), p.transport->progress();
    std::vector<std::uint64_t> signalled;
    for (const auto& e : p.net->log())
        if (e.what.signalled) signalled.push_back(e.what.id);
    CHECK(signalled == std::vector<std::uint64_t>{127, 255});
    CHECK(p.transport->offloads());
}

TEST_CASE("verbs: what a peer says of messages that go by slots all the same takes no memory", "[verbs_transport]") {
    two_transports t({.slots = 8, .slot_bytes = 64, .notices = 4});
    verbs_transport &from = *t.transports[0], &to = *t.transports[1];
    std::vector<std::byte> data(200), place(200);
    const piece out{data.data(), data.size()}, in{place.data(), place.size()};
    // (Under the sanitizers it is 0.)
    const auto used = [] {
        const auto all = mallinfo2();
        return all.uordblks + all.hblkhd;
    };
    std::size_t before = 0;
    for (std::uint64_t i = 0; i < 10'000; ++i) {
        to.receive(0, label_of(0, 1, i), &in, 1);
        to.progress(), t.exchange_control(), to.progress(), from.progress();
        from.send(1, label_of(0, 1, i), &out, 1);
        for (int k = 0; k < 2; ++k) from.progress(), to.progress();
        t.net->clear_log();
        if (i == 1000) before = used();
    }
    CHECK(to.received(0) == 10'000);
    CHECK(used() < before + 1'000'000);  // each has 592 bytes
    for (const auto& w : t.transports) w->abandon();
}

TEST_CASE("verbs: what a peer throws away counts as sent, and goes no more", "[verbs_transport]") {
    const verbs_shape shape{.slots = 4, .slot_bytes = 64, .notices = 4, .offer_after = 1e-4};
    scripted_peer p(shape);
    const piece large{p.memory(1000, true), 1000}, small{p.memory(8), 8};
    p.transport->send(1, label_of(0, 1, 0), &large, 1);  // waits for its place
    p.transport->send(1, label_of(0, 1, 1), &small, 1);
    p.transport->flush();
    CHECK(p.transport->sent(1) == 0);
    p.notice(p.notice_of(rdma::notice_kind::discard, {}));
    p.progress();
    CHECK(p.transport->sent(1) == 2);
    const std::size_t before = p.net->log().size();
    p.transport->send(1, label_of(0, 1, 2), &small, 1);
    idle(*p.transport, 2e-3);
    CHECK(p.transport->sent(1) == 3);
    CHECK(p.net->log().size() == before);
    CHECK(p.heard.text() == "");
}

TEST_CASE("verbs: a greeting is read as it was written, and no other text is one", "[verbs_transport]") {
    rdma::greeting g{rdma::greeting::expected_magic, 0x0123456789abcdef, 0xfedcba98, usual.slots, usual.slot_bytes,
        usual.notices, {}};
    for (std::size_t i = 0; i < g.name.size(); ++i) g.name[i] = std::byte(5 * i + 11);
    const auto is_read = [](const rdma::greeting& sent, auto change) {
        std::string text = rdma::encode(sent).text;
        change(text);
        rdma::greeting read{};
        const bool is = rdma::decode(text.c_str(), usual, read);
        if (is) CHECK(std::memcmp(static_cast<const void*>(&read), static_cast<const void*>(&sent), sizeof read) == 0);
        return is;
    };
    const auto same = [](std::string&) {};
    CHECK(is_read(g, same));
    for (const std::size_t at : {std::size_t{16}, 2 * sizeof g - 2, 2 * sizeof g - 1})
        for (const char c : {'/', ':', '`', 'g', 'A', 'F', ' '})
            CHECK(!is_read(g, [&](std::string& text) { text[at] = c; }));
    CHECK(!is_read(g, [](std::string& text) { text += '0'; }));
    CHECK(!is_read(g, [](std::string& text) { text.pop_back(); }));
    for (auto part : {&rdma::greeting::slots, &rdma::greeting::slot_bytes, &rdma::greeting::notices}) {
        rdma::greeting other = g;
        ++(other.*part);
        CHECK(!is_read(other, same));
    }
    ++g.magic;
    CHECK(!is_read(g, same));
}

TEST_CASE("verbs: half of the credits are returned by themselves, and an acknowledgement in the next turn",
    "[verbs_transport]") {
    const verbs_shape shape{.slots = 8, .slot_bytes = 64, .notices = 6};
    using peer = scripted_peer;
    const auto counters = [](const peer& p) {
        rdma::credits c;
        std::memcpy(static_cast<void*>(&c), p.queue.inbound(p.own.layout.counters_at()), sizeof c);
        return std::vector<std::uint64_t>{c.slots, c.notices, c.messages};
    };
    {
        peer p(shape);
        for (std::uint64_t i = 0; i < 9; ++i) p.receive(i, 8);
        for (std::uint64_t i = 0; i < 9; ++i) {
            p.slot(p.header(i, 8, 8)), p.progress();
            CHECK(p.counters_written() == static_cast<int>((i + 1) / 4));
            CHECK(counters(p)[0] == (i + 1) / 4 * 4);
        }
        CHECK(counters(p) == std::vector<std::uint64_t>{8, 0, 8});
        p.net->clear_log();
        for (std::uint64_t i = 0; i < 7; ++i) {
            p.notice(p.notice_of(rdma::notice_kind::by_slots, p.header(i, 8, 0))), p.progress();
            CHECK(p.counters_written() == static_cast<int>((i + 1) / 3));
        }
        CHECK(counters(p) == std::vector<std::uint64_t>{9, 6, 9});
    }
    for (const bool answers : {false, true}) {
        peer p(shape);
        p.receive(0, 72), p.receive(1, 8), p.receive(2, 8);
        p.slot(p.header(0, 72, 64));
        p.slot(p.header(0, 72, 8), 1, rdma::acknowledgement_wanted);
        p.transport->progress();
        CHECK(p.transport->received(1) == 1);
        CHECK(p.counters_written() == 0);
        std::uint64_t value = 5;
        const piece out{reinterpret_cast<std::byte*>(&value), 8};
        if (answers) p.transport->send(1, label_of(0, 1, 0), &out, 1), p.transport->flush();
        p.progress();
        CHECK(p.counters_written() == (answers ? 0 : 1));
        if (!answers) CHECK(counters(p) == std::vector<std::uint64_t>{2, 0, 1});
        p.slot(p.header(1, 8, 8));  // it is not asked for
        p.progress();
        CHECK(p.counters_written() == (answers ? 0 : 1));
        p.slot(p.header(2, 8, 8), 3, rdma::acknowledgement_wanted);
        p.progress();
        CHECK(p.counters_written() == (answers ? 1 : 2));
        CHECK(counters(p) == std::vector<std::uint64_t>{4, 0, 3});
    }
    // A place that was named.
    peer p(shape);
    p.receive(0, 600, true);
    p.transport->flush();
    p.direct(0, rdma::acknowledgement_wanted);
    p.progress();
    CHECK(p.transport->received(1) == 1);
    CHECK(p.counters_written() == 1);
}
