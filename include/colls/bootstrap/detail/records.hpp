// The records of a rendezvous: of fixed size, little-endian, encoded and parsed by pure functions. Bytes that this
// library would not have written are no record.
//
//   rank 0 -> peer   challenge   a random number
//   peer -> rank 0   hello       the peer's rank and address, another random number, and a digest of all that with the
//                                group's token
//   rank 0 -> peer   reply       accepted, or refused and why; with a digest. Later replies name the missing ranks
//   rank 0 -> peer   table       behind the reply `complete`: a digest, and all members
//
// The token itself never travels. Neither side trusts the other before that one has shown that it knows the token: so a
// stray connection or another job can neither join the group nor take a rank from it. The digests do not protect what
// follows: the ranks' data are neither encrypted nor authenticated, and a host that can change packets on the network
// can take a connection over. A token that is easily guessed (as are those made from a job's identity) keeps mistakes
// out, not attackers.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/bootstrap/detail/digest.hpp>
#include <colls/detail/support/cores.hpp>
#include <colls/detail/support/socket.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace colls::inline v1::detail {

/// One process of a group.
struct member {
    std::uint64_t host = 0;  ///< equal exactly for ranks that can share memory
    address at;              ///< at which its listening socket is reached
    std::int64_t pid = 0;
    core_share cores;
};

namespace rendezvous {

using bytes_view = std::span<const std::byte>;
using nonce = std::array<std::byte, 16>;

inline constexpr std::uint32_t rendezvous_version = 3;
inline constexpr std::uint32_t library_version =
    COLLS_VERSION_MAJOR << 20 | COLLS_VERSION_MINOR << 10 | COLLS_VERSION_PATCH;

enum class record_kind : unsigned char { challenge = 'c', hello = 'h', reply = 'r' };

/// How every record begins, in every version of the library.
struct prefix {
    record_kind kind{};
    std::uint32_t protocol = rendezvous_version, library = library_version;
    friend bool operator==(const prefix&, const prefix&) = default;
};

struct challenge {
    std::uint32_t library = library_version;
    nonce once{};
};

struct hello {
    std::uint32_t library = library_version;
    nonce once{};
    std::int32_t rank = 0, size = 0;
    member self;  ///< the sender
    digest proof{};
};

enum class verdict : std::uint32_t {
    accepted = 1,  ///< more replies follow; the text names the ranks that are missing
    waiting,       ///< likewise, later
    complete,      ///< all ranks have connected: the table follows
    wrong_token,
    version_skew,
    rank_out_of_range,
    rank_taken,
    other_size,
    broken,  ///< rank 0 has given up at its deadline; the text says what it waited for
    failed,  ///< a rank cannot take part, or has ended; the text says which, and why
    formed   ///< a rank has come to the next step (see forming_line)
};

struct reply {
    static constexpr std::size_t most_text = 216;
    std::uint32_t library = library_version;
    verdict what{};
    std::int32_t size = 0;  ///< of the group
    std::uint64_t group = 0;
    char text[most_text + 1] = {};  ///< printable
    digest proof{};
};
/// Sets a reply's text, as far as there is room.
inline void set_text(reply& a, std::string_view text) {
    for (std::size_t i = 0; i < reply::most_text && i < text.size(); ++i)
        a.text[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
}

inline constexpr std::size_t prefix_bytes = 16, challenge_bytes = prefix_bytes + 16, member_bytes = 52,
                             hello_bytes = prefix_bytes + 16 + 8 + member_bytes + 32,
                             reply_bytes = prefix_bytes + 16 + reply::most_text + 32;

/// Writes numbers one behind the other, little-endian. The caller sees to it that there is room.
class encoder {
public:
    explicit encoder(std::byte* at) : at_(at) {}
    template <class U>
    encoder& put(U number) {
        auto rest = static_cast<std::uint64_t>(number);
        for (std::size_t i = 0; i < sizeof(U); ++i, rest >>= 8) *at_++ = static_cast<std::byte>(rest & 0xff);
        return *this;
    }
    encoder& put_bytes(bytes_view bytes) {
        at_ = std::copy(bytes.begin(), bytes.end(), at_);
        return *this;
    }

private:
    std::byte* at_;
};
/// Reads what an encoder has written. The caller sees to it that there are enough bytes.
class decoder {
public:
    explicit decoder(const std::byte* at) : at_(at) {}
    template <class U>
    U take() {
        std::uint64_t number = 0;
        for (std::size_t i = 0; i < sizeof(U); ++i) number |= std::to_integer<std::uint64_t>(*at_++) << 8 * i;
        return static_cast<U>(number);
    }
    template <std::size_t N>
    void take_bytes(std::array<std::byte, N>& to) {
        std::copy_n(at_, N, to.begin());
        at_ += N;
    }

private:
    const std::byte* at_;
};

inline constexpr char magic[8] = "colls:\n";  // seven bytes of every record; the kind follows

inline void put_prefix(encoder& to, record_kind kind, std::uint32_t library) {
    to.put_bytes(std::as_bytes(std::span(magic, 7)))
        .put(static_cast<unsigned char>(kind))
        .put(rendezvous_version)
        .put(library);
}
/// The first prefix_bytes of any record, of any version.
inline std::optional<prefix> parse_prefix(bytes_view from) {
    if (from.size() < prefix_bytes || std::memcmp(from.data(), magic, 7) != 0) return {};
    decoder in(from.data() + 7);
    prefix p;
    p.kind = in.take<record_kind>();
    if (p.kind != record_kind::challenge && p.kind != record_kind::hello && p.kind != record_kind::reply) return {};
    p.protocol = in.take<std::uint32_t>();
    p.library = in.take<std::uint32_t>();
    return p;
}
/// The prefix of a whole record of that kind, of this version of the protocol.
inline std::optional<prefix> parse_prefix(bytes_view from, record_kind kind, std::size_t bytes) {
    const auto p = parse_prefix(from);
    return p && p->kind == kind && p->protocol == rendezvous_version && from.size() == bytes ? p : std::nullopt;
}

// An address is a family (4 or 6), its port, and 16 bytes. It has no scope, which is a number of one host's interfaces.
inline void put_member(encoder& to, const member& m) {
    std::array<std::byte, 16> host{};
    if (m.at.family() == AF_INET)
        std::memcpy(host.data(), &m.at.v4().sin_addr, 4);
    else
        std::memcpy(host.data(), &m.at.v6().sin6_addr, 16);
    to.put(m.host).put(m.pid).put(static_cast<std::uint16_t>(m.at.family() == AF_INET ? 4 : 6));
    to.put(static_cast<std::uint16_t>(m.at.port())).put_bytes(host);
    to.put(m.cores.cores).put(m.cores.set).put(m.cores.most).put(m.cores.launched);
}
/// Reads member_bytes.
inline std::optional<member> parse_member(const std::byte* from) {
    decoder in(from);
    member m;
    m.host = in.take<std::uint64_t>();
    m.pid = in.take<std::int64_t>();
    const auto family = in.take<std::uint16_t>();
    const auto port = in.take<std::uint16_t>();
    std::array<std::byte, 16> host;
    in.take_bytes(host);
    m.cores.cores = in.take<std::int32_t>();
    m.cores.set = in.take<std::uint32_t>();
    m.cores.most = in.take<std::int32_t>();
    m.cores.launched = in.take<std::int32_t>();
    if (m.cores.cores < 1 || m.cores.most < 1 || m.cores.launched < 0) return {};
    if ((family != 4 && family != 6) || port == 0 || m.pid < 0) return {};
    const auto is_zero = [](std::byte b) { return b == std::byte{}; };
    if (std::all_of(host.begin(), host.end(), is_zero))
        return {};  // the address of every interface: no rank is reached there
    if (family == 4) {
        if (!std::all_of(host.begin() + 4, host.end(), is_zero)) return {};
        std::uint32_t v4;
        std::memcpy(&v4, host.data(), 4);
        m.at = address::of_v4(ntohl(v4), port);
    } else {
        in6_addr v6;
        std::memcpy(&v6, host.data(), 16);
        m.at = address::of_v6(v6, port);
    }
    return m;
}

inline std::array<std::byte, challenge_bytes> encode(const challenge& c) {
    std::array<std::byte, challenge_bytes> bytes;
    encoder out(bytes.data());
    put_prefix(out, record_kind::challenge, c.library);
    out.put_bytes(c.once);
    return bytes;
}
inline std::optional<challenge> parse_challenge(bytes_view from) {
    const auto p = parse_prefix(from, record_kind::challenge, challenge_bytes);
    if (!p) return {};
    challenge c;
    c.library = p->library;
    decoder(from.data() + prefix_bytes).take_bytes(c.once);
    return c;
}

inline std::array<std::byte, hello_bytes> encode(const hello& h) {
    std::array<std::byte, hello_bytes> bytes;
    encoder out(bytes.data());
    put_prefix(out, record_kind::hello, h.library);
    out.put_bytes(h.once).put(h.rank).put(h.size);
    put_member(out, h.self);
    out.put_bytes(h.proof);
    return bytes;
}
/// Whether the rank is in range is not checked here: rank 0 says so to the peer.
inline std::optional<hello> parse_hello(bytes_view from) {
    const auto p = parse_prefix(from, record_kind::hello, hello_bytes);
    if (!p) return {};
    hello h;
    h.library = p->library;
    decoder in(from.data() + prefix_bytes);
    in.take_bytes(h.once);
    h.rank = in.take<std::int32_t>();
    h.size = in.take<std::int32_t>();
    const auto self = parse_member(from.data() + prefix_bytes + 24);
    if (!self || h.rank < 0 || h.size < 1) return {};
    h.self = *self;
    decoder(from.data() + hello_bytes - 32).take_bytes(h.proof);
    return h;
}

inline std::array<std::byte, reply_bytes> encode(const reply& a) {
    std::array<std::byte, reply_bytes> bytes;
    encoder out(bytes.data());
    put_prefix(out, record_kind::reply, a.library);
    out.put(static_cast<std::uint32_t>(a.what)).put(a.size).put(a.group);
    out.put_bytes(std::as_bytes(std::span(a.text, reply::most_text))).put_bytes(a.proof);
    return bytes;
}
inline std::optional<reply> parse_reply(bytes_view from) {
    const auto p = parse_prefix(from, record_kind::reply, reply_bytes);
    if (!p) return {};
    reply a;
    a.library = p->library;
    decoder in(from.data() + prefix_bytes);
    const auto what = in.take<std::uint32_t>();
    a.size = in.take<std::int32_t>();
    a.group = in.take<std::uint64_t>();
    if (what < 1 || what > static_cast<std::uint32_t>(verdict::formed) || a.size < 1) return {};
    a.what = static_cast<verdict>(what);
    // It will be printed on a terminal: printable characters, then zeros.
    std::memcpy(a.text, from.data() + prefix_bytes + 16, reply::most_text);
    const std::size_t length = std::strlen(a.text);
    for (std::size_t i = 0; i < reply::most_text; ++i)
        if (i < length ? a.text[i] < ' ' || a.text[i] > '~' : a.text[i] != '\0') return {};
    decoder(from.data() + reply_bytes - 32).take_bytes(a.proof);
    return a;
}

inline constexpr std::size_t table_bytes(int size) { return static_cast<std::size_t>(size) * member_bytes; }
inline std::vector<std::byte> encode_table(std::span<const member> members) {
    std::vector<std::byte> bytes(members.size() * member_bytes);
    encoder out(bytes.data());
    for (const member& m : members) put_member(out, m);
    return bytes;
}
/// The table of a group of `size`. Memory is taken for `size` members, whatever the peer has sent.
inline std::optional<std::vector<member>> parse_table(bytes_view from, int size) {
    if (size < 1 || from.size() != table_bytes(size)) return {};
    std::vector<member> members;
    members.reserve(static_cast<std::size_t>(size));
    for (const std::byte* at = from.data(); members.size() < static_cast<std::size_t>(size); at += member_bytes) {
        const auto m = parse_member(at);
        if (!m) return {};
        members.push_back(*m);
    }
    return members;
}

/// The digest of a record (without its own last 32 bytes), which shows that its writer knows the token. The two nonces
/// make it differ on each connection.
inline digest prove(std::string_view token, const nonce& host, const nonce& peer, bytes_view record) {
    return keyed_digest(std::as_bytes(std::span(token)), {host, peer, record.first(record.size() - 32)});
}
/// Likewise for the table, given its hash, since all peers get the same one.
inline digest prove_table(std::string_view token, const nonce& host, const nonce& peer, const digest& table) {
    return keyed_digest(std::as_bytes(std::span(token)), {host, peer, table});
}

/// "0.1.0".
inline message& operator<<(message& to, const prefix& p) {
    to << static_cast<int>(p.library >> 20) << "." << static_cast<int>(p.library >> 10 & 1023) << "."
       << static_cast<int>(p.library & 1023);
    if (p.protocol != rendezvous_version) to << " (rendezvous " << static_cast<long long>(p.protocol) << ")";
    return to;
}

}  // namespace rendezvous
}  // namespace colls::inline v1::detail
