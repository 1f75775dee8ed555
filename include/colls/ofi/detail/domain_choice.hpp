// Which of libfabric's providers, and of its domains, a rank uses: one, or several as lanes (endpoint.hpp).
// IWYU pragma: private, include <colls/transports/ofi.hpp>
//
// The environment chooses; what it leaves open, `score` and the way to the card choose:
//   COLLS_OFI_PROVIDER  as fi_info names it: tcp, "udp;ofi_rxd", efa, cxi
//   COLLS_OFI_DOMAIN    likewise: eth0, rdmap0s6-rdm, cxi0; also several, and patterns (nearest_card.hpp). A rank that
//                       moves no GPU's data uses all that it names, at most four
#pragma once

#include <colls/cards/detail/nearest_card.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <sched.h>
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace colls::inline v1::detail::ofi {

/// Bits of a tag that the transport uses.
inline constexpr int tag_bits = 48;

inline bool begins(const char* name, const char* with) { return std::strncmp(name, with, std::strlen(with)) == 0; }

struct domain_choice {
    address own{};      ///< where others reach the rank over TCP; empty: all are on this host
    int place = 0;      ///< of the rank among those of its host
    std::string gpu{};  ///< the PCI address of the GPU whose data it moves; empty: of none
    rdma::pci_tree pci{};
    cpu_set_t cores = cores_of_thread();  ///< the rank's
    const char* name = variable("COLLS_OFI_PROVIDER");
    const char* domain = variable("COLLS_OFI_DOMAIN");

    /// One for each lane, of a list of libfabric's; none: there is none. Those that COLLS_OFI_DOMAIN names, the best
    /// first; else the first of the best ones or, of cards that are as good, one that is near the cores, or those near
    /// the GPU. The ranks of a host, or its GPUs, that have the same ones spread over them.
    std::vector<const fi_info*> of(const fi_info* all) const {
        const fi_info* best = nullptr;
        for (const fi_info* i = all; i; i = i->next)
            if (score(*i) > (best ? score(*best) : 0)) best = i;
        if (!best) return {};
        if (!gpu.empty() || !names_domains()) return card_of(*best).empty() ? std::vector{best} : of_cards(*best);
        std::vector<const fi_info*> lanes;
        const auto has = [&](const fi_info& i) {
            return std::any_of(lanes.begin(), lanes.end(),
                [&](const fi_info* l) { return std::strcmp(l->domain_attr->name, i.domain_attr->name) == 0; });
        };
        // None with a link-local address beside another. In the same order on all hosts: a lane may not reach another.
        for (int is = score(*best), least = std::min(is, 2); is >= least; --is)
            for (const fi_info* i = all; i && lanes.size() < rdma::most_lanes; i = i->next)
                if (score(*i) == is && are_alike(*i, *best) && !has(*i)) lanes.push_back(i);
        return lanes;
    }

private:
    bool names_domains() const { return domain && rdma::names_some(domain); }
    std::vector<const fi_info*> of_cards(const fi_info& best) const {
        std::vector<std::string> cards;
        std::vector<const fi_info*> first;  // of each card
        for (const fi_info* i = &best; i; i = i->next) {
            const std::string card = card_of(*i);
            if (card.empty() || !are_alike(*i, best) || text(i->fabric_attr->name) != text(best.fabric_attr->name) ||
                score(*i) != score(best) || std::find(cards.begin(), cards.end(), card) != cards.end())
                continue;
            cards.push_back(card);
            first.push_back(i);
        }
        std::size_t taken = 0, step = cards.size();
        const std::vector<std::string> near =
            gpu.empty() ? pci.near_cores(cores, cards) : pci.nearest(gpu, cards, taken, &step);
        if (gpu.empty()) {
            const auto at = static_cast<std::size_t>(place);
            taken = (at + at / near.size()) % near.size();  // also where a NUMA node has every second rank
        }
        std::vector<const fi_info*> lanes;
        for (; taken < near.size() && lanes.size() < rdma::most_lanes; taken += step)
            lanes.push_back(
                first[static_cast<std::size_t>(std::find(cards.begin(), cards.end(), near[taken]) - cards.begin())]);
        return lanes;
    }
    static cpu_set_t cores_of_thread() {
        cpu_set_t all;
        CPU_ZERO(&all);
        sched_getaffinity(0, sizeof all, &all);
        return all;
    }
    // 0: others do not reach it. Of equal ones libfabric names the fastest first.
    int score(const fi_info& i) const {
        const char* const is = i.fabric_attr->prov_name;
        if (domain && !rdma::is_allowed(domain, i.domain_attr->name)) return 0;
        if (std::countl_zero(i.ep_attr->mem_tag_format) + tag_bits > 64) return 0;
        if (!name && std::strcmp(is, "shm") == 0) return 0;  // of one host
        if (!has_ip(i)) return 3;
        const address at =
            address::from(static_cast<const sockaddr*>(i.src_addr), static_cast<socklen_t>(i.src_addrlen));
        if (at.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&at.v6().sin6_addr)) return 1;
        // Those of the kernel's sockets are on all its interfaces; a card's address need not be that of TCP.
        if (!begins(is, "tcp") && !begins(is, "net") && !begins(is, "udp") && !begins(is, "sockets")) return 3;
        if (own.length == 0 ? at.is_loopback() && at.family() == AF_INET : at.same_host(own)) return 3;
        return !at.is_loopback() || own.length == 0 || own.is_loopback() ? 2 : names_domains() ? 1 : 0;
    }
    static bool has_ip(const fi_info& i) { return i.addr_format == FI_SOCKADDR_IN || i.addr_format == FI_SOCKADDR_IN6; }
    // The card's PCI address; empty: it is not known, or its IP network, which other cards' ones may not meet, decides.
    static std::string card_of(const fi_info& i) {
        if (has_ip(i) || !i.nic || !i.nic->bus_attr || i.nic->bus_attr->bus_type != FI_BUS_PCI) return {};
        const fi_pci_attr& at = i.nic->bus_attr->attr.pci;
        char text[32];
        std::snprintf(
            text, sizeof text, "%04x:%02x:%02x.%x", at.domain_id, at.bus_id, at.device_id, unsigned{at.function_id});
        return text;
    }
    static std::string_view text(const char* s) { return s ? s : ""; }
    // As lanes each gets as much of a message, in parts as large. (On one fabric, endpoints of the one reach those of
    // the other.)
    static bool are_alike(const fi_info& a, const fi_info& b) {
        const auto kind = [](const fi_info& i) {
            const fi_link_attr* const link = i.nic ? i.nic->link_attr : nullptr;
            return std::tuple(text(i.fabric_attr->prov_name), i.addr_format, i.ep_attr->protocol,
                i.ep_attr->max_msg_size, link ? link->speed : 0, link ? link->state : FI_LINK_UNKNOWN);
        };
        return kind(a) == kind(b);
    }
};

}  // namespace colls::inline v1::detail::ofi
