// compressed_all_reduce: a sum of floats over all ranks, exchanged as elements of fewer bytes.
//
//     colls::compressed_all_reduce<> exchange(gradient.size());               // int8 in blocks of 128, direct
//     for (...) exchange(comm, gradient);                                     // the sum, on every rank
//
// Compression is a policy of type and operator. The element type says what a value is exchanged as: quantized<int8_t>,
// quantized<fp8_e4m3>, quantized<fp8_e5m2> (quantized.hpp), bfloat16, half, or a user's own type whose accumulator is
// made of floats. The operator, colls::sum, folds such elements in their accumulator and rounds once a fold. So every
// schedule and every transport exchanges them as they are.
//
// How often a value is rounded. Each rank rounds its contribution once; then each fold on the way to the result rounds
// again. The proof counts these folds (fold_depth): with `direct` there is 1, with `ring` n - 1, with `tree<2>`
// log2(n). error_bound follows from the count. The owner of a part of the result rounds it, and the other ranks copy
// what it sends: the same bits on every rank, which the header requires of the schedule (properties::rank_identical).
//
// Error feedback: what the rounding of a rank's contribution loses is kept and added to its next contribution (Seide et
// al. 2014, "1-Bit Stochastic Gradient Descent"; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD"). So over many
// calls nothing that a rank contributes is lost. What a fold loses is not fed back: it is a reason to choose a schedule
// with one.
//
// The buffer is cut into chunks: a rank quantises one while the ones before are exchanged.
#pragma once

#include <colls/collectives.hpp>
#include <colls/cost.hpp>
#include <colls/patterns/detail/convert_loops.hpp>
#include <colls/patterns/quantized.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/verify.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1 {

/// The largest error of converting floats to an element of type E, as a part of the largest magnitude in the element.
template <class E>
inline constexpr double worst_error = E::worst_error;
/// None.
template <>
inline constexpr double worst_error<float> = 0;
/// Half a unit in the last place.
template <>
inline constexpr double worst_error<bfloat16> = 0x1p-8;
/// Half a unit in the last place.
template <>
inline constexpr double worst_error<half> = 0x1p-11;

/// How floats are exchanged. The same on every rank.
struct compression {
    /// Adds to each call what the calls before lost in rounding the rank's contribution.
    bool error_feedback = true;
    /// Floats that are quantised and exchanged at a time, rounded up to whole elements. Each chunk is a call of its
    /// own: with many small ones the calls cost more than the overlap brings.
    std::size_t chunk = std::size_t{1} << 20;
};

/// Sums `count` floats over the ranks, exchanged as Elements.
///
///   Element   quantized<...>, bfloat16, half, float, or a trivially copyable type whose accumulator is float or a
///             struct of floats, to and from which it converts explicitly
///   Schedule  a family or a schedule of all_reduce by which all ranks get the same bits
///
/// One call sends what an all_reduce of elements() Elements sends: with quantized<Code, B> and direct 2 (n - 1) / n
/// (B + 4) / (4 B) of the bytes of the floats. It holds elements() Elements, and with error feedback `count` floats.
/// A NaN or an infinity on one rank makes the element NaN (or infinite: bfloat16) on every rank, and leaves no
/// residual.
template <class Element = quantized<std::int8_t>, class Schedule = direct>
class compressed_all_reduce {
    static_assert(detail::holds_floats<Element>,
        "colls: compressed_all_reduce: the element type must be trivially copyable, and convert explicitly from and to "
        "its accumulator, which is float or a struct of floats (operators.hpp)");

public:
    using element = Element;                                          ///< what travels
    using schedule = schedule_for<Schedule, collective::all_reduce>;  ///< how it travels

    /// Floats in an element.
    static constexpr std::size_t values_each = detail::float_tile<Element>::values_each;

    /// `count`: of floats, the same on every rank.
    explicit compressed_all_reduce(std::size_t count, compression how = {})
        : count_(count),
          chunk_(std::max<std::size_t>(1, elements_for(std::min(how.chunk, count)))),
          buffer_(elements_for(count)),
          residual_(how.error_feedback ? count : 0) {}

    /// Replaces x by its sum over the ranks. Collective.
    ///
    /// @param x  count() floats
    ///
    /// Throws colls::error as all_reduce does (collectives.hpp). After an error x and the residual are unspecified.
    void operator()(communicator& comm, std::span<float> x) {
        start(comm, x);
        wait();
    }

    /// Starts the sum; x must stay as it is until wait() has put the result there. One sum at a time.
    void start(communicator& comm, std::span<float> x) {
        check(comm, x.size());
        x_ = x;
        std::vector<operation> all;  // after an error none is in flight
        for (std::size_t at = 0; at < buffer_.size(); at += chunk_) {
            const part p = part_at(at);
            detail::compress_array(x.data() + p.first, residual_.empty() ? nullptr : residual_.data() + p.first,
                p.count, buffer_.data() + at);
            all.push_back(colls::start::all_reduce<Schedule>(
                comm, std::span(buffer_).subspan(at, std::min(chunk_, buffer_.size() - at)), sum));
            all.front().test();  // moves on all that are in flight
        }
        in_flight_ = std::move(all);
    }

    /// Waits for the sum that was started.
    void wait() {
        std::size_t at = 0;
        std::vector<operation> all = std::move(in_flight_);
        for (operation& o : all) {
            o.wait();
            const part p = part_at(at);
            detail::decompress_array(buffer_.data() + at, p.count, x_.data() + p.first);
            at += chunk_;
        }
    }

    std::size_t count() const { return count_; }
    /// Elements that are exchanged in place of count() floats.
    std::size_t elements() const { return buffer_.size(); }
    /// What this rank's contributions have lost so far, count() floats, or none without error feedback. A checkpoint
    /// saves and restores it; filled with zeros, it starts again.
    std::span<float> residual() { return residual_; }

    /// Bytes that the busiest of n ranks sends in a call.
    double bytes_sent(int n) const {
        const cost c = cost_of<schedule>(n);
        return c.blocks == 0 ? 0
                             : static_cast<double>(c.blocks_sent) / c.blocks *
                                   static_cast<double>(buffer_.size() * sizeof(Element));
    }
    /// How often a value is rounded to an Element between a rank's rounded contribution and the result, at most: as the
    /// proof counts it.
    static constexpr int requantisations(int n) { return n > 1 ? fold_depth<schedule>(n) : 0; }
    /// The largest error of a value of the result, as a part of the sum over n ranks of the largest magnitudes that
    /// they contribute to the element (with their residuals), up to float's own rounding.
    static constexpr double error_bound(int n) {
        double grown = 1;
        for (int left = 1 + requantisations(n); left > 0; --left) grown *= 1 + worst_error<Element>;
        return grown - 1;
    }

private:
    struct part {
        std::size_t first, count;
    };
    /// Rounded up, of any number of values.
    static constexpr std::size_t elements_for(std::size_t values) {
        return values / values_each + (values % values_each != 0);
    }
    /// The floats of the chunk that begins with element `at`.
    part part_at(std::size_t at) const {
        const std::size_t first = at * values_each;
        return {first, std::min(chunk_ * values_each, count_ - first)};
    }
    void check(communicator& comm, std::size_t size) const {
        static_assert(same_bits(), "colls: compressed_all_reduce: this schedule does not give all ranks the same bits");
        (void)comm.context();  // refuses a communicator of no group before the residual changes
        if (size == count_ && in_flight_.empty()) return;
        detail::error_text text;
        text << "colls: rank " << comm.rank() << " in compressed_all_reduce: ";
        if (size != count_)
            text << "the buffer holds " << size << " floats, and should hold " << count_;
        else
            text << "the sum started before is not over: call wait() first";
        detail::refuse_call(comm.handle(), errc::invalid_argument, text.text());
    }
    struct finding {
        bool same = false;
    };
    static constexpr finding ranks_agree(int n) {
        return {!supports(schedule{}, n) || properties_of<schedule>(n).rank_identical};
    }
    // A constant each: compilers limit the steps of one evaluation.
    template <int n>
    static constexpr finding at_size = ranks_agree(n);
    static constexpr bool same_bits() {
        return at_size<2>.same && at_size<3>.same && at_size<4>.same && at_size<5>.same && at_size<8>.same;
    }

    std::size_t count_, chunk_;  // floats; elements
    std::vector<Element> buffer_;
    std::vector<float> residual_;
    std::span<float> x_;
    std::vector<operation> in_flight_;  // last: its buffer outlives it
};

}  // namespace colls::inline v1
