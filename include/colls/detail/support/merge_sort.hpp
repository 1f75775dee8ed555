// A stable sort of a list that compiles fast: <algorithm> costs a unit more than all of planning.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/support/list.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// Sorts by `before(a, b)`; elements of which neither is before the other keep their order. `spare` is overwritten.
template <class T, class F>
void merge_sort(list<T>& all, list<T>& spare, F before) {
    const std::size_t size = all.size();
    for (std::size_t run = 1; run < size; run *= 2) {
        spare.clear();
        for (std::size_t from = 0; from < size; from += 2 * run) {
            std::size_t a = from, b = from + run;
            const std::size_t middle = b < size ? b : size, end = b + run < size ? b + run : size;
            while (a < middle || b < end)
                spare.push_back(b >= end || (a < middle && !before(all[b], all[a])) ? all[a++] : all[b++]);
        }
        std::swap(all, spare);
    }
}

}  // namespace colls::inline v1::detail
