// colls_perf: times the collectives in the way of nccl-tests, on threads, processes, or what a launcher started.
// Compiled with COLLS_PERF_MPI it is colls_perf_mpi, whose ranks are also those of MPI_COMM_WORLD.
#include "run.hpp"

#include <colls/detail/support/descriptor.hpp>
#include <colls/error.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>
#ifdef COLLS_PERF_VERBS
#include <colls/transports/verbs.hpp>
#endif
#ifdef COLLS_PERF_OFI
#include <colls/transports/ofi.hpp>
#endif
#ifdef COLLS_PERF_MPI
#define OMPI_SKIP_MPICXX 1  // without the C++ interface, which MPI has removed, and which causes warnings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <colls/transports/mpi.hpp>
#endif

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <new>

namespace {

#ifdef COLLS_PERF_MPI
constexpr bool over_mpi = true;
#else
constexpr bool over_mpi = false;
#endif

/// The exit status that rank 0 has found, which may be another process than the one that started the ranks.
class shared_status {
public:
    shared_status() {
        void* const at = mmap(nullptr, sizeof *status_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        status_ = new (at) std::atomic<int>(perf::failed);
    }
    ~shared_status() { munmap(status_, sizeof *status_); }
    shared_status(const shared_status&) = delete;
    shared_status& operator=(const shared_status&) = delete;
    void set(int status) { status_->store(status, std::memory_order_relaxed); }
    int get() const { return status_->load(std::memory_order_relaxed); }

private:
    std::atomic<int>* status_ = nullptr;
};

int run(const perf::options& o) {
    shared_status status;
    const auto rank = [&](colls::communicator& comm) {
        const int found = perf::run(comm, o);
        if (comm.rank() == 0) status.set(found);
        std::fflush(stdout);
    };
    if (o.transport == "threads") {
        colls::threads::run(o.ranks, rank);
        return status.get();
    }
    if (o.transport == "processes" || o.carried_by_messages()) {
        colls::processes::run(o.ranks, rank);
        return status.get();
    }
#ifdef COLLS_PERF_MPI
    if (o.transport == "mpi") {
        colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD);
        return perf::run(comm, o);
    }
#endif
    colls::communicator comm = colls::world();
    return perf::run(comm, o);
}

/// Where all ranks of a launcher have an error, the rank that caused it reports it, and rank 0.
bool says(const std::exception& e, const perf::options& o) {
    const auto* const known = dynamic_cast<const colls::error*>(&e);
    const bool alone = o.transport != "world" && o.transport != "mpi";
    return alone || !known || known->code() != colls::errc::peer_failed || known->rank() <= 0;
}

}  // namespace

int main(int argc, char** argv) {
    const colls::detail::standard_descriptors_held held;  // a file that it writes is none of them
#ifdef COLLS_PERF_MPI
    MPI_Init(&argc, &argv);
#endif
    perf::options o;
    int status = perf::failed;
    if (const auto ended = perf::parse(argc, argv, over_mpi, o)) {
        status = *ended;
    } else {
        perf::set_environment(o);
        try {
            status = run(o);
        } catch (const std::bad_alloc&) {
            std::fflush(stdout);
            std::fprintf(stderr,
                "colls_perf: this machine has no memory for two buffers of %zu bytes for each rank here%s; give a "
                "smaller -e\n",
                o.max_bytes, o.checks > 0 ? ", and a copy of both for -c 1" : "");
#ifdef COLLS_PERF_MPI
            MPI_Abort(MPI_COMM_WORLD, perf::failed);
#endif
        } catch (const std::exception& e) {
            std::fflush(stdout);
            if (says(e, o)) std::fprintf(stderr, "colls_perf: %s\n", e.what());
#ifdef COLLS_PERF_MPI
            MPI_Abort(MPI_COMM_WORLD, perf::failed);
#endif
        }
    }
#ifdef COLLS_PERF_MPI
    MPI_Finalize();
#endif
    return status;
}
