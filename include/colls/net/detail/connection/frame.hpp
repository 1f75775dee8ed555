// The bytes that go over a connection between two ranks: records of fixed size, little-endian, of which every field is
// checked when they are read. Pure functions that allocate nothing, whatever the bytes are.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/vocabulary.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

using octets = std::span<const std::byte>;

template <class T>
void put_little(std::byte* to, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
        to[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * i);
}
template <class T>
T get_little(const std::byte* from) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(from[i]) << 8 * i;
    return static_cast<T>(value);
}
/// Writes fields one after the other, little-endian; of constant bytes: reads them. The caller sees to it that there
/// are enough bytes.
template <class Byte>
class coder {
    static constexpr bool reads = std::is_const_v<Byte>;

public:
    explicit coder(Byte* at) : at_(at) {}
    void operator()(auto&&... fields) {
        if constexpr (reads)
            (pass(fields), ...);
        else
            (pass(std::as_const(fields)), ...);
    }
    /// The fields that were read may be those of a record.
    bool sound() const { return sound_; }

private:
    template <class T>
    void pass(T& field) {
        if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
            if constexpr (reads)
                field = get_little<T>(at_);
            else
                put_little(at_, field);
            at_ += sizeof(T);
        } else if constexpr (requires { field.data(); }) {
            copy(field.data(), field.size());
        } else if constexpr (std::is_array_v<T>) {  // a text, which travels without the zero at its end
            constexpr std::size_t most = sizeof field - 1;
            copy(field, most);
            const std::size_t length = reads ? std::strlen(field) : most;
            // It will be printed on a terminal: printable characters, then zeros.
            for (std::size_t i = 0; reads && i < most; ++i)
                sound_ = sound_ && (i < length ? field[i] >= ' ' && field[i] <= '~' : field[i] == '\0');
        } else {
            T::pass(field, *this);
            if constexpr (reads) sound_ = sound_ && field.sound();
        }
    }
    void copy(auto* field, std::size_t bytes) {
        if constexpr (reads)
            std::memcpy(field, at_, bytes);
        else
            std::memcpy(at_, field, bytes);
        at_ += bytes;
    }
    // An address travels as a family (4 or 6), its port, and 16 bytes. It has no scope, which is a number of one host's
    // interfaces.
    void pass(const address& a) {
        in6_addr host{};
        if (a.family() == AF_INET)
            std::memcpy(&host, &a.v4().sin_addr, 4);
        else
            host = a.v6().sin6_addr;
        (*this)(static_cast<std::uint16_t>(a.family() == AF_INET ? 4 : 6), static_cast<std::uint16_t>(a.port()));
        copy(&host, sizeof host);
    }
    void pass(address& a) {
        std::uint16_t family = 0, port = 0;
        in6_addr host;
        (*this)(family, port);
        copy(&host, sizeof host);
        const auto zero_from = [&](int i) {
            return std::all_of(host.s6_addr + i, host.s6_addr + 16, [](unsigned char b) { return b == 0; });
        };
        // At the address of every interface no rank is reached.
        sound_ = sound_ && port != 0 && !zero_from(0) && (family == 6 || (family == 4 && zero_from(4)));
        a = family == 6 ? address::of_v6(host, port) : address::of_v4(ntohl(host.s6_addr32[0]), port);
    }
    Byte* at_;
    bool sound_ = true;
};
using encoder = coder<std::byte>;
using decoder = coder<const std::byte>;

// ---- the hello: the first bytes of a connection, sent by the rank that connects -------------------------------------

/// Which rank connects, and to which. The group's id is random, so that a stray connection does not guess it.
struct peer_hello {
    std::uint64_t group = 0;
    std::int32_t from = 0, to = 0;             ///< ranks in that group
    std::uint64_t magic = 0x0a1a0d736c6c6f63;  // "colls" and bytes that no text has
    std::uint32_t version = 1, unused = 0;
    friend bool operator==(const peer_hello&, const peer_hello&) = default;
    static void pass(auto& h, auto& archive) { archive(h.magic, h.version, h.unused, h.group, h.from, h.to); }
    bool sound() const {
        const peer_hello ours{};
        return magic == ours.magic && version == ours.version && unused == 0 && from >= 0 && to >= 0 && from != to;
    }
};
inline constexpr std::size_t peer_hello_bytes = 32;

inline void encode(const peer_hello& h, std::byte* to) { encoder{to}(h); }
/// None: the sender is no rank of this library, or has another version of this protocol.
inline std::optional<peer_hello> parse_peer_hello(octets bytes) {
    if (bytes.size() < peer_hello_bytes) return {};
    peer_hello h;
    decoder in(bytes.data());
    in(h);
    return in.sound() ? std::optional(h) : std::nullopt;
}

// ---- frames: all bytes after the hello ------------------------------------------------------------------------------

enum class frame_kind : std::uint8_t {
    message = 1,  ///< followed by `bytes` of payload
    control = 2,  ///< followed by `text_bytes` of text
    welcome = 3   ///< first frame from the rank that was connected to: it has read the hello
};
struct frame {
    frame_kind kind = frame_kind::welcome;
    control_kind what{};  ///< control messages
    std::uint16_t text_bytes = 0;
    std::uint64_t number = 0;  ///< of the frame in its direction, from 0: shows a lost or repeated one
    std::uint64_t bytes = 0;   ///< messages
    message_label label{};
    std::uint64_t a = 0, b = 0, c = 0;  ///< control messages
    friend bool operator==(const frame&, const frame&) = default;
};
inline constexpr std::size_t frame_bytes = 48;
inline constexpr std::size_t most_text = 400;
inline constexpr std::uint32_t frame_magic = 0xf7a3e1c5;
inline constexpr std::uint64_t most_message = std::uint64_t{1} << 62;  // sums of sizes do not wrap

// Layout, in bytes: magic 4, kind 1, what 1, text_bytes 2, number 8; then 8 each: of a message bytes, fingerprint,
// sequence and part; of a control message a, b, c and 0.
inline void encode(const frame& f, std::byte* to) {
    const bool control = f.kind == frame_kind::control;
    put_little(to, frame_magic);
    to[4] = static_cast<std::byte>(f.kind);
    to[5] = static_cast<std::byte>(control ? f.what : control_kind{});
    put_little(to + 6, control ? f.text_bytes : std::uint16_t{0});
    put_little(to + 8, f.number);
    put_little(to + 16, control ? f.a : f.bytes);
    put_little(to + 24, control ? f.b : f.label.fingerprint);
    put_little(to + 32, control ? f.c : f.label.sequence);
    put_little(to + 40, control ? std::uint64_t{0} : f.label.part);
}
/// None: the bytes are no frame.
inline std::optional<frame> parse_frame(octets bytes) {
    if (bytes.size() < frame_bytes) return {};
    const std::byte* const p = bytes.data();
    const auto kind = std::to_integer<unsigned>(p[4]), what = std::to_integer<unsigned>(p[5]);
    const auto text = get_little<std::uint16_t>(p + 6);
    if (get_little<std::uint32_t>(p) != frame_magic) return {};
    const std::uint64_t w[4] = {get_little<std::uint64_t>(p + 16), get_little<std::uint64_t>(p + 24),
        get_little<std::uint64_t>(p + 32), get_little<std::uint64_t>(p + 40)};
    frame f;
    f.number = get_little<std::uint64_t>(p + 8);
    f.kind = static_cast<frame_kind>(kind);
    switch (f.kind) {
        case frame_kind::message:
            if (what != 0 || text != 0 || w[0] > most_message || w[3] > 0xffffffff) return {};
            f.bytes = w[0];
            f.label = {w[1], w[2], static_cast<std::uint32_t>(w[3])};
            return f;
        case frame_kind::control:
            if (what > static_cast<unsigned>(last_control_kind) || text > most_text || w[3] != 0) return {};
            f.what = static_cast<control_kind>(what);
            f.text_bytes = text;
            f.a = w[0], f.b = w[1], f.c = w[2];
            return f;
        case frame_kind::welcome:
            if (what != 0 || text != 0 || (w[0] | w[1] | w[2] | w[3]) != 0) return {};
            return f;
    }
    return {};
}

/// Copies the text of a control message, which will be printed on a terminal, and ends it with a 0.
inline void print(const std::byte* from, std::size_t bytes, char* to) {
    for (const std::byte b : octets(from, bytes)) {
        const auto c = std::to_integer<unsigned char>(b);
        *to++ = c < 0x20 || c == 0x7f ? ' ' : static_cast<char>(c);
    }
    *to = '\0';
}

/// The frame of a control message, which its text follows.
inline frame frame_of(const control_message& m) {
    std::uint16_t text = 0;  // counted by hand: g++ -O1 warns of strnlen where it sees a text that is shorter
    while (m.text && text < most_text && m.text[text]) ++text;
    return {.kind = frame_kind::control, .what = m.what, .text_bytes = text, .a = m.a, .b = m.b, .c = m.c};
}

/// A control message, encoded; by default a welcome.
struct control_frame {
    control_kind what{};
    std::size_t bytes = frame_bytes;
    std::byte data[frame_bytes + most_text];

    control_frame() { encode(frame{}, data); }
    explicit control_frame(const control_message& m) : what(m.what) {
        const frame f = frame_of(m);
        encode(f, data);
        if (f.text_bytes > 0) std::memcpy(data + frame_bytes, m.text, f.text_bytes);
        bytes += f.text_bytes;
    }
    /// Sets the frame's number, which is known only when the frame's connection has been chosen.
    void set_number(std::uint64_t n) { put_little(data + 8, n); }
};

}  // namespace colls::inline v1::detail
