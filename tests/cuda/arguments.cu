// Calls that are refused before anything is launched, as far as that needs no GPU: sizes that do not fit, buffers that
// overlap, wrong schedules, and a machine without a device. Prints each error's text. With a GPU also what two threads
// find that launch, or abort, at the same time.
#include <colls/cuda/device.hpp>
#include <colls/schedules/halving_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using colls::collective;
using colls::errc;
using namespace colls::cuda::detail;

int failed = 0;

template <class F>
void refused(errc code, const char* what, const F& f, const char* says = "") {
    try {
        f();
    } catch (const colls::error& e) {
        const bool right = e.code() == code && std::strstr(e.what(), says) != nullptr;
        if (!right) ++failed;
        std::printf("%s%s: %s\n", right ? "" : "wrong: ", what, e.what());
        return;
    }
    ++failed;
    std::printf("not refused: %s\n", what);
}
template <class F>
void accepted(const char* what, const F& f) {
    try {
        f();
    } catch (const colls::error& e) {
        ++failed;
        std::printf("refused: %s: %s\n", what, e.what());
    }
}

/// A ring without its last round: sends and receives match, results are incomplete.
struct cut_ring : colls::ring::reduce_scatter {
    static constexpr int rounds(int n) { return n - 2; }
};
/// A send without a receive.
struct lone_sender {
    static constexpr collective implements = collective::broadcast;
    static constexpr int rounds(int) { return 1; }
    static constexpr colls::step at(int rank, int n, int) {
        return rank == 0 ? colls::step{.send = {n - 1, colls::block(0)}} : colls::step{};
    }
};
/// A receive without a send.
struct lone_receiver : lone_sender {
    static constexpr colls::step at(int rank, int n, int) {
        return rank == n - 1 ? colls::step{.recv = {0, colls::block(0), colls::action::copy}} : colls::step{};
    }
};

__global__ void __launch_bounds__(256) narrow(int) {}

void launches() {
    colls::cuda::virtual_ranks ranks(2);
    const auto check = [&](int blocks, int threads) { colls::cuda::check_launch(ranks, narrow, blocks, threads); };
    accepted("a kernel that fits", [&] { check(2, 256); });
    refused(
        errc::unsupported, "a kernel of too many threads", [&] { check(2, 512); },
        "has at most 256: declare it __launch_bounds__(512)");
    refused(errc::unsupported, "too many blocks", [&] { check(1'000'000, 256); }, "1000000 are to be resident at once");
    for (const int threads : {0, 100, 544})
        refused(
            errc::invalid_argument, "blocks that calls do not take", [&] { check(2, threads); }, "a multiple of 32");
}

void overlaps() {
    alignas(16) static float x[64];
    const auto buffers = [](int in, std::size_t in_count, int out, std::size_t out_count) {
        return rank_buffers{x + in, x + out, in_count, out_count};
    };
    const auto check = [](collective what, const rank_buffers& b, std::uint64_t first = 0, std::size_t size_out = 4) {
        check_overlap(what, 1, b, 4, size_out, first);
    };
    using enum collective;
    accepted("buffers apart from each other", [&] { check(all_reduce, buffers(0, 32, 32, 32)); });
    accepted("in place", [&] { check(all_reduce, buffers(0, 32, 0, 32)); });
    accepted("empty buffers", [&] { check(all_reduce, buffers(0, 0, 0, 0)); });
    accepted("an input that is the rank's block of the output", [&] { check(all_gather, buffers(8, 8, 0, 32), 8); });
    accepted(
        "an output that is the rank's block of the input", [&] { check(reduce_scatter, buffers(0, 32, 8, 8), 8); });
    refused(errc::invalid_argument, "an output one element behind the input",
        [&] { check(all_reduce, buffers(0, 32, 1, 32)); });
    refused(
        errc::invalid_argument, "an overlap of one element", [&] { check(inclusive_scan, buffers(31, 32, 0, 32)); });
    refused(errc::invalid_argument, "an input that is the block of another rank in the output",
        [&] { check(all_gather, buffers(0, 8, 0, 32), 8); });
    refused(errc::invalid_argument, "an output that is the block of another rank in the input",
        [&] { check(reduce_scatter, buffers(0, 32, 16, 8), 8); });
    refused(errc::invalid_argument, "all_to_all in place", [&] { check(all_to_all, buffers(0, 32, 0, 32)); });
    refused(errc::invalid_argument, "in place with narrower elements in the output",
        [&] { check(all_reduce, buffers(0, 32, 0, 32), 0, 2); });
}

void counts() {
    const auto whole = [](collective what, std::size_t in, std::size_t out, int root = 0,
                           std::vector<std::uint64_t> offsets = {}) {
        return whole_count(what, {nullptr, nullptr, in, out}, 1, 4, root, offsets);
    };
    using enum collective;
    accepted("sizes that fit", [&] {
        if (whole(all_reduce, 7, 7) != 7 || whole(all_gather, 2, 7) != 7 || whole(reduce_scatter, 7, 2) != 7 ||
            whole(gather, 3, 0) != 12 || whole(scatter, 0, 3) != 12 || whole(reduce, 5, 0) != 5 ||
            whole(all_gather, 5, 9, 0, {0, 1, 6, 6, 9}) != 9)
            ++failed, std::printf("wrong counts\n");
    });
    refused(errc::invalid_argument, "all_reduce into a smaller output", [&] { whole(all_reduce, 7, 6); });
    refused(errc::invalid_argument, "all_gather of a block of the wrong size", [&] { whole(all_gather, 1, 7); });
    refused(errc::invalid_argument, "reduce into a smaller output at the root", [&] { whole(reduce, 5, 4, 1); });
    refused(errc::invalid_argument, "all_to_all of a size that n does not divide", [&] { whole(all_to_all, 7, 7); });
    refused(errc::invalid_argument, "counts of too few ranks", [&] { whole(all_gather, 5, 6, 0, {0, 1, 6}); });
    refused(errc::invalid_argument, "counts that do not add up", [&] { whole(all_gather, 5, 10, 0, {0, 1, 6, 6, 9}); });
}

/// A copy within a lane of messages is at most as long as 32 bits can say, however much scratch memory there is.
void staged_pieces() {
    message_list list;
    list.sends = list.lanes = list.hidden = 1;
    for (const std::uint64_t scratch : {std::uint64_t{1} << 33, std::uint64_t{1} << 40})
        if (list.staged_bytes(scratch) == 0 || list.staged_bytes(scratch) > ~std::uint32_t{0})
            ++failed, std::printf("wrong: a copy of 2^32 bytes or more\n");
    if (list.staged_bytes(4096) != 2048) ++failed, std::printf("wrong: half of scratch memory\n");
}

/// Launches of two threads, of which the device holds one at a time: room that one has found is taken, before it has
/// launched. They are on two streams, or each on the stream of its thread, which has one handle in all threads.
void room_of_two_threads() {
    check(cudaSetDevice(0), "cudaSetDevice");
    const resident_group a(0, 0.6), b(0, 0.6);
    device_residency& room = device_residency::of(0);
    const auto expect = [](bool right, const char* what) {
        if (!right) ++failed, std::printf("wrong: %s\n", what);
    };
    const auto found_by_another = [&](cudaStream_t stream) {
        bool found = false;
        std::thread other([&] {
            cudaSetDevice(0);
            found = room.fits(stream, 0.6, &b) == device_residency::answer::fits;
            room.launched(stream, &b);
            cudaStreamSynchronize(stream);
        });
        other.join();
        return found;
    };
    cudaStream_t second = nullptr;
    check(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (const cudaStream_t theirs : {second, cudaStreamPerThread}) {
        expect(room.fits(cudaStreamPerThread, 0.6, &a) == device_residency::answer::fits, "room for a launch");
        expect(!found_by_another(theirs), "room that another thread is about to take");
        room.launched(cudaStreamPerThread, &a);
        check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
        expect(found_by_another(theirs), "room after another thread's launch");
    }
    cudaStreamDestroy(second);
}

/// A rank that hears of an abort may overwrite its buffers at once: the kernels of other ranks are told before.
void abort_of_another_thread() {
    std::vector<colls::cuda::communicator> gpu;
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    int early = 0;
    for (int i = 0; i < 40; ++i) {
        gpu = colls::cuda::communicator::of_devices({0}, {.channels = 1, .scratch_bytes = 4096});
        rank_handle h;
        std::uint32_t* poison = nullptr;
        check(cudaMemcpy(&h, gpu[0].context().handles(), sizeof h, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(&poison, h.workspaces, sizeof poison, cudaMemcpyDeviceToHost), "cudaMemcpy");
        std::thread other([&] { gpu[0].abort("enough"); });
        for (bool heard = false; !heard;) try {
                gpu[0].check();
            } catch (const colls::error&) {
                heard = true;
            }
        std::uint32_t word = 0;
        check(cudaMemcpyAsync(&word, poison, sizeof word, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        early += word == 0;
        other.join();
    }
    cudaStreamDestroy(stream);
    if (early != 0) ++failed, std::printf("wrong: %d aborts were heard before the other ranks were told\n", early);
}

}  // namespace

int main() {
    overlaps();
    counts();
    staged_pieces();
    accepted("the ring", [] { proven_slot_map(colls::ring::reduce_scatter{}, 5); });
    refused(errc::wrong_schedule, "a ring that ends too early", [] { proven_slot_map(cut_ring{}, 5); });
    refused(errc::wrong_schedule, "a send without a receive", [] { proven_slot_map(lone_sender{}, 3); });
    refused(errc::wrong_schedule, "a receive without a send", [] { proven_slot_map(lone_receiver{}, 3); });
    refused(
        errc::unsupported, "a group size that a schedule does not support",
        [] { proven_slot_map(colls::halving_doubling::reduce_scatter{}, 6); },
        "colls: cuda: reduce_scatter by halving_doubling::reduce_scatter at 6 ranks: the schedule does not support");
    refused(errc::unsupported, "1025 ranks", [] { proven_slot_map(colls::ring::reduce_scatter{}, 1025); });
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        refused(errc::unsupported, "ranks without a device", [] { colls::cuda::virtual_ranks(2); });
        refused(errc::unsupported, "devices that do not exist", [] { colls::cuda::communicator::of_devices({0, 1}); });
    }
    if (devices > 0) {
        launches();
        room_of_two_threads();
        abort_of_another_thread();
    }
    refused(errc::invalid_argument, "no devices", [] { colls::cuda::communicator::of_devices({}); });
    refused(errc::invalid_argument, "73 devices", [] { colls::cuda::communicator::of_devices(std::vector<int>(73)); });
    std::printf("%d wrong\n", failed);
    return failed == 0 ? 0 : 1;
}
