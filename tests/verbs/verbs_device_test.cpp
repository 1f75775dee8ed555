// What verbs_device asks of libibverbs, and its errors where that refuses. libibverbs is simulated here, so that ports,
// addresses, limits and errors are as each case wants them. scripts/test-verbs runs the same code on a real one.
#include "catch.hpp"

#if __has_include(<infiniband/verbs.h>)

#include "made_tree.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/verbs/detail/device.hpp>
#include <colls/verbs/detail/memory_registry.hpp>

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace support;
using colls::detail::address;
namespace rdma = colls::detail::rdma;

namespace {

/// An address of a port.
struct simulated_gid {
    ibv_gid gid{};
    std::uint32_t type = IBV_GID_TYPE_ROCE_V2;
};
struct simulated_port {
    ibv_port_state state = IBV_PORT_ACTIVE;
    bool ethernet = true;
    std::vector<simulated_gid> gids;
    ibv_mtu mtu = IBV_MTU_4096;
    std::uint16_t lid = 0;
    std::uint8_t speed = 32;
};
struct simulated_device : ibv_device {
    std::vector<simulated_port> ports;
    std::uint32_t vendor = 0x15b3;
    int refuses = 0;  // to be opened: errno
    simulated_device(const char* called, std::vector<simulated_port> p) : ibv_device{}, ports(std::move(p)) {
        std::strcpy(name, called);
    }
};
struct simulated_context : ibv_context {
    simulated_device* of = nullptr;
};
struct posted {
    ibv_send_wr what;
    std::vector<ibv_sge> pieces;
};
/// The simulated devices, and what was done with them.
struct machine {
    std::vector<simulated_device> devices;
    int list_fails = 0, memory_fails = 0, completions_fail = 0, queue_fails = 0, change_fails = 0,
        file_fails = 0;  // errno
    std::uint32_t most_inlined = 256;
    int open = 0, domains = 0, memories = 0, pairs = 0, completion_queues = 0, lists = 0;
    int doorbells = 0, receives = 0;
    std::vector<posted> requests;
    std::vector<ibv_qp_attr> changes;
    std::vector<int> masks;
    std::vector<ibv_wc> completions;
    ibv_qp_init_attr made{};
    std::uint64_t offset = 0, at = 0;
    int file = -1, access = 0;
    bool idle() const { return open + domains + memories + pairs + completion_queues + lists == 0; }
};
machine now;
std::atomic<bool> destroying_waits = false;  // while that is true
std::atomic<int> closed = 0;                 // devices, ever
const simulated_port& port_of(ibv_context* c, std::uint32_t port) {
    return static_cast<simulated_context*>(c)->of->ports.at(port - 1);
}

int simulate_post(ibv_qp*, ibv_send_wr* w, ibv_send_wr** bad) {
    ++now.doorbells;
    for (; w; w = w->next) {
        if (w->wr_id == 666) return *bad = w, ENOMEM;
        now.requests.push_back({*w, {w->sg_list, w->sg_list + w->num_sge}});
    }
    return 0;
}
int simulate_receive(ibv_qp*, ibv_recv_wr* w, ibv_recv_wr** bad) {
    for (; w; w = w->next) {
        if (w->num_sge != 0) return *bad = w, EINVAL;
        ++now.receives;
    }
    return 0;
}
int simulate_poll(ibv_cq*, int most, ibv_wc* into) {
    int n = 0;
    for (; n < most && !now.completions.empty(); ++n) {
        into[n] = now.completions.front();
        now.completions.erase(now.completions.begin());
    }
    return n;
}

}  // namespace

#undef ibv_query_port
#undef ibv_reg_mr
extern "C" {
ibv_device** ibv_get_device_list(int* count) {
    if (now.list_fails) return errno = now.list_fails, nullptr;
    ++now.lists;
    auto** const all = static_cast<ibv_device**>(std::calloc(now.devices.size() + 1, sizeof(ibv_device*)));
    for (std::size_t i = 0; i < now.devices.size(); ++i) all[i] = &now.devices[i];
    *count = static_cast<int>(now.devices.size());
    return all;
}
void ibv_free_device_list(ibv_device** all) { --now.lists, std::free(all); }
const char* ibv_get_device_name(ibv_device* d) { return d->name; }
ibv_context* ibv_open_device(ibv_device* d) {
    auto& of = *static_cast<simulated_device*>(d);
    if (of.refuses) return errno = of.refuses, nullptr;
    ++now.open;
    auto* const c = new simulated_context{};
    c->of = &of;
    c->device = d;
    c->ops.post_send = simulate_post;
    c->ops.post_recv = simulate_receive;
    c->ops.poll_cq = simulate_poll;
    return c;
}
int ibv_close_device(ibv_context* c) {
    --now.open, delete static_cast<simulated_context*>(c);
    closed.fetch_add(1, std::memory_order_release);
    return 0;
}
int ibv_query_device(ibv_context* c, ibv_device_attr* a) {
    const auto& of = *static_cast<simulated_context*>(c)->of;
    a->phys_port_cnt = static_cast<std::uint8_t>(of.ports.size());
    a->vendor_id = of.vendor;
    a->max_qp_wr = 200;
    a->max_sge = 5;
    return 0;
}
int ibv_query_port(ibv_context* c, std::uint8_t port, struct _compat_ibv_port_attr* into) {
    const simulated_port& p = port_of(c, port);
    ibv_port_attr a{};
    a.state = p.state;
    a.link_layer = p.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    a.gid_tbl_len = static_cast<int>(p.gids.size()) + 3;
    a.active_mtu = p.mtu;
    a.lid = p.lid;
    a.active_speed = p.speed;
    a.max_msg_sz = 1 << 23;
    std::memcpy(static_cast<void*>(into), &a, sizeof a);
    return 0;
}
int _ibv_query_gid_ex(
    ibv_context* c, std::uint32_t port, std::uint32_t index, ibv_gid_entry* e, std::uint32_t, std::size_t) {
    const auto& gids = port_of(c, port).gids;
    if (index >= gids.size()) return ENODATA;
    e->gid = gids[index].gid;
    e->gid_type = gids[index].type;
    return 0;
}
int ibv_query_gid(ibv_context* c, std::uint8_t port, int index, ibv_gid* into) {
    const auto& gids = port_of(c, port).gids;
    if (static_cast<std::size_t>(index) >= gids.size()) return -1;
    *into = gids[static_cast<std::size_t>(index)].gid;
    return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* c) {
    ++now.domains;
    auto* const p = new ibv_pd{};
    p->context = c;
    return p;
}
int ibv_dealloc_pd(ibv_pd* p) { return --now.domains, delete p, 0; }
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void* at, std::size_t bytes, std::uint64_t, unsigned access) {
    if (now.memory_fails) return errno = now.memory_fails, nullptr;
    ++now.memories;
    now.access = static_cast<int>(access);
    auto* const m = new ibv_mr{};
    m->addr = at, m->length = bytes, m->lkey = 11, m->rkey = 22;
    return m;
}
ibv_mr* ibv_reg_mr(ibv_pd* p, void* at, std::size_t bytes, int access) {
    return ibv_reg_mr_iova2(p, at, bytes, 0, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* p, std::uint64_t offset, std::size_t bytes, std::uint64_t at, int file, int access) {
    if (now.file_fails) return errno = now.file_fails, nullptr;
    now.offset = offset, now.at = at, now.file = file;
    return ibv_reg_mr_iova2(p, nullptr, bytes, at, static_cast<unsigned>(access));
}
int ibv_dereg_mr(ibv_mr* m) { return --now.memories, delete m, 0; }
ibv_cq* ibv_create_cq(ibv_context* c, int, void*, ibv_comp_channel*, int) {
    if (now.completions_fail) return errno = now.completions_fail, nullptr;
    ++now.completion_queues;
    auto* const q = new ibv_cq{};
    q->context = c;
    return q;
}
int ibv_destroy_cq(ibv_cq* q) { return --now.completion_queues, delete q, 0; }
ibv_qp* ibv_create_qp(ibv_pd* p, ibv_qp_init_attr* a) {
    if (now.queue_fails) return errno = now.queue_fails, nullptr;
    if (a->cap.max_inline_data > now.most_inlined) return errno = EINVAL, nullptr;
    ++now.pairs;
    now.made = *a;
    auto* const q = new ibv_qp{};
    q->context = p->context;
    q->qp_num = 77;
    return q;
}
int ibv_destroy_qp(ibv_qp* q) {
    while (destroying_waits.load(std::memory_order_acquire)) std::this_thread::yield();
    return --now.pairs, delete q, 0;
}
int ibv_modify_qp(ibv_qp*, ibv_qp_attr* a, int mask) {
    if (now.change_fails) return now.change_fails;
    now.changes.push_back(*a);
    now.masks.push_back(mask);
    return 0;
}
const char* ibv_port_state_str(ibv_port_state s) {
    return s == IBV_PORT_ACTIVE ? "active" : s == IBV_PORT_DOWN ? "down" : "another";
}
const char* ibv_wc_status_str(ibv_wc_status s) {
    return s == IBV_WC_RETRY_EXC_ERR    ? "retries exceeded"
           : s == IBV_WC_REM_ACCESS_ERR ? "remote access error"
                                        : "another";
}
}

namespace {

simulated_gid v4(const char* text) {
    simulated_gid g;
    g.gid.raw[10] = g.gid.raw[11] = 0xff;
    inet_pton(AF_INET, text, g.gid.raw + 12);
    return g;
}
simulated_gid v6(const char* text) {
    simulated_gid g;
    inet_pton(AF_INET6, text, g.gid.raw);
    return g;
}
simulated_gid old(simulated_gid g) { return g.type = IBV_GID_TYPE_ROCE_V1, g; }
address here(const char* text) {
    in_addr a{};
    inet_pton(AF_INET, text, &a);
    return address::of_v4(ntohl(a.s_addr), 1);
}
simulated_device roce(const char* name, ibv_port_state state = IBV_PORT_ACTIVE) {
    return {name, {{state, true, {old(v6("fe80::1")), v6("fe80::1"), old(v4("10.0.0.1")), v4("10.0.0.1")}}}};
}
/// What is thrown; empty: nothing.
template <class F>
std::string thrown(colls::errc code, F f) {
    std::string text;
    try {
        f();
        return "";
    } catch (const colls::error& e) {
        text = e.what();
        if (e.code() != code) text += " (of another kind)";
    }
    if (!now.idle()) text += " (something is left open)";
    return text;
}
std::string refused(const address& own = {}) {
    return thrown(colls::errc::unsupported, [&] { rdma::verbs_device d(own); });
}
/// "name, port, address", as it was chosen.
std::string chosen(const address& own = {}) {
    std::string text;
    {
        rdma::verbs_device d(own);
        text = std::string(d.name()) + " " + std::to_string(d.port()) + " " + std::to_string(d.gid_index());
    }
    CHECK(now.idle());
    return text;
}
struct fresh {
    fresh(std::vector<simulated_device> d) {
        now = {};
        now.devices = std::move(d);
        for (const char* name : {"COLLS_VERBS_DEVICE", "COLLS_VERBS_PORT", "COLLS_VERBS_GID"}) unsetenv(name);
    }
};

}  // namespace

TEST_CASE("verbs_device: for a GPU the nearest device is taken, unless that has a link-local address alone",
    "[verbs_device]") {
    fresh f({roce("one"), roce("two"), roce("three")});
    made_sysfs::made_tree t;
    t.gpu("pci0000:10/0000:10:01.0", "0000:11:00.0", 0);
    t.card("pci0000:20/0000:20:01.0", "0000:21:00.0", 1, "one");
    t.card("pci0000:10/0000:10:01.0", "0000:12:00.0", 0, "two");
    t.card("pci0000:10/0000:10:02.0", "0000:13:00.0", 0, "three");
    const auto chosen_for = [&](const char* gpu) {
        std::string name;
        {
            rdma::verbs_device d({}, gpu, t.tree());
            name = d.name();
        }
        CHECK(now.idle());
        return name;
    };
    CHECK(chosen_for("0000:11:00.0") == "two");
    CHECK(chosen_for("") == "one");
    {
        const with_environment names("COLLS_VERBS_DEVICE", "t*,^two");
        CHECK(chosen_for("0000:11:00.0") == "three");
        CHECK(chosen_for("") == "three");
    }
    now.devices[1].ports[0].gids = {v6("fe80::1")};
    CHECK(chosen_for("0000:11:00.0") == "three");
    now.devices[0].ports[0].gids = now.devices[2].ports[0].gids = {v6("fe80::1")};
    CHECK(chosen_for("0000:11:00.0") == "two");
}

TEST_CASE("verbs_device: a rank uses several equal devices at once: those near its GPU alone, or those that are named",
    "[verbs_device]") {
    fresh f({roce("one"), roce("two"), roce("three"), roce("four"), roce("five")});
    made_sysfs::made_tree t;
    t.gpu("pci0000:10/0000:10:01.0", "0000:11:00.0", 0);
    int bus = 20;
    for (const simulated_device& d : now.devices) {
        const std::string b = std::to_string(bus++);
        t.card("pci0000:" + b + "/0000:" + b + ":01.0", "0000:" + b + ":00.0", d.name[1] == 'h' ? 1 : 0, d.name);
    }
    const auto chosen_for = [&](const char* gpu) {
        std::string names;
        {
            const rdma::verbs_device d({}, gpu, t.tree());
            names = d.name();
            for (const auto& other : d.beside()) {
                names += std::string(" ") + other->name();
                CHECK(other->beside().empty());
            }
            CHECK(now.open == now.domains);
        }
        CHECK(now.idle());
        return names;
    };
    CHECK(chosen_for("0000:11:00.0") == "one two four five");
    CHECK(chosen_for("") == "one");
    now.devices[3].ports[0].speed = 16;
    CHECK(chosen_for("0000:11:00.0") == "one two five");
    t.gpu("pci0000:10/0000:10:02.0", "0000:12:00.0", 0);
    CHECK(chosen_for("0000:11:00.0") == "one");
    CHECK(chosen_for("0000:12:00.0") == "two five");
    now.devices[3].ports[0].speed = 32;
    for (const auto& [list, names] : {std::pair{"^two", "one"}, {"*", "one two three four"}, {"three,one", "one three"},
             {"t*", "two three"}, {"[a-z]*", "one two three four"}, {"[a-z]*,^one,^two", "three four five"}}) {
        const with_environment named("COLLS_VERBS_DEVICE", list);
        INFO(list);
        CHECK(chosen_for("") == names);
    }
    const with_environment named("COLLS_VERBS_DEVICE", "one,two");
    CHECK(chosen_for("0000:12:00.0") == "two");
    now.devices[1].ports[0].ethernet = false;
    CHECK(chosen_for("") == "one");
    now.devices[1].ports[0].state = IBV_PORT_DOWN;
    CHECK(chosen_for("0000:12:00.0") == "one");
}

TEST_CASE("verbs_device: where no device can be used, the error names those found and what to do", "[verbs_device]") {
    {
        fresh f({});
        CHECK(lacks(refused(), {"no RDMA device", "rdma link", "/dev/infiniband"}) == "");
        now.list_fails = ENOSYS;
        CHECK(lacks(refused(), {"no RDMA device", "Function not implemented"}) == "");
    }
    {
        fresh f({roce("one", IBV_PORT_DOWN), roce("two", IBV_PORT_INIT)});
        CHECK(lacks(refused(), {"no active port", "one port 1 is down", "two port 1 is another", "ip link"}) == "");
        now.devices[0].refuses = EACCES;
        CHECK(lacks(refused(), {"one (cannot be opened: Permission denied)", "two port 1"}) == "");
    }
    {
        fresh f({{"old", {{IBV_PORT_ACTIVE, true, {old(v4("10.0.0.1"))}}}}});
        CHECK(lacks(refused(), {"old port 1 is active but has no RoCE v2 address"}) == "");
    }
}

TEST_CASE("verbs_device: rejects a device, port or address of the environment that does not exist, and names what does",
    "[verbs_device]") {
    fresh f({roce("one"), {"two", {{IBV_PORT_DOWN, true, {}}, {IBV_PORT_ACTIVE, true, {v4("10.0.0.2")}}}}});
    {
        const with_environment name("COLLS_VERBS_DEVICE", "three");
        CHECK(lacks(refused(), {"COLLS_VERBS_DEVICE", "one", "two"}) == "");
    }
    {
        const with_environment name("COLLS_VERBS_DEVICE", "two");
        CHECK(chosen() == "two 2 0");
        const with_environment port("COLLS_VERBS_PORT", "1");
        CHECK(lacks(refused(), {"COLLS_VERBS_PORT", "two port 1 is down"}) == "");
    }
    {
        const with_environment port("COLLS_VERBS_PORT", "3");
        CHECK(lacks(refused(), {"COLLS_VERBS_PORT", "one has no port 3", "two has no port 3"}) == "");
    }
    {
        const with_environment gid("COLLS_VERBS_GID", "4");
        CHECK(lacks(refused(), {"no such COLLS_VERBS_GID", "one port 1", "two port 2"}) == "");
    }
    {
        const with_environment gid("COLLS_VERBS_GID", "2");
        CHECK(chosen() == "one 1 2");
    }
    for (const char* value : {"x", "-1", "1e3", "70000"}) {
        const with_environment gid("COLLS_VERBS_GID", value);
        CHECK(lacks(thrown(colls::errc::invalid_argument, [] { rdma::verbs_device d; }), {"COLLS_VERBS_GID", value}) ==
              "");
    }
    const with_environment port("COLLS_VERBS_PORT", "0");
    CHECK(
        lacks(thrown(colls::errc::invalid_argument, [] { rdma::verbs_device d; }), {"COLLS_VERBS_PORT", "'0'"}) == "");
}

TEST_CASE(
    "verbs_device: chooses the port that has the rank's TCP address, else the first usable one", "[verbs_device]") {
    fresh f({roce("down", IBV_PORT_DOWN),
        {"one", {{IBV_PORT_ACTIVE, true,
                    {old(v6("fe80::1")), v6("fe80::1"), v6("2001:db8::1"), old(v4("10.0.0.1")), v4("10.0.0.1")}}}},
        {"two", {{IBV_PORT_ACTIVE, true, {v6("fe80::2"), v6("2001:db8::2")}},
                    {IBV_PORT_ACTIVE, true, {v6("fe80::3"), v4("10.0.0.3"), v4("10.0.1.3")}}}}});
    CHECK(chosen() == "one 1 4");
    CHECK(chosen(here("10.0.0.1")) == "one 1 4");
    CHECK(chosen(here("10.0.1.3")) == "two 2 2");
    CHECK(chosen(here("10.9.9.9")) == "one 1 4");
    address six;
    six.length = sizeof(sockaddr_in6);
    six.v6().sin6_family = AF_INET6;
    inet_pton(AF_INET6, "2001:db8::2", &six.v6().sin6_addr);
    CHECK(chosen(six) == "two 1 1");
    now.devices.erase(now.devices.begin() + 1);
    CHECK(chosen() == "two 2 1");
    now.devices[1].ports.pop_back();
    CHECK(chosen() == "two 1 1");
    now.devices[1].ports[0].gids.pop_back();
    CHECK(chosen() == "two 1 0");
    // InfiniBand is reached by the port's number.
    now.devices.push_back({"band", {{IBV_PORT_ACTIVE, false, {old(v6("fe80::9"))}, IBV_MTU_2048, 5}}});
    CHECK(chosen() == "band 1 0");
}

TEST_CASE(
    "verbs_device: memory that cannot be registered: the error says how much, why, and what to do", "[verbs_device]") {
    fresh f({roce("one")});
    auto device = std::make_shared<rdma::verbs_device>();
    std::vector<std::byte> memory(4096);
    const auto refusal = [&](int code) {
        now.memory_fails = code;
        try {
            device->add(memory.data(), memory.size());
        } catch (const colls::error& e) {
            return std::string(e.what()) + (e.code() == colls::errc::unsupported ? "" : " (of another kind)");
        }
        return std::string();
    };
    rlimit before{};
    getrlimit(RLIMIT_MEMLOCK, &before);
    rlimit low = before;
    low.rlim_cur = 64 << 10;
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &low) == 0);
    for (const int code : {ENOMEM, EAGAIN, EPERM})
        CHECK(lacks(refusal(code), {"one cannot register 4096 bytes", std::strerror(code), "64 KB", "RLIMIT_MEMLOCK",
                                       "ulimit -l unlimited", "LimitMEMLOCK"}) == "");
    CHECK(lacks(refusal(EFAULT), {"one cannot register 4096 bytes", "must be mapped, writable"}) == "");
    CHECK(refusal(EFAULT).find("RLIMIT") == std::string::npos);
    setrlimit(RLIMIT_MEMLOCK, &before);
    now.memory_fails = 0;
    const rdma::region r = device->add(memory.data(), memory.size());
    CHECK((r.local == 11 && r.remote == 22 && r.holds(memory.data(), 4096) && !r.foreign));
    CHECK(now.access == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    device->drop(r);

    // Memory of a GPU.
    const rdma::region gpu = device->add_dmabuf(9, 8192, reinterpret_cast<std::byte*>(0x7000'0000'0000), 1 << 20);
    CHECK((now.file == 9 && now.offset == 8192 && now.at == 0x7000'0000'0000));
    CHECK((gpu.foreign && gpu.bytes == 1 << 20 && gpu.local == 11));
    {
        rdma::memory_registry book(device);
        CHECK(book.native(memory.data()));
        book.insert(gpu);
        CHECK(book.native(memory.data()));
        CHECK(!book.native(gpu.at + 100));
    }  // drops it
    // By a dma-buf if there is one and it is taken, else by its address.
    auto* const there = reinterpret_cast<std::byte*>(0x7000'0000'1000);
    for (const auto& [file, fails] : {std::pair(8, 0), {8, EOPNOTSUPP}, {-1, 0}}) {
        now.file = 0, now.at = 0;
        now.file_fails = fails;
        const rdma::region g = device->add_gpu(there, 4096, file, 16384);
        CHECK((g.foreign && g.at == there && g.bytes == 4096 && g.remote == 22));
        CHECK(now.file == (file == 8 && fails == 0 ? 8 : 0));
        if (now.file == 8) CHECK((now.offset == 16384 && now.at == 0x7000'0000'1000));
        device->drop(g);
    }
    now.file_fails = EOPNOTSUPP;
    now.memory_fails = EFAULT;
    for (const int file : {8, -1}) {
        std::string why;
        try {
            device->add_gpu(there, 4096, file, 0);
        } catch (const colls::error& e) {
            CHECK(e.code() == colls::errc::unsupported);
            why = e.what();
        }
        CHECK(lacks(why, {"one cannot register a GPU's memory by its address", std::strerror(EFAULT), "nvidia_peermem",
                             file < 0 ? "exports no dma-buf" : std::strerror(EOPNOTSUPP)}) == "");
    }
    now.file_fails = 0;
    now.memory_fails = EOPNOTSUPP;
    try {
        device->add_dmabuf(9, 0, nullptr, 1);
        CHECK(false);
    } catch (const colls::error& e) {
        CHECK(lacks(e.what(), {"one cannot register 1 bytes of a dma-buf", std::strerror(EOPNOTSUPP),
                                  "kernel, driver and device"}) == "");
    }
    device.reset();
    CHECK(now.idle());
}

TEST_CASE("verbs_device: a queue pair has limits as near to those wanted as the device allows", "[verbs_device]") {
    fresh f({roce("one")});
    {
        rdma::verbs_device device;
        const rdma::queue_limits wanted{
            .inlined = 512, .gathers = 16, .requests = 256, .receives = 100, .bytes = 1 << 30};
        now.most_inlined = 128;
        {
            const auto q = device.open(wanted);
            const rdma::queue_limits l = q->limits();
            CHECK(l.inlined == 128);
            CHECK(l.gathers == 5);
            CHECK(l.requests == 200);
            CHECK(l.receives == 100);
            CHECK(l.bytes == 1 << 23);
            CHECK(now.made.qp_type == IBV_QPT_RC);
            CHECK(now.made.sq_sig_all == 0);
        }
        now.most_inlined = 0;
        CHECK(device.open(wanted)->limits().inlined == 0);
        for (const auto& [fails, code, what] :
            {std::tuple{&machine::queue_fails, ENOMEM, "queue pair"}, {&machine::change_fails, EINVAL, "queue pair"},
                {&machine::completions_fail, EAGAIN, "completion queue"}}) {
            now.*fails = code;
            try {
                device.open(wanted);
                CHECK(false);
            } catch (const colls::error& e) {
                CHECK(lacks(e.what(), {std::string("one has no ") + what, std::strerror(code)}) == "");
                CHECK((std::string(e.what()).find("ulimit -l") != std::string::npos) == (code == ENOMEM));
            }
            now.*fails = 0;
        }
    }
    CHECK(now.idle());
}

TEST_CASE(
    "verbs_device: stopping a queue pair resets it and returns at once; the device is closed after it is destroyed",
    "[verbs_device]") {
    fresh f({roce("one")});
    const int before = closed.load(std::memory_order_acquire);
    {
        rdma::verbs_device device;
        const auto q = device.open({});
        destroying_waits.store(true, std::memory_order_release);
        q->stop();
        CHECK((now.changes.size() == 2 && now.changes.back().qp_state == IBV_QPS_RESET &&
               now.masks.back() == IBV_QP_STATE));
    }
    CHECK(now.pairs == 1);
    CHECK(now.completion_queues == 1);
    CHECK(now.domains == 1);
    CHECK(closed.load(std::memory_order_acquire) == before);
    destroying_waits.store(false, std::memory_order_release);
    for (int i = 0; i < 30'000 && closed.load(std::memory_order_acquire) == before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    REQUIRE(closed.load(std::memory_order_acquire) == before + 1);
    CHECK(now.idle());

    // Where destroying takes a moment only, nothing is left when the device has ended.
    std::thread soon;
    {
        rdma::verbs_device device;
        const auto q = device.open({});
        destroying_waits.store(true, std::memory_order_release);
        q->stop();
        soon = std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            destroying_waits.store(false, std::memory_order_release);
        });
    }
    CHECK(closed.load(std::memory_order_acquire) == before + 2);
    CHECK(now.idle());
    soon.join();
}

TEST_CASE(
    "verbs_device: a connection has the peer's address and timeouts; between soft-RoCE devices a request is one packet",
    "[verbs_device]") {
    for (const bool soft : {false, true})
        for (const bool same : {false, true}) {
            fresh f({roce("one"), {"two", {{IBV_PORT_ACTIVE, true, {v4("10.0.0.2")}, IBV_MTU_1024}}}});
            if (soft) now.devices[0].vendor = now.devices[1].vendor = 0xffffff;
            {
                const with_environment name("COLLS_VERBS_DEVICE", "one");
                rdma::verbs_device a;
                const with_environment other("COLLS_VERBS_DEVICE", same ? "one" : "two");
                rdma::verbs_device b;
                const auto p = a.open({.requests = 10, .bytes = 1 << 20}),
                           q = b.open({.requests = 10, .bytes = 1 << 20});
                now.changes.clear();
                now.masks.clear();
                REQUIRE(p->connect(q->name()) == nullptr);
                REQUIRE(now.changes.size() == 2);
                const ibv_qp_attr to = now.changes[0], on = now.changes[1];
                CHECK((to.qp_state == IBV_QPS_RTR && on.qp_state == IBV_QPS_RTS));
                CHECK(to.dest_qp_num == 77);
                CHECK(to.path_mtu == (same ? IBV_MTU_4096 : IBV_MTU_1024));
                CHECK(to.ah_attr.is_global == 1);
                CHECK(to.ah_attr.grh.sgid_index == 3);
                const simulated_gid there = v4(same ? "10.0.0.1" : "10.0.0.2");
                CHECK(std::memcmp(&to.ah_attr.grh.dgid, &there.gid, 16) == 0);
                CHECK((on.timeout <= 12 && on.timeout > 0 && on.retry_cnt > 0));
                CHECK(p->limits().bytes == (soft && !same ? 1024 : 1 << 20));
                // The peer expects the first packet number that this side has told.
                now.changes.clear();
                REQUIRE(q->connect(p->name()) == nullptr);
                CHECK((now.changes[0].rq_psn == on.sq_psn && now.changes[1].sq_psn == to.rq_psn));
            }
            CHECK(now.idle());
        }
}

TEST_CASE("verbs_device: a chain of requests is posted by one call, with the fields of each", "[verbs_device]") {
    fresh f({roce("one")});
    {
        rdma::verbs_device device;
        const auto q = device.open({.inlined = 64, .gathers = 4, .requests = 50, .receives = 10, .bytes = 1 << 20});
        std::byte memory[100];
        const rdma::gather gathers[] = {{memory, 10, 5}, {memory + 20, 30, 6}, {memory + 60, 8, 7}};
        const rdma::write_request chain[] = {{.id = 3,
                                                 .to = 0x1234,
                                                 .remote = 0xabc,
                                                 .first = 0,
                                                 .count = 2,
                                                 .immediate = 0,
                                                 .announces = false,
                                                 .signalled = false,
                                                 .inlined = false},
            {.id = 4,
                .to = 0x5678,
                .remote = 0xdef,
                .first = 2,
                .count = 1,
                .immediate = 0x40000007,
                .announces = true,
                .signalled = true,
                .inlined = true},
            {.id = 5,
                .to = 0x9abc,
                .remote = 0xdef,
                .first = 3,
                .count = 0,
                .immediate = 9,
                .announces = true,
                .signalled = false,
                .inlined = false}};
        for (int turn = 0; turn < 2; ++turn) {
            now.requests.clear();
            REQUIRE(q->post(chain, 3, gathers) == nullptr);
            CHECK(now.doorbells == turn + 1);
            REQUIRE(now.requests.size() == 3);
            for (std::size_t i = 0; i < 3; ++i) {
                const posted& w = now.requests[i];
                const rdma::write_request& r = chain[i];
                CHECK(w.what.wr_id == r.id);
                CHECK(w.what.opcode == (r.announces ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE));
                CHECK(w.what.send_flags == ((r.signalled ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                                               (r.inlined ? unsigned{IBV_SEND_INLINE} : 0u)));
                CHECK((!r.announces || ntohl(w.what.imm_data) == r.immediate));
                CHECK((w.what.wr.rdma.remote_addr == r.to && w.what.wr.rdma.rkey == r.remote));
                REQUIRE(w.pieces.size() == r.count);
                for (std::size_t k = 0; k < r.count; ++k) {
                    const rdma::gather& g = gathers[r.first + k];
                    CHECK((w.pieces[k].addr == reinterpret_cast<std::uintptr_t>(g.at) &&
                           w.pieces[k].length == g.bytes && w.pieces[k].lkey == g.local));
                }
            }
        }
        rdma::write_request bad = chain[0];
        bad.id = 666;
        CHECK(std::string(q->post(&bad, 1, gathers)) == std::strerror(ENOMEM));
        CHECK(q->receive(7) == nullptr);
        CHECK(q->receive(0) == nullptr);
        CHECK(now.receives == 7);
    }
    CHECK(now.idle());
}

TEST_CASE("verbs_device: completions are told apart: arrived, sent, failed, and failed with a cause elsewhere",
    "[verbs_device]") {
    fresh f({roce("one")});
    rdma::verbs_device device;
    const auto q = device.open({.requests = 50, .receives = 10});
    const auto add = [](ibv_wc_status status, ibv_wc_opcode opcode, std::uint64_t id, std::uint32_t immediate) {
        ibv_wc c{};
        c.status = status, c.opcode = opcode, c.wr_id = id, c.imm_data = htonl(immediate);
        now.completions.push_back(c);
    };
    add(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 12, 0);
    add(IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, 0, 0x80000001);
    add(IBV_WC_RETRY_EXC_ERR, IBV_WC_RDMA_WRITE, 13, 0);
    add(IBV_WC_WR_FLUSH_ERR, IBV_WC_RDMA_WRITE, 14, 0);
    add(IBV_WC_REM_ACCESS_ERR, IBV_WC_RDMA_WRITE, 15, 0);
    rdma::completion all[8];
    REQUIRE(q->poll(all, 8) == 5);
    using what = rdma::completion;
    CHECK((all[0].what == what::sent && all[0].id == 12));
    CHECK((all[1].what == what::arrived && all[1].immediate == 0x80000001));
    CHECK((all[2].what == what::failed && all[2].secondary && std::string(all[2].status) == "retries exceeded"));
    CHECK((all[3].what == what::failed && all[3].secondary));
    CHECK((all[4].what == what::failed && !all[4].secondary && std::string(all[4].status) == "remote access error"));
    CHECK(q->poll(all, 8) == 0);
}

#else

TEST_CASE("verbs_device: not tested, since libibverbs is not installed", "[verbs_device]") { SUCCEED(); }

#endif
