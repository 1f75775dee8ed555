// LightGBM's network over colls: the two functions that LGBM_NetworkInitWithFunctions takes. It includes nothing of
// LightGBM; its types are those of meta.h of LightGBM 4.
//
//   colls_lightgbm_use(comm, 1);
//   LGBM_NetworkInitWithFunctions(size, rank, colls_lightgbm_reduce_scatter, colls_lightgbm_all_gather);
//
// Both are called by the thread that trains, outside of LightGBM's parallel regions. An error is an exception, which
// LightGBM's interface of C turns into its own error, with the same text.
#include <colls.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace {

/// Adds `bytes` bytes of elements to others, or takes their minimum, ...: one of LightGBM's functions.
using reduce_function = void (*)(const char* in, char* inout, int element, std::int32_t bytes);

struct network {
    colls_comm comm = nullptr;
    int rank = 0, size = 0;
    bool in_order_of_sockets = false;
    colls_op op = COLLS_SUM;
    // State of the call under way.
    reduce_function reduce = nullptr;
    int given_element = 0;
    std::size_t element = 0;
};
// LightGBM has one network a thread, too.
thread_local network current;
thread_local std::vector<std::size_t> counts, displacements;

void check(colls_status status) {
    if (status != COLLS_OK) throw std::runtime_error(colls_error_text());
}

void fold(const void* in, void* inout, std::size_t count, void* context) {
    const auto& n = *static_cast<const network*>(context);
    n.reduce(static_cast<const char*>(in), static_cast<char*>(inout), n.given_element,
        static_cast<std::int32_t>(count * n.element));
}

/// Sets counts and displacements, in elements of so many bytes.
void set_blocks(const std::int32_t* start, const std::int32_t* length, int blocks, std::size_t element) {
    if (blocks != current.size)
        throw std::runtime_error(
            "colls: LightGBM has another number of machines than the communicator has ranks: call "
            "colls_lightgbm_use with that of LGBM_NetworkInitWithFunctions");
    counts.resize(static_cast<std::size_t>(blocks));
    displacements.resize(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
        counts[i] = static_cast<std::size_t>(length[i]) / element;
        displacements[i] = static_cast<std::size_t>(start[i]) / element;
    }
}

/// Its functions for histograms of small integers take two elements, a gradient and a hessian, at a time: a block must
/// not be cut between them.
std::size_t element_of(const std::int32_t* start, const std::int32_t* length, int blocks, int element) {
    for (int i = 0; i < blocks; ++i)
        if (start[i] % (2 * element) != 0 || length[i] % (2 * element) != 0) return static_cast<std::size_t>(element);
    return 2 * static_cast<std::size_t>(element);
}

}  // namespace

extern "C" {

/// Says over which communicator this thread's LightGBM works; it must live until LGBM_NetworkFree.
/// `in_order_of_sockets` (0 or 1): histograms are summed in the order in which LightGBM sums them over its own sockets,
/// if the number of ranks is a power of two, so that models are the same; else by the schedule that colls chooses.
COLLS_API colls_status colls_lightgbm_use(colls_comm comm, int in_order_of_sockets) {
    network n;
    colls_status status = colls_rank(comm, &n.rank);
    if (status == COLLS_OK) status = colls_size(comm, &n.size);
    if (status == COLLS_OK) status = colls_op_function(&fold, &current, 1, "LightGBM", &n.op);
    if (status != COLLS_OK) return status;
    n.comm = comm;
    n.in_order_of_sockets = in_order_of_sockets != 0 && (n.size & (n.size - 1)) == 0;
    colls_op_free(&current.op);
    current = n;
    return COLLS_OK;
}

/// A ReduceScatterFunction. Lengths are in bytes.
COLLS_API void colls_lightgbm_reduce_scatter(char* input, std::int32_t input_size, int element,
    const std::int32_t* block_start, const std::int32_t* block_length, int blocks, char* output, std::int32_t,
    const reduce_function& reduce) {
    current.reduce = reduce;
    current.given_element = element;
    current.element = element_of(block_start, block_length, blocks, element);
    set_blocks(block_start, block_length, blocks, current.element);
    colls_options options = COLLS_OPTIONS_INIT;
    if (current.in_order_of_sockets && current.size > 1) options.schedule = "halving_doubling";
    check(colls_reduce_scatter_v(current.comm, input, static_cast<std::size_t>(input_size) / current.element, output,
        counts[static_cast<std::size_t>(current.rank)], counts.data(), displacements.data(),
        colls_bytes(current.element), current.op, &options));
}

/// An AllgatherFunction. The input may be the beginning of the output.
COLLS_API void colls_lightgbm_all_gather(char* input, std::int32_t input_size, const std::int32_t* block_start,
    const std::int32_t* block_length, int blocks, char* output, std::int32_t output_size) {
    set_blocks(block_start, block_length, blocks, 1);
    char* const own = output + block_start[current.rank];
    std::memmove(own, input, static_cast<std::size_t>(input_size));
    check(colls_all_gather_v(current.comm, own, static_cast<std::size_t>(input_size), output,
        static_cast<std::size_t>(output_size), counts.data(), displacements.data(), COLLS_BYTES, nullptr));
}
}
