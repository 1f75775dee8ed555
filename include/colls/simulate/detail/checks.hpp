// What topologies are checked for, and the hash by which routes choose.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/detail/support/hash.hpp>
#include <colls/error.hpp>
#include <colls/step.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

[[noreturn, gnu::cold]] inline void refuse_topology(const error_text& why) {
    error_text text;
    throw error(errc::invalid_argument, (text << "colls: topology: " << why.text()).text());
}
[[gnu::cold]] inline void check_link(double latency, double bandwidth, std::size_t number) {
    error_text text;
    if (!(latency >= 0 && std::isfinite(latency)))
        refuse_topology(text << "link " << number << " has the latency " << latency << "; it is not negative");
    if (!(bandwidth > 0 && std::isfinite(bandwidth)))
        refuse_topology(text << "link " << number << " has the bandwidth " << bandwidth << "; it is above 0");
}
/// a · b, which must be the number of something.
inline int product(int a, int b, const char* of) {
    const long long both = static_cast<long long>(a) * b;
    error_text text;
    if (a < 1 || b < 1) refuse_topology(text << "the number of " << of << " is not positive");
    if (both > (1 << 28)) refuse_topology(text << "there are more than " << (1 << 28) << " " << of);
    return static_cast<int>(both);
}
/// Whether `peer` is a rank, other than r. Throws wrong_schedule where it is no rank.
inline bool is_peer(int r, int peer, int n) {
    if (peer >= none && peer < n) return peer != none && peer != r;
    error_text text;
    text << "colls: simulate: rank " << r << " names rank " << peer << ", but the group has ranks 0 to " << n - 1;
    throw error(errc::wrong_schedule, text.text(), r, peer);
}
inline std::uint64_t hash_of_pair(int from, int to) {
    return hash_mix(hash_mix(0x5eed, static_cast<std::uint64_t>(from)), static_cast<std::uint64_t>(to));
}

}  // namespace colls::inline v1::detail
