// Our side: the library's collectives on one of its transports. The variant picks the schedule of an all_reduce.
#include "measure.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#ifdef COLLS_BENCH_VERBS
#include <colls/transports/verbs.hpp>
#endif

#include <exception>

namespace {

constexpr colls::collective collective_of(bench::job what) {
    switch (what) {
        case bench::job::broadcast:
            return colls::collective::broadcast;
        case bench::job::all_gather:
            return colls::collective::all_gather;
        case bench::job::reduce_scatter:
            return colls::collective::reduce_scatter;
        case bench::job::all_to_all:
            return colls::collective::all_to_all;
        default:
            return colls::collective::all_reduce;
    }
}

template <class Comm>
struct colls_side {
    Comm& comm;

    template <class Schedule>
    void all_reduce(std::span<float> in, std::span<float> out, bool in_place) const {
        if (in_place)
            colls::all_reduce<Schedule>(comm, out, colls::sum);
        else
            colls::all_reduce<Schedule>(comm, in, out, colls::sum);
    }
    void run(bench::job what, std::span<float> in, std::span<float> out, std::uint32_t variant) const {
        using bench::job;
        switch (what) {
            case job::all_reduce:
            case job::all_reduce_in_place:
                switch (variant) {  // as bench::variant_names
                    case 1:
                        return all_reduce<colls::direct>(in, out, what != job::all_reduce);
                    case 2:
                        return all_reduce<colls::ring>(in, out, what != job::all_reduce);
                    case 3:
                        return all_reduce<colls::circulant<>>(in, out, what != job::all_reduce);
                    case 4:
                        return all_reduce<colls::recursive_doubling>(in, out, what != job::all_reduce);
                    default:
                        return all_reduce<colls::automatic>(in, out, what != job::all_reduce);
                }
            case job::broadcast:
                return colls::broadcast(comm, out, 0);
            case job::all_gather:
                return colls::all_gather(comm, in, out);
            case job::reduce_scatter:
                return colls::reduce_scatter(comm, in, out, colls::sum);
            case job::all_to_all:
                return colls::all_to_all(comm, in, out);
            default:
                return;
        }
    }
    std::string chosen(bench::job what, std::size_t bytes, std::uint32_t variant) const {
        if (variant > 0) return bench::variant_names[variant];
        return colls::chosen(comm, collective_of(what), bytes);
    }
};

}  // namespace

int main(int argc, char** argv) {
    const std::string transport = argc == 5 ? argv[4] : "";
    const bool threads = transport == "threads", verbs = transport == "verbs",
               shared_buffers = transport == "shm" || verbs;
    const bool processes = shared_buffers || transport == "staged" || transport == "tcp";
    if (!threads && !processes) {
        std::fputs(
            "usage: side_colls CONTROL SIDE LARGEST threads|shm|staged|tcp|verbs  (started by compare)\n"
            "    shm, verbs: processes, buffers from allocate(); staged: processes, ordinary buffers\n",
            stderr);
        return 2;
    }
    if (transport == "tcp" || verbs) setenv("COLLS_TRANSPORT", transport.c_str(), 1);
    try {
        bench::shared_control shared(argv[1], false);
        const std::size_t count = std::strtoull(argv[3], nullptr, 10) / sizeof(float);
        const auto rank = [&](colls::communicator& comm) {
            const auto serve = [&](std::span<float> in, std::span<float> out) {
                bench::serve(*shared, std::atoi(argv[2]), comm.rank(), in, out, colls_side<colls::communicator>{comm});
            };
            if (shared_buffers) {
                auto in = comm.allocate<float>(count), out = comm.allocate<float>(count);
                std::memset(in.data(), 0, count * sizeof(float));
                std::memset(out.data(), 0, count * sizeof(float));
                serve(in, out);
            } else {
                const bench::buffer in(count), out(count);
                serve(in.first(count), out.first(count));
            }
        };
        const int ranks = static_cast<int>(shared->ranks);
        if (threads)
            colls::threads::run(ranks, rank);
        else
            colls::processes::run(ranks, rank);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_colls: %s\n", e.what());
        return 1;
    }
}
