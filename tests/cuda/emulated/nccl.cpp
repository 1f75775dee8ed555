// A stand-in for the part of NCCL that tests/cuda/protocols.cu uses: sums of floats, through the host. It is loaded in
// place of libnccl.so.2 where that program is emulated, so that the comparison has run once.
#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

namespace {

struct part {
    const void* in;
    void* out;
    std::size_t count;
    cudaStream_t stream;
};
std::vector<part> parts;  // of the group that is open

}  // namespace

extern "C" {

int ncclCommInitAll(void** comms, int count, const int* devices) {
    for (int r = 0; r < count; ++r) comms[r] = new int(devices[r]);
    return 0;
}
int ncclCommDestroy(void* comm) {
    delete static_cast<int*>(comm);
    return 0;
}
int ncclGroupStart() {
    parts.clear();
    return 0;
}
int ncclAllReduce(const void* in, void* out, std::size_t count, int type, int op, void*, cudaStream_t stream) {
    parts.push_back({in, out, count, stream});
    return type == 7 && op == 0 ? 0 : 5;
}
int ncclGroupEnd() {
    std::vector<float> sum, one;
    for (const part& p : parts) {
        if (cudaStreamSynchronize(p.stream) != cudaSuccess) return 1;
        sum.resize(p.count), one.resize(p.count);
        if (cudaMemcpy(one.data(), p.in, p.count * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
        for (std::size_t i = 0; i < p.count; ++i) sum[i] += one[i];
    }
    for (const part& p : parts)
        if (cudaMemcpy(p.out, sum.data(), p.count * sizeof(float), cudaMemcpyHostToDevice) != cudaSuccess) return 1;
    return 0;
}
}
