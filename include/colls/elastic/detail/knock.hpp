// What a process says first at another one's endpoint. The handshake is that of a rendezvous (records.hpp), with this
// record in place of a hello: neither side trusts the other before that one has shown that it knows the token, and a
// knock counts at the endpoint alone whose name it has.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/detail/handle.hpp>

namespace colls::inline v1::detail::endpoints {

struct knock {
    static constexpr rendezvous::record_kind kind = rendezvous::record_kind::knock;
    static constexpr std::size_t bytes = rendezvous::prefix_bytes + 16 + 16 + 16 + 32 + 8 + 8 + handle::most_text + 32;
    std::uint32_t library = rendezvous::library_version;
    rendezvous::nonce once{};
    endpoint_name to{};                    ///< the endpoint that is meant
    rendezvous::nonce group{};             ///< that is joined: a hash of its uuid
    digest list{};                         ///< of all handles, in order
    std::uint64_t set = 0;                 ///< a hash of the handles that their order does not change
    std::int32_t position = 0, size = 0;   ///< the sender's, in the list. Of size 0: it wants to be admitted to a group
    char own[handle::most_text + 1] = {};  ///< the sender's handle
    digest proof{};

    static void pass(auto& k, auto& archive) {
        archive(k.once, k.to, k.group, k.list, k.set, k.position, k.size, k.own, k.proof);
    }
    bool sound() const { return size >= 0 && position >= 0 && (position < size || size == 0); }
};

/// The number by which endpoints tell groups apart.
[[gnu::cold]] inline rendezvous::nonce number_of_group(std::string_view uuid) {
    const digest d = sha256().add(std::as_bytes(std::span(uuid))).finish();
    rendezvous::nonce n;
    std::copy_n(d.begin(), n.size(), n.begin());
    return n;
}

}  // namespace colls::inline v1::detail::endpoints
