// The transport over libfabric, with the providers that need no device; ranks are threads. Processes, and those that
// die, are tried by fault_test and random_test over it.
#include "catch.hpp"

#include "support/fault.hpp"
#include "support/message_transports.hpp"
#include "support/says.hpp"

#include <colls/net/detail/connection/tcp_transport.hpp>
#include <colls/ofi/detail/ofi_transport.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace support;

namespace {

// Packets of 64 bytes, and parts of 1000: each path takes several steps.
const ofi_shape usual{}, tiny{.slots = 2, .packet_bytes = 64, .parts = 2, .part_bytes = 1000};

std::shared_ptr<ofi::provider> provider_of(const char* name, const char* domain = nullptr) {
    const with_environment p("COLLS_OFI_PROVIDER", name), d("COLLS_OFI_DOMAIN", domain);
    return std::make_shared<ofi::provider>(address::loopback(AF_INET, 0));
}
/// Those that this libfabric has. (Not shm: its endpoints of one process use each other's memory, also after its end.)
std::vector<std::string> providers() {
    std::vector<std::string> all = {"tcp"};
    for (const char* const name : {"net", "udp", "sockets"}) try {
            provider_of(name);
            all.push_back(name);
        } catch (const colls::error&) {}
    return all;
}

/// f(rank, transport as unique_ptr, complain) on a thread a rank; `of`: the provider of each.
template <class F>
std::string over_ofi(const std::vector<std::shared_ptr<ofi::provider>>& of, F f, const ofi_shape& shape = usual) {
    const int n = static_cast<int>(of.size());
    return ranks_as_threads(n, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
        auto w = std::make_unique<ofi_transport>(
            std::make_unique<tcp_transport>(node, 99, r, members), of[static_cast<std::size_t>(r)], r, n, shape);
        f(r, w, complain);
    });
}
template <class F>
std::string over_ofi(int n, const std::string& name, F f, const ofi_shape& shape = usual) {
    return over_ofi(std::vector(static_cast<std::size_t>(n), provider_of(name.c_str())), f, shape);
}

}  // namespace

TEST_CASE("ofi: the contract", "[ofi_transport]") {
    for (const std::string& name : providers())
        for (const bool small : {false, true}) {
            if (small && name != "tcp") continue;
            INFO(name << (small ? ", small packets and parts" : ""));
            const auto of = provider_of(name.c_str());
            // A rank that abandons takes its endpoint with it. Its peers hear the cause only some steps later.
            ofi_shape shape = small ? tiny : usual;
            shape.failure_grace = patience_s;
            std::vector<std::unique_ptr<tcp_node>> nodes;  // of the latest group
            const auto make = [&](int n) {
                meeting_place place(n);
                nodes.clear();
                colls::testing::message_transports_of_group all;
                for (int r = 0; r < n; ++r) {
                    nodes.push_back(std::make_unique<tcp_node>(place.take(r)));
                    all.push_back(std::make_unique<ofi_transport>(
                        std::make_unique<tcp_transport>(*nodes.back(), 5, r, place.members), of, r, n, shape));
                }
                return all;
            };
            const std::vector<int> groups = name == "tcp" && !small ? std::vector{2, 3} : std::vector{2};
            CHECK(breach_of_contract(make, groups, {shape.packet_bytes}, small ? 20'000 : 900'000) == "");
        }
}

TEST_CASE("ofi: random messages and control messages both ways at once arrive in order", "[ofi_transport]") {
    const int before = (provider_of("tcp"), open_descriptors());
    for (const std::string& name : providers())
        for (const int n : {2, 3})
            for (const bool small : {false, true}) {
                const random_traffic t{
                    setting("COLLS_TEST_SEED", 1) + static_cast<std::uint64_t>(n), 30, 15, small ? 20'000u : 400'000u};
                INFO(name << ", " << n << " ranks, seed " << t.seed << (small ? ", small packets and parts" : ""));
                CHECK(over_ofi(
                          n, name,
                          [&](int r, auto& w, auto complain) {
                              const std::string wrong = exchange(t, r, n, *w);
                              if (!wrong.empty()) complain(wrong);
                          },
                          small ? tiny : usual) == "");
            }
    CHECK(open_descriptors() == before);
}

TEST_CASE("ofi: a long message is copied only where it has more pieces than the provider takes", "[ofi_transport]") {
    constexpr std::size_t bytes = 1'200'000;
    const auto of = provider_of("tcp");
    for (const std::size_t pieces : {std::size_t{1}, of->most_pieces(), of->most_pieces() + 1})
        CHECK(over_ofi({of, of}, [&](int r, auto& w, auto complain) {
            std::vector<std::byte> data(bytes, static_cast<std::byte>(7 * r));
            std::vector<piece> all;
            for (std::size_t i = 0, each = bytes / pieces; i < pieces; ++i)
                all.push_back({data.data() + i * each, i + 1 < pieces ? each : bytes - i * each});
            const int count = static_cast<int>(pieces);
            r == 0 ? w->send(1, label_of(0, 1, 0), all.data(), count)
                   : w->receive(0, label_of(0, 1, 0), all.data(), count);
            if (!until(*w, [&] { return r == 0 ? w->sent(1) == 1 : w->received(0) == 1; })) complain("not done");
            if (data != std::vector<std::byte>(bytes, std::byte{0})) complain("other bytes");
            if (w->copied() != (pieces > of->most_pieces() ? bytes : 0))
                complain(std::to_string(w->copied()) + " bytes are copied");
        }) == "");
}

TEST_CASE("ofi: a peer with another provider is reported on both sides", "[ofi_transport]") {
    const std::vector<std::string> all = providers();
    REQUIRE(all.size() > 1);
    const auto other = provider_of(all.back().c_str());
    CHECK(over_ofi({provider_of("tcp"), other}, [&](int r, auto& w, auto complain) {
        ear e;
        w->listening = &e;
        std::uint64_t value = 0;
        const piece p{reinterpret_cast<std::byte*>(&value), 8};
        w->send(1 - r, label_of(0, 0, 0), &p, 1);
        if (!until(*w, [&] { return e.count("failed") == 1; })) complain("not reported; " + e.text());
        for (const char* const said : {other->name(), "tcp", "COLLS_OFI_PROVIDER must be the same on all ranks"})
            if (e.text().find(said) == std::string::npos) complain(e.text());
        idle(*w, 0.05);
        if (e.count("failed") != 1) complain(e.text());
        w->abandon();
    }) == "");
}

TEST_CASE("ofi: what cannot be used is refused in words", "[ofi_transport]") {
    const auto refusal = [](const char* name, const char* domain) -> std::string {
        try {
            return provider_of(name, domain)->name();
        } catch (const colls::error& e) {
            return e.code() == colls::errc::unsupported ? e.what() : "another code";
        }
    };
    CHECK(lacks(refusal("nosuch", nullptr), {"no endpoint for messages", "COLLS_OFI_PROVIDER=nosuch", "fi_info -l"}) ==
          "");
    CHECK(lacks(refusal("tcp", "nosuch0"), {"COLLS_OFI_DOMAIN=nosuch0", "tcp;ofi_rxm on lo"}) == "");
    CHECK(std::string(provider_of(nullptr, "lo")->info().domain_attr->name) == "lo");
}
