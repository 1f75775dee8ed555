// Messages of 3 GB, and calls of more than 2^31 elements, between two processes over shared memory and TCP. Takes 7 GB
// of memory and half a minute. Not part of the suite: build target colls_large_messages, then
//     build/test/tests/large_messages [shm|tcp|verbs ...]
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>

#include <sys/mman.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

/// Ordinary memory of one rank.
class bytes {
public:
    bytes(std::size_t size)
        : size_(size),
          at_(static_cast<unsigned char*>(
              mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
        if (at_ == MAP_FAILED) throw std::runtime_error("no memory");
    }
    ~bytes() { munmap(at_, size_); }
    bytes(const bytes&) = delete;
    bytes& operator=(const bytes&) = delete;
    unsigned char* data() { return at_; }
    const unsigned char* data() const { return at_; }
    std::size_t size() const { return size_; }

private:
    std::size_t size_;
    unsigned char* at_;
};

/// The value of byte i, which shows bytes that are lost, doubled or moved.
unsigned char value(std::size_t i, int turn) {
    return static_cast<unsigned char>((i * 0x9e3779b97f4a7c15u >> 56) + static_cast<std::size_t>(turn));
}
/// Calls f(i) for one byte a page, for the end, and around byte 2^31: checking all would take too long.
template <class F>
void at_some(std::size_t size, F f) {
    for (std::size_t i = 0; i < size; i += 4093) f(i);
    for (std::size_t i = size - 8192; i < size; ++i) f(i);
    for (std::size_t i = (std::size_t{1} << 31) - 100; i < (std::size_t{1} << 31) + 100 && i < size; ++i) f(i);
}
void fill(bytes& b, int turn) {
    at_some(b.size(), [&](std::size_t i) { b.data()[i] = value(i, turn); });
}
void check(const bytes& b, int turn, const char* what) {
    std::size_t wrong = 0;
    at_some(b.size(), [&](std::size_t i) { wrong += b.data()[i] != value(i, turn); });
    if (wrong > 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(wrong) + " bytes are wrong");
}

void rank(colls::communicator& comm) {
    auto report = [&, from = std::chrono::steady_clock::now()](const char* what) mutable {
        const auto now = std::chrono::steady_clock::now();
        if (comm.rank() == 0) std::printf("  %-44s %6.1f s\n", what, std::chrono::duration<double>(now - from).count());
        std::fflush(stdout);
        from = now;
    };
    constexpr std::size_t three = 3'000'000'007, more = (std::size_t{1} << 31) + 12'345;
    {
        bytes b(three);
        if (comm.rank() == 0) {
            fill(b, 1);
            colls::send(comm, b, 1);
        } else {
            colls::recv(comm, b, 0);
            check(b, 1, "send");
        }
        report("send and recv of 3,000,000,007 bytes");
    }
    {
        bytes b(more);
        if (comm.rank() == 1) fill(b, 2);
        colls::broadcast(comm, b, 1);
        check(b, 2, "broadcast");
        report("broadcast of 2^31 + 12,345 elements");
        at_some(b.size(), [&](std::size_t i) { b.data()[i] = static_cast<unsigned char>(value(i, 3) / 2); });
        colls::all_reduce<colls::ring>(comm, b, colls::sum);
        std::size_t wrong = 0;
        at_some(b.size(), [&](std::size_t i) { wrong += b.data()[i] != value(i, 3) / 2 * 2; });
        if (wrong > 0) throw std::runtime_error("all_reduce: " + std::to_string(wrong) + " bytes are wrong");
        report("all_reduce (ring) of as many, in place");
    }
}

}  // namespace

int main(int count, char** names) {
    std::vector<std::string> transports(names + 1, names + count);
    if (transports.empty()) transports = {"shm", "tcp"};
    int failed = 0;
    for (const std::string& transport : transports) {
        std::printf("%s\n", transport.c_str());
        std::fflush(stdout);
        setenv("COLLS_TRANSPORT", transport.c_str(), 1);
        try {
            colls::processes::run(2, rank);
        } catch (const std::exception& e) {
            std::printf("  failed: %s\n", e.what());
            ++failed;
        }
    }
    return failed == 0 ? 0 : 1;
}
