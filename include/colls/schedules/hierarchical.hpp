// hierarchical<Intra, Inter>: one family inside each node, another across the nodes.
#pragma once

#include <colls/detail/derive/two_level/two_level.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

/// A family over two families (or schedules), for nodes of `node` consecutive ranks: Intra inside each node, Inter
/// among the ranks of equal place in all nodes. Either may itself be hierarchical. node = 0 (the default) stands for
/// the largest divisor of n whose square is at most n. Legal where node divides n and the levels support their sizes.
///     all_reduce      Intra reduce_scatter, Inter all_reduce on what each rank owns, Intra all_gather
///                     (Intra reduce, Inter all_reduce among leaders, Intra broadcast where Intra has only those)
///     reduce_scatter  Intra, then Inter; all_gather is the reverse
///     broadcast       Inter among the leaders, then Intra; reduce: Intra, then Inter
///     scatter         Inter of whole nodes' blocks among the leaders, then Intra; gather is the reverse
///     all_to_all      Intra on blocks grouped by place, then Inter, one message for all places
///     scans           Intra's scan, Inter's exclusive scan of the nodes' totals among their last ranks, Intra's
///                     broadcast of its result, a local reduction (levels of one block; combines in rank order)
///
/// Law:  rounds and bytes moved are the sums of the levels'. Inter moves 1 / node of the data in all_reduce and
///       reduce_scatter.
template <class Intra, class Inter>
struct hierarchical {
    static_assert((schedule<Intra> || family<Intra>) && (schedule<Inter> || family<Inter>),
        "colls: hierarchical<Intra, Inter>: Intra and Inter must be families or schedules");
    int node = 0;   ///< ranks of a node; 0: chosen by n, as above
    Intra intra{};  ///< inside each node
    Inter inter{};  ///< between the nodes

    template <collective C>
        requires(detail::derived<decltype(detail::two_level<C>(std::declval<const hierarchical<Intra, Inter>&>()))>)
    constexpr auto make() const {
        return detail::two_level<C>(*this);
    }
};

}  // namespace colls::inline v1
