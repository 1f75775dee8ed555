// On a GPU: two processes through CUDA IPC: memory from allocate and other memory, messages, ranks with different
// counts, a rank that makes no call, one that leaves. The processes share the GPU by time slices, so that times mean
// nothing here.
#include "devices.hpp"
#include "messages.hpp"

#include <colls/colls.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/transports/shm.hpp>

#include <cstdio>
#include <span>
#include <vector>

namespace {

using colls::cuda::detail::check;

[[noreturn]] void wrong(const char* what) { throw colls::error(colls::errc::invalid_argument, what); }

/// Checks sums over the ranks in the given device memory, by the ring and on the eager path.
void sums(colls::cuda::communicator& gpu, float* at, std::size_t count, cudaStream_t stream) {
    std::vector<float> host(count);
    for (const std::size_t elements : {std::size_t{5}, count}) {
        for (std::size_t i = 0; i < elements; ++i)
            host[i] = static_cast<float>(i % 50 + static_cast<std::size_t>(gpu.rank()));
        check(cudaMemcpyAsync(at, host.data(), elements * sizeof(float), cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
        colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(at, elements), colls::sum, stream);
        check(cudaMemcpyAsync(host.data(), at, elements * sizeof(float), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        gpu.check();
        for (std::size_t i = 0; i < elements; ++i)
            if (host[i] != static_cast<float>(2 * (i % 50) + 1)) wrong("a sum over two processes");
    }
}

template <class F>
void expect_error(colls::cuda::communicator& gpu, colls::errc code, const char* what, const F& call) {
    call();
    check(cudaDeviceSynchronize(), what);
    try {
        gpu.check();
    } catch (const colls::error& e) {
        if (e.code() != code || e.peer() != 1 - gpu.rank()) wrong(what);
        if (gpu.rank() == 0) std::printf("%s: %s\n", what, e.what());
        return;
    }
    wrong(what);
}

void rank_main(colls::communicator& host) {
    constexpr std::size_t count = 300'007;
    cudaStream_t stream = nullptr;
    {
        colls::cuda::communicator gpu(host, 0, {.channels = 4, .share_devices = true});
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        const std::size_t exported =
            (gpu.context().sizes().bytes() + 255) / 256 * 256 + gpu.context().reachable().exported.bytes;
        if (exported % (2 << 20) != 0) wrong("exported memory that is no multiple of 2 MiB");
        const auto of_group = gpu.allocate<float>(count);
        sums(gpu, of_group.data(), count, stream);
        const colls::cuda::detail::device_memory other(0, count * sizeof(float));
        sums(gpu, reinterpret_cast<float*>(other.data()), count, stream);
        sums(gpu, host.rank() == 0 ? of_group.data() : reinterpret_cast<float*>(other.data()), count, stream);
        if (host.rank() == 0) std::printf("two processes: sums are right\n");
    }
    {
        colls::cuda::communicator gpu(host, 0, {.channels = 3, .scratch_bytes = 64 << 10, .share_devices = true});
        int bad = 0;
        for (std::size_t round = 0; round < 4; ++round) {
            message_test::part messages(
                gpu, stream, round, message_test::plan_of(2, round, round < 2 ? 9'000 : 90'000), round % 2 == 0);
            messages.issue();
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            gpu.check();
            message_test::counted_part counted(gpu, stream, round);
            counted.issue();
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            gpu.check();
            bad += messages.wrong() + counted.wrong();
        }
        if (bad != 0) wrong("messages between two processes");
        if (host.rank() == 0) std::printf("two processes: messages are right\n");
    }
    {
        colls::cuda::communicator gpu(host, 0, {.channels = 4, .share_devices = true});
        const auto x = gpu.allocate<float>(count);
        const std::size_t mine = host.rank() == 0 ? count : count - 1;
        expect_error(gpu, colls::errc::mismatch, "counts that differ",
            [&] { colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(x.data(), mine), colls::sum, stream); });
    }
    {
        colls::cuda::communicator gpu(host, 0, {.channels = 4, .share_devices = true, .timeout = 3});
        const auto x = gpu.allocate<float>(count);
        if (host.rank() == 0)
            expect_error(gpu, colls::errc::timeout, "a rank that does not come", [&] {
                colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(x.data(), count), colls::sum, stream);
            });
        colls::barrier(host);  // until here, both have their communicators
    }
    {
        colls::cuda::communicator gpu(host, 0, {.channels = 4, .share_devices = true, .timeout = 60});
        const auto x = gpu.allocate<float>(count);
        if (host.rank() == 0)
            expect_error(gpu, colls::errc::peer_failed, "a rank that leaves the group", [&] {
                colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(x.data(), count), colls::sum, stream);
            });
    }
    cudaStreamDestroy(stream);
}

}  // namespace

int main() {
    if (devices_of_machine() == 0) return std::printf("left out: there is no GPU\n"), 77;
    try {
        colls::processes::run(2, [](auto& comm) { rank_main(comm); });
    } catch (const std::exception& e) {
        return std::printf("%s\n", e.what()), 1;
    }
    return 0;
}
