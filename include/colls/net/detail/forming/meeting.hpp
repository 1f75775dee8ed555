// What both sides of a rendezvous need: its result, its errors, and the socket at which other ranks reach this one.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/host.hpp>
#include <colls/net/detail/forming/interfaces.hpp>
#include <colls/net/detail/forming/launch.hpp>
#include <colls/net/detail/forming/star.hpp>

#include <sys/stat.h>

namespace colls::inline v1::detail {

/// The ranks of a launch that have met.
class rank_star final : public star_exchange {
public:
    /// `lines` as star_exchange has them. `local`: the address by which this rank and rank 0 are connected, as this one
    /// has it.
    rank_star(const launch& l, double timeout, std::vector<peer_line> lines, const address& local)
        : star_exchange(l.rank, l.size, timeout), at(local) {
        lines_ = std::move(lines);
    }
    std::string name(int i) const override { return "rank " + std::to_string(i); }
    /// That rank has ended. Throws.
    using star_exchange::lost;

    const address at;

private:
    error error_of(errc code, int about, const error_text& why) const override {
        return {code, error_text() << "colls: rank " << own() << ": the group was not formed: " << why, own(), about};
    }
};

namespace rendezvous {

/// What to do where ranks are missing.
inline constexpr char were_all_started[] =
    ": were all ranks started, with the same COLLS_MASTER_ADDR, COLLS_MASTER_PORT and COLLS_TOKEN?";

[[noreturn]] inline void fail(errc code, const launch& l, const error_text& why, int peer = none) {
    throw error(code, error_text() << "colls: rank " << l.rank << " of " << l.size << ": " << why, l.rank, peer);
}

/// Equal for processes that can share memory: those of one boot of one system, in one network and process namespace
/// (containers have their own), and of one user. COLLS_HOST divides them further.
[[gnu::cold]] inline std::uint64_t host_identity() {
    sha256 sum;
    const host_label boot = boot_of_host();
    sum.add(std::as_bytes(std::span(boot.text)));
    std::uint64_t numbers[3] = {getuid(), 0, 0};
    struct stat status;
    if (stat("/proc/self/ns/net", &status) == 0) numbers[1] = status.st_ino;
    if (stat("/proc/self/ns/pid", &status) == 0) numbers[2] = status.st_ino;
    if (const char* const name = variable("COLLS_HOST")) sum.add(std::as_bytes(std::span(name, std::strlen(name))));
    const digest d = sum.add(std::as_bytes(std::span(numbers))).finish();
    std::uint64_t identity;
    decoder{d.data()}(identity);
    return identity;
}

/// The host given is loopback for every rank. (A host's own name may stand for loopback on the host itself, as Debian's
/// 127.0.1.1 does, and for another address elsewhere.)
[[gnu::cold]] inline bool means_loopback(const std::string& host) {
    return numeric_address(host, 0).length != 0 || host.compare(0, 9, "localhost") == 0 ||
           host.compare(0, 4, "ip6-") == 0;
}

/// The socket at which the other ranks will reach this one. `local` (see rank_star) is the address to listen at, unless
/// COLLS_INTERFACE gives one, or it is loopback on this host only. Throws invalid_argument.
[[gnu::cold]] inline descriptor listen_for_members(const launch& l, const address& local) {
    address at = local;
    at.set_port(0);
    if (!l.interface_name.empty())
        at = interface_address(l.interface_name, local.family());
    else if (at.is_loopback() && !means_loopback(l.host))
        at = outward_address(at.family());
    else if (at.is_loopback())
        at = address::loopback(at.family(), 0);
    descriptor fd = listen_at(at);
    if (!fd && is_exhausted(errno))
        fail(errc::unsupported, l, error_text() << "cannot listen at " << host_text(at) << ": " << system_text(errno));
    if (!fd)
        fail(errc::invalid_argument, l,
            error_text() << "cannot listen at " << host_text(at) << ": " << std::strerror(errno)
                         << "; set COLLS_INTERFACE to another interface");
    return fd;
}

}  // namespace rendezvous
}  // namespace colls::inline v1::detail
