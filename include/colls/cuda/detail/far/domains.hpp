// Which ranks reach each other's memory.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/options.hpp>

#include <vector>

namespace colls::inline v1::cuda::detail {

/// Divides ranks into domains of at most max_ranks, in each of which near(a, b) for all a < b: a rank joins the first
/// one that it fits. Returns, for each rank, the lowest one of its domain.
template <class Near>
std::vector<int> domains_of(int ranks, const Near& near) {
    std::vector<int> all, members;  // members[q]: of the domain whose lowest rank is q
    const auto of = [&](int r) -> int& { return all[static_cast<std::size_t>(r)]; };
    for (int r = 0; r < ranks; ++r) {
        all.push_back(r);
        members.push_back(1);
        for (int q = 0; q < r && of(r) == r; ++q) {
            int& count = members[static_cast<std::size_t>(q)];
            bool fits = of(q) == q && count < max_ranks;
            for (int p = q; p < r && fits; ++p) fits = of(p) != q || near(p, r);
            if (fits) of(r) = q, ++count;
        }
    }
    return all;
}

}  // namespace colls::inline v1::cuda::detail
