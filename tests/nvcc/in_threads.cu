// Threads with a GPU each: a program that includes the headers alone, and none of what passes messages, links.
#include <colls/collectives.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/transports/threads.hpp>

#include <atomic>
#include <cstdio>

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        std::puts("left out: no device answers");
        return 77;
    }
    std::atomic<int> right{0};
    colls::threads::run(devices, [&](colls::communicator& comm) {
        colls::cuda::communicator gpus(comm, comm.rank());
        colls::cuda::memory<int> x = gpus.allocate<int>(1);
        cudaSetDevice(comm.rank());
        const int own = comm.rank() + 1;
        int sum = 0;
        cudaMemcpy(x.data(), &own, sizeof own, cudaMemcpyHostToDevice);
        colls::cuda::all_reduce(gpus, x, colls::sum, cudaStreamPerThread);
        cudaStreamSynchronize(cudaStreamPerThread);
        cudaMemcpy(&sum, x.data(), sizeof sum, cudaMemcpyDeviceToHost);
        right += sum == devices * (devices + 1) / 2;
    });
    std::printf("%d devices: %d right\n", devices, right.load());
    return right == devices ? 0 : 1;
}
