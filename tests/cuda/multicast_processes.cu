// Multicast memory (NVLS) of processes that have a device each: all_reduce by it against a serial reference, awkward
// counts and alignments, several chunks, in place and not, parts of the group, calls of other protocols in between, and
// ranks that do not agree. Where a group cannot have it, it goes without, or is refused in words where the options name
// the protocol. Arguments: the number of ranks; then `with`; `without` and the reason, of processes that see one
// device, `hosts` and the reason, of several hosts, or `fault`, the reason, a rank, and the call of the driver that
// fails there; `killed`: a rank ends in a call. Without any: as many ranks as there are devices, whatever they have.
#include "devices.hpp"
#include "multicast.hpp"

#include <colls/colls.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/transports/shm.hpp>
#include <colls/world.hpp>

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The emulator says whether this process has given everything back.
[[gnu::weak]] bool emulated_gave_all_back();

namespace {

using multicast_test::contribution, multicast_test::options;

using colls::errc;
using colls::cuda::protocol;
using colls::cuda::detail::check;
namespace detail = colls::cuda::detail;

[[noreturn]] void wrong(const std::string& what) {
    throw colls::error(errc::invalid_argument, ("wrong: " + what).c_str());
}

template <class T, class Op>
T folded(const Op& op, const std::vector<int>& ranks, std::size_t i) {
    T x = contribution<T>(static_cast<std::size_t>(ranks[0]), i);
    for (std::size_t r = 1; r < ranks.size(); ++r) x = op(x, contribution<T>(static_cast<std::size_t>(ranks[r]), i));
    return x;
}

/// `members`: the ranks of the group, as rank() of the whole group numbers them.
template <class S = colls::direct, class T, class Op>
void reduces(colls::cuda::communicator& gpu, const std::vector<int>& members, std::size_t count, const Op& op,
    bool in_place = false, std::size_t offset = 0) {
    const int own = members[static_cast<std::size_t>(gpu.rank())];
    const std::size_t room = count + 32;
    const detail::private_stream stream(gpu.device());
    std::vector<T> x(room, T(77)), y(room, T(77));
    for (std::size_t i = 0; i < count; ++i) x[8 + offset + i] = contribution<T>(static_cast<std::size_t>(own), i);
    const detail::device_memory from(gpu.device(), room * sizeof(T), x.data()),
        to(gpu.device(), room * sizeof(T), y.data());
    T* const in = reinterpret_cast<T*>(from.data()) + 8 + offset;
    T* const out = in_place ? in : reinterpret_cast<T*>(to.data()) + 8 + offset % 3;
    if (in_place)
        colls::cuda::all_reduce<S>(gpu, std::span<T>(in, count), op, stream.get());
    else
        colls::cuda::all_reduce<S>(gpu, std::span<const T>(in, count), std::span<T>(out, count), op, stream.get());
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    gpu.check();
    check(cudaMemcpy(in_place ? x.data() : y.data(), in_place ? from.data() : to.data(), room * sizeof(T),
              cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    const std::vector<T>& got = in_place ? x : y;
    const std::size_t begin = 8 + (in_place ? offset : offset % 3);
    for (std::size_t i = 0; i < room; ++i) {
        const bool inside = i >= begin && i < begin + count;
        if (got[i] != (inside ? folded<T>(op, members, i - begin) : T(77)))
            wrong(std::to_string(count) + " elements of " + std::to_string(sizeof(T)) + " bytes, on rank " +
                  std::to_string(own) + ": element " + std::to_string(i));
    }
}

/// Calls `f`, which has to fail; on one rank at least with `code`, and with `text` on all.
template <class F>
void throws(colls::communicator& host, errc code, const char* text, const F& f) {
    int same = 0;
    try {
        f();
        wrong(std::string("no error that says: ") + text);
    } catch (const colls::error& e) {
        if (std::string_view(e.what()).find(text) == std::string_view::npos) wrong(e.what());
        same = e.code() == code;
    }
    colls::all_reduce(host, std::span<int>(&same, 1), colls::sum);
    if (same == 0) wrong(std::string("no rank has that code, whose text says: ") + text);
}

struct rank_test {
    colls::communicator& host;
    const int device;
    std::vector<int> everyone{};

    void with() {
        for (const protocol p : {protocol::multicast, protocol::automatic}) {
            colls::cuda::communicator gpu(host, device, options(p));
            if (!gpu.multicast()) wrong("the group has no multicast memory");
            for (const std::size_t count : {0, 1, 7, 1000, 4'099})
                reduces<colls::direct, float>(gpu, everyone, count, colls::sum);
            reduces<colls::direct, float>(gpu, everyone, 999, colls::sum, true, 3);
            if (p != protocol::multicast) continue;
            for (const std::size_t count : {3, 30'011})
                reduces<colls::direct, std::int64_t>(gpu, everyone, count, colls::max, count == 3, 1);
            if (host.size() > 2) {
                const int half = host.rank() % 2;
                colls::cuda::communicator part = gpu.split(half, -host.rank());
                std::vector<int> members;
                for (int r = host.size() - 1; r >= 0; --r)
                    if (r % 2 == half) members.push_back(r);
                if (part.multicast() != (members.size() > 1)) wrong("a part of the group");
                reduces<colls::direct, std::int32_t>(part, members, 777, colls::bit_xor);
                reduces<colls::direct, double>(gpu, everyone, 501, colls::sum);
            }
        }
        {
            colls::cuda::options o = options(protocol::multicast);
            o.multicast_bytes = 64 << 10;
            o.scratch_bytes = 1 << 16;
            colls::cuda::communicator gpu(host, device, o);
            for (const std::size_t count : {20'000, 30'011}) {
                reduces<colls::direct, float>(gpu, everyone, count, colls::sum);
                // A call by a schedule between calls by the switch, which does not have the operator.
                reduces<colls::ring, std::int64_t>(gpu, everyone, 1'000, colls::prod);
            }
        }
        colls::cuda::options other = options(protocol::multicast);
        if (host.rank() == 1) other.multicast_bytes = 5'000;
        throws(
            host, errc::invalid_argument, "different options", [&] { colls::cuda::communicator(host, device, other); });
        if (host.rank() == 1) other = options(protocol::automatic), other.multicast = false;
        throws(
            host, errc::invalid_argument, "different options", [&] { colls::cuda::communicator(host, device, other); });
        other = options(protocol::multicast);
        other.share_devices = true;
        throws(host, errc::unsupported, "share a device", [&] { colls::cuda::communicator(host, 0, other); });
        other.protocol = protocol::automatic;
        if (colls::cuda::communicator(host, 0, other).multicast()) wrong("multicast memory of one device");
    }
    void without(const char* reason) {
        {
            colls::cuda::options o = options(protocol::automatic);
            o.scratch_bytes = 1 << 16;
            colls::cuda::communicator gpu(host, device, o);
            if (gpu.multicast()) wrong("the group has multicast memory");
            reduces<colls::direct, float>(gpu, everyone, 4'099, colls::sum);
        }
        const std::string why =
            std::string("options.protocol is multicast, and the group has no multicast memory: ") + reason;
        throws(host, errc::unsupported, why.c_str(),
            [&] { colls::cuda::communicator(host, device, options(protocol::multicast)); });
    }
    /// The last rank ends in a call: the others hear of it, and free nothing that its kernel might still use.
    void killed() {
        colls::cuda::communicator gpu(host, device, options(protocol::multicast));
        reduces<colls::direct, float>(gpu, everyone, 4'099, colls::sum);
        if (host.rank() == host.size() - 1) raise(SIGKILL);
        try {
            reduces<colls::direct, float>(gpu, everyone, 4'099, colls::sum);
        } catch (const colls::error& e) {
            if (e.code() == errc::peer_failed && e.peer() == host.size() - 1) return;
            wrong(e.what());
        }
        wrong("a call without a rank that has ended");
    }
};

}  // namespace

int main(int argc, char** argv) {
    const int devices = devices_of_machine(), n = argc > 1 ? std::atoi(argv[1]) : std::min(devices, 8);
    const std::string how = argc > 2 ? argv[2] : "";
    if (devices < 2) return std::printf("left out: there are less than two GPUs\n"), 77;
    try {
        colls::processes::run(n, [&](auto& comm) {
            // A process sees its own device alone, or all of them.
            const std::string own = std::to_string(comm.rank());
            const bool alone = how == "without" || how == "killed";
            if (alone) setenv("CUDA_VISIBLE_DEVICES", own.c_str(), 1);
            if (how == "hosts") setenv("COLLS_HOST", comm.rank() == 0 ? "a" : "b", 1);
            if (how == "fault" && comm.rank() == std::atoi(argv[4])) setenv("EMULATED_FAIL", argv[5], 1);
            rank_test test{comm, alone ? 0 : comm.rank()};
            for (int r = 0; r < comm.size(); ++r) test.everyone.push_back(r);
            if (how == "killed") return test.killed();
            bool has = how == "with";
            if (how.empty())
                has = colls::cuda::communicator(comm, test.device, options(protocol::automatic)).multicast();
            has ? test.with() : test.without(argc > 3 ? argv[3] : "");
            if (emulated_gave_all_back != nullptr && !emulated_gave_all_back()) wrong("something is left");
        });
    } catch (const std::exception& e) {
        const std::string_view text = e.what();
        if (how == "killed" && text.find("wrong") == std::string_view::npos) return 0;
        return std::printf("%s\n", e.what()), 1;
    }
    return how == "killed";
}
