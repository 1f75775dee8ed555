// What the tests of multicast memory have in common.
#pragma once

#include <colls/transports/cuda.hpp>

#include <cstddef>
#include <type_traits>

namespace multicast_test {

/// What a rank contributes: small, so that sums of all types are exact, with all bits set at times in integers.
template <class T>
T contribution(std::size_t rank, std::size_t i) {
    const auto x = static_cast<int>((i * 7 + rank * 13) % 50) - 20;
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(x) * (i % 3 == 0 ? static_cast<T>(0x01010101) : T{1});
    else
        return static_cast<T>(static_cast<float>(x));
}

/// Two blocks a rank; 1 KB of multicast memory each, so that calls have several chunks; no scratch memory for
/// schedules: a call that is not eager succeeds by the switch only.
inline colls::cuda::options options(colls::cuda::protocol p) {
    colls::cuda::options o;
    o.channels = 2;
    o.protocol = p;
    o.multicast = true;
    o.multicast_bytes = 1000;
    o.scratch_bytes = 128;
    o.packet_bytes = 0;
    o.small_bytes = 64;
    o.timeout = 60;
    return o;
}

}  // namespace multicast_test
