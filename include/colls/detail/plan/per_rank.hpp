// An array with one element for each rank, for element types that cannot be copied (list).
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>
#include <memory>

namespace colls::inline v1::detail {

template <class T>
class per_rank {
public:
    explicit per_rank(int size) : all_(new T[static_cast<std::size_t>(size)]) {}

    T& operator[](int rank) { return all_[static_cast<std::size_t>(rank)]; }
    const T& operator[](int rank) const { return all_[static_cast<std::size_t>(rank)]; }

private:
    std::unique_ptr<T[]> all_;
};

}  // namespace colls::inline v1::detail
