// Arrays of counts and displacements, which MPI's functions take as int, and from MPI 4 on also as MPI_Count and
// MPI_Aint.
#pragma once

#include <colls/mpi/detail/mpi_header.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace colls_mpi {

/// An array of the program's, of integers of either size. It does not know its length.
class numbers {
public:
    template <std::signed_integral T>
    numbers(const T* first) : first_(first), large_(sizeof(T) == 8) {  // as an argument of a call
        static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    }
    bool is_null() const { return first_ == nullptr; }
    bool is_same_array(const numbers& other) const { return first_ == other.first_; }
    MPI_Count operator[](int i) const {
        return large_ ? static_cast<MPI_Count>(read<std::int64_t>(i)) : MPI_Count{read<std::int32_t>(i)};
    }

private:
    // By its size: MPI_Count may be another type than that of <cstdint>.
    template <class T>
    T read(int i) const {
        T x;
        std::memcpy(&x, static_cast<const std::byte*>(first_) + static_cast<std::size_t>(i) * sizeof x, sizeof x);
        return x;
    }

    const void* first_;
    bool large_;
};

/// The counts of `size` ranks are there, and none is below 0.
inline bool are_counts(const numbers& counts, int size) {
    if (counts.is_null()) return false;
    for (int i = 0; i < size; ++i)
        if (counts[i] < 0) return false;
    return true;
}

}  // namespace colls_mpi
