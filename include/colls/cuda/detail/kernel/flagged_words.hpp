// Words of 8 bytes that two ranks exchange without fences: 4 bytes of data, and 4 of flag, which is the call's number.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A word is stored and loaded at once, so a word that has the flag has the data (NCCL's protocol LL does this).
//
// In each call every rank writes a first word to every rank, with the call's fingerprint. So two sets of words, used
// alternately, are enough: a rank that writes a set again has received, in the call between, a word that the set's
// owner sent after it had read the set.
#pragma once

#include <colls/cuda/detail/kernel/wait_for_peer.hpp>

namespace colls::inline v1::cuda::detail {

/// The least common multiple.
constexpr std::uint64_t common_multiple(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a, y = b;
    while (y != 0) {
        const std::uint64_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b;
}

/// The flag of the call after `calls` others. 0 is of words that were never written. After the last flag comes 2, so
/// that the parity goes on alternating.
constexpr std::uint32_t flag_after(std::uint32_t calls) { return calls + 1 == 0 ? 2 : calls + 1; }

constexpr std::uint64_t flagged(std::uint32_t flag, std::uint32_t data) { return std::uint64_t{flag} << 32 | data; }
constexpr bool has_flag(std::uint64_t word, std::uint32_t flag) {
    return static_cast<std::uint32_t>(word >> 32) == flag;
}

/// Waits until the word at `at`, last seen as `w`, has the flag; false: the rank has given up.
template <class G>
COLLS_DEVICE bool wait_for_word(
    G& g, int channel, int from, std::uint32_t flag, const std::uint64_t* at, std::uint64_t& w) {
    backoff<G> pauses;
    while (!has_flag(w, flag)) {
        if (!pauses.pause(g, channel, from, none)) return false;
        w = g.relaxed(at);
    }
    return true;
}

constexpr std::uint32_t short_fingerprint(const kernel_call& call) {
    return static_cast<std::uint32_t>(call.fingerprint ^ call.fingerprint >> 32);
}

/// Checks that all ranks make the same call: first_word(r) is where rank r writes its first word. By the last threads,
/// which have the fewest words to receive. A rank that waits for words which a rank in another call does not send ends
/// its wait when it sees that rank's poison word.
template <class G, class FirstWord>
COLLS_DEVICE bool compare_calls(G& g, int channel, std::uint32_t flag, const FirstWord& first_word) {
    const std::uint32_t mine = short_fingerprint(g.state().call);
    COLLS_ROLLED
    for (int r = g.size() - 1 - g.index(); r < g.state().self.sizes.ranks; r += g.size()) {
        const std::uint64_t* const at = first_word(r);
        std::uint64_t theirs = g.relaxed(at);
        if (!wait_for_word(g, channel, r, flag, at, theirs)) return false;
        if (static_cast<std::uint32_t>(theirs) == mine) continue;
        give_up(g, channel, failure::mismatch, r, none, static_cast<std::uint32_t>(theirs));
        return false;
    }
    return true;
}

/// Flags repeat after 2^32 calls. Is this one of the last two calls before, or of the first two?
constexpr bool is_near_wraparound(std::uint32_t flag) { return flag + 2 <= 4; }

/// At the end of a call near the wraparound. The last two calls before it clear the words that they have read, or words
/// of 2^32 calls ago would pass for new ones. No rank writes there before it has received a word of this rank in a
/// later call; the fences on both sides order that after the clearing.
template <class G>
COLLS_DEVICE void clear_before_wraparound(G& g, std::uint32_t flag, std::uint64_t* words, std::uint64_t count) {
    if (flag > 2) {
        COLLS_ROLLED
        for (auto i = static_cast<std::uint64_t>(g.index()); i < count; i += static_cast<std::uint64_t>(g.size()))
            g.put(words + i, 0);
    }
    g.fence();
    g.any(false);
}

}  // namespace colls::inline v1::cuda::detail
