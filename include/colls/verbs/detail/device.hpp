// An RDMA device by libibverbs: InfiniBand, or RoCE v2.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// The environment chooses it; what it leaves open, `find` and `find_gid` choose:
//   COLLS_VERBS_DEVICE  names of devices, as ibv_devices prints them, and patterns (nearest_card.hpp). A rank that
//   moves
//                       no GPU's data uses all that it names, at most four
//   COLLS_VERBS_PORT    number of its port, from 1
//   COLLS_VERBS_GID     index in the port's table of addresses
#pragma once

#include <colls/cards/detail/nearest_card.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/net/detail/connection/socket.hpp>
#include <colls/net/detail/forming/launch.hpp>
#include <colls/verbs/detail/interface.hpp>

#include <infiniband/verbs.h>

#include <sys/resource.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace colls::inline v1::detail::rdma {

/// A request that is not acknowledged is repeated after 4.096 us times two to this power, seven times at most.
inline constexpr std::uint8_t acknowledgement_exponent = 12;

class verbs_device final : public device {
public:
    /// Opens the device for a rank that others reach over TCP at `own`; an empty address: that is not known. `gpu`: the
    /// PCI address of the GPU whose data it is to move: then the device that is nearest to that one, by `pci`. Throws
    /// colls::error (unsupported), which says what to do, where there is no device, no active port, or none that
    /// COLLS_VERBS_... allows; (invalid_argument) where one of these is no number in range.
    explicit verbs_device(const address& own = {}, const std::string& gpu = {}, const pci_tree& pci = pci_tree()) {
        wanted_device_ = variable("COLLS_VERBS_DEVICE");
        wanted_port_ = wanted("COLLS_VERBS_PORT", 1, 255);
        wanted_gid_ = wanted("COLLS_VERBS_GID", 0, 65535);
        find(own, gpu, pci);
    }
    verbs_device(const verbs_device&) = delete;
    verbs_device& operator=(const verbs_device&) = delete;
    /// Waits, for a second at most, for threads that still destroy queue pairs: the device is closed after the last
    /// one.
    ~verbs_device() override {
        for (const double until = seconds_now() + 1; opened_.use_count() > 1 && seconds_now() < until;)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    region add(std::byte* at, std::size_t bytes) override {
        ibv_mr* const mr = ibv_reg_mr(opened_->domain, at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (mr == nullptr) refuse(errno, bytes);
        return {at, bytes, mr->lkey, mr->rkey, mr, false};
    }
    /// Registers memory of another device: of the dma-buf `file` the bytes from `offset` on, whose address there is
    /// `at`.
    region add_dmabuf(int file, std::uint64_t offset, std::byte* at, std::size_t bytes) {
        ibv_mr* const mr = ibv_reg_dmabuf_mr(opened_->domain, offset, bytes, reinterpret_cast<std::uintptr_t>(at), file,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (mr == nullptr)
            throw error(errc::unsupported, error_text()
                                               << "colls: " << name() << " cannot register " << bytes
                                               << " bytes of a dma-buf: " << std::strerror(errno)
                                               << "; kernel, driver and device must support dma-buf memory regions");
        return {at, bytes, mr->lkey, mr->rkey, mr, true};
    }
    /// By its address if the dma-buf is refused: a module of the kernel may know it (nvidia_peermem).
    region add_gpu(std::byte* at, std::size_t bytes, int file, std::size_t offset) override {
        std::string why = "the GPU's driver exports no dma-buf of it";
        if (file >= 0) try {
                return add_dmabuf(file, offset, at, bytes);
            } catch (const error& e) {
                why = quoted(e.what());
            }
        ibv_mr* const mr = ibv_reg_mr(opened_->domain, at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (mr == nullptr)
            fail(error_text() << "colls: " << name() << " cannot register a GPU's memory by its address: "
                              << std::strerror(errno) << " (is nvidia_peermem loaded?); and " << why);
        return {at, bytes, mr->lkey, mr->rkey, mr, true};
    }
    void drop(const region& r) noexcept override { ibv_dereg_mr(static_cast<ibv_mr*>(r.handle)); }
    inline std::unique_ptr<queue> open(const queue_limits& wanted) override;

    const char* name() const override { return ibv_get_device_name(opened_->context->device); }
    int port() const { return port_; }
    int gid_index() const { return gid_index_; }
    /// Other devices for the same rank to use at once: as near to the GPU, and no other GPU's, or named, too.
    const std::vector<std::shared_ptr<verbs_device>>& beside() const { return beside_; }

private:
    class pair;
    /// Shared by all that is made with them, so that they are freed last.
    struct handles {
        ibv_context* context = nullptr;
        ibv_pd* domain = nullptr;
        handles() = default;
        handles(const handles&) = delete;
        handles& operator=(const handles&) = delete;
        ~handles() {
            if (domain) ibv_dealloc_pd(domain);
            if (context) ibv_close_device(context);
        }
    };
    struct usable;
    explicit verbs_device(const usable& u) { take(u); }
    static int wanted(const char* name, int least, int most) {
        const char* const value = variable(name);
        return value ? number(name, value, least, most) : none;
    }
    [[noreturn]] static void fail(const error_text& text) { throw error(errc::unsupported, text.text()); }

    [[noreturn, gnu::cold]] void refuse(int code, std::size_t bytes) const {
        error_text text;
        text << "colls: " << name() << " cannot register " << bytes << " bytes of memory: " << std::strerror(code);
        rlimit limit{};
        const bool limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
        if (code == EFAULT)
            text << "; all of it must be mapped, writable, and of a kind that can be held in place (not a device's, "
                    "and not a file's on some systems)";
        else if (limited && (code == ENOMEM || code == EAGAIN || code == EPERM))
            text << "; this process may hold " << static_cast<std::size_t>(limit.rlim_cur / 1024)
                 << " KB in place (RLIMIT_MEMLOCK): raise that limit, by `ulimit -l unlimited`, or memlock in "
                    "/etc/security/limits.conf, or "
                 << "LimitMEMLOCK of the service that starts it";
        fail(text);
    }

    // Finds the active port that the environment names; of several the one that has the address of the rank's TCP
    // connections, else the first. For a GPU those count first that are on the nearest devices, of which GPUs that are
    // equally near take one each; but none with a link-local address where another has a better one.
    void find(const address& own, const std::string& gpu, const pci_tree& pci) {
        const standard_descriptors_held held;
        int count = 0;
        ibv_device** const all = ibv_get_device_list(&count);
        const std::shared_ptr<void> freed(nullptr, [all](void*) {
            if (all) ibv_free_device_list(all);
        });
        if (all == nullptr || count == 0)
            fail(error_text() << "colls: no RDMA device"
                              << (all == nullptr ? std::string(": ") + std::strerror(errno) : std::string()).c_str()
                              << "; is its driver loaded (`rdma link`), and does this process see /dev/infiniband?");
        std::string seen;
        std::vector<usable> found;
        for (int d = 0; d < count; ++d) {
            const char* const name = ibv_get_device_name(all[d]);
            if (wanted_device_ && !is_allowed(wanted_device_, name)) {
                seen.append(seen.empty() ? "" : ", ").append(name);
                continue;
            }
            const auto opened = std::make_shared<handles>();
            ibv_context* const context = opened->context = ibv_open_device(all[d]);
            if (context == nullptr) {
                seen.append(seen.empty() ? "" : ", ")
                    .append(name)
                    .append(" (cannot be opened: ")
                    .append(std::strerror(errno))
                    .append(")");
                continue;
            }
            ibv_device_attr attributes{};
            ibv_query_device(context, &attributes);
            for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
                ibv_port_attr p{};
                if ((wanted_port_ != none && port != wanted_port_) ||
                    ibv_query_port(context, static_cast<std::uint8_t>(port), &p) != 0)
                    continue;
                seen.append(seen.empty() ? "" : ", ")
                    .append(name)
                    .append(" port ")
                    .append(std::to_string(port))
                    .append(" is ");
                seen.append(ibv_port_state_str(p.state));
                if (p.state != IBV_PORT_ACTIVE) continue;
                int worth = 0;
                const int index = find_gid(context, port, p, own, worth);
                if (index == none) {
                    seen.append(
                        wanted_gid_ == none ? " but has no RoCE v2 address" : " but has no such COLLS_VERBS_GID");
                    continue;
                }
                found.push_back({opened, name, port, index, worth, attributes, p});
            }
            if (wanted_port_ > attributes.phys_port_cnt)
                seen.append(seen.empty() ? "" : ", ")
                    .append(name)
                    .append(" has no port ")
                    .append(std::to_string(wanted_port_));
        }
        if (found.empty()) {
            error_text text;
            text << "colls: no active port of an RDMA device";
            if (wanted_device_ || wanted_port_ != none || wanted_gid_ != none)
                text << " that COLLS_VERBS_DEVICE, COLLS_VERBS_PORT and COLLS_VERBS_GID allow";
            fail(text << "; found: " << std::string_view(seen).substr(0, 280)
                      << ". Bring the link up (`rdma link`, `ip link`), or name another device or port");
        }
        const std::vector<const usable*> best = best_of(found, gpu, pci);
        take(*best.front());
        for (std::size_t k = 1; k < best.size(); ++k)
            beside_.push_back(std::shared_ptr<verbs_device>(new verbs_device(*best[k])));
    }
    void take(const usable& u) {
        opened_ = u.opened;
        attributes_ = u.attributes;
        port_ = u.port;
        port_attributes_ = u.port_attributes;
        gid_index_ = u.gid;
        if (ibv_query_gid(opened_->context, static_cast<std::uint8_t>(port_), gid_index_, &gid_) != 0) gid_ = {};
        opened_->domain = ibv_alloc_pd(opened_->context);
        if (opened_->domain == nullptr)
            fail(error_text() << "colls: " << name()
                              << " has no protection domain for this process: " << std::strerror(errno));
    }

    // A port that can be used.
    struct usable {
        std::shared_ptr<handles> opened;
        std::string name;
        int port, gid, worth;
        ibv_device_attr attributes;
        ibv_port_attr port_attributes;
    };
    // One for each lane.
    std::vector<const usable*> best_of(
        const std::vector<usable>& found, const std::string& gpu, const pci_tree& pci) const {
        const bool has_global = std::any_of(found.begin(), found.end(), [](const usable& u) { return u.worth > 1; });
        std::vector<std::string> names;
        for (const usable& u : found)
            if ((u.worth > 1 || !has_global) && (names.empty() || names.back() != u.name)) names.push_back(u.name);
        const auto of_name = [&](const std::string* name) {
            const usable* best = nullptr;
            for (const usable& u : found)
                if ((!name || u.name == *name) && (best == nullptr || u.worth > best->worth)) best = &u;
            return best;
        };
        std::vector<const usable*> best;
        // Equal ones alone, since each gets as much of a message.
        const auto add = [&](const usable* u) {
            const auto kind = [](const ibv_port_attr& p) {
                return std::array{p.link_layer, p.active_speed, p.active_width};
            };
            if (best.empty() || (best.size() < most_lanes && u->name != best.front()->name &&
                                    kind(u->port_attributes) == kind(best.front()->port_attributes)))
                best.push_back(u);
        };
        if (!gpu.empty()) {
            std::size_t taken = 0, step = 1;
            names = pci.nearest(gpu, names, taken, &step);
            for (; taken < names.size(); taken += step) add(of_name(&names[taken]));
            return best;
        }
        add(of_name(nullptr));
        if (wanted_device_ && names_some(wanted_device_))
            for (const std::string& n : names) add(of_name(&n));
        return best;
    }

    // Index of the address by which others are to reach the port, or none. `worth`: 4 the rank's TCP address, 3 another
    // IPv4 address, 2 an IPv6 address, 1 a link-local one; it is raised where a better one is found. Over InfiniBand
    // the port's number (LID) is used, and the first address where the peer is behind a router.
    int find_gid(ibv_context* context, int port, const ibv_port_attr& p, const address& own, int& worth) const {
        const auto entry_at = [&](int index, ibv_gid_entry& e) {
            return ibv_query_gid_ex(
                       context, static_cast<std::uint32_t>(port), static_cast<std::uint32_t>(index), &e, 0) == 0;
        };
        ibv_gid_entry e{};
        if (wanted_gid_ != none) {
            worth = 4;
            return entry_at(wanted_gid_, e) ? wanted_gid_ : none;
        }
        if (p.link_layer != IBV_LINK_LAYER_ETHERNET) {
            worth = 3;
            return 0;
        }
        int found = none;
        for (int i = 0; i < p.gid_tbl_len; ++i) {
            if (!entry_at(i, e) || e.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
            in6_addr a;
            std::memcpy(&a, e.gid.raw, sizeof a);
            const bool v4 = IN6_IS_ADDR_V4MAPPED(&a);
            bool same = own.family() == AF_INET6 && std::memcmp(&own.v6().sin6_addr, &a, sizeof a) == 0;
            if (v4 && own.family() == AF_INET) same = std::memcmp(&own.v4().sin_addr, e.gid.raw + 12, 4) == 0;
            const int value = same ? 4 : v4 ? 3 : IN6_IS_ADDR_LINKLOCAL(&a) ? 1 : 2;
            if (value <= worth) continue;
            worth = value;
            found = i;
        }
        return found;
    }

    const char* wanted_device_ = nullptr;
    int wanted_port_ = none, wanted_gid_ = none;
    std::shared_ptr<handles> opened_;
    std::vector<std::shared_ptr<verbs_device>> beside_;
    ibv_device_attr attributes_{};
    ibv_port_attr port_attributes_{};
    int port_ = 0, gid_index_ = 0;
    ibv_gid gid_{};
};

class verbs_device::pair final : public queue {
public:
    pair(const verbs_device& of, const queue_limits& wanted) : of_(of) {
        const std::uint32_t most =
            of.attributes_.max_qp_wr > 0 ? static_cast<std::uint32_t>(of.attributes_.max_qp_wr) : 1;
        limits_.requests = std::min(wanted.requests, most);
        limits_.receives = wanted.receives;
        limits_.gathers = std::min(wanted.gathers, static_cast<std::uint32_t>(std::max(of.attributes_.max_sge, 1)));
        limits_.bytes =
            std::min<std::uint64_t>(wanted.bytes, std::max<std::uint64_t>(of.port_attributes_.max_msg_sz, 4096));
        completions_ = ibv_create_cq(
            of.opened_->context, static_cast<int>(limits_.requests + limits_.receives), nullptr, nullptr, 0);
        if (completions_ == nullptr) give_up("completion queue");
        // How many bytes a request may carry inline is found by trying.
        for (std::uint32_t inlined = wanted.inlined; pair_ == nullptr; inlined /= 2) {
            ibv_qp_init_attr a{};
            a.send_cq = a.recv_cq = completions_;
            a.qp_type = IBV_QPT_RC;
            a.cap = {limits_.requests, limits_.receives, limits_.gathers, 1, inlined};
            pair_ = ibv_create_qp(of.opened_->domain, &a);
            if (pair_ == nullptr && inlined == 0) give_up("queue pair");
            limits_.inlined = a.cap.max_inline_data;
        }
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = static_cast<std::uint8_t>(of.port_);
        a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        if (const int code =
                ibv_modify_qp(pair_, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
            code != 0) {
            errno = code;
            give_up("queue pair");
        }
        // Packets of an earlier queue pair of the same number must not be taken for this one's.
        first_ = static_cast<std::uint32_t>(static_cast<std::uint64_t>(seconds_now() * 1e9) & 0xffffff);
    }
    ~pair() override { destroy(pair_, completions_); }
    // After a reset the device moves nothing any more. A thread destroys the queue pair, since soft-RoCE's kernel waits
    // up to 50 s for that where a network card has a packet of it in its queue, as after a cable is cut.
    void stop() noexcept override {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RESET;
        if (ibv_modify_qp(pair_, &a, IBV_QP_STATE) != 0) return;
        try {
            std::thread([of = of_.opened_, pair = pair_, completions = completions_] {
                destroy(pair, completions);
            }).detach();
        } catch (...) {  // no thread or memory: the destructor waits
            return;
        }
        pair_ = nullptr;
        completions_ = nullptr;
    }

    queue_limits limits() const override { return limits_; }
    queue_name name() const override {
        const queue_pair_address t{pair_->qp_num, first_, of_.port_attributes_.lid,
            static_cast<std::uint16_t>(of_.port_attributes_.active_mtu), of_.gid_};
        queue_name n{};
        std::memcpy(n.data(), &t, sizeof t);
        return n;
    }
    const char* connect(const queue_name& peer) override {
        queue_pair_address t;
        std::memcpy(&t, peer.data(), sizeof t);
        const bool ethernet = of_.port_attributes_.link_layer == IBV_LINK_LAYER_ETHERNET;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = static_cast<ibv_mtu>(std::min<int>(t.mtu, of_.port_attributes_.active_mtu));
        a.dest_qp_num = t.pair;
        a.rq_psn = t.first;
        a.max_dest_rd_atomic = 1;
        a.min_rnr_timer = 12;
        a.ah_attr.port_num = static_cast<std::uint8_t>(of_.port_);
        a.ah_attr.dlid = t.lid;
        a.ah_attr.is_global =
            ethernet || t.lid == 0 || std::memcmp(t.gid.raw, of_.gid_.raw, 8) != 0;  // on another subnet
        a.ah_attr.grh.dgid = t.gid;
        a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(of_.gid_index_);
        a.ah_attr.grh.hop_limit = 64;
        // A peer on soft-RoCE may refuse repeated packets of a request of several packets (docs/design/verbs.md). So a
        // request is one packet, unless the peer is on the same device, where none are lost.
        if (of_.attributes_.vendor_id == soft_vendor && std::memcmp(t.gid.raw, of_.gid_.raw, sizeof t.gid.raw) != 0)
            limits_.bytes = std::uint64_t{128} << a.path_mtu;
        int code = ibv_modify_qp(pair_, &a,
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                IBV_QP_MIN_RNR_TIMER);
        if (code != 0) return std::strerror(code);
        ibv_qp_attr b{};
        b.qp_state = IBV_QPS_RTS;
        b.timeout = acknowledgement_exponent;
        b.retry_cnt = 7;
        b.rnr_retry = 6;
        b.sq_psn = first_;
        b.max_rd_atomic = 1;
        code = ibv_modify_qp(pair_, &b,
            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                IBV_QP_MAX_QP_RD_ATOMIC);
        return code == 0 ? nullptr : std::strerror(code);
    }
    const char* post(const write_request* chain, int count, const gather* gathers) override {
        requests_.resize(static_cast<std::size_t>(count));
        std::size_t pieces = 0;
        for (int i = 0; i < count; ++i) pieces += chain[i].count;
        pieces_.clear();
        pieces_.reserve(pieces);  // the requests point into it
        for (int i = 0; i < count; ++i) {
            const write_request& r = chain[i];
            ibv_send_wr& w = requests_[static_cast<std::size_t>(i)];
            w = {};
            w.wr_id = r.id;
            w.next = i + 1 < count ? &w + 1 : nullptr;
            w.sg_list = pieces_.data() + pieces_.size();
            w.num_sge = static_cast<int>(r.count);
            for (std::uint32_t k = 0; k < r.count; ++k) {
                const gather& g = gathers[r.first + k];
                pieces_.push_back({reinterpret_cast<std::uintptr_t>(g.at), g.bytes, g.local});
            }
            w.opcode = r.announces ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
            w.send_flags =
                (r.signalled ? unsigned{IBV_SEND_SIGNALED} : 0u) | (r.inlined ? unsigned{IBV_SEND_INLINE} : 0u);
            w.imm_data = htonl(r.immediate);
            w.wr.rdma.remote_addr = r.to;
            w.wr.rdma.rkey = r.remote;
        }
        ibv_send_wr* bad = nullptr;
        const int code = ibv_post_send(pair_, requests_.data(), &bad);
        return code == 0 ? nullptr : std::strerror(code);
    }
    const char* receive(int count) override {
        std::vector<ibv_recv_wr> all(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = {.wr_id = 0, .next = i + 1 < all.size() ? &all[i + 1] : nullptr, .sg_list = nullptr, .num_sge = 0};
        ibv_recv_wr* bad = nullptr;
        const int code = count > 0 ? ibv_post_recv(pair_, all.data(), &bad) : 0;
        return code == 0 ? nullptr : std::strerror(code);
    }
    int poll(completion* into, int most) override {
        ibv_wc all[32];
        const int n = ibv_poll_cq(completions_, std::min(most, 32), all);
        if (n < 0) {
            into[0] = {completion::failed, false, 0, 0, "the completion queue cannot be read"};
            return 1;
        }
        for (int i = 0; i < n; ++i) {
            const ibv_wc& c = all[i];
            if (c.status != IBV_WC_SUCCESS)
                into[i] = {completion::failed, c.status == IBV_WC_RETRY_EXC_ERR || c.status == IBV_WC_WR_FLUSH_ERR,
                    c.wr_id, 0, ibv_wc_status_str(c.status)};
            else if (c.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
                into[i] = {completion::arrived, false, 0, ntohl(c.imm_data), ""};
            else
                into[i] = {completion::sent, false, c.wr_id, 0, ""};
        }
        return n;
    }

private:
    static constexpr std::uint32_t soft_vendor = 0xffffff;
    struct queue_pair_address {
        std::uint32_t pair, first;
        std::uint16_t lid, mtu;
        ibv_gid gid;
    };
    static_assert(sizeof(queue_pair_address) <= sizeof(queue_name));
    [[noreturn]] void give_up(const char* what) {
        error_text text;
        text << "colls: " << of_.name() << " has no " << what << " for this process" << ": " << std::strerror(errno);
        if (errno == ENOMEM)
            text << "; this process may hold too little memory in place (raise `ulimit -l`), or the device has no more "
                    "of them";
        destroy(pair_, completions_);
        fail(text);
    }
    static void destroy(ibv_qp* pair, ibv_cq* completions) {
        if (pair) ibv_destroy_qp(pair);
        if (completions) ibv_destroy_cq(completions);
    }

    const verbs_device& of_;
    queue_limits limits_;
    ibv_cq* completions_ = nullptr;
    ibv_qp* pair_ = nullptr;
    std::uint32_t first_ = 0;
    std::vector<ibv_send_wr> requests_;
    std::vector<ibv_sge> pieces_;
};

inline std::unique_ptr<queue> verbs_device::open(const queue_limits& wanted) {
    return std::make_unique<pair>(*this, wanted);
}

}  // namespace colls::inline v1::detail::rdma
