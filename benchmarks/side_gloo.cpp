// A peer: Gloo's collectives over its TCP transport, on the loopback device. One process a rank.
#include "measure.hpp"
#include "run_ranks.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <filesystem>
#include <memory>

namespace {

void add(void* to, const void* a, const void* b, std::size_t count) { gloo::sum<float>(to, a, b, count); }

struct gloo_side {
    static constexpr bool has_threads = true;  // the event loop of its device
    std::shared_ptr<gloo::Context> context;
    std::uint32_t calls = 0;  // a tag for each call, which Gloo requires where calls may overlap

    void run(bench::job what, std::span<float> in, std::span<float> out, std::uint32_t) {
        using bench::job;
        const std::uint32_t tag = ++calls;
        switch (what) {
            case job::all_reduce:
            case job::all_reduce_in_place: {
                gloo::AllreduceOptions options(context);
                if (what == job::all_reduce) options.setInput(in.data(), in.size());
                options.setOutput(out.data(), out.size());
                options.setReduceFunction(&add);
                options.setTag(tag);
                gloo::allreduce(options);
                break;
            }
            case job::broadcast: {
                gloo::BroadcastOptions options(context);
                options.setOutput(out.data(), out.size());
                options.setRoot(0);
                options.setTag(tag);
                gloo::broadcast(options);
                break;
            }
            case job::all_gather: {
                gloo::AllgatherOptions options(context);
                options.setInput(in.data(), in.size());
                options.setOutput(out.data(), out.size());
                options.setTag(tag);
                gloo::allgather(options);
                break;
            }
            case job::all_to_all: {
                gloo::AlltoallOptions options(context);
                options.setInput(in.data(), in.size());
                options.setOutput(out.data(), out.size());
                options.setTag(tag);
                gloo::alltoall(options);
                break;
            }
            default:
                break;
        }
    }
    std::string chosen(bench::job, std::size_t, std::uint32_t) const { return {}; }
};

/// Where the ranks connect: a folder beside CONTROL, which the driver removes.
std::filesystem::path meeting_folder(char** argv) {
    return std::filesystem::path(argv[1]).parent_path() / (std::string("gloo-") + argv[2]);
}

void rank_main(char** argv, int rank) {
    bench::shared_control shared(argv[1], false);
    const std::size_t count = std::strtoull(argv[3], nullptr, 10) / sizeof(float);
    const bench::buffer in(count), out(count);
    gloo::rendezvous::FileStore store(meeting_folder(argv).string());
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    const auto context = std::make_shared<gloo::rendezvous::Context>(rank, static_cast<int>(shared->ranks));
    context->connectFullMesh(store, device);
    bench::serve(*shared, std::atoi(argv[2]), rank, in.first(count), out.first(count), gloo_side{context});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fputs("usage: side_gloo CONTROL SIDE LARGEST  (started by a driver)\n", stderr);
        return 2;
    }
    try {
        std::filesystem::create_directory(meeting_folder(argv));
        const int ranks = static_cast<int>(bench::shared_control(argv[1], false)->ranks);
        return bench::run_ranks("side_gloo", ranks, [&](int rank) { rank_main(argv, rank); });
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_gloo: %s\n", e.what());
        return 1;
    }
}
