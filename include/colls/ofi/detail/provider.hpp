// The provider of libfabric, and its domains, that this process uses: a lane has one.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
//
// domain_choice.hpp chooses it.
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>
#include <colls/ofi/detail/domain_choice.hpp>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <poll.h>
#include <sys/stat.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace colls::inline v1::detail::ofi {

/// A completion queue that a thread polls, and on whose descriptor it can sleep.
struct sleepable {
    /// Another one in each thread.
    static const void* this_thread() {
        static thread_local const char here = 0;
        return &here;
    }
    fid_fabric* fabric = nullptr;
    fid* queue = nullptr;
    int descriptor = -1;
    std::atomic<const void*> thread{nullptr};
};

/// Makes settings of libfabric, where the user has none: what the providers over the kernel's TCP have completed, the
/// kernel has, not a buffer of theirs; and ofi_rxm asks the receiver for no part: it has been granted. Not where
/// another thread might read the environment at the same time.
inline void set_environment() {
    struct stat threads;
    if (stat("/proc/self/task", &threads) != 0 || threads.st_nlink != 3) return;
    for (const auto& [setting, value] : {std::pair{"FI_TCP_STAGING_SBUF_SIZE", "0"}, {"FI_NET_STAGING_SBUF_SIZE", "0"},
             {"FI_OFI_RXM_EAGER_LIMIT", "1048576"}})
        setenv(setting, value, 0);
}
/// Whether what such a provider has completed arrives, though the peer does not acknowledge each operation. The first
/// call makes the settings: before libfabric is called, which reads them once.
inline bool arrives_unacknowledged(const char* provider) {
    const auto is_0 = [](const char* setting) {
        return std::string_view("0") == (variable(setting) ? variable(setting) : "");
    };
    static const bool tcp = (set_environment(), is_0("FI_TCP_STAGING_SBUF_SIZE")),
                      net = is_0("FI_NET_STAGING_SBUF_SIZE");
    return begins(provider, "tcp") ? tcp : begins(provider, "net") && net;
}

class provider {
public:
    /// Throws colls::error (unsupported), which says what to do.
    [[gnu::cold]] explicit provider(const domain_choice& choice = {}) {
        const std::unique_ptr<fi_info, void (*)(fi_info*)> hints(fi_allocinfo(), fi_freeinfo);
        if (!hints) throw std::bad_alloc();
        hints->caps = FI_MSG | FI_TAGGED;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type = FI_EP_RDM;
        // A message that has left arrives without this rank: its completion must not come earlier.
        hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
        arrives_unacknowledged("");
        hints->domain_attr->threading = FI_THREAD_SAFE;  // groups of several threads share the domain
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
        if (choice.name) hints->fabric_attr->prov_name = strdup(choice.name);  // hints own it
        fi_info* all = nullptr;
        const int code = fi_getinfo(FI_VERSION(1, 11), nullptr, nullptr, 0, hints.get(), &all);
        const std::unique_ptr<fi_info, void (*)(fi_info*)> found(all, fi_freeinfo);
        if (code != 0 && code != -FI_ENODATA) refuse("fi_getinfo", code);
        const std::vector<const fi_info*> best = choice.of(all);
        if (best.empty()) {
            std::string seen;
            for (const fi_info* i = all; i; i = i->next) {
                const std::string is = std::string(i->fabric_attr->prov_name) + " on " + i->domain_attr->name;
                if (seen.find(is) == std::string::npos && seen.size() < 200) seen += (seen.empty() ? "" : ", ") + is;
            }
            error_text text;
            text << "colls: libfabric has no endpoint for messages (FI_EP_RDM, FI_MSG, FI_TAGGED)";
            if (choice.name) text << " of COLLS_OFI_PROVIDER=" << choice.name;
            if (choice.domain) text << " on COLLS_OFI_DOMAIN=" << choice.domain;
            if (choice.own.length != 0 && !choice.domain) text << " that others reach at " << host_text(choice.own);
            text << "; it has " << (seen.empty() ? "none at all, see fi_info -l" : seen.c_str());
            throw error(errc::unsupported, text.text());
        }
        open(best);
    }
    /// On these domains, one a lane.
    explicit provider(const std::vector<const fi_info*>& lanes) { open(lanes); }
    provider(const provider&) = delete;
    provider& operator=(const provider&) = delete;
    ~provider() { close(); }

    std::size_t lanes() const { return lanes_.size(); }
    fi_info& info(std::size_t lane = 0) const { return *lanes_[lane].info; }
    fid_fabric* fabric(std::size_t lane) const { return lanes_[lane].fabric; }
    fid_domain* domain(std::size_t lane = 0) const { return lanes_[lane].domain; }
    /// Whether it has that one's name and domains.
    bool is_as(const provider& other) const {
        return std::strcmp(name(), other.name()) == 0 &&
               std::equal(lanes_.begin(), lanes_.end(), other.lanes_.begin(), other.lanes_.end(),
                   [](const opened& a, const opened& b) {
                       return std::strcmp(a.info->domain_attr->name, b.info->domain_attr->name) == 0;
                   });
    }
    const char* name() const { return lanes_.empty() ? "no provider" : info().fabric_attr->prov_name; }
    /// Whether all memory of operations must be registered; whether with the endpoint, too.
    bool registers() const { return (info().domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
    bool registers_with_endpoint() const { return (info().domain_attr->mr_mode & FI_MR_ENDPOINT) != 0; }
    /// Another one at each call; any thread.
    std::uint64_t next_key() { return keys_.fetch_add(1, std::memory_order_relaxed); }
    /// Whether it moves messages while no call of it is made.
    bool progresses() const { return info().domain_attr->data_progress == FI_PROGRESS_AUTO; }
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
                if (fi_trywait(q.fabric, &q.queue, 1) != 0) return rest::none;
                all[n++] = {q.descriptor, POLLIN, 0};
            }
        }
        if (n == 0) return rest::unable;
        const timespec t = timespec_of(seconds);
        ppoll(all, n, &t, nullptr);
        return rest::slept;
    }
    /// Pieces of memory of one operation.
    std::size_t most_pieces() const { return std::min(info().tx_attr->iov_limit, info().rx_attr->iov_limit); }
    /// "libfabric's tcp;ofi_rxm on eth0: fi_endpoint: Cannot allocate memory".
    std::string text(const char* call, int code, std::size_t lane) const {
        const std::string where = lane < lanes() ? std::string(" on ") + info(lane).domain_attr->name : "";
        return std::string("libfabric's ") + name() + where + ": " + call + ": " + fi_strerror(code < 0 ? -code : code);
    }
    [[noreturn, gnu::cold]] void refuse(const char* call, int code, std::size_t lane = 0) const {
        error_text text;
        text << "colls: " << this->text(call, code, lane);
        if (code == -FI_ENOMEM) text << "; this process may hold too little memory in place (raise `ulimit -l`)";
        throw error(errc::unsupported, text.text());
    }

private:
    void open(const std::vector<const fi_info*>& lanes) try {
        for (const fi_info* const i : lanes) {
            opened& l = lanes_.emplace_back();
            l.info = fi_dupinfo(i);
            if (!l.info) throw std::bad_alloc();
            if (arrives_unacknowledged(name())) l.info->tx_attr->op_flags = 0;
            if (const int c = fi_fabric(l.info->fabric_attr, &l.fabric, nullptr))
                refuse("fi_fabric", c, lanes_.size() - 1);
            if (const int c = fi_domain(l.fabric, l.info, &l.domain, nullptr))
                refuse("fi_domain", c, lanes_.size() - 1);
        }
    } catch (...) {
        close();
        throw;
    }
    void close() noexcept {
        for (const opened& l : lanes_) {
            if (l.domain) fi_close(&l.domain->fid);
            if (l.fabric) fi_close(&l.fabric->fid);
            fi_freeinfo(l.info);
        }
    }

    struct opened {
        fi_info* info = nullptr;
        fid_fabric* fabric = nullptr;
        fid_domain* domain = nullptr;
    };
    std::vector<opened> lanes_;
    std::atomic<std::uint64_t> keys_{0};
    std::mutex mutex_;
    std::vector<sleepable*> sleepables_;
};

}  // namespace colls::inline v1::detail::ofi
