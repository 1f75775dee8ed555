// This host's network interfaces, and the choice of the address at which a rank is reached.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/socket.hpp>

#include <ifaddrs.h>
#include <net/if.h>

namespace colls::inline v1::detail {

struct network_interface {
    std::string name;
    address at;  ///< its port is 0
};

/// The interfaces that are up, with an entry for each of their addresses.
[[gnu::cold]] inline std::vector<network_interface> network_interfaces() {
    std::vector<network_interface> found;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return found;
    for (const ifaddrs* i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
        const int family = i->ifa_addr->sa_family;
        const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (family == AF_INET || family == AF_INET6) found.push_back({i->ifa_name, address::from(i->ifa_addr, length)});
    }
    freeifaddrs(list);
    return found;
}

inline bool is_link_local(const address& a) {
    return a.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a.v6().sin6_addr);
}

/// An address that is written in numbers. Its length is 0 if `text` is a name.
[[gnu::cold]] inline address numeric_address(const std::string& text, int port) {
    in_addr v4;
    in6_addr v6;
    if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return address::of_v4(ntohl(v4.s_addr), port);
    const std::size_t scope = text.find('%');
    if (inet_pton(AF_INET6, text.substr(0, scope).c_str(), &v6) != 1) return {};
    return address::of_v6(v6, port, scope == text.npos ? 0 : if_nametoindex(text.c_str() + scope + 1));
}

/// The address of the interface that COLLS_INTERFACE names, or the address that it gives; one of `family` if the
/// interface has one. Port 0. Throws invalid_argument if this host has no such interface or address.
[[gnu::cold]] inline address interface_address(
    const std::string& wanted, int family, const std::vector<network_interface>& interfaces = network_interfaces()) {
    const address number = numeric_address(wanted, 0);
    address best;
    const auto rank = [family](const address& a) { return (a.family() == family ? 2 : 0) + !is_link_local(a); };
    for (const network_interface& i : interfaces) {
        if (number.length != 0 ? !i.at.same_host(number) : i.name != wanted) continue;
        if (best.length == 0 || rank(i.at) > rank(best)) best = i.at;
    }
    if (best.length != 0) return best;
    error_text text;
    text << "colls: COLLS_INTERFACE is '" << std::string_view(wanted).substr(0, 60)
         << "', but this host has no such interface that is up and has an address; it has";
    const char* between = " ";
    for (const network_interface& i : interfaces) {
        text << between << i.name << " (" << host_text(i.at) << ")";
        between = ", ";
    }
    throw error(errc::invalid_argument, (interfaces.empty() ? text << " none" : text).text());
}

/// An address at which other hosts probably reach this one: the first that is neither loopback nor link-local; loopback
/// if there is none. Port 0.
[[gnu::cold]] inline address outward_address(int family) {
    for (const network_interface& i : network_interfaces())
        if (i.at.family() == family && !i.at.is_loopback() && !is_link_local(i.at)) return i.at;
    return address::loopback(family, 0);
}

}  // namespace colls::inline v1::detail
