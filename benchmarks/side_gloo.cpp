// A peer: Gloo's collectives over its TCP transport, on the loopback device. One process a rank.
#include "measure.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
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

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fputs(
            "usage: side_gloo CONTROL LARGEST FOLDER RANK  (started by compare, once for each rank)\n"
            "    FOLDER: an empty folder, the same for all ranks, through which they connect\n",
            stderr);
        return 2;
    }
    try {
        bench::shared_control shared(argv[1], false);
        const std::size_t count = std::strtoull(argv[2], nullptr, 10) / sizeof(float);
        const int rank = std::atoi(argv[4]);
        const bench::buffer in(count), out(count);
        gloo::rendezvous::FileStore store(argv[3]);
        std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
        const auto context = std::make_shared<gloo::rendezvous::Context>(rank, static_cast<int>(shared->ranks));
        context->connectFullMesh(store, device);
        bench::serve(*shared, 1, rank, in.first(count), out.first(count), gloo_side{context});
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_gloo: %s\n", e.what());
        return 1;
    }
}
