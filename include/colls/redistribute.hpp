// Redistribution: a matrix that is spread over some ranks of a group in one way goes to others, or the same, in another
// way. For the weights of a model that one group of ranks trains and another serves, or whose sharding changes.
//
// How it works
//   Pieces     The intersection of a part of the source layout with a part of the target layout moves as a whole. Where
//              replicas share a part that is cut into few pieces for that, all pieces are cut further. The slots of a
//              schedule (schedule.hpp) are the pieces that a rank holds or is to hold.
//   Senders    The replicas of a part share its pieces, in order, by size: each piece that some rank lacks leaves one
//              holder once. So a rank whose part has P elements in k replicas sends ceil(P / k) elements and one piece
//              at most. With equal parts on M ranks that is ceil(S / M) and one piece of a matrix of S elements; with
//              balanced ones a part is longer than that by less than a row, or column, of it.
//   Receivers  Where the target has r replicas of a part, its pieces are dealt to them by size as well. Each replica
//              passes on what it has got to the next one that lacks it: the pieces go round as in a ring all_gather. So
//              a receiver sends no element twice and the last stop of a piece not at all: about (r - 1) / r of a part.
//   In place   A rank of both layouts keeps what it holds and is to hold: no message carries that.
//   Rounds     In a round a rank sends one message and receives one at most. In the first hop sender i begins with
//              receiver i and goes on to i + 1, i + 2, ... (indices in the layouts, modulo the larger number of ranks),
//              so that senders have different receivers; rounds without a message are left out, and later hops begin as
//              soon as their ranks are free. That makes max(M, N) + r - 1 rounds at most, where N ranks receive. Where
//              the layouts share ranks, it is max(M, N) + 2 (r - 1); this is counted, for M, N up to 16, not derived.
//
// It is a schedule like any other, for collective::redistribute: `input` and `output` name the piece that a slot holds
// before and must hold after, from which the proof has its first and last state. Replicas hold the same data, so that
// it does not matter to the proof from which of them a piece comes. verify, proven, cost_of and the executors of all
// transports take it; every redistribution is proven before it runs for the first time.
//
//     colls::redistribute(comm, in, from, out, to);
//
// The rectangles of a rank's pieces are not contiguous in its buffer in general: then they are packed before the call,
// or unpacked after it. Of rows that go to columns only the senders pack; between layouts by rows alone no rank does.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/collectives.hpp>
#include <colls/communicator.hpp>
#include <colls/cost.hpp>
#include <colls/redistribute/detail/packing.hpp>
#include <colls/redistribute/detail/tables.hpp>
#include <colls/redistribute/layout.hpp>

#include <cstddef>
#include <type_traits>

namespace colls::inline v1 {

/// What a redistribution is to one rank, in elements.
struct redistribution_load {
    std::size_t held = 0;       ///< in its input
    std::size_t kept = 0;       ///< of these, what its output has as well
    std::size_t sent = 0;       ///< out of its input, to other ranks
    std::size_t received = 0;   ///< from other ranks
    std::size_t passed_on = 0;  ///< of what it received, to other replicas
    friend constexpr bool operator==(const redistribution_load&, const redistribution_load&) = default;
};

/// The schedule of a redistribution; `Tables` has its tables. See redistribution and redistribution_between.
template <class Tables>
struct redistribution_schedule : Tables {
    static constexpr collective implements = collective::redistribute;

    /// Groups that have all ranks of both layouts. Further ranks do nothing.
    constexpr bool supports(int n) const { return n >= this->table().ranks; }
    constexpr int rounds(int) const { return this->table().rounds; }
    constexpr int blocks(int) const { return this->table().blocks; }
    constexpr int input(int rank, int, int slot) const {
        const detail::transfer_table& t = this->table();
        const int piece = t.label_of(rank, slot);
        return piece != none && t.holds(rank, piece) ? piece : none;
    }
    constexpr int output(int rank, int, int slot) const {
        const detail::transfer_table& t = this->table();
        const int piece = t.label_of(rank, slot);
        return piece != none && t.wants(rank, piece) ? piece : none;
    }
    constexpr step at(int rank, int, int round) const {
        const detail::transfer_table& t = this->table();
        step s;
        if (rank >= t.ranks) return s;
        const detail::transfer_step& does = t.step[static_cast<std::size_t>(round) * static_cast<std::size_t>(t.ranks) +
                                                   static_cast<std::size_t>(rank)];
        if (does.to != none) s.send = {does.to, block_range(does.sent_first, does.sent_count)};
        if (does.from != none) s.recv = {does.from, block_range(does.received_first, does.received_count)};
        return s;
    }

    /// The layout before.
    constexpr const layout& from() const { return this->table().from; }
    /// The layout after.
    constexpr const layout& to() const { return this->table().to; }
    /// What slot `slot` of `rank` stands for: a rectangle of the matrix, or an empty one.
    constexpr tensor_block piece(int rank, int slot) const {
        const detail::transfer_table& t = this->table();
        const int piece = t.label_of(rank, slot);
        return piece == none ? tensor_block{} : t.piece[piece].at;
    }
    /// Counts what a rank sends and receives, from the steps.
    constexpr redistribution_load load_of(int rank) const {
        const detail::transfer_table& t = this->table();
        redistribution_load l;
        for (int slot = 0; slot < t.slots(rank); ++slot) {
            if (input(rank, 0, slot) != none) l.held += piece(rank, slot).size();
            if (input(rank, 0, slot) != none && output(rank, 0, slot) != none) l.kept += piece(rank, slot).size();
        }
        for (int round = 0; round < t.rounds; ++round) {
            const step does = at(rank, 0, round);
            for (int i = 0; does.send.peer != none && i < does.send.blocks.size(); ++i) {
                const int slot = does.send.blocks[i];
                (input(rank, 0, slot) != none ? l.sent : l.passed_on) += piece(rank, slot).size();
            }
            for (int i = 0; does.recv.peer != none && i < does.recv.blocks.size(); ++i)
                l.received += piece(rank, does.recv.blocks[i]).size();
        }
        return l;
    }
};

/// The schedule of a redistribution between layouts that are known at run time.
struct redistribution : redistribution_schedule<detail::tables_at_run_time> {
    /// Makes the schedule, which is kept until the process ends. Throws invalid_argument where the two are not layouts
    /// of matrices of one shape.
    redistribution(const layout& from, const layout& to) {
        if (from.shape() != to.shape()) detail::refuse_shapes(from, to);
        this->made = detail::transfer_table_of(from, to);
    }
};

/// The schedule of a redistribution between layouts that are constants: made, and where the program says so proven, by
/// the compiler.
///
///     static_assert(colls::proven_at<colls::redistribution_between<trained, served>, 8>);
template <layout From, layout To>
using redistribution_between = redistribution_schedule<detail::tables_at_compile_time<From, To>>;

/// A redistribution that is checked once and run often, as the weights of a model that is trained on: memory for what
/// is packed is taken once, from communicator::allocate, so that ranks on one host move it without a further copy.
///
/// Collective, as are `run` and `start`. The buffers must outlive it; it holds the group, as a plan does.
class prepared_redistribution {
public:
    /// @param comm  has all ranks of both layouts; further ranks take part with empty buffers
    /// @param in    what this rank holds by `from`: from.size_of(rank) elements, its rectangle row by row
    /// @param from  the layout of the input, the same on every rank
    /// @param out   what this rank is to hold by `to`: to.size_of(rank) elements. It must not overlap in
    /// @param to    the layout of the output, of a matrix of the same shape, the same on every rank
    ///
    /// Throws colls::error: invalid_argument where the layouts have other shapes or more ranks than the group, a buffer
    /// has another length, is null, or overlaps the other.
    template <class In, class Out>
    prepared_redistribution(communicator& comm, In&& in, const layout& from, Out&& out, const layout& to)
        : prepared_redistribution(comm, request_of<In, Out>(in, out), redistribution(from, to)) {}
    /// The same with a schedule, redistribution or redistribution_between, which has both layouts.
    template <class In, class Out, class Tables>
    prepared_redistribution(communicator& comm, In&& in, Out&& out, const redistribution_schedule<Tables>& schedule)
        : prepared_redistribution(comm, request_of<In, Out>(in, out), schedule) {}

    /// Makes the call and returns when it is over on this rank. Throws colls::error, as plan::run does.
    void run() {
        gather_pieces();
        plan_.run();
        place_pieces();
    }
    /// Starts the call. `in` must stay as it is, and out is not to be read, until wait has returned or test has
    /// returned true; before that neither run nor start may be called again.
    void start() {
        gather_pieces();
        started_ = plan_.start();
    }
    /// Returns when what was started is over. Throws colls::error where it has failed.
    void wait() {
        started_.wait();
        place_pieces();
    }
    /// Advances what was started without waiting; true where it is over. Throws as wait.
    bool test() {
        if (!started_.test()) return false;
        place_pieces();
        return true;
    }

private:
    template <class In, class Out>
    static detail::request request_of(In& in, Out& out) {
        detail::request q(collective::redistribute);
        if constexpr (detail::expect_in_and_out<true, In, Out>()) detail::set_buffers(q, in, out);
        return q;
    }
    template <class Tables>
    prepared_redistribution(communicator& comm, detail::request&& q, const redistribution_schedule<Tables>& schedule)
        : prepared_redistribution(comm, q,
              any_schedule(schedule, detail::table_of<redistribution_schedule<Tables>>, "redistribution"),
              schedule.table()) {}
    prepared_redistribution(
        communicator& comm, detail::request& q, const any_schedule& schedule, const detail::transfer_table& table)
        : in_(q.c.in),
          out_(q.c.out),
          from_(detail::packing_of(table, rank_in(comm), detail::packed_side::input, q.c.element)),
          to_(detail::packing_of(table, rank_in(comm), detail::packed_side::output, q.c.element)),
          packed_in_(comm.handle(), from_.bytes),
          packed_out_(comm.handle(), to_.bytes),
          plan_(prepare(comm, q, schedule, table)) {}

    static int rank_in(communicator& comm) {
        comm.handle();  // throws where there is no group
        return comm.rank();
    }
    plan prepare(
        communicator& comm, detail::request& q, const any_schedule& schedule, const detail::transfer_table& table) {
        detail::describe_redistribution(q, table, comm.rank(), comm.size());
        q.given = &schedule;
        comm.handle().by->check_arguments(comm.context(), q);  // of the buffers that the caller has given
        if (from_.is_needed) q.c.in = packed_in_.data();
        if (to_.is_needed) q.c.out = packed_out_.data();
        return plan(comm.handle(), q);
    }
    void gather_pieces() {
        is_placed_ = false;
        if (from_.is_needed) detail::pack(from_, in_, packed_in_.data());
    }
    void place_pieces() {
        if (to_.is_needed && !is_placed_) detail::unpack(to_, packed_out_.data(), out_);
        is_placed_ = true;
    }

    const std::byte* in_;
    std::byte* out_;
    detail::packing from_, to_;
    memory<std::byte> packed_in_, packed_out_;
    plan plan_;
    operation started_;
    bool is_placed_ = true;  ///< all that has been moved is in the output
};

/// Redistributes a matrix: rank r has in `in` what `from` gives it, and gets in `out` what `to` gives it.
///
/// Arguments and errors as those of prepared_redistribution. Collective: ranks that neither layout has take part with
/// empty buffers and do not wait. Elements are of any trivially copyable type.
///
/// Cost, with S bytes in equal parts on M ranks, to N ranks with r replicas: max(M, N) + r - 1 rounds at most where the
/// layouts share no rank; a rank of `from` sends ceil(S / M) and one piece at most, a rank of `to` receives what it
/// lacks once, and passes on about (r - 1) / r of it.
template <class In, class Out>
void redistribute(communicator& comm, In&& in, const layout& from, Out&& out, const layout& to) {
    prepared_redistribution(comm, in, from, out, to).run();
}
/// The same for layouts that are constants.
template <layout From, layout To, class In, class Out>
void redistribute(communicator& comm, In&& in, Out&& out) {
    prepared_redistribution(comm, in, out, redistribution_between<From, To>{}).run();
}

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/redistribute/detail/made_tables.hpp>
#endif
