// The collectives that move data, as bytes: ranks may name the same data by different datatypes.
#include "blocks.hpp"
#include "buffers.hpp"
#include "call.hpp"

#include <colls/dynamic.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

using namespace colls_mpi;
namespace dynamic = colls::dynamic;

dynamic::const_buffer bytes_of(const input& in) { return {in.data(), in.bytes()}; }
dynamic::buffer bytes_of(const output& out) { return {out.data(), out.bytes()}; }

std::size_t in_all(int count, const group& g) {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(g.size);
}
/// The rank's own block of `count` elements, of those from `base` on.
std::byte* own_block(const void* base, int count, MPI_Datatype type, const group& g) {
    return displaced(base, static_cast<MPI_Aint>(g.rank) * count * layout_of(type).extent);
}
bool all_sound(const int counts[], int size) {
    return counts != nullptr && std::all_of(counts, counts + size, [](int count) { return count >= 0; });
}

}  // namespace

extern "C" {

int MPI_Barrier(MPI_Comm comm) {
    const auto ours = [](group& g) {
        dynamic::barrier(g.comm);
        return true;
    };
    return run(function::barrier, comm, true, ours, [&] { return PMPI_Barrier(comm); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        if (!is_rank(root, g)) return false;
        if (g.rank == root) {
            const input in(buffer, static_cast<std::size_t>(count), type);
            // The root's buffer is not written.
            dynamic::broadcast(g.comm, {const_cast<std::byte*>(in.data()), in.bytes()}, root);
        } else {
            const output out(buffer, static_cast<std::size_t>(count), type);
            dynamic::broadcast(g.comm, bytes_of(out), root);
            out.deliver();
        }
        return true;
    };
    return run(function::bcast, comm, are_sound(count, type), ours,
        [&] { return PMPI_Bcast(buffer, count, type, root, comm); });
}

int MPI_Gather(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, int count, MPI_Datatype type,
    int root, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        const bool in_place = sent == MPI_IN_PLACE;
        if (!is_rank(root, g) || (!in_place && !are_sound(sent_count, sent_type))) return false;
        if (g.rank != root) {
            if (in_place) return false;
            dynamic::gather(g.comm, bytes_of(input(sent, static_cast<std::size_t>(sent_count), sent_type)), {}, root);
            return true;
        }
        if (!are_sound(count, type)) return false;
        const output out(received, in_all(count, g), type);
        const input in = in_place ? input(own_block(received, count, type, g), static_cast<std::size_t>(count), type)
                                  : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        dynamic::gather(g.comm, bytes_of(in), bytes_of(out), root);
        out.deliver();
        return true;
    };
    return run(function::gather, comm, true, ours,
        [&] { return PMPI_Gather(sent, sent_count, sent_type, received, count, type, root, comm); });
}

int MPI_Gatherv(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, const int counts[],
    const int displacements[], MPI_Datatype type, int root, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        const bool in_place = sent == MPI_IN_PLACE;
        if (!is_rank(root, g) || (!in_place && !are_sound(sent_count, sent_type))) return false;
        if (g.rank != root) {
            if (in_place) return false;
            const input in(sent, static_cast<std::size_t>(sent_count), sent_type);
            dynamic::gather_v(g.comm, bytes_of(in), {}, {}, root);
            return true;
        }
        if (type == MPI_DATATYPE_NULL || displacements == nullptr || !all_sound(counts, g.size)) return false;
        const block_list blocks(received, counts, displacements, type, g.size);
        const output_blocks out(blocks);
        const auto own = static_cast<std::size_t>(g.rank);
        const input in = in_place ? input(displaced(received, displacements[own] * layout_of(type).extent),
                                        static_cast<std::size_t>(counts[own]), type)
                                  : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        dynamic::gather_v(g.comm, bytes_of(in), {out.data(), blocks.total()}, blocks.bytes(), root);
        out.deliver();
        return true;
    };
    return run(function::gatherv, comm, true, ours,
        [&] { return PMPI_Gatherv(sent, sent_count, sent_type, received, counts, displacements, type, root, comm); });
}

int MPI_Scatter(const void* sent, int count, MPI_Datatype type, void* received, int received_count,
    MPI_Datatype received_type, int root, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        const bool in_place = received == MPI_IN_PLACE;
        if (!is_rank(root, g) || (!in_place && !are_sound(received_count, received_type))) return false;
        if (g.rank != root) {
            if (in_place) return false;
            const output out(received, static_cast<std::size_t>(received_count), received_type);
            dynamic::scatter(g.comm, {}, bytes_of(out), root);
            out.deliver();
            return true;
        }
        if (!are_sound(count, type)) return false;
        const input in(sent, in_all(count, g), type);
        if (in_place) {
            const std::size_t own = in.bytes() / static_cast<std::size_t>(g.size);
            auto* const block = const_cast<std::byte*>(in.data()) + own * static_cast<std::size_t>(g.rank);
            dynamic::scatter(g.comm, bytes_of(in), {block, own}, root);
            return true;
        }
        const output out(received, static_cast<std::size_t>(received_count), received_type);
        dynamic::scatter(g.comm, bytes_of(in), bytes_of(out), root);
        out.deliver();
        return true;
    };
    return run(function::scatter, comm, true, ours,
        [&] { return PMPI_Scatter(sent, count, type, received, received_count, received_type, root, comm); });
}

int MPI_Scatterv(const void* sent, const int counts[], const int displacements[], MPI_Datatype type, void* received,
    int received_count, MPI_Datatype received_type, int root, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        const bool in_place = received == MPI_IN_PLACE;
        if (!is_rank(root, g) || (!in_place && !are_sound(received_count, received_type))) return false;
        if (g.rank != root) {
            if (in_place) return false;
            const output out(received, static_cast<std::size_t>(received_count), received_type);
            dynamic::scatter_v(g.comm, {}, bytes_of(out), {}, root);
            out.deliver();
            return true;
        }
        if (type == MPI_DATATYPE_NULL || displacements == nullptr || !all_sound(counts, g.size)) return false;
        const block_list blocks(sent, counts, displacements, type, g.size);
        const input_blocks in(blocks);
        if (in_place) {
            auto* const own = const_cast<std::byte*>(in.data()) + blocks.bytes_before(g.rank);
            dynamic::scatter_v(g.comm, {in.data(), blocks.total()},
                {own, blocks.bytes()[static_cast<std::size_t>(g.rank)]}, blocks.bytes(), root);
            return true;
        }
        const output out(received, static_cast<std::size_t>(received_count), received_type);
        dynamic::scatter_v(g.comm, {in.data(), blocks.total()}, bytes_of(out), blocks.bytes(), root);
        out.deliver();
        return true;
    };
    return run(function::scatterv, comm, true, ours, [&] {
        return PMPI_Scatterv(sent, counts, displacements, type, received, received_count, received_type, root, comm);
    });
}

int MPI_Allgather(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, int count,
    MPI_Datatype type, MPI_Comm comm) {
    const bool in_place = sent == MPI_IN_PLACE;
    const auto ours = [&](group& g) {
        const output out(received, in_all(count, g), type);
        const input in = in_place ? input(own_block(received, count, type, g), static_cast<std::size_t>(count), type)
                                  : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        dynamic::all_gather(g.comm, bytes_of(in), bytes_of(out));
        out.deliver();
        return true;
    };
    return run(function::allgather, comm, are_sound(count, type) && (in_place || are_sound(sent_count, sent_type)),
        ours, [&] { return PMPI_Allgather(sent, sent_count, sent_type, received, count, type, comm); });
}

int MPI_Allgatherv(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, const int counts[],
    const int displacements[], MPI_Datatype type, MPI_Comm comm) {
    const bool in_place = sent == MPI_IN_PLACE;
    const auto ours = [&](group& g) {
        if (displacements == nullptr || !all_sound(counts, g.size)) return false;
        const block_list blocks(received, counts, displacements, type, g.size);
        const output_blocks out(blocks);
        const auto own = static_cast<std::size_t>(g.rank);
        const input in = in_place ? input(displaced(received, displacements[own] * layout_of(type).extent),
                                        static_cast<std::size_t>(counts[own]), type)
                                  : input(sent, static_cast<std::size_t>(sent_count), sent_type);
        dynamic::all_gather_v(g.comm, bytes_of(in), {out.data(), blocks.total()}, blocks.bytes());
        out.deliver();
        return true;
    };
    return run(function::allgatherv, comm, type != MPI_DATATYPE_NULL && (in_place || are_sound(sent_count, sent_type)),
        ours,
        [&] { return PMPI_Allgatherv(sent, sent_count, sent_type, received, counts, displacements, type, comm); });
}

int MPI_Alltoall(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, int count, MPI_Datatype type,
    MPI_Comm comm) {
    const bool in_place = sent == MPI_IN_PLACE;
    const auto ours = [&](group& g) {
        const output out(received, in_all(count, g), type);
        const input in =
            in_place ? input(received, in_all(count, g), type) : input(sent, in_all(sent_count, g), sent_type);
        dynamic::all_to_all(g.comm, bytes_of(in), bytes_of(out));
        out.deliver();
        return true;
    };
    return run(function::alltoall, comm, are_sound(count, type) && (in_place || are_sound(sent_count, sent_type)), ours,
        [&] { return PMPI_Alltoall(sent, sent_count, sent_type, received, count, type, comm); });
}

}  // extern "C"

namespace {

bool exchange_blocks(group& g, const block_list& sent, const block_list& received) {
    const input_blocks in(sent);
    const output_blocks out(received);
    dynamic::all_to_all_v(
        g.comm, {in.data(), sent.total()}, {out.data(), received.total()}, sent.bytes(), received.bytes());
    out.deliver();
    return true;
}

}  // namespace

extern "C" {

int MPI_Alltoallv(const void* sent, const int sent_counts[], const int sent_displacements[], MPI_Datatype sent_type,
    void* received, const int counts[], const int displacements[], MPI_Datatype type, MPI_Comm comm) {
    const bool in_place = sent == MPI_IN_PLACE;
    const auto ours = [&](group& g) {
        if (displacements == nullptr || !all_sound(counts, g.size)) return false;
        const block_list to(received, counts, displacements, type, g.size);
        if (in_place) return exchange_blocks(g, to, to);
        if (sent_displacements == nullptr || !all_sound(sent_counts, g.size)) return false;
        return exchange_blocks(g, block_list(sent, sent_counts, sent_displacements, sent_type, g.size), to);
    };
    return run(function::alltoallv, comm, type != MPI_DATATYPE_NULL && (in_place || sent_type != MPI_DATATYPE_NULL),
        ours, [&] {
            return PMPI_Alltoallv(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm);
        });
}

int MPI_Alltoallw(const void* sent, const int sent_counts[], const int sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const int counts[], const int displacements[],
    const MPI_Datatype types[], MPI_Comm comm) {
    const auto are_good = [](const int c[], const int d[], const MPI_Datatype t[], const group& g) {
        if (d == nullptr || t == nullptr || !all_sound(c, g.size)) return false;
        for (int i = 0; i < g.size; ++i)
            if (c[i] > 0 && t[i] == MPI_DATATYPE_NULL) return false;
        return true;
    };
    const auto ours = [&](group& g) {
        if (!are_good(counts, displacements, types, g)) return false;
        const block_list to(received, counts, displacements, types, g.size);
        if (sent == MPI_IN_PLACE) return exchange_blocks(g, to, to);
        if (!are_good(sent_counts, sent_displacements, sent_types, g)) return false;
        return exchange_blocks(g, block_list(sent, sent_counts, sent_displacements, sent_types, g.size), to);
    };
    return run(function::alltoallw, comm, true, ours, [&] {
        return PMPI_Alltoallw(
            sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm);
    });
}

}  // extern "C"
