// Units of a flat space of elements, each cut over the ranks of a group: what ZeRO and fully sharded training keep
// their parameters, gradients and optimizer state in.
//
//     colls::sharded weights(comm, layer_sizes);             // a unit is a layer, or a bucket of layers
//     std::vector<float> mine(weights.local_size());         // this rank's shards, one after the other
//     std::vector<float> layer(weights.unit(u).size);
//     auto done = weights.start_all_gather(u, weights.local_part(u, mine), layer);
//     compute();                                             // with the layer before
//     done.wait();                                           // layer holds all of unit u
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/detail/support/sizes.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1 {

/// How units of any lengths are cut over n ranks, and the two collectives that move a unit.
///
/// The units lie one after the other in a flat space. Rank r owns one shard of each, contiguous in the unit, in rank
/// order. The shards of one unit differ by at most one element, and so do all that two ranks own: the ranks that get
/// the elements left over of one unit are followed by those that get them of the next. A unit with fewer elements than
/// there are ranks leaves some shards empty. Everything but counts() takes constant time.
///
/// The layout is the same on every rank. Not collective, except for the two start_ members, which all ranks call in the
/// same order. It refers to the communicator, which must outlive it.
class sharded {
public:
    /// @param comm   the group over which units are cut
    /// @param units  the number of elements of each unit, the same on every rank; may be 0
    ///
    /// Throws invalid_argument where they are 2^63 or more together.
    sharded(communicator& comm, std::span<const std::size_t> units) : comm_(&comm) {
        comm.context();  // throws where there is no group
        offsets_.reserve(units.size() + 1);
        for (const std::size_t size : units) offsets_.push_back(detail::capped_sum(offsets_.back(), size));
        if (size() > detail::longest_memory)
            refuse("the units have more than 2^63 elements together: a length has overflowed or is negative");
    }

    /// The number of units.
    std::size_t units() const { return offsets_.size() - 1; }
    /// The elements of all units.
    std::size_t size() const { return offsets_.back(); }

    /// Where unit u lies in the flat space. Throws colls::error (invalid_argument) where there is no such unit, as do
    /// all functions of a unit.
    buffer_block unit(std::size_t u) const {
        check(u);
        return {offsets_[u], offsets_[u + 1] - offsets_[u]};
    }
    /// Where the shard of rank r lies in unit u. Throws also where there is no such rank.
    buffer_block shard(std::size_t u, int r) const {
        // What the space up to the unit's end gives a rank, less what the space up to its beginning does.
        check(u);
        const buffer_block begin = block_of(offsets_[u], comm_->size(), r);
        const buffer_block end = block_of(offsets_[u + 1], comm_->size(), r);
        return {end.offset - begin.offset, end.size - begin.size};
    }
    /// Likewise of this rank.
    buffer_block shard(std::size_t u) const { return shard(u, comm_->rank()); }
    /// Where the shard of rank r of unit u lies among all shards of that rank.
    buffer_block local(std::size_t u, int r) const {
        check(u);
        return {block_of(offsets_[u], comm_->size(), r).size, shard(u, r).size};
    }
    /// Likewise of this rank.
    buffer_block local(std::size_t u) const { return local(u, comm_->rank()); }
    /// The elements that rank r owns, of all units together: size() / n, rounded up or down.
    std::size_t local_size(int r) const { return block_of(size(), comm_->size(), r).size; }
    /// Likewise of this rank.
    std::size_t local_size() const { return local_size(comm_->rank()); }
    /// The length of each rank's shard of unit u, as the v-variants of the calls take it.
    std::vector<std::size_t> counts(std::size_t u) const {
        std::vector<std::size_t> all;
        for (int r = 0; r < comm_->size(); ++r) all.push_back(shard(u, r).size);
        return all;
    }

    /// The part of `space`, a buffer of size() elements, that is unit u.
    template <class Buffer>
    auto unit_part(std::size_t u, Buffer&& space) const {
        return part(unit(u), std::span(space), size(), "the flat space");
    }
    /// The part of `whole`, a buffer of unit u, that is this rank's shard.
    template <class Buffer>
    auto shard_part(std::size_t u, Buffer&& whole) const {
        return part(shard(u), std::span(whole), unit(u).size, "the unit");
    }
    /// The part of `mine`, a buffer of local_size() elements, that is this rank's shard of unit u.
    template <class Buffer>
    auto local_part(std::size_t u, Buffer&& mine) const {
        return part(local(u), std::span(mine), local_size(), "what this rank owns");
    }

    /// Starts an all_gather of unit u.
    ///
    /// @param u      the unit, 0 to units() - 1
    /// @param mine   this rank's shard of the unit; may be that part of `whole`
    /// @param whole  of unit(u).size elements; holds the unit when the operation is over
    /// @return       the operation; the buffers must outlive it
    ///
    /// Errors and cost: as all_gather_v; each rank receives the unit but for its own shard.
    template <class Schedule = automatic, class Mine, class Whole>
    operation start_all_gather(std::size_t u, Mine&& mine, Whole&& whole) const {
        return start::all_gather_v<Schedule>(*comm_, std::forward<Mine>(mine), std::forward<Whole>(whole), counts(u));
    }
    /// Starts a reduce_scatter of unit u.
    ///
    /// @param u      the unit, 0 to units() - 1
    /// @param whole  of unit(u).size elements: this rank's contribution to the unit
    /// @param mine   holds the reduced shard of this rank when the operation is over; may be that part of `whole`
    /// @param op     the operator, the same on every rank
    /// @return       the operation; the buffers must outlive it
    ///
    /// Errors and cost: as reduce_scatter_v; each rank sends the unit but for its own shard.
    template <class Schedule = automatic, class Whole, class Mine, class Op>
    operation start_reduce_scatter(std::size_t u, Whole&& whole, Mine&& mine, const Op& op) const {
        return start::reduce_scatter_v<Schedule>(
            *comm_, std::forward<Whole>(whole), std::forward<Mine>(mine), counts(u), op);
    }

private:
    void check(std::size_t u) const {
        if (u < units()) return;
        refuse("there is no unit " + std::to_string(u) + ": there are " + std::to_string(units()));
    }
    template <class T>
    std::span<T> part(buffer_block where, std::span<T> of, std::size_t expected, const char* what) const {
        if (of.size() != expected)
            refuse("a buffer of " + std::to_string(of.size()) + " elements was given for " + what + ", which has " +
                   std::to_string(expected));
        return of.subspan(where.offset, where.size);
    }
    [[noreturn]] void refuse(const std::string& why) const {
        throw error(errc::invalid_argument, ("colls: sharded: " + why).c_str(), comm_->rank());
    }

    communicator* comm_;
    std::vector<std::size_t> offsets_ = {0};  // of each unit, and behind the last
};

}  // namespace colls::inline v1
