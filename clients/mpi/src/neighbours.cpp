// The neighbourhood collectives: a message to each neighbour, with all its blocks, so that the cost is not that of the
// group's size.
#include "blocks.hpp"
#include "call.hpp"
#include "held.hpp"
#include "numbers.hpp"

#include <colls/dynamic.hpp>
#include <colls/operation.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace colls_mpi;
namespace dynamic = colls::dynamic;

/// Blocks of one length, in a row; or `same`, one block for all neighbours: as many copies as one of them is to have.
/// `Type` is a datatype, here and below, or a held one.
template <class Type>
struct equal_blocks {
    const void* base;
    MPI_Count count;
    Type type;
    bool same = false;

    bool are_good(int) const { return base != MPI_IN_PLACE && colls_mpi::are_sound(count, type); }
    block_list of(const neighbours& all) const {
        return same ? block_list{base, count, 0, type, all.most} : block_list{base, count, count, type, all.order};
    }
};
/// Blocks with lengths and displacements: `Type` may also be a datatype for each block.
template <class Type>
struct placed_blocks {
    static constexpr bool same = false;
    const void* base;
    numbers counts, displacements;
    Type type;

    /// A rank without neighbours may have no arrays.
    bool are_good(int n) const {
        if (base == MPI_IN_PLACE) return false;
        if (n > 0 && (displacements.is_null() || !are_counts(counts, n))) return false;
        if constexpr (std::is_convertible_v<Type, MPI_Datatype>) {
            return type != MPI_DATATYPE_NULL;
        } else {
            const MPI_Datatype* const types = type;
            if (n > 0 && types == nullptr) return false;
            for (int i = 0; i < n; ++i)
                if (counts[i] > 0 && types[i] == MPI_DATATYPE_NULL) return false;
            return true;
        }
    }
    block_list of(const neighbours& all) const { return {base, counts, displacements, type, all.order}; }
};

/// The messages of a call, which are under way.
class messages {
public:
    messages() = default;
    explicit messages(std::size_t most) { all_.reserve(most); }
    void add(colls::operation message) { all_.push_back(std::move(message)); }
    void wait() { colls::wait_all(all_); }
    /// Looks at one that is not over, which advances the others, too. True where all are.
    bool test() {
        while (!all_.empty() && all_.back().test()) all_.pop_back();
        return all_.empty();
    }

private:
    std::vector<colls::operation> all_;
};

class neighbour_call {
public:
    template <class From, class To>
    neighbour_call(group& g, const From& from, const To& to) : around_(g.around), sends_same_(from.same) {
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
    auto make(colls::communicator& comm) {
        // All are started before the first wait: ranks may have their neighbours in any order.
        messages all(around_.sources.ranks.size() + around_.destinations.ranks.size());
        for_each_rank(around_.sources, to_, false, [&](int rank, std::size_t at, std::size_t bytes) {
            all.add(dynamic::start::recv(comm, dynamic::buffer{out_.data() + at, bytes}, rank));
        });
        for_each_rank(around_.destinations, from_, sends_same_, [&](int rank, std::size_t at, std::size_t bytes) {
            all.add(dynamic::start::send(comm, dynamic::const_buffer{in_.data() + at, bytes}, rank));
        });
        if constexpr (std::is_same_v<Mode, blocking>)
            all.wait();
        else
            return all;
    }
    void keep_handles() { to_.keep_types(); }
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
