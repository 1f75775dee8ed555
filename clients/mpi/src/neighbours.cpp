// The neighbourhood collectives: a message to each neighbour, with all its blocks, so that the cost is not that of the
// group's size.
#include "blocks.hpp"
#include "call.hpp"
#include "numbers.hpp"

#include <colls/dynamic.hpp>
#include <colls/operation.hpp>

#include <cstddef>
#include <type_traits>
#include <vector>

namespace {

using namespace colls_mpi;
namespace dynamic = colls::dynamic;

/// Blocks of one length, in a row.
struct equal_blocks {
    const void* base;
    MPI_Count count;
    MPI_Datatype type;

    bool are_good(int) const { return base != MPI_IN_PLACE && colls_mpi::are_sound(count, type); }
    block_list of(const neighbours& all) const { return {base, count, count, type, all.order}; }
};
/// One block for all neighbours: as many copies as one of them is to have.
struct same_block : equal_blocks {
    block_list of(const neighbours& all) const { return {base, count, 0, type, all.most}; }
};
/// Blocks with lengths and displacements: `Type` is a datatype, or one for each block.
template <class Type>
struct placed_blocks {
    const void* base;
    numbers counts, displacements;
    Type type;

    /// A rank without neighbours may have no arrays.
    bool are_good(int n) const {
        if (base == MPI_IN_PLACE) return false;
        if (n > 0 && (displacements.is_null() || !are_counts(counts, n))) return false;
        if constexpr (std::is_same_v<Type, MPI_Datatype>) {
            return type != MPI_DATATYPE_NULL;
        } else {
            if (n > 0 && type == nullptr) return false;
            for (int i = 0; i < n; ++i)
                if (counts[i] > 0 && type[i] == MPI_DATATYPE_NULL) return false;
            return true;
        }
    }
    block_list of(const neighbours& all) const { return {base, counts, displacements, type, all.order}; }
};

class neighbour_call {
public:
    template <class From, class To>
    neighbour_call(group& g, const From& from, const To& to)
        : around_(g.around), sends_same_(std::is_same_v<From, same_block>) {
        if (!around_.exists || !from.are_good(around_.destinations.count) || !to.are_good(around_.sources.count))
            return;
        from_ = from.of(around_.destinations);
        to_ = to.of(around_.sources);
        in_ = input_blocks(from_);
        out_ = output_blocks(to_);
        says_ = verdict::colls;
    }
    verdict says() const { return says_; }
    template <class Mode>
    void make(colls::communicator& comm) {
        // All are started before the first wait: ranks may have their neighbours in any order.
        std::vector<colls::operation> messages;
        messages.reserve(around_.sources.ranks.size() + around_.destinations.ranks.size());
        for_each_rank(around_.sources, to_, false, [&](int rank, std::size_t at, std::size_t bytes) {
            messages.push_back(dynamic::start::recv(comm, dynamic::buffer{out_.data() + at, bytes}, rank));
        });
        for_each_rank(around_.destinations, from_, sends_same_, [&](int rank, std::size_t at, std::size_t bytes) {
            messages.push_back(dynamic::start::send(comm, dynamic::const_buffer{in_.data() + at, bytes}, rank));
        });
        colls::wait_all(messages);
    }
    void finish() { out_.deliver(); }

private:
    /// Calls f with each rank, and where its blocks begin in the packed data and how many bytes they have.
    template <class F>
    static void for_each_rank(const neighbours& all, const block_list& blocks, bool same, const F& f) {
        std::size_t at = 0;
        for (std::size_t i = 0, first = 0; i < all.ranks.size(); first = i) {
            std::size_t bytes = 0;
            for (; i < all.ranks.size() && all.ranks[i] == all.ranks[first]; ++i)
                bytes += blocks.bytes()[same ? i - first : i];
            f(all.ranks[first], same ? 0 : at, bytes);
            at += bytes;
        }
    }

    const neighbourhood& around_;
    const bool sends_same_;
    verdict says_ = verdict::refused;
    block_list from_, to_;
    input_blocks in_;
    output_blocks out_;
};

}  // namespace

#define COLLS_MPI_FUNCTIONS "neighbours_functions.hpp"
#include "both_counts.hpp"
