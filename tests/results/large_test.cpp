// Buffers of more than 2^31 elements: counts and offsets are 64 bits wide everywhere.
#include "catch.hpp"

#include "support/batch.hpp"

#include <cstdint>
#include <memory>

using namespace support;

namespace {

/// Memory that has not been initialised: pages that a test does not use cost nothing.
template <class T>
std::unique_ptr<T[]> untouched(std::size_t count) {
    return std::unique_ptr<T[]>(new T[count]);
}
std::uint8_t value_at(std::size_t i, int rank) {
    return static_cast<std::uint8_t>(i * 31 + (i >> 16) + static_cast<std::size_t>(rank) * 3);
}

}  // namespace

TEST_CASE("buffers of more than 2^31 elements: results are right to the last element", "[large]") {
    if (sanitized) return;
    constexpr std::size_t count = (std::size_t{1} << 31) + 12'347;
    std::atomic<std::size_t> wrong{0};
    SECTION("all_reduce in place, by the library's choice and by ring") {
        for (const int turn : {0, 1}) {
            colls::threads::run(2, [&](auto& comm) {
                const auto memory = untouched<std::uint8_t>(count);
                const std::span<std::uint8_t> data(memory.get(), count);
                for (std::size_t i = 0; i < count; ++i) data[i] = value_at(i, comm.rank());
                if (turn == 0)
                    colls::all_reduce(comm, data, colls::sum);
                else
                    colls::all_reduce<colls::ring>(comm, data, colls::bit_xor);
                for (std::size_t i = 0; i < count; ++i) {
                    const std::uint8_t a = value_at(i, 0), b = value_at(i, 1);
                    if (data[i] != static_cast<std::uint8_t>(turn == 0 ? a + b : a ^ b)) ++wrong;
                }
            });
            CHECK(wrong == 0);
        }
    }
    SECTION("broadcast") {
        colls::threads::run(2, [&](auto& comm) {
            const auto memory = untouched<std::uint8_t>(count);
            const std::span<std::uint8_t> data(memory.get(), count);
            if (comm.rank() == 1)
                for (std::size_t i = 0; i < count; ++i) data[i] = value_at(i, 5);
            colls::broadcast(comm, data, 1);
            for (std::size_t i = 0; i < count; ++i)
                if (data[i] != value_at(i, 5)) ++wrong;
        });
        CHECK(wrong == 0);
    }
    SECTION("all_gather_v in place, all but a few elements from one rank") {
        colls::threads::run(2, [&](auto& comm) {
            const auto memory = untouched<std::uint8_t>(count);
            const std::span<std::uint8_t> data(memory.get(), count);
            const std::vector<std::size_t> counts = {count - 5, 5};
            const auto own = comm.rank() == 0 ? data.first(count - 5) : data.last(5);
            const std::size_t first = comm.rank() == 0 ? 0 : count - 5;
            for (std::size_t i = 0; i < own.size(); ++i) own[i] = value_at(first + i, 1);
            colls::all_gather_v(comm, own, data, counts);
            for (std::size_t i = 0; i < count; ++i)
                if (data[i] != value_at(i, 1)) ++wrong;
        });
        CHECK(wrong == 0);
    }
    SECTION("send and receive") {
        colls::threads::run(2, [&](auto& comm) {
            const auto memory = untouched<std::uint8_t>(count);
            const std::span<std::uint8_t> data(memory.get(), count);
            if (comm.rank() == 0) {
                for (std::size_t i = 0; i < count; ++i) data[i] = value_at(i, 9);
                colls::send(comm, data, 1);
            } else {
                colls::recv(comm, data, 0);
                for (std::size_t i = 0; i < count; ++i)
                    if (data[i] != value_at(i, 9)) ++wrong;
            }
        });
        CHECK(wrong == 0);
    }
}
