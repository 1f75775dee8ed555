// The collectives that reduce.
#include "buffers.hpp"
#include "call.hpp"
#include "operators.hpp"

#include <colls/dynamic.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

using namespace colls_mpi;
namespace dynamic = colls::dynamic;

dynamic::const_buffer elements_of(const input& in, const folding& f) {
    return {in.data(), in.bytes() / f.element_bytes(), f.element()};
}
dynamic::buffer elements_of(const output& out, const folding& f) {
    return {out.data(), out.bytes() / f.element_bytes(), f.element()};
}

/// Input and output as the calls have them: where the input is in place, that is the output's buffer.
struct operands {
    operands(const void* sent, void* received, std::size_t count, MPI_Datatype type, const folding& f)
        : out(received, count, type, f.operand(), sent == MPI_IN_PLACE),
          in(sent == MPI_IN_PLACE ? input() : input(sent, count, type, f.operand())),
          fold(f),
          in_place(sent == MPI_IN_PLACE) {}

    dynamic::const_buffer source() const { return in_place ? dynamic::const_buffer(target()) : elements_of(in, fold); }
    dynamic::buffer target() const { return elements_of(out, fold); }

    const output out;
    const input in;
    const folding& fold;
    const bool in_place;
};

/// A scan or an all_reduce. `has_result`: false on the first rank of an exclusive scan.
template <class Call>
bool reduce_everywhere(
    const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, bool has_result, Call call) {
    const folding f(op, type);
    if (f.left_to_mpi()) return false;
    const operands x(sent, received, static_cast<std::size_t>(count), type, f);
    call(x.source(), x.target(), f.operation());
    f.check();
    if (has_result) x.out.deliver();
    return true;
}

bool reduce_and_scatter(group& g, const void* sent, void* received, const std::vector<std::size_t>& counts,
    MPI_Datatype type, MPI_Op op, bool equal_blocks) {
    const folding f(op, type);
    if (f.left_to_mpi()) return false;
    const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t own = counts[static_cast<std::size_t>(g.rank)];
    const bool in_place = sent == MPI_IN_PLACE;
    const input in(in_place ? received : sent, all, type, f.operand());
    // In place, MPI has the result at the beginning of the input, and colls where the rank's block is.
    scratch copy;
    const std::byte* from = in.data();
    if (in_place && from == received && all > 0) {
        copy = scratch(in.bytes());
        std::memcpy(copy.data(), from, in.bytes());
        from = copy.data();
    }
    const output out(received, own, type, f.operand());
    const dynamic::const_buffer source{from, all, f.element()};
    if (equal_blocks)
        dynamic::reduce_scatter(g.comm, source, elements_of(out, f), f.operation());
    else
        dynamic::reduce_scatter_v(g.comm, source, elements_of(out, f), counts, f.operation());
    f.check();
    out.deliver();
    return true;
}

}  // namespace

extern "C" {

int MPI_Reduce(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        if (!is_rank(root, g)) return false;
        const folding f(op, type);
        if (f.left_to_mpi()) return false;
        const auto n = static_cast<std::size_t>(count);
        if (g.rank == root) {
            const operands x(sent, received, n, type, f);
            dynamic::reduce(g.comm, x.source(), x.target(), f.operation(), root);
            f.check();
            x.out.deliver();
        } else {
            if (sent == MPI_IN_PLACE) return false;
            const input in(sent, n, type, f.operand());
            dynamic::reduce(g.comm, elements_of(in, f), {nullptr, 0, f.element()}, f.operation(), root);
            f.check();
        }
        return true;
    };
    return run(function::reduce, comm, are_sound(count, type), ours,
        [&] { return PMPI_Reduce(sent, received, count, type, op, root, comm); });
}

int MPI_Allreduce(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        return reduce_everywhere(sent, received, count, type, op, true,
            [&](const dynamic::const_buffer& in, const dynamic::buffer& out, const dynamic::reduction& by) {
                dynamic::all_reduce(g.comm, in, out, by);
            });
    };
    return run(function::allreduce, comm, are_sound(count, type), ours,
        [&] { return PMPI_Allreduce(sent, received, count, type, op, comm); });
}

int MPI_Scan(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        return reduce_everywhere(sent, received, count, type, op, true,
            [&](const dynamic::const_buffer& in, const dynamic::buffer& out, const dynamic::reduction& by) {
                dynamic::inclusive_scan(g.comm, in, out, by);
            });
    };
    return run(function::scan, comm, are_sound(count, type), ours,
        [&] { return PMPI_Scan(sent, received, count, type, op, comm); });
}

int MPI_Exscan(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        return reduce_everywhere(sent, received, count, type, op, g.rank > 0,
            [&](const dynamic::const_buffer& in, const dynamic::buffer& out, const dynamic::reduction& by) {
                dynamic::exclusive_scan(g.comm, in, out, by);
            });
    };
    return run(function::exscan, comm, are_sound(count, type), ours,
        [&] { return PMPI_Exscan(sent, received, count, type, op, comm); });
}

int MPI_Reduce_scatter_block(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(g.size), static_cast<std::size_t>(count));
        return reduce_and_scatter(g, sent, received, counts, type, op, true);
    };
    return run(function::reduce_scatter_block, comm, are_sound(count, type), ours,
        [&] { return PMPI_Reduce_scatter_block(sent, received, count, type, op, comm); });
}

int MPI_Reduce_scatter(
    const void* sent, void* received, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto ours = [&](group& g) {
        if (counts == nullptr || std::any_of(counts, counts + g.size, [](int count) { return count < 0; }))
            return false;
        return reduce_and_scatter(
            g, sent, received, std::vector<std::size_t>(counts, counts + g.size), type, op, false);
    };
    return run(function::reduce_scatter, comm, are_sound(0, type), ours,
        [&] { return PMPI_Reduce_scatter(sent, received, counts, type, op, comm); });
}

}  // extern "C"
