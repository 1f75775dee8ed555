// The core compiled by nvcc: every schedule of every family gives the same steps in a kernel as on the host.
#include <colls/algebra.hpp>
#include <colls/cost.hpp>
#include <colls/family.hpp>
#include <colls/operators.hpp>
#include <colls/schedule.hpp>
#include <colls/schedules.hpp>
#include <colls/types.hpp>
#include <colls/verify.hpp>

#include <cstdio>

using namespace colls;

namespace {

/// A hash of all that an executor asks of a schedule.
template <class S>
__host__ __device__ long long asked(const S& s, int rank, int n) {
    long long sum = blocks_of(s, n) + scratch_of(s, n) + root_of(s, n) + supports(s, n);
    for (int round = 0; round < s.rounds(n); ++round)
        for (int port = 0; port < ports_of(s, n); ++port) {
            const step st = step_of(s, rank, n, round, port);
            for (int i = 0; i < st.send.blocks.size(); ++i) sum = sum * 31 + st.send.blocks[i] + st.send.peer;
            for (int i = 0; i < st.recv.blocks.size(); ++i) sum = sum * 31 + st.recv.blocks[i] + st.recv.peer;
        }
    for (int slot = 0; slot < blocks_of(s, n); ++slot)
        if constexpr (implemented_by<S> == collective::all_to_all)
            sum = sum * 31 + input_of(s, rank, n, slot) + output_of(s, rank, n, slot);
        else if constexpr (owned(implemented_by<S>))
            sum = sum * 31 + home_of(s, n, slot);
    return sum;
}

template <class S>
__global__ void ask(S s, int n, long long* answers) {
    answers[threadIdx.x] = asked(s, static_cast<int>(threadIdx.x), n);
}

/// The number of ranks for which kernel and host differ; -1 where there is no device.
template <class S>
int differences(const S& s, int n, long long* answers) {
    ask<<<1, static_cast<unsigned>(n)>>>(s, n, answers);
    if (cudaDeviceSynchronize() != cudaSuccess) return -1;
    int different = 0;
    for (int rank = 0; rank < n; ++rank) different += answers[rank] != asked(s, rank, n);
    return different;
}

template <class F, collective... C>
int check_family(const F& f, long long* answers) {
    int worst = 0;
    const auto one = [&](const auto& s) {
        for (const int n : {1, 2, 8, 33})
            if (supports(s, n) && worst >= 0) {
                const int found = differences(s, n, answers);
                worst = found < 0 ? found : worst + found;
            }
    };
    (
        [&] {
            if constexpr (provides<F, C>) one(schedule_of<C>(f));
        }(),
        ...);
    return worst;
}

template <class F>
int check(const char* name, const F& f, long long* answers) {
    using enum collective;
    const int found = check_family<F, broadcast, scatter, gather, all_gather, reduce, reduce_scatter, all_reduce,
        all_to_all, barrier, inclusive_scan, exclusive_scan>(f, answers);
    if (found < 0) return std::printf("left out: no device answers\n"), 77;
    if (found > 0) return std::printf("%s: %d ranks differ\n", name, found), 1;
    return 0;
}

static_assert(proven<ring, 8>);
static_assert(proven<compose<ring::reduce_scatter, reversed<ring::reduce_scatter>>, 4>);
static_assert(cost_of<ring::reduce_scatter>(8).rounds == 7);

}  // namespace

int main() {
    long long* answers = nullptr;
    if (cudaMallocManaged(&answers, 64 * sizeof(long long)) != cudaSuccess)
        return std::printf("left out: no device answers\n"), 77;
    for (const int result : {
             check("ring", ring{}, answers),
             check("circulant", circulant<>{}, answers),
             check("halving_doubling", halving_doubling{}, answers),
             check("recursive_doubling", recursive_doubling{}, answers),
             check("tree", tree<3>{}, answers),
             check("double_tree", double_tree{}, answers),
             check("direct", direct{}, answers),
             check("bruck", bruck<>{}, answers),
             check("swing", swing{}, answers),
             check("pat", pat<2>{}, answers),
             check("pipelined_broadcast", pipelined_broadcast{}, answers),
             check("hierarchical", hierarchical<direct, ring>{.node = 2}, answers),
         })
        if (result) return result;
    cudaFree(answers);
    return 0;
}
