// Our side: the library's collectives on one of its transports. The variant of a call forces its schedule, as
// COLLS_SCHEDULE does (variants.hpp). With COLLS_BENCH_MPI it is a program for mpirun, whose transport is MPI.
#include "measure.hpp"
#include "variants.hpp"

#include <colls/colls.hpp>
#include <colls/detail/support/machine.hpp>
#ifdef COLLS_BENCH_MPI
#include <colls/transports/mpi.hpp>
#else
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#endif
#ifdef COLLS_BENCH_VERBS
#include <colls/transports/verbs.hpp>
#endif

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <string_view>

namespace {

using bench::job;
namespace internal = colls::detail;

struct settings {
    std::string_view transport;
    std::size_t offset = 0;     ///< bytes by which buffers are off a page
    bool dealt = false;         ///< ranks are pinned, and dealt round the cores
    bool neighbours = false;    ///< ranks are pinned, and neighbours share a core
    bool back_to_back = false;  ///< calls are made in runs, of which one is timed as a whole
};

/// One rank's calls, each by the choice that its variant names.
class colls_side {
public:
    colls_side(colls::communicator& comm, const settings& s) : comm_(comm), s_(s) {
        const int cores = internal::cores();
        if (s.neighbours) bench::pin_to(comm.rank() * cores / comm.size());
        if (s.dealt) bench::pin_to(comm.rank() % cores);
    }
    void run(job what, std::span<float> in, std::span<float> out, std::uint32_t variant) {
        if (variant != variant_) {  // in the first call of a turn, which is not kept
            internal::rank_context& self = comm_.context();
            std::swap(self.choices, choices_[variant_]);
            std::swap(self.choices, choices_[variant]);
            // As COLLS_SCHEDULE would have it.
            forced_ = bench::variant_name(variant);
            self.env.schedule = variant == bench::automatic ? nullptr : forced_.c_str();
            variant_ = variant;
        }
        const std::size_t bytes = std::max(in.size(), out.size()) * sizeof(float);
        for (std::uint32_t i = s_.back_to_back ? bench::calls_in_run(bytes) : 1; i > 0; --i) call(what, in, out);
    }
    /// The schedule of the latest call: the other one where buffers are out of the others' reach.
    std::string chosen(job what, std::size_t bytes, std::uint32_t) const {
        const internal::rank_context& self = comm_.context();
        const std::string_view name = self.log.recent[(self.log.count - 1) % internal::call_record::kept].schedule;
        if (s_.transport != "staged" || name == internal::eager_name) return std::string(name);
        const colls::collective c = bench::collective_of(what);
        return std::string(internal::choose_out_of_reach(
            self, internal::demand_of(self, c, bytes, false), internal::all_candidates_of(c))
                .schedule->name());
    }

private:
    void call(job what, std::span<float> in, std::span<float> out) {
        switch (what) {
            case job::all_reduce:
                return colls::all_reduce(comm_, in, out, colls::sum);
            case job::all_reduce_in_place:
                return colls::all_reduce(comm_, out, colls::sum);
            case job::broadcast:
                return colls::broadcast(comm_, out, 0);
            case job::all_gather:
                return colls::all_gather(comm_, in, out);
            case job::reduce_scatter:
                return colls::reduce_scatter(comm_, in, out, colls::sum);
            case job::all_to_all:
                return colls::all_to_all(comm_, in, out);
            default:
                return;
        }
    }
    colls::communicator& comm_;
    const settings& s_;
    std::uint32_t variant_ = bench::automatic;
    std::string forced_;
    std::array<internal::choice_table, bench::variants> choices_;
};

#ifdef COLLS_BENCH_MPI
constexpr std::string_view transports = "mpi";
#else
constexpr std::string_view transports = "threads|shm|staged|tcp|verbs";
#endif

int usage() {
    std::fprintf(stderr,
        "usage: side_colls CONTROL SIDE LARGEST %.*s [off=BYTES] [dealt|neighbours] [runs]  (started by compare, "
        "peers or sweep)\n"
        "    shm, verbs: processes, buffers from allocate(); staged: processes, ordinary buffers\n",
        static_cast<int>(transports.size()), transports.data());
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) return usage();
    settings s{.transport = argv[4]};
    for (int i = 5; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word.starts_with("off="))
            s.offset = std::strtoull(argv[i] + 4, nullptr, 10);
        else if (word == "dealt")
            s.dealt = true;
        else if (word == "neighbours")
            s.neighbours = true;
        else if (word == "runs")
            s.back_to_back = true;
        else
            return usage();
    }
    try {
        bench::shared_control shared(argv[1], false);
        const std::size_t skip = s.offset / sizeof(float),
                          count = std::strtoull(argv[3], nullptr, 10) / sizeof(float) + skip;
        const auto serve = [&](colls::communicator& comm, std::span<float> in, std::span<float> out) {
            bench::serve(
                *shared, std::atoi(argv[2]), comm.rank(), in.subspan(skip), out.subspan(skip), colls_side(comm, s));
        };
        const auto with_own_buffers = [&](colls::communicator& comm) {
            const bench::buffer in(count), out(count);
            serve(comm, in.first(count), out.first(count));
        };
#ifdef COLLS_BENCH_MPI
        if (s.transport != "mpi") return usage();
        MPI_Init(&argc, &argv);
        {
            colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD);
            with_own_buffers(comm);
        }
        MPI_Finalize();
#else
        const int ranks = static_cast<int>(shared->ranks);
        if (s.transport == "tcp" || s.transport == "verbs") setenv("COLLS_TRANSPORT", argv[4], 1);
        if (s.transport == "threads")
            colls::threads::run(ranks, with_own_buffers);
        else if (s.transport == "shm" || s.transport == "verbs")
            colls::processes::run(ranks, [&](colls::communicator& comm) {
                auto in = comm.allocate<float>(count), out = comm.allocate<float>(count);
                std::memset(in.data(), 0, count * sizeof(float));
                std::memset(out.data(), 0, count * sizeof(float));
                serve(comm, in, out);
            });
        else if (s.transport == "staged" || s.transport == "tcp")
            colls::processes::run(ranks, with_own_buffers);
        else
            return usage();
#endif
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_colls: %s\n", e.what());
        return 1;
    }
}
