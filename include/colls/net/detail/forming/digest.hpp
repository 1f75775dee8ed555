// SHA-256 (FIPS 180-4) and its keyed form, HMAC (RFC 2104): for the few records of a rendezvous, not for data.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/config.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace colls::inline v1::detail {

using digest = std::array<std::byte, 32>;

class sha256 {
public:
    sha256& add(std::span<const std::byte> text) {
        for (const std::byte b : text) {
            block_[bytes_++ % 64] = b;
            if (bytes_ % 64 == 0) compress();
        }
        return *this;
    }
    /// The digest of all bytes added. Nothing can be added after it.
    [[gnu::cold]] digest finish() {
        const std::uint64_t bits = bytes_ * 8;
        const auto put = [this](std::uint64_t byte) {
            const std::byte b{static_cast<unsigned char>(byte)};
            add({&b, 1});
        };
        put(0x80);
        while (bytes_ % 64 != 56) put(0);
        for (int i = 56; i >= 0; i -= 8) put(bits >> i);
        digest d;
        for (std::size_t i = 0; i < 32; ++i)
            d[i] = std::byte{static_cast<unsigned char>(state_[i / 4] >> (24 - i % 4 * 8))};
        return d;
    }

private:
    [[gnu::cold]] void compress() {
        // The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
        static constexpr std::uint32_t constants[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
            0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
            0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc,
            0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1,
            0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
            0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814,
            0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        std::uint32_t w[64] = {};
        for (std::size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | std::to_integer<std::uint32_t>(block_[i]);
        for (std::size_t i = 16; i < 64; ++i) {
            const std::uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
                   (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
        }
        std::array<std::uint32_t, 8> s = state_;
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
            const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
            const std::uint32_t t =
                s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) + choice + constants[i] + w[i];
            const std::uint32_t u = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) + majority;
            s = {t + u, s[0], s[1], s[2], s[3] + t, s[4], s[5], s[6]};
        }
        for (std::size_t i = 0; i < 8; ++i) state_[i] += s[i];
    }

    std::array<std::uint32_t, 8> state_{
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{};
    std::uint64_t bytes_ = 0;
};

/// HMAC-SHA-256 of a text, given as consecutive pieces, with `key`.
[[gnu::cold]] inline digest keyed_digest(
    std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> text) {
    std::array<std::byte, 64> inner{}, outer{};
    const digest short_key = sha256().add(key).finish();
    const auto bytes = key.size() > 64 ? std::span<const std::byte>(short_key) : key;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::byte k = i < bytes.size() ? bytes[i] : std::byte{};
        inner[i] = k ^ std::byte{0x36};
        outer[i] = k ^ std::byte{0x5c};
    }
    sha256 sum;
    sum.add(inner);
    for (const auto piece : text) sum.add(piece);
    return sha256().add(outer).add(sum.finish()).finish();
}

/// Compares in constant time, so that the time taken does not tell where they differ.
inline bool same(const digest& a, const digest& b) {
    std::byte difference{};
    for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
    return difference == std::byte{};
}

}  // namespace colls::inline v1::detail
