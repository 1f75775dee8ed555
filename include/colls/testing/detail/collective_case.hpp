// One collective call on one rank: its buffers, the call itself, and the result that a serial reference demands. The
// test kit of transports consists mostly of these.
// IWYU pragma: private, include <colls/testing/transport.hpp>
#pragma once

#include <colls/collectives.hpp>
#include <colls/communicator.hpp>
#include <colls/testing/detail/call_shape.hpp>
#include <colls/testing/detail/guarded_buffer.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1::detail::testing {

enum class call_mode : unsigned char { blocking, started, prepared };
enum class schedule_choice : unsigned char { automatic, direct, ring, tree };

/// A collective call, as all ranks of the group know it.
struct collective_spec {
    collective what = collective::barrier;
    bool variable = false;  ///< the v-variant
    bool ordered = false;   ///< with an operator that does not commute
    bool in_place = false;
    call_mode mode = call_mode::blocking;
    schedule_choice schedule = schedule_choice::automatic;
    std::size_t bytes = 0;  ///< of the longest buffer
    int root = 0;
    std::uint64_t seed = 0;       ///< of the data, and of the block sizes of a v-variant
    bool small_elements = false;  ///< of one byte, else of eight
};

inline std::string describe(const collective_spec& s) {
    constexpr const char* modes[] = {"", ", started", ", prepared"};
    constexpr const char* schedules[] = {"", " by direct", " by ring", " by tree"};
    std::string text = std::string(v1::name_of(s.what)) + (s.variable ? "_v" : "") + " of " + std::to_string(s.bytes) +
                       " bytes" + schedules[static_cast<int>(s.schedule)] + modes[static_cast<int>(s.mode)];
    if (s.ordered) text += ", non-commutative operator";
    if (s.in_place) text += ", in place";
    if (v1::rooted(s.what)) text += ", root " + std::to_string(s.root);
    return text;
}

/// Whether a call of C can name S as its schedule.
template <class S, collective C>
inline constexpr bool callable = std::is_same_v<S, automatic> || provides<S, C>;
/// Whether the schedule has that collective.
inline bool offers(schedule_choice schedule, collective what) {
    const auto has = [&]<class S>(const S&) {
        return [&]<int... c>(std::integer_sequence<int, c...>) {
            return ((static_cast<int>(what) == c && callable<S, static_cast<collective>(c)>) || ...);
        }(std::make_integer_sequence<int, collective_count>{});
    };
    if (schedule == schedule_choice::direct) return has(direct{});
    if (schedule == schedule_choice::ring) return has(ring{});
    return schedule == schedule_choice::tree ? has(tree<2>{}) : true;
}

/// A call with elements of T on this rank. All ranks of the group construct it, and then run or start it.
template <class T>
class collective_case {
public:
    collective_case(communicator& comm, const collective_spec& s)
        : comm_(comm), s_(s), n_(comm.size()), rank_(comm.rank()) {
        shape_ = {s.what, n_, s.root, blocks()};
        const bool of_group[] = {
            draw(hash(s.seed, 1, index(rank_)), 2) == 0, draw(hash(s.seed, 2, index(rank_)), 2) == 0};
        in_count_ = s.what == collective::broadcast ? 0 : shape_.in_count(rank_);  // its one buffer counts as output
        out_count_ = shape_.out_count(rank_);
        in_place_ = (s.in_place && in_count_ > 0 && out_count_ > 0);
        first_.emplace(comm, in_place_ ? std::max(in_count_, out_count_) : in_count_, of_group[0]);
        if (!in_place_) second_.emplace(comm, out_count_, of_group[1]);
        in_ = first_->data();
        out_ = in_place_ ? first_->data() : second_->data();
        if (in_place_ && (s_.what == collective::gather || s_.what == collective::all_gather))
            in_ += shape_.before(rank_);
        if (in_place_ && (s_.what == collective::scatter || s_.what == collective::reduce_scatter))
            out_ += shape_.before(rank_);
        fill();
    }
    // Operations and plans keep pointers to the buffers.
    collective_case(const collective_case&) = delete;
    collective_case& operator=(const collective_case&) = delete;

    /// Makes the call, waits for its end and checks the result. A prepared call runs twice, with different data.
    void run() {
        if (s_.mode == call_mode::started) {
            start().wait();
        } else if (s_.mode == call_mode::prepared) {
            plan p = choose<prepare>();
            p.run();
            check();
            s_.seed = hash(s_.seed, 3);
            fill();
            p.start().wait();
        } else {
            choose<blocking>();
        }
        check();
    }
    /// Starts the call. The caller waits for the operation, then calls `check`.
    operation start() { return choose<v1::start>(); }
    /// Throws a finding where the result, the input or the memory next to a buffer is wrong.
    void check() {
        for (std::size_t i = 0; i < out_count_; ++i)
            if (const T want = expected(i); out_[i] != want)
                throw finding(where() + "element " + std::to_string(i) + " of " + std::to_string(out_count_) +
                              " of the result is " + std::to_string(out_[i]) + ", expected " + std::to_string(want));
        if (!in_place_ && s_.what != collective::broadcast)
            for (std::size_t i = 0; i < in_count_; ++i)
                if (in_[i] != input(rank_, i))
                    throw finding(where() + "element " + std::to_string(i) + " of the input has changed");
        if (!first_->intact() || (second_ && !second_->intact()))
            throw finding(where() + "memory next to a buffer has changed");
    }

private:
    static constexpr T filler = static_cast<T>(0x7171717171717171ull);

    std::string where() const {
        return describe(s_) + ": rank " + std::to_string(rank_) + " of " + std::to_string(n_) + ": ";
    }
    T input(int rank, std::size_t i) const { return element<T>(seeds_.data()[rank], i); }

    // all_to_all has one for each pair, at [from * n + to]; other collectives have one for each rank.
    std::vector<std::size_t> blocks() const {
        const std::size_t n = index(n_), count = s_.bytes / sizeof(T);
        std::vector<std::size_t> all;
        if (s_.what == collective::all_to_all) {
            for (std::size_t from = 0; from < n; ++from)
                for (std::size_t to = 0; to < n; ++to) {
                    // In place, the block to a rank is as long as the block from it.
                    const std::size_t a = s_.in_place ? std::min(from, to) : from,
                                      b = s_.in_place ? std::max(from, to) : to;
                    all.push_back(s_.variable ? hash(s_.seed, a, b) % 4 * count / (2 * n) : count / n);
                }
        } else if (s_.variable) {
            std::size_t left = count;
            for (std::size_t r = 0; r < n; ++r) {
                all.push_back(r + 1 == n ? left : std::min(left, hash(s_.seed, r) % 4 * count / n));
                left -= all.back();
            }
        } else {
            for (std::size_t r = 0; r < n; ++r) all.push_back(count / n + (r < count % n));
        }
        return all;
    }
    void fill() {
        seeds_.clear();
        for (std::size_t r = 0; r < index(n_); ++r) seeds_.push_back(hash(s_.seed, r));
        std::fill_n(out_, out_count_, filler);
        for (std::size_t i = 0; i < in_count_; ++i) in_[i] = input(rank_, i);
        if (s_.what == collective::broadcast && rank_ == s_.root)
            for (std::size_t i = 0; i < out_count_; ++i) out_[i] = input(rank_, i);
    }

    T expected(std::size_t i) const {
        const auto [first, last, at, count] = shape_.source_of(rank_, i);
        if (first == last) return in_place_ ? input(0, i) : filler;
        T all = input(first, at);
        for (int r = first + 1; r < last; ++r)
            all = s_.ordered ? compose_maps{}(all, input(r, at)) : sum_t{}(all, input(r, at));
        return all;
    }

    template <class Mode>
    typename Mode::result choose() {
        // Schedules are named in blocking calls of one type alone: others would only add compile time.
        if constexpr (sizeof(T) == 8 && std::is_void_v<typename Mode::result>) {
            if (s_.schedule == schedule_choice::direct) return call<Mode, direct>();
            if (s_.schedule == schedule_choice::ring) return call<Mode, ring>();
            if (s_.schedule == schedule_choice::tree) return call<Mode, tree<2>>();
        }
        return s_.variable ? call_v<Mode>() : call<Mode, automatic>();
    }
    template <class Mode, class S>
    typename Mode::result call() {
        const std::span<const T> in(in_, in_count_);
        const std::span<T> out(out_, out_count_);
        switch (s_.what) {
            case collective::broadcast:
                if constexpr (callable<S, collective::broadcast>)
                    return Mode::template broadcast<S>(comm_, out, s_.root);
                break;
            case collective::scatter:
                if constexpr (callable<S, collective::scatter>)
                    return Mode::template scatter<S>(comm_, in, out, s_.root);
                break;
            case collective::gather:
                if constexpr (callable<S, collective::gather>) return Mode::template gather<S>(comm_, in, out, s_.root);
                break;
            case collective::all_gather:
                if constexpr (callable<S, collective::all_gather>) return Mode::template all_gather<S>(comm_, in, out);
                break;
            case collective::all_to_all:
                if constexpr (callable<S, collective::all_to_all>) return Mode::template all_to_all<S>(comm_, in, out);
                break;
            case collective::barrier:
                if constexpr (callable<S, collective::barrier>) return Mode::template barrier<S>(comm_);
                break;
            default:
                // Most schedules do not keep the order of ranks, and do not compile with this operator.
                if constexpr (std::is_same_v<S, automatic> || std::is_same_v<S, direct>)
                    if (s_.ordered) return fold_call<Mode, S>(compose_maps{}, in, out);
                return fold_call<Mode, S>(sum_t{}, in, out);
        }
        throw finding(where() + "an error of the kit itself: there is no such call");
    }
    template <class Mode, class S, class Op>
    typename Mode::result fold_call(Op op, std::span<const T> in, std::span<T> out) {
        switch (s_.what) {
            case collective::reduce:
                if constexpr (callable<S, collective::reduce>)
                    return Mode::template reduce<S>(comm_, in, out, op, s_.root);
                break;
            case collective::reduce_scatter:
                if constexpr (callable<S, collective::reduce_scatter>)
                    return Mode::template reduce_scatter<S>(comm_, in, out, op);
                break;
            case collective::all_reduce:
                if constexpr (callable<S, collective::all_reduce>)
                    return in_place_ ? Mode::template all_reduce<S>(comm_, out, op)
                                     : Mode::template all_reduce<S>(comm_, in, out, op);
                break;
            case collective::inclusive_scan:
                if constexpr (callable<S, collective::inclusive_scan>)
                    return Mode::template inclusive_scan<S>(comm_, in, out, op);
                break;
            default:
                if constexpr (callable<S, collective::exclusive_scan>)
                    return Mode::template exclusive_scan<S>(comm_, in, out, op);
                break;
        }
        throw finding(where() + "an error of the kit itself: there is no such call");
    }
    template <class Mode>
    typename Mode::result call_v() {
        const std::span<const T> in(in_, in_count_);
        const std::span<T> out(out_, out_count_);
        switch (s_.what) {
            case collective::scatter:
                return Mode::scatter_v(comm_, in, out, shape_.counts, s_.root);
            case collective::gather:
                return Mode::gather_v(comm_, in, out, shape_.counts, s_.root);
            case collective::all_gather:
                return Mode::all_gather_v(comm_, in, out, shape_.counts);
            case collective::reduce_scatter:
                return s_.ordered ? Mode::reduce_scatter_v(comm_, in, out, shape_.counts, compose_maps{})
                                  : Mode::reduce_scatter_v(comm_, in, out, shape_.counts, sum_t{});
            default: {
                std::vector<std::size_t> sends, receives;
                for (std::size_t r = 0; r < index(n_); ++r) {
                    sends.push_back(shape_.counts[index(rank_) * index(n_) + r]);
                    receives.push_back(shape_.counts[r * index(n_) + index(rank_)]);
                }
                return Mode::all_to_all_v(comm_, in, out, sends, receives);
            }
        }
    }

    communicator& comm_;
    collective_spec s_;
    const int n_, rank_;
    call_shape shape_;
    std::vector<std::uint64_t> seeds_;  // of the data of each rank
    std::size_t in_count_ = 0, out_count_ = 0;
    bool in_place_ = false;
    std::optional<guarded_buffer<T>> first_, second_;  // in place: first_ alone
    T *in_ = nullptr, *out_ = nullptr;
};

}  // namespace colls::inline v1::detail::testing
