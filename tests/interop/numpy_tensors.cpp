// Calls on tensors that NumPy has exported by DLPack, for check_numpy.py. Each function takes over the tensor, and
// returns "" or the text of the error.
#include <colls/interop/dlpack.hpp>
#include <colls/transports/threads.hpp>

#include <string>

namespace interop = colls::interop;
namespace dynamic = colls::dynamic;

namespace {

std::string said;

template <class F>
const char* guarded(F f) {
    said.clear();
    try {
        colls::threads::run(1, f);
    } catch (const colls::error& e) {
        said = e.what();
    }
    return said.c_str();
}
interop::dlpack::owner take(void* managed, bool versioned) {
    if (versioned) return interop::dlpack::owner(static_cast<interop::dlpack::managed_tensor_versioned*>(managed));
    return interop::dlpack::owner(static_cast<interop::dlpack::managed_tensor*>(managed));
}

}  // namespace

/// Copies the elements, in the order of their indices, to `out`.
extern "C" const char* flatten(void* managed, bool versioned, void* out, std::size_t count) {
    return guarded([&](colls::communicator& comm) {
        const auto tensor = take(managed, versioned);
        const auto in = interop::strided(tensor.readable());
        dynamic::all_gather(comm, in, {out, count, dynamic::const_buffer(in).type});
    });
}
/// Doubles each element in place.
extern "C" const char* twice(void* managed, bool versioned) {
    return guarded([&](colls::communicator& comm) {
        const auto tensor = take(managed, versioned);
        dynamic::all_reduce(comm, interop::strided(tensor.writable()), dynamic::reduction::premul_sum(2));
    });
}
