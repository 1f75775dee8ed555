// A schedule (or family, or mapping) as a part of a combinator, and its steps rewritten for the combination: peers
// renamed, blocks cut and moved.
// IWYU pragma: private, include <colls/algebra.hpp>
#pragma once

#include <colls/step.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1::detail {

/// A part of a combinator, as a base class of it: takes no room where the part has no state. (Not a member with
/// [[no_unique_address]]: nvcc 13.0 cannot pass a type with such members to a kernel.) I tells parts of one type apart.
template <class T, int I = 0>
struct part {
    T value{};
    constexpr part() = default;
    constexpr part(const T& v) : value(v) {}
    constexpr const T& get() const { return value; }
};
template <class T, int I>
    requires(std::is_empty_v<T> && std::default_initializable<T>)
struct part<T, I> {
    constexpr part() = default;
    constexpr part(const T&) {}
    constexpr T get() const { return {}; }
};

/// The group sizes at which a combinator checks its parts against one another when it is compiled.
inline constexpr int least_checked = 2, most_checked = 8;

/// The step with its peers renamed by `rank_of` and its blocks rewritten by `blocks_of`.
template <class RankOf, class BlocksOf>
constexpr step moved(step s, const RankOf& rank_of, const BlocksOf& blocks_of) {
    if (s.send.peer != none) s.send = {rank_of(s.send.peer), blocks_of(s.send.blocks)};
    if (s.recv.peer != none) s.recv = {rank_of(s.recv.peer), blocks_of(s.recv.blocks), s.recv.action};
    return s;
}
struct same_ranks {
    constexpr int operator()(int rank) const { return rank; }
};
struct same_blocks {
    constexpr block_set operator()(const block_set& b) const { return b; }
};
/// Each block cut into `cut`, then all moved by `by`.
struct recut {
    int cut = 1, by = 0;
    constexpr block_set operator()(const block_set& b) const { return b.refined(cut).offset(by); }
};

constexpr int larger(int a, int b) { return a > b ? a : b; }
/// Into how many each block must be cut for a schedule of `blocks` blocks to run on `common` of them.
constexpr int cut_to(int common, int blocks) { return blocks > 0 ? common / blocks : 1; }

}  // namespace colls::inline v1::detail
