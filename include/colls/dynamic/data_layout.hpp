// Where the elements of a buffer lie, for the calls of dynamic.hpp: in blocks at equal distances, in blocks at given
// offsets, or in blocks of blocks.
//
//   const data_layout column = data_layout::vector(rows, 1, columns).with_extent(1);  // of a matrix, row by row
//   dynamic::all_gather(comm, {&a[0][2], 1, type::float64, &column}, {&b[0][0], n, type::float64, &column});
//
// To a call, a buffer with a layout is the sequence of its elements, in the order in which the layout names them. What
// a call says of blocks, counts and displacements is about that sequence; and other ranks may describe the same
// sequence in another way, or have it in a row.
#pragma once

#include <colls/detail/support/list.hpp>
#include <colls/dynamic/detail/declarations.hpp>

#include <concepts>
#include <cstddef>

namespace colls::inline v1 {
namespace dynamic {

/// What the numbers of a layout count.
enum class unit : unsigned char {
    elements,  ///< elements of the buffer's type
    bytes      ///< bytes; each block is as long as some number of elements
};

/// Blocks of memory in the order in which a call takes them, and the extent after which they repeat: a buffer with this
/// layout has `count` repetitions. Offsets are from the buffer's `data` on, and none is negative.
///
/// The blocks of an input may overlap. Those of an output must not, or the call is refused.
class data_layout {
public:
    /// One block of `length` units. The extent is the length.
    static data_layout contiguous(std::size_t length, unit in = unit::elements);
    /// `blocks` blocks of `length` units; each begins `stride` units after the one before. The extent is from the first
    /// unit to the end of the last one, as MPI_Type_vector has it.
    static data_layout vector(std::size_t blocks, std::size_t length, std::size_t stride, unit in = unit::elements);
    /// Block i begins at `offsets[i]` and has `lengths[i]` units; both are contiguous ranges of std::size_t of one
    /// length, or else this throws invalid_argument. In any order; the extent ends after the farthest unit.
    template <class Offsets, class Lengths>
        requires requires(const Offsets& o, const Lengths& l) {
            { o.data() } -> std::convertible_to<const std::size_t*>;
            { l.data() } -> std::convertible_to<const std::size_t*>;
        }
    static data_layout indexed(const Offsets& offsets, const Lengths& lengths, unit in = unit::elements) {
        return indexed(offsets.data(), offsets.size(), lengths.data(), lengths.size(), in);
    }

    data_layout(data_layout&&) noexcept = default;
    /// Takes memory for the blocks of a layout that is not a vector.
    data_layout(const data_layout& other);
    data_layout& operator=(data_layout&&) noexcept = default;
    data_layout& operator=(const data_layout& other);
    ~data_layout() = default;

    /// This layout `times` times, each `stride` units after the one before: rows of a plane, planes of a cube. The
    /// extent is from the first repetition's beginning to the last one's end. Takes memory for each block of a layout
    /// that is not a vector.
    data_layout repeated(std::size_t times, std::size_t stride) const;
    /// The same blocks with another extent, shorter ones too: with extent 1 the columns of a matrix follow each other.
    data_layout with_extent(std::size_t extent) const;

    /// Units in all blocks.
    std::size_t size() const { return size_; }
    /// Units from one repetition to the next.
    std::size_t extent() const { return extent_; }
    /// What the numbers count.
    unit counts_in() const { return unit_; }

private:
    friend class colls::detail::element_sequence;
    explicit data_layout(unit in) : unit_(in) {}
    static data_layout indexed(
        const std::size_t* offsets, std::size_t given, const std::size_t* lengths, std::size_t count, unit in);

    colls::detail::list<colls::detail::strided_blocks> blocks_;
    std::size_t size_ = 0, extent_ = 0;
    unit unit_;
};

}  // namespace dynamic
}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/dynamic/detail/data_layouts.hpp>
#endif
