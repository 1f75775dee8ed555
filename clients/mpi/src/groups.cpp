#include "groups.hpp"

#include "configuration.hpp"
#include "outstanding.hpp"

#include <colls/transports/mpi.hpp>
#include <colls/wait_hook.hpp>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace colls_mpi {

namespace {

std::atomic<bool> ended = false;
std::atomic<int> keyval = MPI_KEYVAL_INVALID;
std::mutex& mutex = *new std::mutex;  // of what follows; never destroyed, since MPI_Finalize may come late
// In the order in which they were made, on which ranks that share two of them agree.
auto& groups = *new std::map<unsigned long, shared_group>;
unsigned long made = 0;

/// The value of the attribute.
struct kept_group {
    shared_group shared = std::make_shared<group>();
    unsigned long number = 0;  // 0: not in `groups`
};

// MPI calls it where the program frees the communicator.
int forget(MPI_Comm, int, void* value, void*) {
    auto* const kept = static_cast<kept_group*>(value);
    {
        const std::lock_guard lock(mutex);
        groups.erase(kept->number);
    }
    delete kept;
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
    static std::once_flag once;
    std::call_once(once, [] { colls::set_wait_hook([](void*) { advance(); }); });
    // The program may use each communicator from another thread. The hook advances the other groups.
    return colls::mpi::communicator_of(comm, {.alone = true});
}

const shared_group* make_group(MPI_Comm comm) {
    auto kept = std::make_unique<kept_group>();
    group& g = *kept->shared;
    int between = 0;
    PMPI_Comm_test_inter(comm, &between);
    PMPI_Comm_size(comm, &g.size);
    PMPI_Comm_rank(comm, &g.rank);
    g.several = between != 0 || g.size > 1;
    if (between == 0 && g.size > 1 && all_are_of_this_world(comm, g.size)) {
        meet(comm);
        g.comm = join(comm);
        if (!configured().timeout) g.comm.set_timeout(std::chrono::seconds::max());
    }
    if (g.runs_on_colls()) {
        const std::lock_guard lock(mutex);
        kept->number = ++made;
        groups[kept->number] = kept->shared;
    }
    if (PMPI_Comm_set_attr(comm, keyval, kept.get()) != MPI_SUCCESS)
        throw colls::error(colls::errc::peer_failed, "colls: MPI_Comm_set_attr failed");
    return &kept.release()->shared;
}

// False: the communicator's calls go to MPI.
bool find(MPI_Comm comm, const shared_group*& g) {
    if (!configured().on || comm == MPI_COMM_NULL || ended.load(std::memory_order_relaxed)) return false;
    if (keyval == MPI_KEYVAL_INVALID && !prepare_keyval()) return false;
    void* value = nullptr;
    int there = 0;
    if (PMPI_Comm_get_attr(comm, keyval, &value, &there) != MPI_SUCCESS) return false;
    g = there != 0 ? &static_cast<kept_group*>(value)->shared : nullptr;
    return true;
}

}  // namespace

const shared_group* group_of(MPI_Comm comm) {
    const shared_group* g = nullptr;
    if (!find(comm, g)) return nullptr;
    return g != nullptr ? g : make_group(comm);
}
const shared_group* existing_group_of(MPI_Comm comm) {
    const shared_group* g = nullptr;
    find(comm, g);
    return g;
}

void end_groups() {
    if (ended.exchange(true)) return;
    finish_outstanding();
    // A destructor may wait for other ranks, so the lock is not held.
    std::vector<shared_group> all;
    {
        const std::lock_guard lock(mutex);
        for (const auto& [number, g] : groups) all.push_back(g);
    }
    for (const shared_group& g : all) g->comm = {};
}

}  // namespace colls_mpi
