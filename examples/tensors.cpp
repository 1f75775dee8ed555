// Matrices of other libraries as buffers: a view like std::mdspan, and a tensor that comes by DLPack.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/tensors.cpp -o tensors
// Run:   ./tensors
#include <colls/colls.hpp>
#include <colls/interop/dlpack.hpp>
#include <colls/interop/mdspan.hpp>
#include <colls/transports/threads.hpp>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace interop = colls::interop;
namespace dynamic = colls::dynamic;

namespace {

// example-begin view
/// A matrix whose rows or columns may be apart: what std::mdspan with layout_stride is, where the standard library has
/// none. Any class with these members is a buffer.
struct matrix_view {
    using element_type = float;
    using reference = float&;
    float* data;
    std::size_t extents[2], strides[2];

    static constexpr std::size_t rank() { return 2; }
    std::size_t extent(std::size_t d) const { return extents[d]; }
    std::size_t stride(std::size_t d) const { return strides[d]; }
    float* data_handle() const { return data; }
    static constexpr bool is_always_strided() { return true; }
    bool is_strided() const { return true; }
    bool is_unique() const { return strides[0] != 0 && strides[1] != 0; }
    bool is_exhaustive() const {
        return extents[0] * extents[1] == 1 + (extents[0] - 1) * strides[0] + (extents[1] - 1) * strides[1];
    }
};
// example-end

/// A matrix of another library: 4 x 6, row by row.
struct other_library {
    std::vector<float> data;
    std::int64_t shape[2] = {4, 6};
    interop::dlpack::managed_tensor exported{};
    explicit other_library(float value) : data(24, value) {}
    interop::dlpack::managed_tensor* to_dlpack() {
        namespace dlpack = interop::dlpack;
        exported.dl_tensor = {
            data.data(), {dlpack::device_type::cpu, 0}, 2, {dlpack::type_code::floating, 32, 1}, shape, nullptr, 0};
        return &exported;
    }
};

}  // namespace

int main() {
    colls::threads::run(3, [](colls::communicator& comm) {
        // example-begin mdspan
        std::vector<float> memory(24, static_cast<float>(comm.rank()));
        const matrix_view whole{memory.data(), {4, 6}, {6, 1}};  // four rows of six
        const matrix_view even{memory.data(), {4, 3}, {6, 2}};   // its columns 0, 2 and 4
        colls::all_reduce(comm, interop::elements(whole), colls::max);
        dynamic::all_reduce(comm, interop::strided(even), dynamic::op::sum);
        // example-end
        if (memory[0] != 6 || memory[1] != 2) throw std::runtime_error("the sums are others");

        other_library matrix(static_cast<float>(comm.rank()));
        // example-begin dlpack
        const interop::dlpack::owner tensor(matrix.to_dlpack());  // calls the tensor's deleter at its end
        dynamic::all_reduce(comm, interop::strided(tensor.writable()), dynamic::op::avg);
        colls::broadcast(comm, interop::elements<float>(tensor.writable()), 0);
        // example-end
        if (matrix.data[23] != 1) throw std::runtime_error("the mean is another");
        if (comm.rank() == 0)
            std::printf("even columns: %g, odd ones: %g, mean: %g\n", memory[0], memory[1], matrix.data[0]);
    });
}
