// What each error looks like: six mistakes, one for each code, and the text that rank 0 gets. After the first three the
// group goes on; after the others it is broken.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/errors.cpp -o errors
// Run:   ./errors
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

const char* name_of(colls::errc code) {
    constexpr const char* names[] = {
        "", "invalid_argument", "unsupported", "wrong_schedule", "mismatch", "timeout", "peer_failed"};
    return names[static_cast<int>(code)];
}

/// A reduce to rank 0 that loses the contributions of ranks 2, 3, ...
struct forgetful_reduce {
    static constexpr colls::collective implements = colls::collective::reduce;
    static constexpr int rounds(int) { return 1; }
    static constexpr colls::step at(int rank, int, int) {
        if (rank == 1) return {.send = {0, colls::block(0)}};
        if (rank == 0) return {.recv = {1, colls::block(0), colls::action::reduce}};
        return {};
    }
};

/// Runs `mistake` on n ranks. Returns whether rank 0 had an error of that code, whose text it prints.
template <class F>
bool shows(int n, colls::errc expected, F mistake) {
    bool seen = false;
    try {
        colls::threads::run(n, [&](colls::communicator& comm) {
            try {
                mistake(comm);
            } catch (const colls::error& e) {
                if (comm.rank() == 0) {
                    seen = e.code() == expected;
                    std::printf("%s\n    %s\n", name_of(e.code()), e.what());
                }
            }
        });
    } catch (const colls::error&) {  // where a rank has left a broken group
    }
    return seen;
}

}  // namespace

int main() {
    setenv("COLLS_TIMEOUT", "1", 1);  // seconds; 300 where it is not set
    bool right = true;

    // example-begin own
    right &= shows(3, colls::errc::invalid_argument, [](colls::communicator& comm) {
        std::vector<float> x(100);
        colls::broadcast(comm, x, 3);  // ranks are 0, 1 and 2
    });
    right &= shows(3, colls::errc::unsupported, [](colls::communicator& comm) {
        std::vector<float> x(100);
        colls::all_reduce<colls::halving_doubling>(comm, x, colls::sum);  // for powers of two
    });
    right &= shows(3, colls::errc::wrong_schedule, [](colls::communicator& comm) {
        std::vector<float> x(100);
        colls::reduce<forgetful_reduce>(comm, x, x, colls::sum, 0);  // loses rank 2's contribution
    });
    // example-end
    // example-begin others
    right &= shows(2, colls::errc::mismatch, [](colls::communicator& comm) {
        std::vector<float> x(comm.rank() == 1 ? 99 : 100);
        colls::all_reduce(comm, x, colls::sum);
    });
    right &= shows(2, colls::errc::timeout, [](colls::communicator& comm) {
        std::vector<float> x(100);
        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));  // longer than COLLS_TIMEOUT
        colls::all_reduce(comm, x, colls::sum);
    });
    right &= shows(2, colls::errc::peer_failed, [](colls::communicator& comm) {
        std::vector<float> x(100);
        if (comm.rank() == 1) comm.abort("the data of rank 1 are damaged");
        colls::all_reduce(comm, x, colls::sum);
    });
    // example-end
    return right ? 0 : 1;
}
