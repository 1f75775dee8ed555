// Calls as senders of std::execution, where the standard library has them, or stdexec is in the include path.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude -isystem STDEXEC/include examples/senders.cpp -o senders
// Run:   ./senders
#include <colls/colls.hpp>
#include <colls/interop/sender.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#if COLLS_SENDERS
#if defined(__cpp_lib_senders)
namespace ex = std::execution;
#else
namespace ex = stdexec;
#endif

int main() {
    colls::threads::run(4, [](colls::communicator& comm) {
        std::vector<float> x(1000, 1);
        long samples = comm.rank();
        // example-begin senders
        auto sum = colls::interop::as_sender([&] { return colls::start::all_reduce(comm, x, colls::sum); });
        auto count = colls::interop::as_sender(
            [&] { return colls::start::all_reduce(comm, std::span(&samples, 1), colls::sum); });
        auto mean = ex::when_all(sum, count) | ex::then([&] { return x[0] / static_cast<float>(samples); });
        const float result = std::get<0>(*colls::interop::sync_wait(mean));  // both calls are in flight at once
        // example-end
        if (samples != 6 || x[999] != 4) throw std::runtime_error("the sums are others");
        if (comm.rank() == 0) std::printf("%ld samples, mean %.3f\n", samples, result);
    });
}
#else
int main() { std::puts("left out: no senders in the standard library, and no stdexec in the include path"); }
#endif
