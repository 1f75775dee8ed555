// The kernels of a program, as the stand-in of the CUDA runtime sees them: their names, their parameters, and a call
// that runs a grid. Translated kernels (translate.py) register themselves before main.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace emulated {

class thread_context;  // machine.hpp

/// A PTX file: for messages.
struct module {
    struct line {
        unsigned ptx;
        const char* file;
        unsigned source;
    };
    const char* ptx = nullptr;  ///< its name
    std::vector<line> lines{};  ///< where source lines begin, by line of PTX
};

/// A kernel that translate.py has made from PTX.
struct kernel {
    const char* name = nullptr;  ///< the mangled name, as nvcc registers it
    /// One thread of the kernel. `arguments[i]` points to the i-th argument.
    void (*run)(thread_context&, unsigned char** arguments) = nullptr;
    std::vector<int> parameters;  ///< bytes of each parameter
    int shared_bytes = 0;         ///< static shared memory of a block
    int max_threads = 1024;       ///< of a block: __launch_bounds__, or what a device allows
    const module* from = nullptr;
};

/// A __device__ or __constant__ variable. Each device has its own.
struct variable {
    const char* name = nullptr;  ///< as in PTX
    std::size_t bytes = 0;
    const void* initial = nullptr;  ///< `bytes` bytes, or null: zeros
    bool is_constant = false;
};

struct dim {
    unsigned x = 1, y = 1, z = 1;
    std::size_t count() const { return std::size_t{x} * y * z; }
};

/// Registers a kernel or a variable: before main. A kernel that another source file has under the same name is the same
/// kernel.
void add_kernel(const kernel&);
void add_variable(const variable&);

/// Null if there is none.
const kernel* find_kernel(std::string_view name);

/// Where the variable is on `device`; null if there is none of this name. `bytes`, if not null, is set to its size.
void* find_variable(std::string_view name, int device, std::size_t* bytes = nullptr);

/// Room for the blocks of a grid that is not cooperative. The machine asks.
class block_room {
public:
    virtual ~block_room() = default;
    virtual bool take() = 0;  ///< for one more block; false: there is none now
    virtual void give() = 0;  ///< a block has ended
};

/// What is ordered before some work: accesses of grids. Null: nothing.
class view;  // ordering.hpp
using order = std::shared_ptr<const view>;
order both(const order&, const order&);

/// What the host has waited for. (Which of its threads has is not looked at.)
order host_order();
void host_learns(const order&);

/// Runs a grid to its end. `arguments` need to stay only until the call returns. May be called by several threads at
/// once: grids that run at the same time make progress together, in an order that EMULATED_SEED chooses. Blocks start
/// in any order, each as soon as `room` has some; null: all together, as a cooperative grid's do. Stops the program
/// with a message if the kernel breaks a rule (machine.hpp). Returns what is ordered before what comes after the grid.
order run_grid(const kernel&, unsigned char** arguments, dim grid, dim block, std::size_t dynamic_shared, int device,
    const order& before, block_room* room = nullptr);

}  // namespace emulated
