// The records of a rendezvous: of fixed size, little-endian, encoded and parsed by pure functions. Bytes that this
// library would not have written are no record.
//
//   rank 0 -> peer   challenge   a random number
//   peer -> rank 0   hello       the peer's rank, another random number, and a digest of all that with the token
//   rank 0 -> peer   reply       accepted, or refused and why, with a digest; later ones name the missing ranks,
//                                and the last one says that all have come
//
// The token itself never travels. Neither side trusts the other before that one has shown that it knows the token: so a
// stray connection or another job can neither join the group nor take a rank from it. The digests do not protect what
// follows: exchanges (star.hpp) and the ranks' data; docs/security.md says what does.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/cores.hpp>
#include <colls/net/detail/connection/channel.hpp>
#include <colls/net/detail/connection/frame.hpp>
#include <colls/net/detail/forming/digest.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace colls::inline v1::detail {

/// Where the other members of a group reach one, and what cores it has.
struct member {
    address at;  ///< of its listening socket
    core_share cores;

    static void pass(auto& m, auto& archive) {
        archive(m.at, m.cores.cores, m.cores.set, m.cores.most, m.cores.launched);
    }
    bool sound() const { return cores.cores >= 1 && cores.most >= 1 && cores.launched >= 0; }
};

namespace rendezvous {

using bytes_view = std::span<const std::byte>;
using nonce = std::array<std::byte, 16>;

inline constexpr std::uint32_t rendezvous_version = 4;
inline constexpr std::uint32_t library_version =
    COLLS_VERSION_MAJOR << 20 | COLLS_VERSION_MINOR << 10 | COLLS_VERSION_PATCH;
inline constexpr std::size_t prefix_bytes = 16, member_bytes = 36;

/// A knock is a hello at an endpoint (elastic/detail/knock.hpp), a question one of a program that asks for the state
/// of a group (status/detail/door.hpp).
enum class record_kind : unsigned char { challenge = 'c', hello = 'h', reply = 'r', knock = 'k', question = 'q' };

// Each record gives an encoder or a decoder its fields, in the order in which they travel (`pass`), and says whether
// their values are those of a record (`sound`).

/// How every record begins, in every version of the library: behind `magic`.
struct prefix {
    record_kind kind{};
    std::uint32_t protocol = rendezvous_version, library = library_version;

    static void pass(auto& p, auto& archive) { archive(p.kind, p.protocol, p.library); }
    bool sound() const {
        return kind == record_kind::challenge || kind == record_kind::hello || kind == record_kind::reply ||
               kind == record_kind::knock || kind == record_kind::question;
    }
};
inline constexpr char magic[8] = "colls:\n";

struct challenge {
    static constexpr record_kind kind = record_kind::challenge;
    static constexpr std::size_t bytes = prefix_bytes + 16;
    std::uint32_t library = library_version;
    nonce once{};

    static void pass(auto& c, auto& archive) { archive(c.once); }
    bool sound() const { return true; }
};

struct hello {
    static constexpr record_kind kind = record_kind::hello;
    static constexpr std::size_t bytes = prefix_bytes + 16 + 8 + 8 + 32;
    std::uint32_t library = library_version;
    nonce once{};
    std::int32_t rank = 0, size = 0;
    std::int64_t pid = 0;  ///< the sender's
    digest proof{};

    static void pass(auto& h, auto& archive) { archive(h.once, h.rank, h.size, h.pid, h.proof); }
    /// Whether the rank is in range is not checked here: rank 0 says so to the peer.
    bool sound() const { return rank >= 0 && size >= 1 && pid >= 0; }
};

enum class verdict : std::uint32_t {
    accepted = 1,  ///< more replies follow; the text names the ranks that are missing
    waiting,       ///< likewise, later
    complete,      ///< all ranks have connected: exchanges follow
    wrong_token,
    version_skew,
    rank_out_of_range,
    rank_taken,
    other_size,
    broken,         ///< rank 0 has given up at its deadline; the text says what it waited for
    failed,         ///< a rank cannot take part, or has ended; the text says which, and why
    other_endpoint  ///< the knock was for an endpoint that does not listen here (any more)
};

struct reply {
    static constexpr record_kind kind = record_kind::reply;
    static constexpr std::size_t most_text = 216, bytes = prefix_bytes + 16 + most_text + 32;
    std::uint32_t library = library_version;
    verdict what{};
    std::int32_t size = 0;  ///< of the group
    std::uint64_t group = 0;
    char text[most_text + 1] = {};  ///< printable
    digest proof{};

    static void pass(auto& a, auto& archive) { archive(a.what, a.size, a.group, a.text, a.proof); }
    bool sound() const { return what >= verdict::accepted && what <= verdict::other_endpoint && size >= 1; }
};
/// Sets a reply's text, as far as there is room.
inline void set_text(reply& a, std::string_view text) {
    for (std::size_t i = 0; i < reply::most_text && i < text.size(); ++i)
        a.text[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
}
/// A reply that ends an attempt: its code, and the position that it is about, travel in `group`.
[[gnu::cold]] inline reply refusal(errc code, int about, std::string_view why) {
    reply a{.what = verdict::failed, .size = 1};
    a.group = static_cast<std::uint64_t>(code) | static_cast<std::uint64_t>(about + 1) << 8;
    set_text(a, why);
    return a;
}
inline errc code_of(const reply& a) {
    const auto code = a.group & 0xff;
    return code >= 1 && code <= static_cast<std::uint64_t>(errc::peer_failed) ? static_cast<errc>(code)
                                                                              : errc::peer_failed;
}
inline int about_of(const reply& a) { return static_cast<int>(a.group >> 8 & 0x7fffffff) - 1; }

template <class Record>
std::array<std::byte, Record::bytes> encode(const Record& r) {
    std::array<std::byte, Record::bytes> bytes;
    encoder{bytes.data()}(magic, prefix{Record::kind, rendezvous_version, r.library}, r);
    return bytes;
}
/// The first prefix_bytes of any record, of any version.
[[gnu::cold]] inline std::optional<prefix> parse_prefix(bytes_view from) {
    if (from.size() < prefix_bytes || std::memcmp(from.data(), magic, 7) != 0) return {};
    prefix p;
    decoder in(from.data() + 7);
    in(p);
    return in.sound() ? std::optional(p) : std::nullopt;
}
/// A whole record, of this version of the protocol.
template <class Record>
std::optional<Record> parse(bytes_view from) {
    const auto p = parse_prefix(from);
    if (!p || p->kind != Record::kind || p->protocol != rendezvous_version || from.size() != Record::bytes) return {};
    Record r;
    r.library = p->library;
    decoder in(from.data() + prefix_bytes);
    in(r);
    return in.sound() ? std::optional(r) : std::nullopt;
}

inline int send_record(channel& to, bytes_view record, double until) {
    return send_all(to, record.data(), record.size(), until);
}

/// The digest of a record (without its own last 32 bytes), which shows that its writer knows the token. The two nonces
/// make it differ on each connection.
inline digest prove(std::string_view token, const nonce& host, const nonce& peer, bytes_view record) {
    return keyed_digest(std::as_bytes(std::span(token)), {host, peer, record.first(record.size() - 32)});
}
/// A record with its proof, as it travels.
template <class Record>
std::array<std::byte, Record::bytes> sealed(Record r, std::string_view token, const nonce& host, const nonce& peer) {
    r.proof = prove(token, host, peer, encode(r));
    return encode(r);
}
/// "0.2.0", of the version 0.2.0.
inline error_text& operator<<(error_text& to, const prefix& p) {
    to << static_cast<int>(p.library >> 20) << "." << static_cast<int>(p.library >> 10 & 1023) << "."
       << static_cast<int>(p.library & 1023);
    if (p.protocol != rendezvous_version) to << " (rendezvous " << static_cast<long long>(p.protocol) << ")";
    return to;
}

}  // namespace rendezvous
}  // namespace colls::inline v1::detail
