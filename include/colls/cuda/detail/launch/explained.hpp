// What cuda/explain.hpp asks of a group whose calls it explains.
// IWYU pragma: private, include <colls/cuda/explain.hpp>
#pragma once

#include <colls/cuda/detail/launch/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace colls::inline v1::cuda::detail {

/// f.operator()<C>() for the collective C that is `what`.
template <class F, int... C>
void for_collective(collective what, const F& f, std::integer_sequence<int, C...>) {
    static_cast<void>(
        ((what == static_cast<collective>(C) && (f.template operator()<static_cast<collective>(C)>(), true)) || ...));
}
template <class F>
void for_collective(collective what, const F& f) {
    for_collective(what, f, std::make_integer_sequence<int, collective_count>{});
}
/// Is such a call eager, whatever is chosen?
inline bool is_eager(const local_ranks& ranks, collective what, std::size_t bytes) {
    const auto blocks = static_cast<std::size_t>(sends_blocks(what) ? ranks.size() : 1);
    std::int32_t channels = 1;
    return hops_if_eager<unsigned char>(ranks, what, (bytes + blocks - 1) / blocks, channels) != 0;
}

}  // namespace colls::inline v1::cuda::detail
