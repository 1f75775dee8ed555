// What unit.cpp has, in namespace `plain` or `other`. Numbers are passed as bytes.
#pragma once

#include <cstddef>

struct sums {
    void* at_hand;      // of each element the sum of all ranks' addends, as ranks make it that have all of them
    void* by_integers;  // the same, as ranks make it that send integers
    void* of_array;     // one sum: of everything
};
enum kind { floats, doubles, bfloat16s, halfs, kinds };
/// x[r * count + i] is rank r's addend of element i.
using sum_function = void(kind, const void* x, int ranks, std::size_t count, const sums& made);
/// The double next to the sum of a[i] * b[i].
using product_function = void(const float* a, const float* b, std::size_t count, double* one_by_one, double* together);

namespace plain {
sum_function sum;
product_function multiply;
}  // namespace plain
namespace other {
sum_function sum;
product_function multiply;
}  // namespace other
