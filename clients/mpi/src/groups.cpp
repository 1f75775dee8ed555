#include "groups.hpp"

#include "configuration.hpp"

#include <colls/transports/mpi.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace colls_mpi {

namespace {

std::atomic<bool> ended = false;
std::atomic<int> keyval = MPI_KEYVAL_INVALID;
std::mutex& mutex = *new std::mutex;  // of what follows; never destroyed, since MPI_Finalize may come late
// In the order in which they were made, on which ranks that share two of them agree.
auto& groups = *new std::map<unsigned long, group*>;
unsigned long made = 0;

struct numbered_group : group {
    unsigned long number = 0;  // 0: not in `groups`
};

// MPI calls it where the program frees the communicator.
int forget(MPI_Comm, int, void* value, void*) {
    auto* const g = static_cast<numbered_group*>(value);
    {
        const std::lock_guard lock(mutex);
        groups.erase(g->number);
    }
    delete g;
    return MPI_SUCCESS;
}
// MPI_Finalize frees MPI_COMM_SELF before anything else, also that of Fortran, which may not come by this library.
int end_with_self(MPI_Comm, int, void*, void*) {
    end_groups();
    return MPI_SUCCESS;
}

// False: MPI does not run.
bool prepare_keyval() {
    const std::lock_guard lock(mutex);
    if (keyval != MPI_KEYVAL_INVALID) return true;
    int initialised = 0, finalised = 0;
    PMPI_Initialized(&initialised);
    PMPI_Finalized(&finalised);
    if (initialised == 0 || finalised != 0) return false;
    int own = MPI_KEYVAL_INVALID, of_self = MPI_KEYVAL_INVALID;
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &forget, &own, nullptr) != MPI_SUCCESS) return false;
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &end_with_self, &of_self, nullptr) == MPI_SUCCESS)
        PMPI_Comm_set_attr(MPI_COMM_SELF, of_self, nullptr);
    keyval = own;
    return true;
}

// Processes of another MPI_COMM_WORLD may run without this library.
bool all_are_of_this_world(MPI_Comm comm, int size) {
    MPI_Group world = MPI_GROUP_NULL, own = MPI_GROUP_NULL;
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Comm_group(comm, &own);
    std::vector<int> ranks(static_cast<std::size_t>(size)), in_world(ranks);
    for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
    PMPI_Group_translate_ranks(own, size, ranks.data(), world, in_world.data());
    PMPI_Group_free(&own);
    PMPI_Group_free(&world);
    for (const int r : in_world)
        if (r == MPI_UNDEFINED) return false;
    return true;
}

colls::communicator join(MPI_Comm comm) {
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) return colls::mpi::communicator_of(comm);
    // Groups that one thread has made advance together, under one lock. The program may use each communicator from
    // another thread, at the same time: a group of its own thread has a lock of its own.
    colls::communicator made_here;
    std::exception_ptr failure;
    std::thread([&] {
        try {
            made_here = colls::mpi::communicator_of(comm);
        } catch (...) {
            failure = std::current_exception();
        }
    }).join();
    if (failure) std::rethrow_exception(failure);
    return made_here;
}

numbered_group* make_group(MPI_Comm comm) {
    auto g = std::make_unique<numbered_group>();
    int between = 0;
    PMPI_Comm_test_inter(comm, &between);
    PMPI_Comm_size(comm, &g->size);
    PMPI_Comm_rank(comm, &g->rank);
    if (between == 0 && g->size > 1 && all_are_of_this_world(comm, g->size)) {
        g->comm = join(comm);
        if (!configured().timeout) g->comm.set_timeout(std::chrono::seconds::max());
    }
    if (g->comm.size() > 0) {
        const std::lock_guard lock(mutex);
        g->number = ++made;
        groups[g->number] = g.get();
    }
    if (PMPI_Comm_set_attr(comm, keyval, g.get()) != MPI_SUCCESS)
        throw colls::error(colls::errc::peer_failed, "colls: MPI_Comm_set_attr failed");
    return g.release();
}

}  // namespace

group* group_of(MPI_Comm comm) {
    if (!configured().on || comm == MPI_COMM_NULL || ended.load(std::memory_order_relaxed)) return nullptr;
    if (keyval == MPI_KEYVAL_INVALID && !prepare_keyval()) return nullptr;
    void* value = nullptr;
    int there = 0;
    if (PMPI_Comm_get_attr(comm, keyval, &value, &there) != MPI_SUCCESS) return nullptr;
    group* const g = there != 0 ? static_cast<numbered_group*>(value) : make_group(comm);
    return g->comm.size() > 0 ? g : nullptr;
}

void end_groups() {
    if (ended.exchange(true)) return;
    // A destructor may wait for other ranks, so the lock is not held.
    std::vector<group*> all;
    {
        const std::lock_guard lock(mutex);
        for (const auto& [number, g] : groups) all.push_back(g);
    }
    for (group* const g : all) g->comm = {};
}

}  // namespace colls_mpi
