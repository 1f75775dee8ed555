#include "groups.hpp"

#include "configuration.hpp"
#include "failure.hpp"
#include "held.hpp"
#include "outstanding.hpp"

#include <colls/bootstrap.hpp>
#include <colls/bootstrap/member_exchange.hpp>
#include <colls/collectives.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/mpi/detail/beside.hpp>
#include <colls/net/detail/forming/apart.hpp>
#include <colls/operation.hpp>
#include <colls/transports/mpi.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace colls_mpi {

namespace {

std::atomic<bool> ended = false;
std::atomic<int> keyval = MPI_KEYVAL_INVALID;
std::mutex& mutex = *new std::mutex;  // of what follows; never destroyed, since MPI_Finalize may come late
// In the order in which they were made, on which ranks that share two of them agree.
auto& groups = *new std::map<unsigned long, std::weak_ptr<group>>;
unsigned long made = 0;

unsigned long next_number() {
    const std::lock_guard lock(mutex);
    return ++made;
}
shared_group add_group() {
    const unsigned long number = next_number();
    shared_group added(new group, [number](group* g) {
        {
            const std::lock_guard lock(mutex);
            groups.erase(number);
        }
        delete g;
    });
    const std::lock_guard lock(mutex);
    groups[number] = added;
    return added;
}

std::atomic<unsigned long> forgotten = 0;  // groups, whose communicators' handles MPI may give to others
// MPI calls it where the program frees the communicator. The value of the attribute is a shared_group.
int forget(MPI_Comm, int, void* value, void*) {
    ++forgotten;
    delete static_cast<shared_group*>(value);
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

// Frees the group.
bool is_of_this_world(MPI_Group own) {
    int size = 0;
    PMPI_Group_size(own, &size);
    MPI_Group world = MPI_GROUP_NULL;
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    std::vector<int> ranks(static_cast<std::size_t>(size)), in_world(ranks);
    for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
    PMPI_Group_translate_ranks(own, size, ranks.data(), world, in_world.data());
    PMPI_Group_free(&own);
    PMPI_Group_free(&world);
    return std::find(in_world.begin(), in_world.end(), MPI_UNDEFINED) == in_world.end();
}

/// The ranks of a communicator exchange bytes by MPI.
class exchange_over final : public colls::member_exchange {
public:
    explicit exchange_over(MPI_Comm comm) : comm_(comm) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const int n = static_cast<int>(bytes);
        MPI_Request request = MPI_REQUEST_NULL;
        check(PMPI_Iallgather(own, n, MPI_BYTE, all, n, MPI_BYTE, comm_, &request), "MPI_Iallgather");
        finish(request, "MPI_Iallgather");
    }

private:
    const MPI_Comm comm_;
};
/// The ranks of a group exchange bytes by its calls.
class exchange_in final : public colls::member_exchange {
public:
    explicit exchange_in(group& g) : group_(g) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const std::size_t sum = bytes * static_cast<std::size_t>(group_.size);
        colls::all_gather(group_.comm, std::span(static_cast<const std::byte*>(own), bytes),
            std::span(static_cast<std::byte*>(all), sum));
    }

private:
    group& group_;
};
/// A group over shared memory; of no group, on all ranks alike, where they do not share it.
colls::communicator join_on_one_host(const group& g, colls::member_exchange& way) {
    colls::communicator joined = colls::detail::group_of_one_host(g.rank, g.size, way, true);
    if (joined.size() > 0) joined.context().hook = &colls::mpi::make_progress;
    return joined;
}
colls::communicator join(MPI_Comm comm, const group& g) {
    static std::once_flag once;
    std::call_once(once, [] { colls::set_wait_hook([](void*) { advance(); }); });
    exchange_over way(comm);
    if (colls::communicator joined = join_on_one_host(g, way); joined.size() > 0) return joined;
    meet(comm);
    // The program may use each communicator from another thread. The hook advances the other groups.
    return colls::mpi::communicator_of(comm, {.shared_memory = false, .alone = true});
}
/// One more group of the same ranks, by calls of a group that there is, since each communicator of MPI takes one of
/// 2,000 contexts.
colls::communicator join_beside(MPI_Comm comm, group& first) {
    const int number = static_cast<int>(first.others.size()) + 1;
    if (colls::communicator joined = colls::mpi::detail::beside(first.comm, number); joined.size() > 0) return joined;
    exchange_in way(first);
    colls::communicator joined = join_on_one_host(first, way);
    return joined.size() > 0 ? std::move(joined) : join(comm, first);
}
void set_deadline(colls::communicator& comm) {
    if (!configured().timeout) comm.set_timeout(std::chrono::seconds::max());
}

/// `crosses`: blocks 2i and 2i + 1 are matched in reverse order where they are of one rank.
neighbours arranged(const std::vector<int>& ranks, bool crosses) {
    struct place {
        int first, blocks;
    };
    std::map<int, place> places;
    const auto rank_of = [&](int i) { return ranks[static_cast<std::size_t>(i)]; };
    neighbours found;
    found.count = static_cast<int>(ranks.size());
    for (int i = 0; i < found.count; ++i) {
        if (rank_of(i) == MPI_PROC_NULL) continue;
        found.order.push_back(i);
        found.most = std::max(found.most, ++places.try_emplace(rank_of(i), i, 0).first->second.blocks);
    }
    // Where no rank has two, they stay as they lie.
    const auto key = [&](int i) { return std::pair(places[rank_of(i)].first, crosses ? i ^ 1 : i); };
    std::sort(found.order.begin(), found.order.end(), [&](int a, int b) { return key(a) < key(b); });
    for (const int i : found.order) found.ranks.push_back(rank_of(i));
    return found;
}
const shared_group* make_group(MPI_Comm comm) {
    auto kept = std::make_unique<shared_group>(add_group());
    group& g = **kept;
    int between = 0;
    PMPI_Comm_test_inter(comm, &between);
    PMPI_Comm_size(comm, &g.size);
    PMPI_Comm_rank(comm, &g.rank);
    g.several = has_several_of_this_world(comm);
    if (g.several && between == 0) {
        g.comm = join(comm, g);
        set_deadline(g.comm);
        g.around = neighbourhood_of(comm);
    }
    if (PMPI_Comm_set_attr(comm, keyval, kept.get()) != MPI_SUCCESS)
        throw colls::error(colls::errc::peer_failed, "colls: MPI_Comm_set_attr failed");
    return kept.release();
}

thread_local MPI_Comm being_freed = MPI_COMM_NULL;

// False: the communicator's calls go to MPI.
bool find(MPI_Comm comm, const shared_group*& g) {
    if (!configured().on || comm == MPI_COMM_NULL || comm == being_freed || ended.load(std::memory_order_relaxed))
        return false;
    if (keyval == MPI_KEYVAL_INVALID && !prepare_keyval()) return false;
    // That of the thread's latest call: MPI takes longer to find it.
    static thread_local struct {
        MPI_Comm comm;
        const shared_group* g;
        unsigned long forgotten;
    } latest;
    const unsigned long before = forgotten.load(std::memory_order_acquire);
    if (latest.g != nullptr && latest.comm == comm && latest.forgotten == before) {
        g = latest.g;
        return true;
    }
    void* value = nullptr;
    int there = 0;
    if (PMPI_Comm_get_attr(comm, keyval, &value, &there) != MPI_SUCCESS) return false;
    g = there != 0 ? static_cast<shared_group*>(value) : nullptr;
    latest = {comm, g, before};
    return true;
}

}  // namespace

neighbourhood neighbourhood_of(MPI_Comm comm) {
    int topology = MPI_UNDEFINED, rank = 0;
    if (ranks_of(comm) == 0) return {};
    PMPI_Topo_test(comm, &topology);
    PMPI_Comm_rank(comm, &rank);
    std::vector<int> from, to;
    if (topology == MPI_CART) {
        int dimensions = 0;
        PMPI_Cartdim_get(comm, &dimensions);
        for (int d = 0; d < dimensions; ++d) {
            int below = MPI_PROC_NULL, above = MPI_PROC_NULL;
            PMPI_Cart_shift(comm, d, 1, &below, &above);
            from.insert(from.end(), {below, above});
        }
        to = from;
    } else if (topology == MPI_GRAPH) {
        int count = 0;
        PMPI_Graph_neighbors_count(comm, rank, &count);
        from.resize(static_cast<std::size_t>(count));
        PMPI_Graph_neighbors(comm, rank, count, from.data());
        to = from;
    } else if (topology == MPI_DIST_GRAPH) {
        int in = 0, out = 0, weighted = 0;
        PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
        from.resize(static_cast<std::size_t>(in));
        to.resize(static_cast<std::size_t>(out));
        std::vector<int> weights_in(from), weights_out(to);
        PMPI_Dist_graph_neighbors(comm, in, from.data(), weights_in.data(), out, to.data(), weights_out.data());
    }
    // In a Cartesian topology a block that is sent in one direction comes from the other one.
    return {topology != MPI_UNDEFINED, arranged(from, topology == MPI_CART), arranged(to, false)};
}

bool has_several_of_this_world(MPI_Comm comm) {
    int there_is_a_world = 0, between = 0, size = 0;
    PMPI_Initialized(&there_is_a_world);  // with sessions alone there is none
    if (there_is_a_world == 0) return false;
    PMPI_Comm_test_inter(comm, &between);
    PMPI_Comm_size(comm, &size);
    if (between == 0 && size == 1) return false;
    MPI_Group members = MPI_GROUP_NULL;
    PMPI_Comm_group(comm, &members);
    if (!is_of_this_world(members)) return false;
    if (between == 0) return true;
    PMPI_Comm_remote_group(comm, &members);
    return is_of_this_world(members);
}
const shared_group* group_of(MPI_Comm comm) {
    const shared_group* g = nullptr;
    if (!find(comm, g)) return nullptr;
    return g != nullptr && *g != nullptr ? g : make_group(comm);
}
const shared_group* existing_group_of(MPI_Comm comm) {
    const shared_group* g = nullptr;
    find(comm, g);
    return g != nullptr && *g != nullptr ? g : nullptr;
}
bool is_first_barrier(MPI_Comm comm) {
    const shared_group* g = nullptr;
    int between = 0;
    if (comm == MPI_COMM_WORLD || !find(comm, g) || g != nullptr) return false;
    if (PMPI_Comm_test_inter(comm, &between) != MPI_SUCCESS || between != 0 || !has_several_of_this_world(comm))
        return false;
    auto none = std::make_unique<shared_group>();  // the mark: a group that is not there
    return PMPI_Comm_set_attr(comm, keyval, none.get()) == MPI_SUCCESS && none.release() != nullptr;
}

shared_group another_group(MPI_Comm comm, const shared_group& first) {
    finish_outstanding_of(*first);
    std::vector<shared_group>& others = first->others;
    const std::size_t made_before = others.size();
    // One that all ranks have got back whole. Acquire: what was done with it is over, and whether it failed is known.
    std::vector<std::uint8_t> is_free(made_before);
    for (std::size_t i = 0; i < made_before; ++i) {
        const group& g = *others[i];
        is_free[i] = !g.lent.load(std::memory_order_acquire) && !g.failed.load(std::memory_order_relaxed) ? 1 : 0;
    }
    if (made_before > 0) colls::all_reduce(first->comm, is_free, colls::min);
    const auto at = static_cast<std::size_t>(std::find(is_free.begin(), is_free.end(), 1) - is_free.begin());
    if (at == made_before) {
        shared_group added = add_group();
        added->rank = first->rank;
        added->size = first->size;
        added->several = first->several;
        added->around = first->around;
        added->comm = join_beside(comm, *first);
        set_deadline(added->comm);
        others.push_back(std::move(added));
    }
    const shared_group& own = others[at];
    own->lent.store(true, std::memory_order_relaxed);
    return shared_group(own.get(), [first, own](group* g) { g->lent.store(false, std::memory_order_release); });
}

freed::freed(MPI_Comm comm) : before_(std::exchange(being_freed, comm)) {}
freed::~freed() { being_freed = before_; }

void end_groups() {
    if (ended.exchange(true)) return;
    finish_outstanding();
    // A destructor may wait for other ranks, so the lock is not held.
    std::vector<shared_group> all;
    {
        const std::lock_guard lock(mutex);
        for (const auto& [number, g] : groups) all.push_back(g.lock());
    }
    for (const shared_group& g : all)
        if (g != nullptr) g->comm = {};
}

}  // namespace colls_mpi
