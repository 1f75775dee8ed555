// The blocks of a v-call of dynamic.hpp: how long they are, and where they begin.
#pragma once

#include <colls/config.hpp>

#include <concepts>
#include <cstddef>

namespace colls::inline v1 {
namespace dynamic {

/// A contiguous range of std::size_t.
template <class R>
concept size_range = requires(const R& r) {
    { r.data() } -> std::convertible_to<const std::size_t*>;
    { r.size() } -> std::convertible_to<std::size_t>;
};

/// The lengths of n blocks in elements, and where they begin in the buffer: contiguous ranges of std::size_t, to which
/// it refers.
///
/// Without displacements the blocks follow each other and are all of the buffer. With them, `{counts, displacements}`,
/// block i begins at element displacements[i]; in any order, with gaps, which a call neither reads nor writes. The
/// buffer's count is that of the elements in which the blocks lie. Blocks that are read may overlap; those that are
/// written must not.
class count_list {
public:
    /// No counts.
    constexpr count_list() = default;
    /// The `size` counts from `data` on.
    constexpr count_list(const std::size_t* data, std::size_t size) : data_(data), size_(size) {}
    /// The counts of a range.
    template <size_range Range>
    constexpr count_list(const Range& range) : data_(range.data()), size_(range.size()) {}
    /// The counts of a range, with displacements, one for each.
    template <size_range Counts, size_range Displacements>
    constexpr count_list(const Counts& counts, const Displacements& displacements)
        : data_(counts.data()),
          size_(counts.size()),
          displacements_(displacements.data()),
          displaced_(displacements.size()),
          is_displaced_(true) {}

    /// The first count.
    constexpr const std::size_t* data() const { return data_; }
    /// How many there are.
    constexpr std::size_t size() const { return size_; }
    /// Are there displacements?
    constexpr bool is_displaced() const { return is_displaced_; }
    /// The first displacement.
    constexpr const std::size_t* displacements() const { return displacements_; }
    /// How many there are.
    constexpr std::size_t displaced() const { return displaced_; }

private:
    const std::size_t* data_ = nullptr;
    std::size_t size_ = 0;
    const std::size_t* displacements_ = nullptr;
    std::size_t displaced_ = 0;
    bool is_displaced_ = false;
};

}  // namespace dynamic
}  // namespace colls::inline v1
