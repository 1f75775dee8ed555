// class token_exchange: rows go to ranks that their data chooses, and results come back in the rows' own order.
//
// What a mixture of experts does with tokens (to the rank of the expert, and back: Lepikhin et al. 2020, GShard), and a
// sharded embedding with ids (to the owner of the row, which returns it).
#pragma once

#include <colls/collectives.hpp>
#include <colls/detail/support/sizes.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace colls::inline v1 {

/// Which row goes to which rank. Made once for a list of destinations, then used any number of times in both directions
/// and for rows of any type and width:
///
///     colls::token_exchange exchange(comm, destinations);           // destinations[i]: the rank for row i
///     std::vector<float> there(exchange.received() * width);
///     exchange.dispatch(rows, there, width);                        // rows of all ranks, by rank, then in their order
///     compute(there);
///     exchange.collect(there, rows, width);                         // row i is back at place i
///
/// collect is the transpose of dispatch: where one is used in a forward pass, the other takes the gradient back.
///
/// All members that are marked collective are called by all ranks of the group in the same order. The communicator must
/// outlive the exchange. Memory: two numbers for each row, and in a call the rows that move.
class token_exchange {
public:
    /// Collective: tells each rank how many rows it receives from each other.
    ///
    /// @param comm          the group
    /// @param destinations  for each row of this rank the rank that receives it, or colls::none for a row that stays
    ///                      behind: it is not sent, and collect leaves its place as it is. Any number of rows, or none.
    /// @param refusal       where not empty, why this rank has no valid rows: refused on all ranks, as below. A caller
    ///                      that checks what destinations were made of can so fail on all ranks at once.
    ///
    /// Throws colls::error on all ranks where one rank refuses its rows, for a destination out of range or by
    /// `refusal`: invalid_argument on that rank, peer_failed on the others. No row has moved, and the group stays
    /// whole. Cost: one all_to_all of one number a rank.
    token_exchange(communicator& comm, std::span<const int> destinations, std::string_view refusal = {})
        : comm_(comm), places_(destinations.size()) {
        const int n = comm.size();
        detail::error_text wrong;
        wrong << "colls: rank " << comm.rank() << " in token_exchange: ";
        bool refused = !refusal.empty();
        if (refused) wrong << refusal;
        for (std::size_t i = 0; i < destinations.size() && !refused; ++i) {
            refused = destinations[i] != none && (destinations[i] < 0 || destinations[i] >= n);
            if (refused)
                wrong << "destination " << destinations[i] << " of row " << i
                      << " is out of range: this group has ranks 0 to " << n - 1;
        }
        const auto ranks = static_cast<std::size_t>(n);
        sent_.assign(ranks, refused ? refused_count : 0);
        received_.resize(ranks);
        if (!refused)
            for (const int d : destinations)
                if (d != none) ++sent_[static_cast<std::size_t>(d)];
        all_to_all(comm, sent_, received_);
        if (refused) throw error(errc::invalid_argument, wrong.text(), comm.rank());
        const auto refuser = std::ranges::find(received_, refused_count);
        if (refuser != received_.end()) {
            const int peer = static_cast<int>(refuser - received_.begin());
            detail::error_text text;
            text << "colls: rank " << comm.rank() << " in token_exchange: rank " << peer
                 << " refused its own rows, so none has moved; its error says why";
            throw error(errc::peer_failed, text.text(), comm.rank(), peer);
        }
        // Where each row lies when rows are sorted by destination, those of one destination in their own order.
        std::vector<std::size_t> next(ranks);
        std::exclusive_scan(sent_.begin(), sent_.end(), next.begin(), std::size_t{0});
        for (std::size_t i = 0; i < places_.size(); ++i)
            places_[i] = destinations[i] == none ? stays : next[static_cast<std::size_t>(destinations[i])]++;
    }

    /// The number of this rank's rows, those that stay behind included.
    std::size_t rows() const { return places_.size(); }
    /// The number of rows that this rank sends, those to itself included.
    std::size_t sent() const { return std::accumulate(sent_.begin(), sent_.end(), std::size_t{0}); }
    /// The number of rows that this rank receives, those from itself included.
    std::size_t received() const { return std::accumulate(received_.begin(), received_.end(), std::size_t{0}); }
    /// For each rank the number of rows that go there.
    std::span<const std::size_t> sent_counts() const { return sent_; }
    /// For each rank the number of rows that come from there.
    std::span<const std::size_t> received_counts() const { return received_; }

    /// Collective: sends each row to its destination.
    ///
    /// @param in     this rank's rows, rows() * width elements
    /// @param out    received() * width elements: receives the rows from all ranks, ordered by rank, then as they lie
    ///               in that rank's input. Must not overlap in.
    /// @param width  elements a row, the same on every rank
    ///
    /// Throws colls::error as all_to_all_v does. Cost: one all_to_all_v.
    template <class In, class Out>
    void dispatch(const In& in, Out&& out, std::size_t width) {
        const std::span from(in);
        using element = typename decltype(from)::value_type;
        expect("input", from.size(), "rows()", rows(), width);
        std::vector<element> sorted(sent() * width);
        for (std::size_t i = 0; i < rows(); ++i)
            if (places_[i] != stays) std::copy_n(from.data() + i * width, width, sorted.data() + places_[i] * width);
        all_to_all_v(comm_, sorted, out, in_elements(sent_, width), in_elements(received_, width));
    }

    /// Collective: returns a row for each received one to where that came from.
    ///
    /// @param in     received() * width elements: a row for each row that dispatch left in its output, in that order
    /// @param out    rows() * width elements: receives the row for each of this rank's rows, in their own order. Rows
    ///               that stayed behind are left as they are. Must not overlap in.
    /// @param width  elements a row, the same on every rank; need not be that of dispatch
    ///
    /// Throws colls::error as all_to_all_v does. Cost: one all_to_all_v.
    template <class In, class Out>
    void collect(const In& in, Out&& out, std::size_t width) {
        const std::span to(out);
        using element = typename decltype(to)::value_type;
        expect("output", to.size(), "rows()", rows(), width);
        std::vector<element> sorted(sent() * width);
        all_to_all_v(comm_, in, sorted, in_elements(received_, width), in_elements(sent_, width));
        for (std::size_t i = 0; i < rows(); ++i)
            if (places_[i] != stays) std::copy_n(sorted.data() + places_[i] * width, width, to.data() + i * width);
    }

private:
    static constexpr std::size_t refused_count = static_cast<std::size_t>(-1), stays = static_cast<std::size_t>(-1);

    static std::vector<std::size_t> in_elements(std::vector<std::size_t> counts, std::size_t width) {
        for (std::size_t& count : counts) count *= width;
        return counts;
    }
    void expect(const char* buffer, std::size_t held, const char* what, std::size_t rows, std::size_t width) const {
        const std::size_t wanted = detail::capped_product(rows, width);
        if (held == wanted) return;
        detail::error_text text;
        text << "colls: rank " << comm_.rank() << " in token_exchange: the " << buffer << " has " << held
             << " elements, and should have ";
        if (wanted > detail::longest_memory)
            text << rows << " * " << width << ", which is more than there is memory for";
        else
            text << wanted << ", which is " << what << " * width";
        detail::refuse_call(comm_.handle(), errc::invalid_argument, text.text());
    }

    communicator& comm_;
    std::vector<std::size_t> places_;           // of each row among the rows that are sent
    std::vector<std::size_t> sent_, received_;  // rows for and from each rank
};

}  // namespace colls::inline v1
