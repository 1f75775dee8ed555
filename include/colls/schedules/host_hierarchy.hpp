// host_hierarchy<Inter>: a hierarchy for hosts (nodes) of different sizes, with ranks in any order.
#pragma once

#include <colls/detail/derive/by_hosts/by_hosts.hpp>
#include <colls/extend/host_map.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

/// Data go straight from rank to rank within a host, and by Inter between hosts. Where `hierarchical` needs hosts of
/// equally many consecutive ranks, this takes a map: which ranks share a host. A group of world() that knows its hosts
/// passes its map where the family is given by type alone; with no map all ranks are those of one host.
///
/// Blocks are cut into lanes. On each host every lane has one rank that owns it, and the owners of a lane are the ranks
/// of an Inter schedule of its own. With as many lanes as the largest host has ranks (the default), every rank of that
/// host talks to the other hosts, and a rank of a host with s ranks does so for about lanes / s lanes, in a message for
/// each. One lane makes one leader for each host: the fewest messages, for small buffers; for large ones it is slower
/// wherever one rank alone cannot fill a host's link.
///     all_reduce      to the lanes' owners, Inter all_reduce of each lane, from the owners to all
///     broadcast       from the root to the owners on its host, Inter, from the owners to all; reduce is the reverse
///     all_gather      Inter of each lane (lane l: the blocks of the ranks at place l), from the owners to all;
///                     reduce_scatter is the reverse
///     scatter         Inter of whole hosts' blocks among leaders, then within each host; gather is the reverse
///     barrier         derived
/// Not offered: all_to_all, since ranks of a small host would hold more blocks between its two levels than at the ends;
/// and scans, which follow the order of ranks, as a map need not.
///
///   group sizes   that of the map, if Inter supports the number of hosts (and has no scratch slots)
///   rounds        those of Inter among the hosts, and 1 within hosts before them (reduce_scatter, gather), after them
///                 (all_gather, scatter) or both (all_reduce; broadcast and reduce, but 1 with one lane)
///   bytes         of S bytes in all, a host sends to other hosts what one rank does by Inter, all lanes together: for
///                 all_reduce by circulant among h hosts 2 (h - 1) / h of S; a rank of a host of s ranks moves at
///                 most (s - 1) of its lanes and its share of the others within the host, for all_reduce about
///                 2 (s - 1) / s of S
///   ports         lanes times those of Inter; at least one less than the largest host has ranks
///   scratch       none
///   order         derived by the proof; hosts of consecutive ranks keep the order of ranks where Inter does
template <class Inter>
struct host_hierarchy {
    static_assert(
        schedule<Inter> || family<Inter>, "colls: host_hierarchy<Inter>: Inter must be a family or a schedule");
    host_map hosts{};  ///< which ranks share a host
    int lanes = 0;     ///< all_reduce, broadcast and reduce: lanes at most; 0: as many as the largest host has ranks
    int root = 0;      ///< of rooted collectives: a call with another root rotates the ranks, across hosts
    Inter inter{};     ///< between the hosts

    template <collective C>
        requires(detail::derived<decltype(detail::by_hosts<C>(std::declval<const host_hierarchy<Inter>&>()))>)
    constexpr auto make() const {
        return detail::by_hosts<C>(*this);
    }
};

}  // namespace colls::inline v1
