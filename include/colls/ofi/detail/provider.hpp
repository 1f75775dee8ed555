// The provider of libfabric, and its domain, that this process uses.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
//
// The environment chooses it; what it leaves open, `score` chooses:
//   COLLS_OFI_PROVIDER  as fi_info names it: tcp, "udp;ofi_rxd", efa, cxi
//   COLLS_OFI_DOMAIN    likewise: eth0, rdmap0s6-rdm, cxi0
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <poll.h>
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace colls::inline v1::detail::ofi {

/// Bits of a tag that the transport uses.
inline constexpr int tag_bits = 48;

/// A completion queue that a thread polls, and on whose descriptor it can sleep.
struct sleepable {
    /// Another one in each thread.
    static const void* this_thread() {
        static thread_local const char here = 0;
        return &here;
    }
    fid* queue = nullptr;
    int descriptor = -1;
    std::atomic<const void*> thread{nullptr};
};

/// Settings of libfabric, where the user has none. What the providers over the kernel's TCP have completed, the kernel
/// has, not a buffer of theirs; and ofi_rxm asks the receiver for no part: it has been granted.
inline constexpr const char* settings[][2] = {
    {"FI_TCP_STAGING_SBUF_SIZE", "0"}, {"FI_NET_STAGING_SBUF_SIZE", "0"}, {"FI_OFI_RXM_EAGER_LIMIT", "1048576"}};

class provider {
public:
    /// Opens it for a rank that others reach over TCP at `own`; an empty address: all are on this host. Throws
    /// colls::error (unsupported), which says what to do.
    [[gnu::cold]] explicit provider(const address& own = {}) {
        const char *const name = variable("COLLS_OFI_PROVIDER"), *const domain = variable("COLLS_OFI_DOMAIN");
        const std::unique_ptr<fi_info, void (*)(fi_info*)> hints(fi_allocinfo(), fi_freeinfo);
        if (!hints) throw std::bad_alloc();
        hints->caps = FI_MSG | FI_TAGGED;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type = FI_EP_RDM;
        // A message that has left arrives without this rank: its completion must not come earlier.
        hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
        for (const auto& [setting, value] : settings) setenv(setting, value, 0);
        hints->domain_attr->threading = FI_THREAD_SAFE;  // groups of several threads share the domain
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
        if (name) hints->fabric_attr->prov_name = strdup(name);  // hints own it
        fi_info* all = nullptr;
        const int code = fi_getinfo(FI_VERSION(1, 11), nullptr, nullptr, 0, hints.get(), &all);
        const std::unique_ptr<fi_info, void (*)(fi_info*)> found(all, fi_freeinfo);
        if (code != 0 && code != -FI_ENODATA) refuse("fi_getinfo", code);
        const fi_info* best = nullptr;
        std::string seen;
        for (const fi_info* i = all; i; i = i->next) {
            const std::string is = std::string(i->fabric_attr->prov_name) + " on " + i->domain_attr->name;
            if (seen.find(is) == std::string::npos && seen.size() < 200) seen += (seen.empty() ? "" : ", ") + is;
            if (domain && std::strcmp(domain, i->domain_attr->name) != 0) continue;
            if (const int s = score(*i, own, name, domain); s > (best ? score(*best, own, name, domain) : 0)) best = i;
        }
        if (!best) {
            error_text text;
            text << "colls: libfabric has no endpoint for messages (FI_EP_RDM, FI_MSG, FI_TAGGED)";
            if (name) text << " of COLLS_OFI_PROVIDER=" << name;
            if (domain) text << " on COLLS_OFI_DOMAIN=" << domain;
            if (own.length != 0 && !domain) text << " that others reach at " << host_text(own);
            text << "; it has " << (seen.empty() ? "none at all, see fi_info -l" : seen.c_str());
            throw error(errc::unsupported, text.text());
        }
        info_ = fi_dupinfo(best);
        if (!info_) throw std::bad_alloc();
        // What the kernel's TCP has arrives: the peer need not acknowledge each operation.
        if (begins(this->name(), "tcp") || begins(this->name(), "net")) info_->tx_attr->op_flags = 0;
        try {
            if (const int c = fi_fabric(info_->fabric_attr, &fabric_, nullptr)) refuse("fi_fabric", c);
            if (const int c = fi_domain(fabric_, info_, &domain_, nullptr)) refuse("fi_domain", c);
        } catch (...) {
            close();
            throw;
        }
    }
    provider(const provider&) = delete;
    provider& operator=(const provider&) = delete;
    ~provider() { close(); }

    fi_info& info() const { return *info_; }
    fid_domain* domain() const { return domain_; }
    const char* name() const { return info_ ? info_->fabric_attr->prov_name : "no provider"; }
    /// Whether all memory of operations must be registered; whether with the endpoint, too.
    bool registers() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
    bool registers_with_endpoint() const { return (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0; }
    /// Another one at each call; any thread.
    std::uint64_t next_key() { return keys_.fetch_add(1, std::memory_order_relaxed); }
    /// Whether it moves messages while no call of it is made.
    bool progresses() const { return info_->domain_attr->data_progress == FI_PROGRESS_AUTO; }
    void add(sleepable& q) {
        const std::lock_guard lock(mutex_);
        sleepables_.push_back(&q);
    }
    void remove(sleepable& q) {
        const std::lock_guard lock(mutex_);
        std::erase(sleepables_, &q);
    }
    /// `none`: there is something already. `unable`: there is no queue to sleep on.
    enum class rest : std::uint8_t { slept, none, unable };
    /// Sleeps until there is something for one of this thread's queues (a wait for one group, or kind of message, polls
    /// those of the others too), at most `seconds`.
    rest sleep(double seconds) {
        pollfd all[32];
        nfds_t n = 0;
        {
            const std::lock_guard lock(mutex_);                             // no other thread closes a queue meanwhile
            for (std::size_t i = sleepables_.size(); i-- > 0 && n < 32;) {  // the latest, if there are more
                sleepable& q = *sleepables_[i];
                if (q.thread.load(std::memory_order_relaxed) != sleepable::this_thread()) continue;
                if (fi_trywait(fabric_, &q.queue, 1) != 0) return rest::none;
                all[n++] = {q.descriptor, POLLIN, 0};
            }
        }
        if (n == 0) return rest::unable;
        const timespec t = timespec_of(seconds);
        ppoll(all, n, &t, nullptr);
        return rest::slept;
    }
    /// Pieces of memory of one operation.
    std::size_t most_pieces() const { return std::min(info_->tx_attr->iov_limit, info_->rx_attr->iov_limit); }
    /// "libfabric's tcp;ofi_rxm: fi_endpoint: Cannot allocate memory".
    std::string text(const char* call, int code) const {
        return std::string("libfabric's ") + name() + ": " + call + ": " + fi_strerror(code < 0 ? -code : code);
    }
    [[noreturn, gnu::cold]] void refuse(const char* call, int code) const {
        error_text text;
        text << "colls: " << this->text(call, code);
        if (code == -FI_ENOMEM) text << "; this process may hold too little memory in place (raise `ulimit -l`)";
        throw error(errc::unsupported, text.text());
    }

private:
    static bool begins(const char* name, const char* with) { return std::strncmp(name, with, std::strlen(with)) == 0; }
    // 0: others do not reach it. Of equal ones libfabric names the fastest first.
    static int score(const fi_info& i, const address& own, const char* name, const char* domain) {
        const char* const is = i.fabric_attr->prov_name;
        if (std::countl_zero(i.ep_attr->mem_tag_format) + tag_bits > 64) return 0;
        if (!name && std::strcmp(is, "shm") == 0) return 0;  // of one host
        if (i.addr_format != FI_SOCKADDR_IN && i.addr_format != FI_SOCKADDR_IN6) return 3;
        const address at =
            address::from(static_cast<const sockaddr*>(i.src_addr), static_cast<socklen_t>(i.src_addrlen));
        if (at.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&at.v6().sin6_addr)) return 1;
        // Those of the kernel's sockets are on all its interfaces; a card's address need not be that of TCP.
        if (!begins(is, "tcp") && !begins(is, "net") && !begins(is, "udp") && !begins(is, "sockets")) return 3;
        if (own.length == 0 ? at.is_loopback() && at.family() == AF_INET : at.same_host(own)) return 3;
        return !at.is_loopback() || own.length == 0 || own.is_loopback() ? 2 : domain ? 1 : 0;
    }
    void close() noexcept {
        if (domain_) fi_close(&domain_->fid);
        if (fabric_) fi_close(&fabric_->fid);
        fi_freeinfo(info_);
    }

    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    std::atomic<std::uint64_t> keys_{0};
    std::mutex mutex_;
    std::vector<sleepable*> sleepables_;
};

}  // namespace colls::inline v1::detail::ofi
