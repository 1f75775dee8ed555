// The transport over libfabric, with the providers that need no device; ranks are threads. Processes, and those that
// die, are tried by fault_test and random_test over it.
#include "catch.hpp"

#include "support/fault.hpp"
#include "support/message_transports.hpp"
#include "support/says.hpp"
#include "verbs/made_tree.hpp"

#include <colls/net/detail/connection/tcp_transport.hpp>
#include <colls/ofi/detail/ofi_transport.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace support;

// libfabric 1.17 loses memory of its own: infos of endpoints (net), connections that come while an endpoint closes
// (tcp). What this project loses of libfabric's shows in the number of descriptors.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name
extern "C" const char* __lsan_default_suppressions() {
    return "leak:libfabric.so";
}  // NOLINT(bugprone-reserved-identifier)

namespace {

// Packets of 64 bytes, and parts of 1000: each path takes several steps.
const ofi_shape usual{}, tiny{.slots = 2, .packet_bytes = 64, .parts = 2, .part_bytes = 1000};

std::shared_ptr<ofi::provider> provider_of(const char* name, const char* domain = nullptr) {
    const with_environment p("COLLS_OFI_PROVIDER", name), d("COLLS_OFI_DOMAIN", domain);
    return std::make_shared<ofi::provider>(ofi::domain_choice{.own = address::loopback(AF_INET, 0)});
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

/// While it lives, a provider's calls of one name fail, or the first operation of such a call that completes. For a
/// provider that one thread uses.
class scripted_failure {
public:
    scripted_failure(const ofi::provider& of, std::string call, bool late)
        : call_(std::move(call)), late_(late), domain_(*of.domain()), domain_ops_(domain_.ops) {
        mine_ = *domain_ops_;
        mine_.endpoint = [](fid_domain* d, fi_info* i, fid_ep** e, void* context) {
            const int code = now->domain_ops_->endpoint(d, i, e, context);
            if (code == 0) now->script(**e);
            return code;
        };
        mine_.cq_open = [](fid_domain* d, fi_cq_attr* a, fid_cq** q, void* context) {
            const int code = now->domain_ops_->cq_open(d, a, q, context);
            if (code == 0) now->script(**q);
            return code;
        };
        domain_.ops = &mine_;
        now = this;
    }
    scripted_failure(const scripted_failure&) = delete;
    scripted_failure& operator=(const scripted_failure&) = delete;
    ~scripted_failure() { domain_.ops = domain_ops_; }

private:
    void script(fid_ep& e) {
        packets_ = e.msg, my_packets_ = *e.msg;
        my_packets_.send = [](fid_ep* p, const void* b, std::size_t n, void* d, fi_addr_t to, void* c) {
            return now->fails("fi_send") ? -FI_EIO : now->packets_->send(p, b, n, d, to, c);
        };
        my_packets_.inject = [](fid_ep* p, const void* b, std::size_t n, fi_addr_t to) {
            return now->fails("fi_inject") ? -FI_EIO : now->packets_->inject(p, b, n, to);
        };
        e.msg = &my_packets_;
        parts_ = e.tagged, my_parts_ = *e.tagged;
        my_parts_.sendv = [](fid_ep* p, const iovec* v, void** d, std::size_t n, fi_addr_t to, std::uint64_t tag,
                              void* c) {
            return now->fails("fi_tsendv") ? -FI_EIO : now->parts_->sendv(p, v, d, n, to, tag, c);
        };
        my_parts_.recvv = [](fid_ep* p, const iovec* v, void** d, std::size_t n, fi_addr_t from, std::uint64_t tag,
                              std::uint64_t ignored, void* c) {
            return now->fails("fi_trecvv") ? -FI_EIO : now->parts_->recvv(p, v, d, n, from, tag, ignored, c);
        };
        e.tagged = &my_parts_;
    }
    void script(fid_cq& q) {
        queue_ = q.ops, my_queue_ = *q.ops;
        my_queue_.read = [](fid_cq* from, void* to, std::size_t most) -> ssize_t {
            if (now->fails("fi_cq_read")) return -FI_EIO;
            const ssize_t n = now->queue_->read(from, to, std::min<std::size_t>(most, 1));  // fi_trywait asks for none
            if (n != 1) return n;
            const auto& entry = *static_cast<const fi_cq_msg_entry*>(to);
            const auto kind = static_cast<const ofi::operation*>(entry.op_context)->kind;
            const char* const calls[] = {"fi_recv", "fi_send", "fi_trecvv", "fi_tsendv"};
            if (!now->late_ || now->call_ != calls[kind]) return 1;
            now->late_ = false;
            now->call_ = "";
            now->failed_ = entry;
            return -FI_EAVAIL;
        };
        my_queue_.readerr = [](fid_cq* from, fi_cq_err_entry* to, std::uint64_t flags) -> ssize_t {
            if (!now->failed_.op_context) return now->queue_->readerr(from, to, flags);
            to->op_context = std::exchange(now->failed_.op_context, nullptr);
            to->err = FI_EIO;
            return 1;
        };
        q.ops = &my_queue_;
    }
    bool fails(const char* call) const { return !late_ && call_ == call; }

    static inline scripted_failure* now = nullptr;
    std::string call_;
    bool late_;
    fi_cq_msg_entry failed_{};
    fid_domain& domain_;
    fi_ops_domain *const domain_ops_, mine_{};
    fi_ops_msg *packets_ = nullptr, my_packets_{};
    fi_ops_tagged *parts_ = nullptr, my_parts_{};
    fi_ops_cq *queue_ = nullptr, my_queue_{};
};

/// Domains as libfabric lists them, and which one of them a rank takes.
class listed {
public:
    struct entry {
        std::string provider = "efa", name = "second";
        std::string card{};  ///< its PCI address; empty: there is none
        std::string fabric = "one";
        std::size_t speed = 200;
        std::uint32_t protocol = FI_PROTO_UNSPEC;
        bool ip = false, up = true;
        fi_info info{};
        fi_fabric_attr of{};
        fi_domain_attr domain{};
        fi_ep_attr end{};
        fid_nic nic{};
        fi_bus_attr bus{};
        fi_link_attr link{};
        sockaddr_in at{};
    };
    explicit listed(const made_sysfs::made_tree& t) : tree_(t) {}
    void add(entry&& given) {
        entry& e = all_.emplace_back(std::move(given));
        e.info.fabric_attr = &e.of, e.info.domain_attr = &e.domain, e.info.ep_attr = &e.end;
        e.of.prov_name = e.provider.data(), e.of.name = e.fabric.data(), e.domain.name = e.name.data();
        e.end.mem_tag_format = ~std::uint64_t{0}, e.end.protocol = e.protocol;
        e.info.addr_format = e.ip ? FI_SOCKADDR_IN : FI_ADDR_STR;
        e.at.sin_family = AF_INET;
        e.info.src_addr = &e.at, e.info.src_addrlen = sizeof e.at;
        if (!e.card.empty()) {
            unsigned domain = 0, bus = 0, device = 0, function = 0;
            if (std::sscanf(e.card.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) std::abort();
            e.bus.bus_type = FI_BUS_PCI;
            e.bus.attr.pci = {static_cast<std::uint16_t>(domain), static_cast<std::uint8_t>(bus),
                static_cast<std::uint8_t>(device), static_cast<std::uint8_t>(function)};
            e.link.speed = e.speed, e.link.state = e.up ? FI_LINK_UP : FI_LINK_DOWN;
            e.nic.bus_attr = &e.bus, e.nic.link_attr = &e.link;
            e.info.nic = &e.nic;
        }
        if (all_.size() > 1) all_[all_.size() - 2].info.next = &e.info;
    }
    std::string taken(int place, const char* cores, const char* gpu = "", const char* domain = nullptr) const {
        const ofi::domain_choice c{.place = place,
            .gpu = gpu,
            .pci = tree_.tree(),
            .cores = rdma::cores_of_list(std::istringstream(cores)),
            .name = nullptr,
            .domain = domain};
        const fi_info* const best = c.of(&all_.front().info);
        return best ? best->domain_attr->name : "none";
    }
    /// What ranks 0, 1, ... take, which have these cores.
    std::vector<std::string> of_ranks(const std::vector<const char*>& cores) const {
        std::vector<std::string> all;
        for (std::size_t i = 0; i < cores.size(); ++i) all.push_back(taken(static_cast<int>(i), cores[i]));
        return all;
    }

private:
    const made_sysfs::made_tree& tree_;
    std::deque<entry> all_;
};
using names = std::vector<std::string>;

}  // namespace

TEST_CASE("ofi: ranks take a domain near their cores, and spread over equal ones", "[ofi_domain]") {
    made_sysfs::made_tree t;
    listed all(t);
    for (const int i : {0, 1, 2, 3}) {  // two on each NUMA node
        const std::string bus = "0" + std::to_string(4 - i), at = "0000:" + bus + ":00.0";
        t.card("pci0000:" + bus, at, i / 2, "hsn" + std::to_string(i));
        for (const char* const provider : {"cxi", "cxi;ofi_rxd"})
            all.add({.provider = provider, .name = "cxi" + std::to_string(i), .card = at});
    }
    t.node(0, "0-7,16-23");
    t.node(1, "8-15,24-31");
    CHECK(all.of_ranks({"0", "1", "9", "8-15,24-31"}) == names{"cxi0", "cxi1", "cxi3", "cxi2"});
    CHECK(all.of_ranks({"0", "8", "1", "9"}) == names{"cxi0", "cxi3", "cxi1", "cxi2"});  // the nodes in turn
    CHECK(all.of_ranks({"0-31", "0-31", "0-31", "0-31"}) == names{"cxi0", "cxi1", "cxi2", "cxi3"});  // on both
    CHECK(all.of_ranks({"40", "40"}) == names{"cxi0", "cxi1"});  // on none that has a card
    CHECK(all.of_ranks({"", ""}) == names{"cxi0", "cxi1"});      // not known
    CHECK(all.taken(0, "0", "", "cxi2") == "cxi2");
    CHECK(all.taken(3, "8", "", "cxi9") == "none");
}

TEST_CASE("ofi: a rank takes the domain nearest to its GPU, as the other GPUs of the host do", "[ofi_domain]") {
    made_sysfs::made_tree t;
    listed all(t);
    for (const char* const bus : {"10", "20", "30"}) {  // two GPUs behind each switch, and two cards; the last has none
        const std::string up = std::string("pci0000:") + bus + "/0000:" + bus + ":01.0";
        for (const std::string i : {"a", "b"}) {
            t.gpu(up, std::string("0000:") + bus + ":0" + i + ".0", 0);
            if (bus[0] == '3') continue;
            const std::string at = std::string("0000:") + bus + ":1" + i + ".0";
            t.card(up, at, 0, "efa" + (bus + i));
            all.add({.name = "rdmap" + (bus + i), .card = at});
        }
    }
    for (const char* const gpu : {"10:0a", "10:0b", "20:0a", "20:0b"}) {
        std::string name = std::string("rdmap") + gpu;
        name.erase(name.find(":0"), 2);
        CHECK(all.taken(0, "0", (std::string("00000000:") + gpu + ".0").c_str()) == name);
    }
    CHECK(all.taken(0, "0", "0000:30:0a.0") == "rdmap10a");
    CHECK(all.taken(0, "0", "0000:30:0b.0") == "rdmap10b");
    CHECK(all.taken(0, "0", "0000:10:0b.0", "rdmap20a") == "rdmap20a");
}

TEST_CASE("ofi: of domains that are not alike, or not known to be, the first is taken", "[ofi_domain]") {
    made_sysfs::made_tree t;
    t.card("pci0000:10", "0000:10:00.0", 0, "far");
    t.card("pci0000:20", "0000:20:00.0", 1, "near");
    t.node(0, "0");
    t.node(1, "1");
    const auto second = [&](listed::entry&& e) {
        listed all(t);
        all.add({.name = "first", .card = "0000:10:00.0"});
        all.add(std::move(e));
        return all.taken(0, "1") == "second";
    };
    CHECK(second({.card = "0000:20:00.0"}));
    CHECK_FALSE(second({.provider = "cxi", .card = "0000:20:00.0"}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .fabric = "other"}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .speed = 100}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .protocol = FI_PROTO_EFA}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .ip = true}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .up = false}));
    CHECK_FALSE(second({}));
    listed ip(t);
    for (const char* const card : {"0000:10:00.0", "0000:20:00.0"})
        ip.add({.provider = "verbs", .name = card, .card = card, .ip = true});
    CHECK(ip.taken(1, "1") == "0000:10:00.0");
}

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
    // Threads of libfabric's may close theirs a little later.
    for (const double end = seconds_now() + 10; open_descriptors() != before && seconds_now() < end;)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
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

TEST_CASE("ofi: over the kernel's TCP messages leave while their receiver computes, and arrive", "[ofi_transport]") {
    for (const std::string& name : providers()) {
        if (name != "tcp" && name != "net") continue;
        INFO(name);
        constexpr std::uint64_t count = 15;  // fewer than a peer may send at once, more than its connection takes in
        std::atomic<bool> computes{false}, left{false};
        const auto wait_for = [](const std::atomic<bool>& what) {
            for (const double end = seconds_now() + patience_s; !what && seconds_now() < end;)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        };
        CHECK(over_ofi(2, name, [&](int r, auto& w, auto complain) {
            std::vector<std::byte> data(usual.packet_bytes, static_cast<std::byte>(1 - r));
            const piece p{data.data(), data.size()};
            for (std::uint64_t i = 0; i <= count; ++i) {
                r == 0 ? w->send(1, label_of(0, 1, i), &p, 1) : w->receive(0, label_of(0, 1, i), &p, 1);
                const auto done = [&] { return r == 0 ? w->sent(1) > 0 : w->received(0) > 0; };
                if (i == 0 && !until(*w, done)) complain("no connection");
                if (i == 0) r == 0 ? wait_for(computes) : computes.store(true);
            }
            if (r == 0) {
                if (!until(*w, [&] { return w->sent(1) > count; })) complain("not left");
                left = true;
                w.reset();
            } else {
                wait_for(left);
                std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 may have closed it
                if (!until(*w, [&] { return w->received(0) > count; })) complain("not arrived");
            }
        }) == "");
    }
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

TEST_CASE("ofi: an error of the provider is reported once, with its peer, provider and call", "[ofi_transport]") {
    struct {
        const char* call;
        bool late, sends;
        std::size_t bytes;
    } const cases[] = {
        {"fi_send", false, true, 8},
        {"fi_send", true, true, 8},
        {"fi_tsendv", false, true, 100'000},
        {"fi_tsendv", true, true, 100'000},
        {"fi_trecvv", false, false, 100'000},
        {"fi_trecvv", true, false, 100'000},
        {"fi_inject", false, false, 100'000},
        {"fi_recv", true, false, 8},
        {"fi_cq_read", false, false, 8},
    };
    ofi_shape shape = usual;
    shape.failure_grace = 0;
    for (const auto& k : cases) {
        INFO(k.call << (k.late ? ", when it completes" : ""));
        const auto fails = provider_of("tcp"), works = provider_of("tcp");
        const scripted_failure script(*fails, k.call, k.late);
        const std::string why = std::string("libfabric's ") + fails->name() + ": " + k.call + ": Input/output error";
        const auto ranks = [&](int r, auto& w, auto complain) {
            ear e;
            w->listening = &e;
            std::vector<std::byte> data(k.bytes);
            const piece p{data.data(), k.bytes};
            k.sends == (r == 0) ? w->send(1 - r, label_of(0, 0, 0), &p, 1)
                                : w->receive(1 - r, label_of(0, 0, 0), &p, 1);
            const auto hears = [&](const std::string& what) {
                if (!until(*w, [&] { return e.count(what) > 0; })) complain("not " + what + "; " + e.text());
            };
            if (r == 0) {
                hears("failed 1");
                w->tell(1, {control_kind::accept, 0, 0, 0, ""});
                hears(said(control_kind::broken));
                if (e.count("failed") != 1 || e.reasons.at(0) != why) complain(e.text());
            } else {
                hears(said(control_kind::accept));
                w->tell(0, {control_kind::broken, 0, 0, 0, ""});
            }
            w->abandon();
        };
        CHECK(over_ofi({fails, works}, ranks, shape) == "");
    }
}

TEST_CASE("ofi: a sleep ends by a message of any group of the thread", "[ofi_transport]") {
    for (const std::string& name : providers()) {
        INFO(name);
        const auto of = provider_of(name.c_str());
        CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            std::vector<std::unique_ptr<ofi_transport>> groups;
            for (const std::uint64_t number : {98u, 99u})
                groups.push_back(std::make_unique<ofi_transport>(
                    std::make_unique<tcp_transport>(node, number, r, members), of, r, 2));
            std::uint64_t value = 0;
            const piece p{reinterpret_cast<std::byte*>(&value), 8};
            // The first four make the connections.
            for (std::uint64_t i = 0; i < 12; ++i) {
                ofi_transport &w = *groups[i % 2], &other = *groups[1 - i % 2];
                const int to = static_cast<int>(i / 2 % 2);
                const auto done = [&] { return r == to ? w.received(1 - r) > i / 4 : w.sent(1 - r) > i / 4; };
                const message_label l = label_of(1 - to, to, i);
                if (r != to && i > 3)
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it may sleep by then
                r == to ? w.receive(1 - r, l, &p, 1) : w.send(1 - r, l, &p, 1);
                while (r == to && i > 3 && (w.progress(), other.progress(), !done())) {
                    const double begun = seconds_now();
                    of->sleep(patience_s);
                    if (seconds_now() - begun > 0.9 * patience_s) return complain("it goes on");
                }
                if (!until(w, done)) return complain("not done");
            }
        }) == "");
    }
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

TEST_CASE("ofi: the peer acknowledges what a buffer of the provider may hold back", "[ofi_transport]") {
    const auto flags = [](const char* buffer) {
        const with_environment p("COLLS_OFI_PROVIDER", "tcp"), b("FI_TCP_STAGING_SBUF_SIZE", buffer);
        return ofi::provider().info().tx_attr->op_flags;
    };
    CHECK(flags("0") == 0);
    CHECK(flags("9000") == FI_TRANSMIT_COMPLETE);
    std::atomic<bool> done{false};
    std::thread other([&] { done.wait(false); });
    CHECK(flags(nullptr) == FI_TRANSMIT_COMPLETE);  // another thread may read the environment now
    done = true, done.notify_one();
    other.join();
    if (!sanitized_threads) CHECK(flags(nullptr) == 0);  // ThreadSanitizer has a thread of its own
}
