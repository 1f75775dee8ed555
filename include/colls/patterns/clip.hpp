// Clipping of gradients by their global norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent
// neural networks").
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/exact/exact_sum.hpp>
#include <colls/operators.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
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
/// @param op         how squares are added: colls::sum, or colls::exact, by which norm and gradients have the same bits
///                   for every number of ranks, in either layout
///
/// Returns the norm before. Where that is not finite, the gradients stay as they are, so that the caller may skip the
/// step. Squares are rounded to double, which those of float are, and are summed in it. Throws invalid_argument where
/// max_norm is not positive, and as colls::all_reduce.
///
/// Costs one all_reduce of 8 bytes (colls::exact: 280). Each rank squares what it has, or of replicated gradients its
/// block.
template <class T, class Op = sum_t>
double clip_by_global_norm(communicator& comm, const std::vector<std::span<T>>& gradients, double max_norm,
    gradient_layout layout = gradient_layout::replicated, const Op& op = {}) {
    constexpr bool is_exact = std::is_same_v<Op, exact_t>;
    static_assert(is_exact || std::is_same_v<Op, sum_t>, "colls: clip_by_global_norm takes colls::sum or colls::exact");
    if (!(max_norm > 0))
        detail::refuse_call(
            comm.handle(), errc::invalid_argument, "colls: clip_by_global_norm: max_norm must be positive");
    std::conditional_t<is_exact, exact_sum<double>, double> squares{};
    for (const std::span<T>& gradient : gradients) {
        std::span<const T> own = gradient;
        if (layout == gradient_layout::replicated) {
            const buffer_block block = block_of(gradient.size(), comm.size(), comm.rank());
            own = own.subspan(block.offset, block.size);
        }
        const auto square = [&](std::size_t i) { return static_cast<double>(own[i]) * static_cast<double>(own[i]); };
        if constexpr (is_exact)
            squares.add_each(own.size(), square);
        else
            for (std::size_t i = 0; i < own.size(); ++i) squares += square(i);
    }
    all_reduce(comm, std::span(&squares, 1), op);
    const double norm = std::sqrt(static_cast<double>(squares));
    if (std::isfinite(norm) && norm > max_norm) {
        const double factor = max_norm / norm;
        for (const std::span<T>& gradient : gradients)
            for (T& x : gradient) x = static_cast<T>(static_cast<double>(x) * factor);
    }
    return norm;
}

}  // namespace colls::inline v1
