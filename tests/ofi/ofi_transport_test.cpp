// The transport over libfabric, with the providers that need no device; ranks are threads. Processes, and those that
// die, are tried by fault_test and random_test over it.
#include "catch.hpp"

#include "support/fault.hpp"
#include "support/message_transports.hpp"
#include "support/says.hpp"
#include "verbs/made_tree.hpp"

#include <colls/net/detail/connection/tcp_transport.hpp>
#include <colls/ofi/detail/ofi_transport.hpp>

#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
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

/// One with two lanes on one interface, and one with a lane on each interface.
std::shared_ptr<ofi::provider> two_lanes() {
    const auto of = provider_of("tcp", "lo");
    return std::make_shared<ofi::provider>(std::vector<const fi_info*>{&of->info(), &of->info()});
}
std::shared_ptr<ofi::provider> all_interfaces() { return provider_of("tcp", "[a-z]*"); }

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
    const auto of = name == "two lanes" ? two_lanes() : provider_of(name.c_str());
    return over_ofi(std::vector(static_cast<std::size_t>(n), of), f, shape);
}

void wait_for(const std::atomic<bool>& what) {
    for (const double end = seconds_now() + patience_s; !what && seconds_now() < end;)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// While it lives, counts the parts that a provider sends and is to receive, by lane. For a provider that one thread
/// uses. `longer`: bytes that follow its endpoints' addresses.
class counted_parts {
public:
    explicit counted_parts(const ofi::provider& of, std::size_t longer = 0) : longer_(longer) {
        now = this;
        [&]<std::size_t... K>(std::index_sequence<K...>) {
            ((K < of.lanes() ? watch<K>(*of.domain(K)) : void()), ...);
        }(std::make_index_sequence<rdma::most_lanes>());
    }
    counted_parts(const counted_parts&) = delete;
    counted_parts& operator=(const counted_parts&) = delete;
    ~counted_parts() {
        for (lane& l : lanes_)
            if (l.domain) l.domain->ops = l.domain_ops;
    }
    std::vector<int> sent() const { return counts(&lane::sent); }
    std::vector<int> received() const { return counts(&lane::received); }

private:
    struct lane {
        fid_domain* domain = nullptr;
        fi_ops_domain *domain_ops = nullptr, my_domain{};
        fi_ops_tagged *parts = nullptr, my_parts{};
        fi_ops_cm *names = nullptr, my_names{};
        int sent = 0, received = 0;
    };
    template <std::size_t K>
    void watch(fid_domain& d) {
        lane& l = lanes_[K];
        l.domain = &d, l.domain_ops = d.ops, l.my_domain = *d.ops;
        l.my_domain.endpoint = [](fid_domain* on, fi_info* i, fid_ep** e, void* context) {
            lane& own = now->lanes_[K];
            if (const int code = own.domain_ops->endpoint(on, i, e, context)) return code;
            own.parts = (*e)->tagged, own.my_parts = *own.parts;
            own.my_parts.sendv = [](fid_ep* p, const iovec* v, void** x, std::size_t n, fi_addr_t to, std::uint64_t tag,
                                     void* c) {
                const ssize_t code = now->lanes_[K].parts->sendv(p, v, x, n, to, tag, c);
                now->lanes_[K].sent += code == 0;
                return code;
            };
            own.my_parts.recvv = [](fid_ep* p, const iovec* v, void** x, std::size_t n, fi_addr_t from,
                                     std::uint64_t tag, std::uint64_t ignored, void* c) {
                const ssize_t code = now->lanes_[K].parts->recvv(p, v, x, n, from, tag, ignored, c);
                now->lanes_[K].received += code == 0;
                return code;
            };
            (*e)->tagged = &own.my_parts;
            own.names = (*e)->cm, own.my_names = *own.names;
            own.my_names.getname = [](fid_t f, void* at, std::size_t* bytes) {
                const int code = now->lanes_[K].names->getname(f, at, bytes);
                std::memset(static_cast<char*>(at) + *bytes, 0, now->longer_);
                *bytes += now->longer_;
                return code;
            };
            (*e)->cm = &own.my_names;
            return 0;
        };
        d.ops = &l.my_domain;
    }
    std::vector<int> counts(int lane::* which) const {
        std::vector<int> all;
        for (const lane& l : lanes_)
            if (l.domain) all.push_back(l.*which);
        return all;
    }

    static inline counted_parts* now = nullptr;
    const std::size_t longer_;
    lane lanes_[rdma::most_lanes];
};

/// While it lives, a provider's calls of one name fail, or the first operation of such a call that completes, on one
/// lane, with an error. For a provider that one thread uses.
class scripted_failure {
public:
    scripted_failure(const ofi::provider& of, std::string call, bool late, std::size_t lane, int error)
        : call_(std::move(call)), late_(late), error_(error), domain_(*of.domain(lane)), domain_ops_(domain_.ops) {
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
            return now->fails("fi_send") ? -now->error_ : now->packets_->send(p, b, n, d, to, c);
        };
        my_packets_.inject = [](fid_ep* p, const void* b, std::size_t n, fi_addr_t to) {
            return now->fails("fi_inject") ? -now->error_ : now->packets_->inject(p, b, n, to);
        };
        e.msg = &my_packets_;
        parts_ = e.tagged, my_parts_ = *e.tagged;
        my_parts_.sendv = [](fid_ep* p, const iovec* v, void** d, std::size_t n, fi_addr_t to, std::uint64_t tag,
                              void* c) {
            return now->fails("fi_tsendv") ? -now->error_ : now->parts_->sendv(p, v, d, n, to, tag, c);
        };
        my_parts_.recvv = [](fid_ep* p, const iovec* v, void** d, std::size_t n, fi_addr_t from, std::uint64_t tag,
                              std::uint64_t ignored, void* c) {
            return now->fails("fi_trecvv") ? -now->error_ : now->parts_->recvv(p, v, d, n, from, tag, ignored, c);
        };
        e.tagged = &my_parts_;
    }
    void script(fid_cq& q) {
        queue_ = q.ops, my_queue_ = *q.ops;
        my_queue_.read = [](fid_cq* from, void* to, std::size_t most) -> ssize_t {
            if (now->fails("fi_cq_read")) return -now->error_;
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
            to->err = now->error_;
            return 1;
        };
        q.ops = &my_queue_;
    }
    bool fails(const char* call) const { return !late_ && call_ == call; }

    static inline scripted_failure* now = nullptr;
    std::string call_;
    bool late_;
    const int error_;
    fi_cq_msg_entry failed_{};
    fid_domain& domain_;
    fi_ops_domain *const domain_ops_, mine_{};
    fi_ops_msg *packets_ = nullptr, my_packets_{};
    fi_ops_tagged *parts_ = nullptr, my_parts_{};
    fi_ops_cq *queue_ = nullptr, my_queue_{};
};

/// While it lives, a provider wants memory to be registered, and refuses one memory where it is to be written.
class read_only {
public:
    read_only(const ofi::provider& of, const piece& memory) : domain_(*of.domain()), own_(domain_.mr), memory_(memory) {
        of.info().domain_attr->mr_mode |= FI_MR_LOCAL;
        mine_ = *own_;
        mine_.reg = [](fid* d, const void* at, std::size_t bytes, std::uint64_t access, std::uint64_t offset,
                        std::uint64_t key, std::uint64_t flags, fid_mr** mr, void* context) {
            const bool is = at >= now->memory_.data && at < now->memory_.data + now->memory_.bytes;
            now->asked += is;
            if (is && (access & ~std::uint64_t{FI_SEND}) != 0) return -FI_EFAULT;
            return now->own_->reg(d, at, bytes, access, offset, key, flags, mr, context);
        };
        domain_.mr = &mine_;
        now = this;
    }
    read_only(const read_only&) = delete;
    read_only& operator=(const read_only&) = delete;
    ~read_only() { domain_.mr = own_; }
    std::atomic<int> asked{0};  // to register it

private:
    static inline read_only* now = nullptr;
    fid_domain& domain_;
    fi_ops_mr *const own_, mine_{};
    const piece memory_;
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
        const char* ip = nullptr;
        bool up = true;
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
        if (e.ip && inet_pton(AF_INET, e.ip, &e.at.sin_addr) != 1) std::abort();
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
    /// Names of domains, separated by spaces.
    std::string taken(int place, const char* cores, const char* gpu = "", const char* domain = nullptr,
        const address& own = {}) const {
        const ofi::domain_choice c{.own = own,
            .place = place,
            .gpu = gpu,
            .pci = tree_.tree(),
            .cores = rdma::cores_of_list(std::istringstream(cores)),
            .name = nullptr,
            .domain = domain};
        std::string all;
        for (const fi_info* const i : c.of(&all_.front().info))
            all.append(all.empty() ? "" : " ").append(i->domain_attr->name);
        return all.empty() ? "none" : all;
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
    CHECK(all.taken(0, "0", "", "^cxi0") == "cxi1");  // such a list names none
    CHECK(all.taken(3, "8", "", "cxi3, cxi1") == "cxi1 cxi3");
    CHECK(all.taken(2, "0", "", "cxi*,^cxi2") == "cxi0 cxi1 cxi3");
    all.add({.provider = "cxi", .name = "cxi4"});
    CHECK(all.taken(0, "0", "", "cxi*") == "cxi0 cxi1 cxi2 cxi3");  // the other one has no link as fast
    all.add({.provider = "cxi", .name = "cxi5", .card = "0000:04:00.0"});
    CHECK(all.taken(0, "0", "", "cxi[1-9]") == "cxi1 cxi2 cxi3 cxi5");
    CHECK(all.taken(0, "0", "", "cxi*") == "cxi0 cxi1 cxi2 cxi3");  // four at most
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
    CHECK(all.taken(0, "0", "0000:30:0a.0") == "rdmap10a rdmap20a");  // four are as near to these two GPUs
    CHECK(all.taken(0, "0", "0000:30:0b.0") == "rdmap10b rdmap20b");
    CHECK(all.taken(0, "0", "0000:10:0b.0", "rdmap20a") == "rdmap20a");
    CHECK(all.taken(0, "0", "0000:10:0b.0", "rdmap20a,rdmap10b") == "rdmap10b");
}

TEST_CASE("ofi: a rank uses the domains that are near to its GPU and to no other one, at most four", "[ofi_domain]") {
    for (const int gpus : {1, 2}) {
        made_sysfs::made_tree t;
        listed all(t);
        const std::string up = "pci0000:10/0000:10:01.0";
        for (int i = 0; i < gpus; ++i) t.gpu(up, "0000:10:0" + std::to_string(i) + ".0", 0);
        for (int i = 0; i < 5; ++i) {
            const std::string at = "0000:10:1" + std::to_string(i) + ".0";
            t.card(up, at, 0, "efa" + std::to_string(i));
            all.add({.name = "efa" + std::to_string(i), .card = at});
        }
        CHECK(all.taken(0, "0", "0000:10:00.0") == (gpus == 1 ? "efa0 efa1 efa2 efa3" : "efa0 efa2 efa4"));
        CHECK(all.taken(0, "0", "0000:10:00.0", "^efa[13]") == (gpus == 1 ? "efa0 efa2 efa4" : "efa0 efa4"));
        if (gpus == 2) CHECK(all.taken(0, "0", "0000:10:01.0") == "efa1 efa3");
        CHECK(all.taken(0, "0") == "efa0");
    }
}

TEST_CASE("ofi: of the IP networks that are named, those that other hosts reach are used", "[ofi_domain]") {
    made_sysfs::made_tree t;
    listed all(t);
    for (int again = 0; again < 2; ++again)  // as libfabric has them
        for (const auto& [name, at] : {std::pair{"lo", "127.0.0.1"}, {"eth1", "10.0.1.1"}, {"eth0", "10.0.0.1"}})
            all.add({.provider = "tcp;ofi_rxm", .name = name, .fabric = at, .ip = at});
    address own = address::loopback(AF_INET, 0);
    CHECK(all.taken(0, "0", "", "eth*,lo", own) == "lo eth1 eth0");
    CHECK(all.taken(0, "0", "", "*", own) == "lo eth1 eth0");
    CHECK(all.taken(0, "0", "", " ^eth1, *", own) == "lo eth0");
    CHECK(all.taken(0, "0", "", "^eth2", own) == "lo");
    CHECK(all.taken(0, "0", "", ",^eth2 , ^eth3", own) == "lo");
    sockaddr_in other{};
    other.sin_family = AF_INET;
    inet_pton(AF_INET, "10.0.0.1", &other.sin_addr);
    own = address::from(reinterpret_cast<const sockaddr*>(&other), sizeof other);
    CHECK(all.taken(0, "0", "", "eth*,lo", own) == "eth0 eth1");
    CHECK(all.taken(0, "0", "", "lo", own) == "lo");
    CHECK(all.taken(0, "0", "", "^eth*", own) == "none");
}

TEST_CASE("ofi: of domains that are not alike, or not known to be, the first is taken", "[ofi_domain]") {
    made_sysfs::made_tree t;
    t.card("pci0000:10", "0000:10:00.0", 0, "far");
    t.card("pci0000:20", "0000:20:00.0", 1, "near");
    t.node(0, "0");
    t.node(1, "1");
    const auto second = [&](listed::entry&& e) {
        const bool other_fabric = e.fabric == "other";
        listed all(t);
        all.add({.name = "first", .card = "0000:10:00.0"});
        all.add(std::move(e));
        const bool is = all.taken(0, "1") == "second";
        // Where it is named it is a lane if it is as fast, also on another fabric.
        CHECK(all.taken(0, "1", "", "first,second") == (is || other_fabric ? "first second" : "first"));
        return is;
    };
    CHECK(second({.card = "0000:20:00.0"}));
    CHECK_FALSE(second({.provider = "cxi", .card = "0000:20:00.0"}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .fabric = "other"}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .speed = 100}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .protocol = FI_PROTO_EFA}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .ip = "10.0.0.1"}));
    CHECK_FALSE(second({.card = "0000:20:00.0", .up = false}));
    CHECK_FALSE(second({}));
    listed ip(t);
    for (const char* const card : {"0000:10:00.0", "0000:20:00.0"})
        ip.add({.provider = "verbs", .name = card, .card = card, .ip = "10.0.0.1"});
    CHECK(ip.taken(1, "1") == "0000:10:00.0");
}

TEST_CASE("ofi: the contract", "[ofi_transport]") {
    std::vector<std::string> all_names = providers();
    all_names.emplace_back("two lanes");
    for (const std::string& name : all_names)
        for (const bool small : {false, true}) {
            if (small && name != "tcp" && (name != "two lanes" || sanitized)) continue;
            INFO(name << (small ? ", small packets and parts" : ""));
            const auto of = name == "two lanes" ? two_lanes() : provider_of(name.c_str());
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
    std::vector<std::string> all = providers();
    all.emplace_back("two lanes");
    for (const std::string& name : all)
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

TEST_CASE("ofi: of an address that ends before the provider's own does, no byte is read", "[ofi_transport]") {
    ofi::endpoint e(provider_of("tcp", "lo"), 4096);
    fi_addr_t at = FI_ADDR_UNSPEC;
    std::string address = e.address();
    CHECK(e.insert(address, at));
    address.pop_back();
    CHECK_FALSE(e.insert(address, at));
    CHECK_FALSE(e.insert("", at));
}

TEST_CASE(
    "ofi: memory that nobody may write is sent where the provider wants memory to be registered", "[ofi_transport]") {
    constexpr std::size_t bytes = 100'000;
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    std::memset(at, 7, bytes);
    REQUIRE(mprotect(at, bytes, PROT_READ) == 0);
    const piece constant{static_cast<std::byte*>(at), bytes};
    const auto of = provider_of("tcp");
    {
        const read_only memory(*of, constant);
        CHECK(over_ofi({of, of}, [&](int r, auto& w, auto complain) {
            ear e;
            w->listening = &e;
            std::vector<std::byte> data(bytes);
            const piece in{data.data(), bytes};
            r == 0 ? w->send(1, label_of(0, 1, 0), &constant, 1) : w->receive(0, label_of(0, 1, 0), &in, 1);
            const auto done = [&] { return (r == 0 ? w->sent(1) : w->received(0)) == 1; };
            if (!until(*w, [&] { return done() || e.count("failed") > 0; }) || !done()) complain(e.text());
            if (r == 1 && data != std::vector<std::byte>(bytes, std::byte{7})) complain("other bytes");
            w->listening = nullptr;
        }) == "");
        CHECK(memory.asked > 0);
    }
    munmap(at, bytes);
}

TEST_CASE("ofi: a part for an earlier endpoint of the same address is not taken", "[ofi_transport]") {
    const std::size_t bytes = tiny.part_bytes;
    for (const std::string& name : providers()) {
        INFO(name);
        const auto of = provider_of(name.c_str());
        CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            std::unique_ptr<message_transport> w = std::make_unique<tcp_transport>(node, 99, r, members);
            if (r == 0) {
                w = std::make_unique<ofi_transport>(std::move(w), of, 0, 2, tiny);
                std::vector<std::byte> data(bytes);
                const piece p{data.data(), bytes};
                w->receive(1, label_of(1, 0, 0), &p, 1);
                if (!until(*w, [&] { return w->received(1) == 1; })) complain("not arrived");
                if (data != std::vector<std::byte>(bytes, std::byte{2})) complain("other bytes");
                w->tell(1, {control_kind::accept, 0, 0, 0, ""});
                return w->abandon();
            }
            // It plays both the peer and, before, a peer of that earlier endpoint.
            ear e;
            w->listening = &e;
            ofi::endpoint earlier(of, tiny.packet_bytes), end(of, tiny.packet_bytes);
            end.expect(4);
            w->tell(0, {control_kind::wiring, static_cast<std::uint64_t>(ofi::wiring::greeting), 0, tiny.packet_bytes,
                           (of->name() + ofi::greeting_text(end.address())).c_str()});
            if (!until(*w, [&] { return e.count(said(control_kind::wiring)) == 1; })) return complain("no greeting");
            const auto key = static_cast<std::uint32_t>(e.all[0].what.b);
            const std::string there = ofi::addresses_in(e.all[0].text.c_str(), of->name()).at(0);
            const auto polls = [&] {
                for (ofi::completion c{}; earlier.poll(&c, 1) + end.poll(&c, 1) > 0;) {}
            };
            std::vector<std::byte> data(bytes, std::byte{1}), own(bytes, std::byte{2});
            const auto sends = [&](ofi::endpoint& by, std::uint32_t to, std::vector<std::byte>& what) {
                fi_addr_t at = FI_ADDR_UNSPEC;
                const char* call = "";
                const std::vector<piece> p{{what.data(), bytes}};
                return by.insert(there, at) && until(*w, [&] {
                    polls();
                    return by.move(true, 0, 0, p, 0, bytes, ofi::tag_of(1, to, 0), at, call) == 0;
                });
            };
            if (!sends(earlier, key + 1, data)) return complain("not sent");
            const double end_of_lead = seconds_now() + 0.05;
            until(*w, [&] { return polls(), seconds_now() > end_of_lead; });
            if (!sends(end, key, own)) return complain("not sent");
            if (!until(*w, [&] { return polls(), e.count(said(control_kind::accept)) == 1; })) complain("no answer");
        }) == "");
    }
}

TEST_CASE("ofi: large messages are cut over the lanes, of which two ranks use as many as the one that has fewer",
    "[ofi_transport]") {
    const std::size_t sizes[] = {100'000, 300'000, 9'000'000, 1'000'000, 70'000};
    struct {
        std::shared_ptr<ofi::provider> (*first)();
        bool peer_has_one;
        std::size_t longer;  // where addresses are long, one lane's is all that a greeting has room for
    } const cases[] = {{two_lanes, false, 0}, {all_interfaces, false, 0}, {two_lanes, true, 0}, {two_lanes, false, 90}};
    for (const auto& k : cases) {
        const auto of = k.first(), other = k.peer_has_one ? provider_of("tcp", "lo") : k.first();
        CHECK(of->is_as(*other) == !k.peer_has_one);
        const std::size_t lanes = k.longer > 0 || k.peer_has_one ? 1 : of->lanes();
        INFO(of->lanes() << " lanes, " << lanes << " on both sides");
        std::vector<int> wanted(of->lanes());
        std::size_t next = 0;
        for (const std::size_t bytes : sizes) {
            const std::size_t over = std::clamp<std::size_t>(bytes / usual.least_stripe, 1, lanes);
            const std::size_t most = std::min<std::size_t>((bytes + over - 1) / over, usual.part_bytes);
            for (std::size_t at = 0; at < bytes; at += most) ++wanted[next++ % lanes];
        }
        const counted_parts count(*of, k.longer);
        CHECK(over_ofi({of, other}, [&](int r, auto& w, auto complain) {
            std::deque<std::vector<std::byte>> to, from;
            const auto value = [](int rank, std::size_t message, std::size_t i) {
                return static_cast<std::byte>(i / 1000 * 7 + i + message + static_cast<std::size_t>(rank));
            };
            for (std::size_t m = 0; m < std::size(sizes); ++m) {
                from.emplace_back(sizes[m]);
                std::vector<std::byte>& data = to.emplace_back(sizes[m]);
                for (std::size_t i = 0; i < sizes[m]; ++i) data[i] = value(r, m, i);
                const piece out{data.data(), sizes[m]}, in{from.back().data(), sizes[m]};
                w->send(1 - r, label_of(r, 1 - r, m), &out, 1);
                w->receive(1 - r, label_of(1 - r, r, m), &in, 1);
            }
            constexpr std::uint64_t all = std::size(sizes);
            if (!until(*w, [&] { return w->sent(1 - r) == all && w->received(1 - r) == all; })) complain("not done");
            for (std::size_t m = 0; m < all; ++m)
                for (std::size_t i = 0; i < sizes[m]; ++i)
                    if (from[m][i] != value(1 - r, m, i)) return complain("other bytes");
        }) == "");
        CHECK(count.sent() == wanted);
        CHECK(count.received() == wanted);
    }
}

TEST_CASE("ofi: over the kernel's TCP messages leave while their receiver computes, and arrive", "[ofi_transport]") {
    for (const auto& [name, late] :
        {std::pair<std::string, bool>{"tcp", false}, {"net", false}, {"tcp", true}, {"net", true}}) {
        const names all = providers();
        if (std::find(all.begin(), all.end(), name) == all.end()) continue;
        // Where a sanitizer has a thread of its own, no settings are made.
        if (!ofi::arrives_unacknowledged(name.c_str())) continue;
        INFO(name << (late ? ", later than their sender's patience" : ""));
        constexpr std::uint64_t count = 15;
        ofi_shape shape = usual;
        // Fewer than a peer may send at once, in all more than its connection takes in; and no more than the system
        // keeps for the sender: it makes more room only while the peer reads.
        if (late) shape.packet_bytes = 128 << 10;
        std::atomic<bool> computes{false}, left{false};
        CHECK(over_ofi(
                  2, name,
                  [&](int r, auto& w, auto complain) {
                      std::vector<std::byte> data(shape.packet_bytes, static_cast<std::byte>(1 - r));
                      const piece p{data.data(), data.size()};
                      for (std::uint64_t i = 0; i <= count; ++i) {
                          r == 0 ? w->send(1, label_of(0, 1, i), &p, 1) : w->receive(0, label_of(0, 1, i), &p, 1);
                          const auto done = [&] { return r == 0 ? w->sent(1) > 0 : w->received(0) > 0; };
                          if (i == 0 && !until(*w, done)) complain("no connection");
                          if (i == 0) r == 0 ? wait_for(computes) : computes.store(true);
                      }
                      if (r == 0) {
                          if (!until(*w, [&] { return w->sent(1) > count; })) complain("not left");
                          if (late) w->linger = 0.05;
                          left = true;
                          w.reset();
                      } else {
                          wait_for(left);
                          std::this_thread::sleep_for(
                              std::chrono::milliseconds(late ? 500 : 50));  // rank 0 may have closed it
                          if (!until(*w, [&] { return w->received(0) > count; })) complain("not arrived");
                      }
                  },
                  shape) == "");
    }
}

TEST_CASE(
    "ofi: what a peer that leaves says it has received is no matter to a rank that has abandoned", "[ofi_transport]") {
    std::atomic<bool> arrived{false};
    CHECK(over_ofi(2, "tcp", [&](int r, auto& w, auto complain) {
        ear e;
        w->listening = &e;
        std::uint64_t values[2] = {};
        for (const std::uint64_t i : {0u, 1u}) {
            const piece p{reinterpret_cast<std::byte*>(&values[i]), 8};
            r == 0 ? w->send(1, label_of(0, 1, i), &p, 1) : w->receive(0, label_of(0, 1, i), &p, 1);
            if (r == 0 && i == 1) break;
            if (!until(*w, [&] { return (r == 0 ? w->sent(1) : w->received(0)) > i; })) complain("not done");
        }
        if (r == 1) {
            arrived = true;
            return w.reset();
        }
        w->flush();  // without progress it has not heard that the message has left
        wait_for(arrived);
        w->abandon();
        if (!until(*w, [&] { return e.count(said_leave) == 1; })) complain("the peer's leave is not said; " + e.text());
        if (w->sent(1) != 1) complain("it counts messages that it has forgotten");
    }) == "");
}

TEST_CASE("ofi: a peer with another provider is reported on both sides", "[ofi_transport]") {
    const std::vector<std::string> all = providers();
    REQUIRE(all.size() > 1);
    const auto other = provider_of(all.back().c_str());
    std::atomic<int> told{0};
    CHECK(over_ofi({provider_of("tcp"), other}, [&](int r, auto& w, auto complain) {
        ear e;
        w->listening = &e;
        std::uint64_t value = 0;
        const piece p{reinterpret_cast<std::byte*>(&value), 8};
        w->send(1 - r, label_of(0, 0, 0), &p, 1);
        if (!until(*w, [&] { return e.count("failed") == 1; })) complain("not reported; " + e.text());
        for (const char* const said : {other->name(), "tcp", "COLLS_OFI_PROVIDER must be the same on all ranks"})
            if (e.text().find(said) == std::string::npos) complain(e.text());
        if (!meet(*w, told, 2)) complain("not told both");
        idle(*w, 0.05);
        if (e.count("failed") != 1) complain(e.text());
        w->abandon();
    }) == "");
}

TEST_CASE("ofi: an error of the provider is reported once, with its peer, provider and call", "[ofi_transport]") {
    struct {
        const char* call;
        bool late, sends;
        std::size_t bytes, lane = 0;
        int error = FI_EIO;
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
        {"fi_tsendv", false, true, 400'000, 1},
        {"fi_tsendv", true, true, 400'000, 1},
        {"fi_trecvv", false, false, 400'000, 1},
        {"fi_trecvv", true, false, 400'000, 1},
        {"fi_cq_read", false, false, 400'000, 1},
        // What a connection that breaks had under way ends so.
        {"fi_send", true, true, 8, 0, FI_ECANCELED},
        {"fi_tsendv", true, true, 100'000, 0, FI_ECANCELED},
        {"fi_trecvv", true, false, 100'000, 0, FI_ECANCELED},
        {"fi_recv", true, false, 8, 0, FI_ECANCELED},
        {"fi_tsendv", true, true, 400'000, 1, FI_ECANCELED},
        {"fi_trecvv", true, false, 400'000, 1, FI_ECANCELED},
    };
    ofi_shape shape = usual;
    shape.failure_grace = 0;
    for (const auto& k : cases) {
        INFO(k.call << (k.late ? ", when it completes" : "") << ", lane " << k.lane << ", " << fi_strerror(k.error));
        const auto several = all_interfaces()->lanes() > 1 ? all_interfaces : two_lanes;
        const auto of = [&] { return k.lane > 0 ? several() : provider_of("tcp"); };
        const auto fails = of(), works = of();
        const scripted_failure script(*fails, k.call, k.late, k.lane, k.error);
        const std::string why = std::string("libfabric's ") + fails->name() + " on " +
                                fails->info(k.lane).domain_attr->name + ": " + k.call + ": " + fi_strerror(k.error);
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

TEST_CASE("ofi: a sleep ends by a message of any group of the thread, on any lane", "[ofi_transport]") {
    std::vector<std::string> all = providers();
    all.emplace_back("two lanes");
    for (const std::string& name : all) {
        INFO(name);
        const bool lanes = name == "two lanes";
        const auto of = lanes ? two_lanes() : provider_of(name.c_str());
        CHECK(ranks_as_threads(2, [&](int r, tcp_node& node, const std::vector<address>& members, auto complain) {
            std::vector<std::unique_ptr<ofi_transport>> groups;
            for (const std::uint64_t number : {98u, 99u})
                groups.push_back(std::make_unique<ofi_transport>(
                    std::make_unique<tcp_transport>(node, number, r, members), of, r, 2));
            std::vector<std::byte> data(lanes ? 100'000 : 8);
            const piece p{data.data(), data.size()};
            // The first four make the connections, or eight, on lanes.
            const std::uint64_t made = lanes ? 8 : 4;
            for (std::uint64_t i = 0; i < made + 8; ++i) {
                ofi_transport &w = *groups[i % 2], &other = *groups[1 - i % 2];
                const int to = static_cast<int>(i / 2 % 2);
                const auto done = [&] { return r == to ? w.received(1 - r) > i / 4 : w.sent(1 - r) > i / 4; };
                const message_label l = label_of(1 - to, to, i);
                if (r != to && i >= made)
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it may sleep by then
                r == to ? w.receive(1 - r, l, &p, 1) : w.send(1 - r, l, &p, 1);
                while (r == to && i >= made && (w.progress(), other.progress(), !done())) {
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

// Each section in a process of its own: libfabric reads its settings once.
TEST_CASE("ofi: a process of the next test", "[.acknowledgements]") {
    const auto flags = [](const char* buffer) {
        const with_environment p("COLLS_OFI_PROVIDER", "tcp"), b("FI_TCP_STAGING_SBUF_SIZE", buffer);
        return ofi::provider().info().tx_attr->op_flags;
    };
    SECTION("no buffer") {
        CHECK(flags("0") == 0);
        CHECK(flags("9000") == 0);  // too late
    }
    SECTION("a buffer") {
        CHECK(flags("9000") == FI_TRANSMIT_COMPLETE);
        CHECK(flags("0") == FI_TRANSMIT_COMPLETE);
    }
    SECTION("not set") CHECK((sanitized_threads || flags(nullptr) == 0));  // ThreadSanitizer has a thread of its own
    SECTION("not set, first beside a thread") {
        std::atomic<bool> done{false};
        std::thread other([&] { done.wait(false); });
        CHECK(flags(nullptr) == FI_TRANSMIT_COMPLETE);  // another thread may read the environment now
        done = true, done.notify_one();
        other.join();
        CHECK(flags(nullptr) == FI_TRANSMIT_COMPLETE);
    }
}
TEST_CASE("ofi: the peer acknowledges what a buffer of the provider may hold back", "[ofi_transport]") {
    const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
    for (const char* const section : {"no buffer", "a buffer", "not set", "not set, first beside a thread"}) {
        INFO(section);
        const std::string run = "'" + own + "' '[.acknowledgements]' -w NoAssertions -c '" + section + "' >&2";
        CHECK(std::system(run.c_str()) == 0);
    }
}
