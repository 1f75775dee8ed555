// The collectives that move data, as bytes: ranks may name the same data by different datatypes.
#include "blocks.hpp"
#include "buffers.hpp"
#include "call.hpp"
#include "held.hpp"
#include "numbers.hpp"

#include <colls/detail/support/sizes.hpp>
#include <colls/dynamic.hpp>

#include <cstring>
#include <vector>

namespace {

using namespace colls_mpi;
namespace dynamic = colls::dynamic;

dynamic::const_buffer bytes_of(const input& in) { return {in.data(), in.bytes()}; }
dynamic::buffer bytes_of(const output& out) { return {out.data(), out.bytes()}; }

std::size_t in_all(MPI_Count count, const group& g) {
    return colls::detail::capped_product(static_cast<std::size_t>(count), static_cast<std::size_t>(g.size));
}
MPI_Aint elements_before(const group& g, MPI_Count count) { return static_cast<MPI_Aint>(g.rank) * count; }
/// The rank's own block of `count` elements, of those from `base` on.
std::byte* own_block(const void* base, MPI_Count count, MPI_Datatype type, const group& g) {
    return displaced(base, elements_before(g, count) * layout_of(type).extent);
}

/// MPICH refuses the call: `own`, the rank's block, is its block in `all`, which MPICH looks for `before` elements
/// behind the beginning, by their size.
bool aliases(const void* own, MPI_Count own_count, MPI_Datatype own_type, const void* all, MPI_Count count,
    MPI_Aint before, MPI_Datatype type) {
    if (!mpi_refuses_aliases() || all == MPI_IN_PLACE || own_type != type || own_count == 0 || count == 0) return false;
    MPI_Count size = 0;
    PMPI_Type_size_x(type, &size);
    return is_refused_alias(own, displaced(all, before * size));
}
/// Likewise where all blocks are of one length: there MPICH looks only where the counts are the same.
bool aliases_equal(const void* own, MPI_Count own_count, MPI_Datatype own_type, const void* all, MPI_Count count,
    MPI_Aint before, MPI_Datatype type) {
    return own_count == count && aliases(own, own_count, own_type, all, count, before, type);
}

/// What the calls have in common.
class movement {
public:
    verdict says() const { return says_; }

protected:
    verdict says_ = verdict::refused;
};

class barrier_call : public movement {
public:
    explicit barrier_call(group&) { says_ = verdict::colls; }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::barrier(comm);
    }
    void keep_handles() {}
    void finish() {}
};

class broadcast_call : public movement {
public:
    broadcast_call(group& g, void* buffer, MPI_Count count, MPI_Datatype type, int root) : root_(root) {
        if (!is_rank(root, g)) return;
        if (g.rank == root)
            in_ = input(buffer, static_cast<std::size_t>(count), type);
        else
            out_ = output(buffer, static_cast<std::size_t>(count), type);
        // The root's buffer is not written.
        data_ = g.rank == root ? dynamic::buffer{const_cast<std::byte*>(in_.data()), in_.bytes()} : bytes_of(out_);
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::broadcast(comm, data_, root_);
    }
    void keep_handles() { out_.keep_type(); }
    void finish() { out_.deliver(); }

private:
    const int root_;
    input in_;
    output out_;
    dynamic::buffer data_;
};

class gather_call : public movement {
public:
    gather_call(group& g, const void* sent, MPI_Count sent_count, MPI_Datatype sent_type, void* received,
        MPI_Count count, MPI_Datatype type, int root)
        : root_(root) {
        const bool in_place = sent == MPI_IN_PLACE;
        if (!is_rank(root, g) || (in_place ? g.rank != root : !are_sound(sent_count, sent_type))) return;
        if (g.rank == root) {
            if (!are_sound(count, type)) return;
            if (aliases_equal(sent, sent_count, sent_type, received, count, elements_before(g, count), type)) return;
            out_ = output(received, in_all(count, g), type);
        }
        in_ = in_place ? input(own_block(received, count, type, g), static_cast<std::size_t>(count), type)
                       : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::gather(comm, bytes_of(in_), bytes_of(out_), root_);
    }
    void keep_handles() { out_.keep_type(); }
    void finish() { out_.deliver(); }

private:
    const int root_;
    input in_;
    output out_;
};

class gather_v_call : public movement {
public:
    gather_v_call(group& g, const void* sent, MPI_Count sent_count, MPI_Datatype sent_type, void* received,
        const numbers& counts, const numbers& displacements, MPI_Datatype type, int root)
        : root_(root) {
        const bool in_place = sent == MPI_IN_PLACE;
        if (!is_rank(root, g) || (in_place ? g.rank != root : !are_sound(sent_count, sent_type))) return;
        if (g.rank == root) {
            if (type == MPI_DATATYPE_NULL || displacements.is_null() || !are_counts(counts, g.size)) return;
            if (aliases(sent, sent_count, sent_type, received, counts[g.rank], displacements[g.rank], type)) return;
            blocks_ = block_list(received, counts, displacements, type, g.size);
            out_ = output_blocks(blocks_);
        }
        in_ = in_place ? input(displaced(received, displacements[g.rank] * layout_of(type).extent),
                             static_cast<std::size_t>(counts[g.rank]), type)
                       : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::gather_v(
            comm, bytes_of(in_), dynamic::buffer{out_.data(), blocks_.total()}, blocks_.bytes(), root_);
    }
    void keep_handles() { blocks_.keep_types(); }
    void finish() { out_.deliver(); }

private:
    const int root_;
    input in_;
    block_list blocks_;
    output_blocks out_;
};

class scatter_call : public movement {
public:
    scatter_call(group& g, const void* sent, MPI_Count count, MPI_Datatype type, void* received,
        MPI_Count received_count, MPI_Datatype received_type, int root)
        : root_(root) {
        const bool in_place = received == MPI_IN_PLACE;
        if (!is_rank(root, g) || (in_place ? g.rank != root : !are_sound(received_count, received_type))) return;
        if (g.rank == root) {
            if (!are_sound(count, type)) return;
            if (aliases_equal(received, received_count, received_type, sent, count, elements_before(g, count), type))
                return;
            in_ = input(sent, in_all(count, g), type);
        }
        if (in_place) {
            const std::size_t own = in_.bytes() / static_cast<std::size_t>(g.size);
            to_ = {const_cast<std::byte*>(in_.data()) + own * static_cast<std::size_t>(g.rank), own};
        } else {
            out_ = output(received, static_cast<std::size_t>(received_count), received_type);
            to_ = bytes_of(out_);
        }
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::scatter(comm, bytes_of(in_), to_, root_);
    }
    void keep_handles() { out_.keep_type(); }
    void finish() { out_.deliver(); }

private:
    const int root_;
    input in_;
    output out_;
    dynamic::buffer to_;
};

class scatter_v_call : public movement {
public:
    scatter_v_call(group& g, const void* sent, const numbers& counts, const numbers& displacements, MPI_Datatype type,
        void* received, MPI_Count received_count, MPI_Datatype received_type, int root)
        : root_(root) {
        const bool in_place = received == MPI_IN_PLACE;
        if (!is_rank(root, g) || (in_place ? g.rank != root : !are_sound(received_count, received_type))) return;
        if (g.rank == root) {
            if (type == MPI_DATATYPE_NULL || displacements.is_null() || !are_counts(counts, g.size)) return;
            if (aliases(received, received_count, received_type, sent, counts[g.rank], displacements[g.rank], type))
                return;
            blocks_ = block_list(sent, counts, displacements, type, g.size);
            in_ = input_blocks(blocks_);
        }
        if (in_place) {
            to_ = {const_cast<std::byte*>(in_.data()) + blocks_.bytes_before(g.rank),
                blocks_.bytes()[static_cast<std::size_t>(g.rank)]};
        } else {
            out_ = output(received, static_cast<std::size_t>(received_count), received_type);
            to_ = bytes_of(out_);
        }
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::scatter_v(comm, dynamic::const_buffer{in_.data(), blocks_.total()}, to_, blocks_.bytes(), root_);
    }
    void keep_handles() { out_.keep_type(); }
    void finish() { out_.deliver(); }

private:
    const int root_;
    block_list blocks_;
    input_blocks in_;
    output out_;
    dynamic::buffer to_;
};

class all_gather_call : public movement {
public:
    all_gather_call(group& g, const void* sent, MPI_Count sent_count, MPI_Datatype sent_type, void* received,
        MPI_Count count, MPI_Datatype type)
        : out_(received, in_all(count, g), type),
          in_(sent == MPI_IN_PLACE ? input(own_block(received, count, type, g), static_cast<std::size_t>(count), type)
                                   : input(sent, static_cast<std::size_t>(sent_count), sent_type)) {
        if (aliases_equal(sent, sent_count, sent_type, received, count, elements_before(g, count), type)) return;
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::all_gather(comm, bytes_of(in_), bytes_of(out_));
    }
    void keep_handles() { out_.keep_type(); }
    void finish() { out_.deliver(); }

private:
    output out_;
    const input in_;
};

class all_gather_v_call : public movement {
public:
    all_gather_v_call(group& g, const void* sent, MPI_Count sent_count, MPI_Datatype sent_type, void* received,
        const numbers& counts, const numbers& displacements, MPI_Datatype type) {
        if (displacements.is_null() || !are_counts(counts, g.size)) return;
        if (aliases(sent, sent_count, sent_type, received, counts[g.rank], displacements[g.rank], type)) return;
        blocks_ = block_list(received, counts, displacements, type, g.size);
        out_ = output_blocks(blocks_);
        in_ = sent == MPI_IN_PLACE ? input(displaced(received, displacements[g.rank] * layout_of(type).extent),
                                         static_cast<std::size_t>(counts[g.rank]), type)
                                   : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::all_gather_v(comm, bytes_of(in_), dynamic::buffer{out_.data(), blocks_.total()}, blocks_.bytes());
    }
    void keep_handles() { blocks_.keep_types(); }
    void finish() { out_.deliver(); }

private:
    block_list blocks_;
    output_blocks out_;
    input in_;
};

class all_to_all_call : public movement {
public:
    all_to_all_call(group& g, const void* sent, MPI_Count sent_count, MPI_Datatype sent_type, void* received,
        MPI_Count count, MPI_Datatype type)
        : out_(received, in_all(count, g), type),
          in_(sent == MPI_IN_PLACE ? input(received, in_all(count, g), type)
                                   : input(sent, in_all(sent_count, g), sent_type)) {
        if (aliases_equal(sent, sent_count, sent_type, received, count, 0, type)) return;
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::all_to_all(comm, bytes_of(in_), bytes_of(out_));
    }
    void keep_handles() { out_.keep_type(); }
    void finish() { out_.deliver(); }

private:
    output out_;
    const input in_;
};

/// MPI_Alltoallv and MPI_Alltoallw: `Type` is a datatype, or one for each block.
template <class Type>
class all_to_all_v_call : public movement {
public:
    all_to_all_v_call(group& g, const void* sent, const numbers& sent_counts, const numbers& sent_displacements,
        Type sent_type, void* received, const numbers& counts, const numbers& displacements, Type type) {
        if (!are_good(counts, displacements, type, g)) return;
        const bool in_place = sent == MPI_IN_PLACE;
        if (!in_place && !are_good(sent_counts, sent_displacements, sent_type, g)) return;
        // MPICH refuses the call: both sides are one buffer, with one array of counts and, of MPI_Alltoallw, of types.
        if (sent_counts.is_same_array(counts) && sent_type == type && is_refused_alias(sent, received)) return;
        to_ = block_list(received, counts, displacements, type, g.size);
        if (!in_place) from_ = block_list(sent, sent_counts, sent_displacements, sent_type, g.size);
        in_ = input_blocks(in_place ? to_ : from_);
        sent_ = in_place ? &to_ : &from_;
        out_ = output_blocks(to_);
        says_ = verdict::colls;
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::all_to_all_v(comm, dynamic::const_buffer{in_.data(), sent_->total()},
            dynamic::buffer{out_.data(), to_.total()}, sent_->bytes(), to_.bytes());
    }
    void keep_handles() { to_.keep_types(); }
    void finish() { out_.deliver(); }

private:
    static bool are_good(const numbers& counts, const numbers& displacements, MPI_Datatype type, const group& g) {
        return type != MPI_DATATYPE_NULL && !displacements.is_null() && are_counts(counts, g.size);
    }
    static bool are_good(
        const numbers& counts, const numbers& displacements, const MPI_Datatype types[], const group& g) {
        if (types == nullptr || displacements.is_null() || !are_counts(counts, g.size)) return false;
        for (int i = 0; i < g.size; ++i)
            if (counts[i] > 0 && types[i] == MPI_DATATYPE_NULL) return false;
        return true;
    }

    block_list from_, to_;
    const block_list* sent_ = nullptr;
    input_blocks in_;
    output_blocks out_;
};

/// The arguments that all ranks have to all_gather and all_to_all.
bool are_sound(const void* sent, MPI_Count sent_count, MPI_Datatype sent_type, MPI_Count count, MPI_Datatype type) {
    return colls_mpi::are_sound(count, type) && (sent == MPI_IN_PLACE || colls_mpi::are_sound(sent_count, sent_type));
}

}  // namespace

extern "C" {

int MPI_Barrier(MPI_Comm comm) {
    bool first = false;
    const auto by_group = [](const shared_group& g, barrier_call& call) { perform(*g, call); };
    const auto ours = [&] {
        first = is_first_barrier(comm);
        if (first) meet(comm);
        return !first && use_group<barrier_call>(comm, true, by_group);
    };
    return by_colls_or_mpi(function::barrier, comm, ours, [&] { return first ? MPI_SUCCESS : PMPI_Barrier(comm); });
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
    return start<barrier_call>(function::ibarrier, comm, request, true, [&] { return PMPI_Ibarrier(comm, request); });
}

#if COLLS_MPI_HAS_PERSISTENT
int COLLS_MPI_PERSISTENT(Barrier)(MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<barrier_call>(function::barrier_init, comm, request, true,
        [&] { return COLLS_MPI_PERSISTENT_OF_MPI(Barrier)(comm, info, request); });
}
#endif

}  // extern "C"

#define COLLS_MPI_FUNCTIONS "data_movement_functions.hpp"
#include "both_counts.hpp"
