#include "held.hpp"

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace {

/// How many calls hold each handle, and which the program has freed. `Free`: the function of MPI.
template <class Handle, int (*Free)(Handle*)>
class holds {
public:
    void hold(Handle handle) {
        const std::lock_guard lock(mutex_);
        ++all_[handle].holders;
        any_ = true;
    }
    void let_go(Handle handle) {
        {
            const std::lock_guard lock(mutex_);
            const auto found = all_.find(handle);
            if (--found->second.holders > 0) return;
            const bool is_freed = found->second.is_freed;
            all_.erase(found);
            any_ = !all_.empty();
            if (!is_freed) return;
        }
        Free(&handle);
    }
    /// The program frees a handle.
    int free(Handle* handle, Handle none) {
        if (handle == nullptr || !any_ || !leave_to_holders(*handle)) return Free(handle);
        *handle = none;
        return MPI_SUCCESS;
    }

private:
    bool leave_to_holders(Handle handle) {
        const std::lock_guard lock(mutex_);
        const auto found = all_.find(handle);
        return found != all_.end() && !std::exchange(found->second.is_freed, true);
    }

    struct state {
        int holders = 0;
        bool is_freed = false;
    };
    std::mutex mutex_;
    std::unordered_map<Handle, state> all_;
    std::atomic<bool> any_ = false;
};

auto& operators = *new holds<MPI_Op, &PMPI_Op_free>;  // never destroyed, since MPI_Finalize may come late
auto& types = *new holds<MPI_Datatype, &PMPI_Type_free>;

}  // namespace

namespace colls_mpi {

void hold(MPI_Op op) { operators.hold(op); }
void let_go(MPI_Op op) { operators.let_go(op); }
void hold_type(MPI_Datatype type) { types.hold(type); }
void let_go_type(MPI_Datatype type) { types.let_go(type); }

int ranks_of(MPI_Comm comm) {
    int between = 0, size = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &between) != MPI_SUCCESS || between != 0) return 0;
    PMPI_Comm_size(comm, &size);
    return size;
}

}  // namespace colls_mpi

extern "C" {

int MPI_Op_free(MPI_Op* op) { return operators.free(op, MPI_OP_NULL); }
int MPI_Type_free(MPI_Datatype* type) { return types.free(type, MPI_DATATYPE_NULL); }

}  // extern "C"
