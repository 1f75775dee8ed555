// fold_elements, the pass over memory that kernels are made of: heads, tails and alignment, for all counts to 4,099 and
// all offsets to 15, of the destination and of each operand; that it loads nothing beside an operand; and how ranges
// are cut in slices and chunks.
#include "catch.hpp"

#include <colls/cuda/detail/kernel/host_thread_group.hpp>
#include <colls/cuda/detail/kernel/partition.hpp>

#include <cstring>
#include <utility>
#include <vector>

namespace {

namespace kernel = colls::cuda::detail;

/// One thread of a group whose other threads do not exist: a pass has no barrier. Counts its loads that are not
/// of one operand alone.
struct one_thread {
    int at, of;
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> operands;
    static inline std::size_t strays;
    int index() const { return at; }
    int size() const { return of; }
    kernel::quad load(const kernel::quad* from) const {
        const auto line = reinterpret_cast<std::uintptr_t>(from);
        bool holds = false;
        for (const auto& [begin, end] : operands) holds = holds || (line >= begin && line + 16 <= end);
        strays += !holds;
        return kernel::host_thread_group::load(from);
    }
    static void store(kernel::quad* to, const kernel::quad& q) { kernel::host_thread_group::store(to, q); }
};

struct pair_of_words {
    std::uint64_t a, b;
    friend pair_of_words operator+(const pair_of_words& x, const pair_of_words& y) { return {x.a + y.a, x.b + y.b}; }
    explicit operator std::uint8_t() const { return static_cast<std::uint8_t>(a ^ b); }
};
struct triple {
    std::uint32_t of[3];
    friend triple operator+(const triple& x, const triple& y) {
        return {{x.of[0] + y.of[0], x.of[1] + y.of[1], x.of[2] + y.of[2]}};
    }
};
struct plus {
    template <class T>
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a + b);
    }
};
/// To another type; depends on value and index.
struct spread {
    std::uint16_t operator()(const std::uint8_t& x, std::size_t i) const {
        return static_cast<std::uint16_t>(257 * x + i);
    }
};

constexpr std::size_t most = 4099;
constexpr int most_operands = 5;

template <class T>
class field {
public:
    field() : bytes_(most * sizeof(T) + 64) {}
    T* at(std::size_t offset) {
        const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
        return reinterpret_cast<T*>(bytes_.data() + (16 - address % 16) % 16 + 16 + offset);
    }
    std::vector<std::byte>& bytes() { return bytes_; }

private:
    std::vector<std::byte> bytes_;
};

template <class T, class D = T, class E = colls::cuda::no_epilogue>
std::size_t check_all(std::size_t step, const E& epilogue = {}) {
    field<T> in[most_operands];
    field<D> out, want;
    for (int f = 0; f < most_operands; ++f)
        for (std::size_t i = 0; i < in[f].bytes().size(); ++i)
            in[f].bytes()[i] = static_cast<std::byte>((i * 31 + i / 7 + static_cast<std::size_t>(f) * 101) & 0xff);
    std::size_t passes = 0, wrong = 0;
    one_thread::strays = 0;
    for (std::size_t count = 0; count <= most; ++count)
        for (std::size_t offset = 0; offset < 16; offset += step) {
            // All offsets alike, or, at every other count, each another.
            const std::size_t far = count % 2 == 0 ? 0 : 1 + count / 2 % 15;
            const bool copies = count % 7 == 0 && std::is_same_v<T, D>;
            const int k = copies ? 1 : 1 + static_cast<int>(count % 5);
            std::size_t offsets[most_operands];
            for (int o = 0; o < k; ++o)
                offsets[o] = (offset + step * far * static_cast<std::size_t>(k == 1 ? 1 : o)) % 16;
            const std::size_t target = offset * sizeof(D) / sizeof(T) % 16;
            kernel::operand x[most_operands];
            one_thread g{0, 1 + static_cast<int>(count % 6), {}};
            for (int o = 0; o < k; ++o) {
                const auto begin = reinterpret_cast<std::uintptr_t>(in[o].at(offsets[o]));
                x[o] = {in[o].at(offsets[o]), 0};
                g.operands.emplace_back(begin, begin + count * sizeof(T));
            }
            std::memset(out.bytes().data(), 0x5a, out.bytes().size());
            std::memset(want.bytes().data(), 0x5a, want.bytes().size());
            for (std::size_t i = 0; i < count; ++i) {
                T all;
                std::memcpy(&all, static_cast<const void*>(static_cast<const T*>(x[0].data) + i), sizeof(T));
                for (int o = 1; o < k; ++o) all = plus{}(all, static_cast<const T*>(x[o].data)[i]);
                if constexpr (std::is_same_v<E, colls::cuda::no_epilogue>)
                    want.at(target)[i] = all;
                else
                    want.at(target)[i] = epilogue(all, 5 + i);
            }
            const std::size_t shift =
                static_cast<std::size_t>(reinterpret_cast<std::byte*>(out.at(target)) - out.bytes().data());
            const std::size_t there =
                static_cast<std::size_t>(reinterpret_cast<std::byte*>(want.at(target)) - want.bytes().data());
            for (g.at = g.of - 1; g.at >= 0; --g.at)
                kernel::fold_elements<T, D>(
                    g, out.at(target), x, k, copies, static_cast<std::uint32_t>(count), plus{}, epilogue, 0, 5);
            // What was written, and 16 bytes on either side.
            wrong += std::memcmp(out.bytes().data() + shift - 16, want.bytes().data() + there - 16,
                         count * sizeof(D) + 32) != 0;
            ++passes;
        }
    CHECK(wrong == 0);
    CHECK(one_thread::strays == 0);
    return passes;
}

}  // namespace

TEST_CASE("fold_elements: every count and offset, with guard bytes intact", "[cuda]") {
    CHECK(check_all<std::uint8_t>(1) == 4100 * 16);
    CHECK(check_all<std::uint16_t>(2) == 4100 * 8);
    CHECK(check_all<std::uint32_t>(4) == 4100 * 4);
    CHECK(check_all<std::uint64_t>(8) == 4100 * 2);
    CHECK(check_all<pair_of_words>(8) == 4100 * 2);
    CHECK(check_all<triple>(4) == 4100 * 4);
    CHECK((check_all<std::uint8_t, std::uint16_t, spread>(1)) == 4100 * 16);
}

TEST_CASE("cut: slices and chunks cover a range exactly once", "[cuda]") {
    for (std::uint64_t count = 0; count <= most; count += count < 200 ? 1 : 61)
        for (const std::uint64_t slices : {1u, 2u, 3u, 7u, 16u})
            for (const std::uint64_t chunk : {16u, 48u, 1024u}) {
                const std::uint64_t chunks = kernel::chunks_needed(count, slices, chunk);
                std::vector<int> seen(static_cast<std::size_t>(count));
                for (std::uint64_t i = 0; i < slices; ++i)
                    for (std::uint64_t c = 0; c < chunks; ++c) {
                        const kernel::extent e = kernel::cut(count, slices, i, chunk, c);
                        REQUIRE(e.count <= chunk);
                        for (std::uint64_t j = e.first; j < e.first + e.count; ++j)
                            ++seen.at(static_cast<std::size_t>(j));
                    }
                for (const int times : seen) REQUIRE(times == 1);
            }
}

TEST_CASE("chunk_within: the longest chunk whose slot fits", "[cuda]") {
    for (const std::uint64_t element : {1u, 2u, 4u, 8u, 12u, 16u, 1000u})
        for (std::uint64_t bytes = 0; bytes < 70'000; bytes += 61) {
            const std::uint64_t chunk = kernel::chunk_within(bytes, element);
            REQUIRE(chunk % kernel::quantum == 0);
            REQUIRE((chunk == 0 || kernel::slot_bytes(chunk, element) <= bytes));
            REQUIRE(kernel::slot_bytes(chunk + kernel::quantum, element) > bytes);
        }
}
