// class gradient_buckets: sums or averages gradients over the ranks while back-propagation still runs (Li et al. 2020,
// "PyTorch Distributed: Experiences on Accelerating Data Parallel Training").
//
//     colls::gradient_buckets exchange(comm, gradients, colls::avg);  // spans, in the order of the layers
//     for (...) {
//         for (std::size_t i = gradients.size(); i-- > 0;) {
//             ...                                                               // compute gradient i
//             exchange.ready(i);
//         }
//         exchange.wait();                                                      // now the average over the ranks
//         ...                                                                   // update the weights
//     }
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/detail/support/sizes.hpp>
#include <colls/exact/exact_sum.hpp>
#include <colls/operators.hpp>
#include <colls/patterns/packed_spans.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1 {

/// How gradient_buckets exchanges. The same on every rank.
struct bucket_options {
    /// A bucket is full when it has as many bytes.
    std::size_t bucket_bytes = 256 * 1024;
    /// Ranks may have different numbers of steps: see gradient_buckets::join.
    bool uneven = false;
};

/// Exchanges gradients in buckets. Gradients fill buckets from the last to the first, since back-propagation finishes
/// them in about that order. A bucket is all-reduced as soon as all of its gradients are ready and all buckets before
/// it have started, so that all ranks start them in one order, whatever the order in which ready() is called. A bucket
/// whose gradients adjoin in memory (the next begins where the one before it ends) is reduced in place; others are
/// copied to a buffer and back.
///
/// One step is: ready(i) once for each gradient i, in any order, then wait(). Each ready() also advances what is in
/// flight; a colls::progress_thread advances it between them, too. Other calls on the communicator may be made between
/// the steps, and within a step only if every rank makes them between the same two calls of ready(), in the same order.
///
/// Errors: invalid_argument where this rank's calls are wrong (below); it may correct them and go on, as long as the
/// others wait. After any other error, which is one of colls::all_reduce, destroy this object, and make another one
/// once the communicator is whole again (communicator::shrink); the gradients are unspecified. Nothing is allocated
/// after the first step, except for scratch memory where more buckets are in flight than in all steps before.
///
/// By colls::exact (exact.hpp), on more than 32 ranks, sums are slow: one number at a time.
///
/// Costs an all_reduce for each bucket; of buckets that are not in place also their bytes of memory and two copies.
template <class T>
class gradient_buckets {
public:
    /// Collective. Throws mismatch where the ranks register gradients of different sizes, or give different options.
    ///
    /// @param comm       may be destroyed before this object, which holds the group
    /// @param gradients  in the order of the forward pass, of the same sizes on every rank; they may be empty. Their
    ///                   memory must outlive this object
    /// @param options    the size of buckets, and whether ranks may have different numbers of steps
    /// @param schedule   nothing, or as values what all_reduce takes: a schedule (or family), colls::reproducible{}
    ///
    /// The third argument is the operator: colls::sum, or colls::avg, the average over the ranks; or colls::exact,
    /// which takes no schedule: sums whose bits depend on nothing but what the ranks contribute. Costs one all_reduce
    /// of 16 bytes for each gradient.
    template <class Op, class... Schedule>
    gradient_buckets(communicator& comm, std::vector<std::span<T>> gradients, const Op&, bucket_options options = {},
        const Schedule&... schedule)
        : gradients_(std::move(gradients)),
          rank_(comm.rank()),
          ranks_(comm.size()),
          averages_(std::is_same_v<Op, avg_t>),
          is_exact_(std::is_same_v<Op, exact_t>),
          participants_(comm.size()) {
        constexpr bool is_exact = std::is_same_v<Op, exact_t>;
        static_assert(std::is_same_v<Op, sum_t> || std::is_same_v<Op, avg_t> || is_exact,
            "colls: gradient_buckets takes colls::sum, colls::avg or colls::exact");
        static_assert(
            !is_exact || sizeof...(Schedule) == 0, "colls: gradient_buckets by colls::exact takes no schedule");
        static_assert(!is_exact || detail::is_exact_number<T>,
            "colls: gradient_buckets by colls::exact takes float, double, colls::bfloat16 or colls::half");
        check_registration(comm, options);
        fill_buckets(comm, options.bucket_bytes);
        for (bucket& b : buckets_) {
            const std::span<T> data = b.data.whole();
            if constexpr (is_exact) plans_.push_back(prepare::all_reduce(comm, data, exact));
            // With uneven steps the divisor is known in wait() only.
            else if (averages_ && !options.uneven)
                plans_.push_back(prepare::all_reduce(comm, data, avg, schedule...));
            else
                plans_.push_back(prepare::all_reduce(comm, data, sum, schedule...));
        }
        if (options.uneven) {
            count_.emplace(comm.template allocate<int>(1));
            count_plan_.emplace(prepare::all_reduce(comm, *count_, sum));
        }
        in_flight_.resize(buckets_.size());
    }
    gradient_buckets(const gradient_buckets&) = delete;
    gradient_buckets& operator=(const gradient_buckets&) = delete;

    /// Gradient i has its final value of this step, and is not to be touched until wait() has returned. Throws
    /// invalid_argument where there is no gradient i, or it is ready already.
    void ready(std::size_t i) {
        if (i >= gradients_.size())
            refuse("ready(" + std::to_string(i) + "): there are " + std::to_string(gradients_.size()) + " gradients");
        if (is_ready_[i])
            refuse("ready(" + std::to_string(i) + ") was called before in this step: call wait() between two steps");
        is_ready_[i] = true;
        if (!exchanges_) return;
        if (!began_) begin(1);
        bucket& b = buckets_[bucket_of_[i]];
        b.data.pack(i - b.first);
        if (--b.missing == 0) start_full_buckets();
        while (over_ < started_ && in_flight_[over_].test()) ++over_;  // each test advances all that are in flight
    }

    /// Returns when all gradients are exchanged, and begins the next step. Throws invalid_argument where ready() has
    /// not been called for all of them; it names these.
    void wait() {
        if (!std::ranges::all_of(is_ready_, [](bool is) { return is; })) refuse(missing_text());
        if (exchanges_) {
            if (!began_) begin(1);  // there are no gradients
            finish();
        }
        end_step();
    }

    /// While the result lives, backward passes only accumulate: ready() and wait() check as always, and exchange
    /// nothing. The gradients are the caller's to add to; the first step after it exchanges the sums. Make and destroy
    /// it between two steps, on every rank for the same ones. A step within which it is destroyed, as by an exception,
    /// is forgotten.
    [[nodiscard]] auto no_sync() {
        if (has_begun_step()) refuse("no_sync() within a step: call wait() first");
        struct guard {
            gradient_buckets& buckets;
            explicit guard(gradient_buckets& b) : buckets(b) { b.exchanges_ = false; }
            guard(const guard&) = delete;
            ~guard() {
                buckets.exchanges_ = true;
                buckets.end_step();
            }
        };
        return guard(*this);
    }

    /// For options.uneven: this rank has no more steps to make. Takes part in the other ranks' steps with zeros, until
    /// every rank has joined; then all ranks return, and may make further steps. `after_step()` is called after each
    /// of these steps, when the gradients hold the same result as on the other ranks, so that this rank may make the
    /// same update. Throws invalid_argument where options.uneven is false, or within a step.
    ///
    /// Costs, as each step of uneven ranks does, an all_reduce of one int more.
    template <class AfterStep>
    void join(AfterStep after_step) {
        if (!count_plan_) refuse("join(): make the gradient_buckets with bucket_options::uneven");
        if (has_begun_step()) refuse("join() within a step: call wait() first");
        for (;;) {
            begin(0);
            counting_.wait();
            if ((*count_)[0] == 0) break;
            for (bucket& b : buckets_) {
                std::ranges::fill(b.data.whole(), T{});
                b.missing = 0;
            }
            start_full_buckets();
            finish();
            end_step();
            after_step();
        }
        began_ = false;
    }
    /// The same with nothing to do after each step.
    void join() {
        join([] {});
    }

    /// The ranks that have taken part in the last step: all, or those that had not joined.
    int participants() const { return participants_; }

    /// How many buckets there are.
    std::size_t bucket_count() const { return buckets_.size(); }
    /// The bucket of gradient i; buckets are numbered in the order in which they start.
    std::size_t bucket_of(std::size_t i) const { return bucket_of_.at(i); }
    /// Whether bucket b is reduced without a copy.
    bool in_place(std::size_t b) const { return buckets_.at(b).data.in_place(); }

private:
    struct bucket {
        packed_spans<T> data;
        std::size_t first, size;  // its gradients
        std::size_t missing;      // those that are not ready yet
    };

    [[noreturn]] void refuse(const std::string& why) const {
        throw error(errc::invalid_argument,
            ("colls: rank " + std::to_string(rank_) + " in gradient_buckets: " + why).c_str(), rank_);
    }
    std::string missing_text() const {
        std::string text = "wait(): ready() was not called for gradient";
        std::size_t missing = 0;
        for (std::size_t i = 0; i < is_ready_.size(); ++i)
            if (!is_ready_[i] && ++missing <= 5) text += (missing == 1 ? " " : ", ") + std::to_string(i);
        if (missing > 5) text += " and " + std::to_string(missing - 5) + " more";
        return text;
    }

    /// Without this, ranks whose sizes differ could sum different gradients with each other.
    void check_registration(communicator& comm, const bucket_options& options) {
        std::vector<long long> all;  // the values, then the same negated: the maxima give the greatest and the least
        for (const std::span<T>& gradient : gradients_) all.push_back(static_cast<long long>(gradient.size()));
        all.push_back(static_cast<long long>(std::min(options.bucket_bytes, detail::longest_memory)));
        all.push_back(options.uneven ? 1 : 0);
        all.push_back(averages_ ? 1 : is_exact_ ? 2 : 0);
        const std::size_t values = all.size();
        for (std::size_t i = 0; i < values; ++i) all.push_back(-all[i]);
        all_reduce(comm, all, max);
        for (std::size_t i = 0; i < values; ++i) {
            const long long greatest = all[i], least = -all[values + i];
            if (greatest == least) continue;
            const std::string what = i < gradients_.size() ? "the size of gradient " + std::to_string(i)
                                     : i + 3 == values     ? "bucket_bytes"
                                     : i + 2 == values     ? "uneven"
                                                           : "the operator (1: avg, 2: exact)";
            throw error(errc::mismatch,
                ("colls: rank " + std::to_string(rank_) + " in gradient_buckets: " + what +
                    " differs between ranks: " + std::to_string(least) + " to " + std::to_string(greatest))
                    .c_str(),
                rank_);
        }
        if (options.bucket_bytes == 0) refuse("bucket_bytes is 0");
    }

    void fill_buckets(communicator& comm, std::size_t bucket_bytes) {
        is_ready_.resize(gradients_.size());
        bucket_of_.resize(gradients_.size());
        for (std::size_t end = gradients_.size(); end > 0;) {
            std::size_t first = end, bytes = 0;
            // Empty gradients go where they do not make a bucket of their own.
            while (first > 0 && (bytes < bucket_bytes || gradients_[first - 1].empty()))
                bytes += gradients_[--first].size_bytes();
            for (std::size_t i = first; i < end; ++i) bucket_of_[i] = buckets_.size();
            buckets_.push_back({packed_spans<T>(comm, {gradients_.begin() + static_cast<std::ptrdiff_t>(first),
                                                          gradients_.begin() + static_cast<std::ptrdiff_t>(end)}),
                first, end - first, end - first});
            end = first;
        }
    }

    bool has_begun_step() const { return std::ranges::find(is_ready_, true) != is_ready_.end(); }

    /// Begins a step in which this rank takes part (1) or not (0).
    void begin(int taking_part) {
        began_ = true;
        if (!count_plan_) return;
        (*count_)[0] = taking_part;
        counting_ = count_plan_->start();
    }
    void start_full_buckets() {
        for (; started_ < buckets_.size() && buckets_[started_].missing == 0; ++started_)
            in_flight_[started_] = plans_[started_].start();
    }
    /// Waits for all buckets, and leaves their results in the gradients.
    void finish() {
        try {
            counting_.wait();
            if (count_) participants_ = (*count_)[0];
            for (std::size_t b = 0; b < buckets_.size(); ++b) {
                in_flight_[b].wait();
                packed_spans<T>& data = buckets_[b].data;
                if (averages_ && count_)
                    for (T& x : data.whole()) x = avg.finish(x, participants_);
                data.unpack();
            }
        } catch (...) {
            // So that no other rank is at the gradients any more when the caller has the error.
            for (operation& o : in_flight_) {
                try {
                    o.wait();
                } catch (const error&) {}
            }
            throw;
        }
    }
    void end_step() {
        began_ = false;
        started_ = over_ = 0;
        is_ready_.assign(is_ready_.size(), false);
        for (bucket& b : buckets_) b.missing = b.size;
    }

    std::vector<std::span<T>> gradients_;
    std::vector<bool> is_ready_;
    std::vector<std::size_t> bucket_of_;  // of each gradient
    int rank_, ranks_;
    bool averages_, is_exact_;
    bool exchanges_ = true;  // false within no_sync
    bool began_ = false;     // this step's first call has been made
    int participants_;
    std::size_t started_ = 0, over_ = 0;  // buckets of this step

    // Destroyed from the last to the first: operations before what they use.
    std::vector<bucket> buckets_;
    std::optional<memory<int>> count_;  // of uneven ranks: those that take part in this step
    std::vector<plan> plans_;
    std::optional<plan> count_plan_;
    operation counting_;
    std::vector<operation> in_flight_;  // of each bucket
};

}  // namespace colls::inline v1
