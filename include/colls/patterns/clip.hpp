// Clipping of gradients by their global norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent
// neural networks").
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/operators.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace colls::inline v1 {

/// What the ranks have of a gradient.
enum class gradient_layout {
    replicated,  ///< every rank has all of it, as after an all_reduce
    sharded      ///< every rank has a part of its own, as after a reduce_scatter; parts may differ in length
};

/// Scales all gradients so that the 2-norm of all their elements together is at most `max_norm`. Collective; the same
/// factor on every rank.
///
/// @param gradients  this rank's gradients. Replicated: of the same lengths on every rank
/// @param max_norm   positive
/// @param layout     whether gradients are replicated or sharded over the ranks of comm
///
/// Returns the norm before. Where that is not finite, the gradients stay as they are, so that the caller may skip the
/// step. Squares are summed in double. Throws invalid_argument where max_norm is not positive, and as
/// colls::all_reduce.
///
/// Costs one all_reduce of 8 bytes. Each rank squares what it has, or of replicated gradients its block.
template <class T>
double clip_by_global_norm(communicator& comm, const std::vector<std::span<T>>& gradients, double max_norm,
    gradient_layout layout = gradient_layout::replicated) {
    if (!(max_norm > 0))
        throw error(errc::invalid_argument, "colls: clip_by_global_norm: max_norm must be positive", comm.rank());
    double squares = 0;
    for (const std::span<T>& gradient : gradients) {
        std::span<const T> own = gradient;
        if (layout == gradient_layout::replicated) {
            const buffer_block block = block_of(gradient.size(), comm.size(), comm.rank());
            own = own.subspan(block.offset, block.size);
        }
        for (const T& x : own) squares += static_cast<double>(x) * static_cast<double>(x);
    }
    all_reduce(comm, std::span(&squares, 1), sum);
    const double norm = std::sqrt(squares);
    if (std::isfinite(norm) && norm > max_norm) {
        const double factor = max_norm / norm;
        for (const std::span<T>& gradient : gradients)
            for (T& x : gradient) x = static_cast<T>(static_cast<double>(x) * factor);
    }
    return norm;
}

}  // namespace colls::inline v1
