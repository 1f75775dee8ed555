// An array with one element for each rank of a range, for element types that cannot be copied (list).
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>
#include <memory>

namespace colls::inline v1::detail {

template <class T>
class per_rank {
public:
    /// For the `count` ranks from `first` on.
    explicit per_rank(int count, int first = 0) : all_(new T[static_cast<std::size_t>(count)]()), first_(first) {}

    T& operator[](int rank) { return all_[static_cast<std::size_t>(rank - first_)]; }
    const T& operator[](int rank) const { return all_[static_cast<std::size_t>(rank - first_)]; }

private:
    std::unique_ptr<T[]> all_;
    int first_;
};

}  // namespace colls::inline v1::detail
