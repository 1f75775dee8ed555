// The group of all ranks of a world whose ranks pass messages.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/backend/group_to_form.hpp>
#include <colls/detail/choose/two_level_candidates.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/transport/hosts/group.hpp>

namespace colls::inline v1::detail::hosts {

/// A loopback, or a fast network. Not measured: all ranks must predict alike, before they have a way to agree.
inline machine usual_figures(int cores) {
    return {.alpha = 4.5e-6, .beta = 2.8e-10, .gamma = 1.5e-10, .cores = cores, .message = 3e-6};
}

/// `number`: equal on all ranks, and of no other world. `cores`: cores_together::plenty where no host has more ranks
/// than cores. `near`: the memory of this rank's host, null where messages go over TCP also within hosts. `way`: null
/// for TCP. Throws colls::error, std::bad_alloc.
inline communicator group_of_all(descriptor&& listening, std::vector<site>&& sites, std::uint64_t number, int rank,
    int cores, std::shared_ptr<arena> near, std::shared_ptr<inter_node_transport> way = nullptr) {
    std::vector<int> all;
    for (std::size_t r = 0; r < sites.size(); ++r) all.push_back(static_cast<int>(r));
    const int n = static_cast<int>(all.size());
    const std::vector<int> members = all;
    number &= ~std::uint64_t{7};
    const colls::detail::group_to_form f({number, rank, members, cores < cores_together::plenty});
    const auto s = std::make_shared<process_context>(
        std::move(listening), std::move(sites), number, rank, usual_figures(cores), std::move(near), std::move(way));
    communicator comm = extend::join(group::member_of(s, f, std::move(all)), rank, n);
    comm.context().two_levels = &two_level_candidates_on;  // compiled here, not in units that only make calls
    return comm;
}

}  // namespace colls::inline v1::detail::hosts
