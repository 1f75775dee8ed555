// One collective call on one rank: its buffers, the call itself, and what a serial reference says that the rank must
// have after. What the kit for transports (transport.hpp) is made of.
#pragma once

#include <colls/collectives.hpp>
#include <colls/communicator.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace colls::inline v1::testing::detail {

/// What a rank has found wrong. It leaves the rank's function, so that who runs the ranks learns of it, and tells the
/// others.
class finding : public std::runtime_error {
public:
    explicit finding(const std::string& text) : std::runtime_error("the kit found: " + text.substr(0, 300)) {}
};

inline std::uint64_t hashed(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
    return v1::detail::hash_mix(v1::detail::hash_mix(v1::detail::hash_mix(0, a), b), c);
}
/// One of 0 .. most - 1.
inline int drawn(std::uint64_t seed, int most) {
    return static_cast<int>(hashed(seed) % static_cast<std::uint64_t>(most));
}
inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Elements are maps x -> a x + b of the integers modulo 2^h, a in the upper half, b in the lower: to compose them is
/// associative, and does not commute. Where a is odd nothing is lost.
struct compose_maps {
    template <class T>
    constexpr T operator()(const T& x, const T& y) const {
        constexpr int half = 4 * sizeof(T);
        constexpr std::uint64_t low = (std::uint64_t{1} << half) - 1;
        const std::uint64_t xa = std::uint64_t{x} >> half, xb = x & low, ya = std::uint64_t{y} >> half, yb = y & low;
        return static_cast<T>((xa * ya & low) << half | ((xa * yb + xb) & low));
    }
};
template <class T>
T element(std::uint64_t seed, std::size_t i) {
    std::uint64_t x = (seed + i) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
    return static_cast<T>((x ^ x >> 32) | std::uint64_t{1} << 4 * sizeof(T));
}

/// Elements between guards, in the group's memory or in any.
template <class T>
class guarded {
public:
    guarded(communicator& comm, std::size_t count, bool of_group) : count_(count) {
        if (of_group) {
            of_group_.emplace(comm.allocate<T>(count + 2 * guards));
            const auto at = reinterpret_cast<std::uintptr_t>(whole());
            if (at % 128 != 0) throw finding("memory from allocate is not aligned to 128 bytes");
        } else {
            any_.resize(count + 2 * guards);
        }
        std::fill_n(whole(), count + 2 * guards, guard);
    }
    T* data() { return whole() + guards; }
    std::size_t size() const { return count_; }
    bool intact() {
        const auto is_guard = [](T x) { return x == guard; };
        return std::all_of(whole(), data(), is_guard) &&
               std::all_of(data() + count_, data() + count_ + guards, is_guard);
    }

private:
    static constexpr T guard = static_cast<T>(0xa5a5a5a5a5a5a5a5ull);
    static constexpr std::size_t guards = 64 / sizeof(T);
    T* whole() { return of_group_ ? of_group_->data() : any_.data(); }
    std::size_t count_;
    std::optional<memory<T>> of_group_;
    std::vector<T> any_;
};

enum class way : unsigned char { blocking, started, prepared };
enum class by : unsigned char { automatic, direct, ring, tree };

/// The same on all ranks.
struct spec {
    collective what = collective::barrier;
    bool variable = false;  ///< the v-variant
    bool ordered = false;   ///< with an operator that does not commute
    bool in_place = false;
    way how = way::blocking;
    by schedule = by::automatic;
    std::size_t bytes = 0;  ///< of the longest buffer
    int root = 0;
    std::uint64_t seed = 0;
    bool small_elements = false;  ///< of one byte, else of eight
};

inline std::string described(const spec& s) {
    constexpr const char* ways[] = {"", ", started", ", prepared"};
    constexpr const char* schedules[] = {"", " by direct", " by ring", " by tree"};
    std::string text = std::string(v1::name_of(s.what)) + (s.variable ? "_v" : "") + " of " + std::to_string(s.bytes) +
                       " bytes" + schedules[static_cast<int>(s.schedule)] + ways[static_cast<int>(s.how)];
    if (s.ordered) text += ", operator in order";
    if (s.in_place) text += ", in place";
    if (v1::rooted(s.what)) text += ", root " + std::to_string(s.root);
    return text;
}

template <class S, collective C>
inline constexpr bool can = std::is_same_v<S, automatic> || provides<S, C>;
inline bool offers(by schedule, collective what) {
    const auto asked = [&]<class S>(const S&) {
        return [&]<int... c>(std::integer_sequence<int, c...>) {
            return ((static_cast<int>(what) == c && can<S, static_cast<collective>(c)>) || ...);
        }(std::make_integer_sequence<int, collective_count>{});
    };
    if (schedule == by::direct) return asked(direct{});
    if (schedule == by::ring) return asked(ring{});
    return schedule == by::tree ? asked(tree<2>{}) : true;
}

/// The blocking calls as a class, as start and prepare are.
struct blocking {
    using result = void;
    template <class S>
    static void broadcast(communicator& comm, const auto&... a) {
        v1::broadcast<S>(comm, a...);
    }
    template <class S>
    static void scatter(communicator& comm, const auto&... a) {
        v1::scatter<S>(comm, a...);
    }
    template <class S>
    static void gather(communicator& comm, const auto&... a) {
        v1::gather<S>(comm, a...);
    }
    template <class S>
    static void all_gather(communicator& comm, const auto&... a) {
        v1::all_gather<S>(comm, a...);
    }
    template <class S>
    static void all_to_all(communicator& comm, const auto&... a) {
        v1::all_to_all<S>(comm, a...);
    }
    template <class S>
    static void barrier(communicator& comm, const auto&... a) {
        v1::barrier<S>(comm, a...);
    }
    template <class S>
    static void reduce(communicator& comm, const auto&... a) {
        v1::reduce<S>(comm, a...);
    }
    template <class S>
    static void reduce_scatter(communicator& comm, const auto&... a) {
        v1::reduce_scatter<S>(comm, a...);
    }
    template <class S>
    static void all_reduce(communicator& comm, const auto&... a) {
        v1::all_reduce<S>(comm, a...);
    }
    template <class S>
    static void inclusive_scan(communicator& comm, const auto&... a) {
        v1::inclusive_scan<S>(comm, a...);
    }
    template <class S>
    static void exclusive_scan(communicator& comm, const auto&... a) {
        v1::exclusive_scan<S>(comm, a...);
    }
    static void scatter_v(communicator& comm, const auto&... a) { v1::scatter_v(comm, a...); }
    static void gather_v(communicator& comm, const auto&... a) { v1::gather_v(comm, a...); }
    static void all_gather_v(communicator& comm, const auto&... a) { v1::all_gather_v(comm, a...); }
    static void reduce_scatter_v(communicator& comm, const auto&... a) { v1::reduce_scatter_v(comm, a...); }
    static void all_to_all_v(communicator& comm, const auto&... a) { v1::all_to_all_v(comm, a...); }
};

template <class T>
class collective_case {
public:
    collective_case(communicator& comm, const spec& s) : comm_(comm), s_(s), n_(comm.size()), rank_(comm.rank()) {
        share_out();
        const bool of_group[] = {
            drawn(hashed(s.seed, 1, index(rank_)), 2) == 0, drawn(hashed(s.seed, 2, index(rank_)), 2) == 0};
        in_count_ = gives();
        out_count_ = takes();
        in_place_ = (s.in_place && in_count_ > 0 && out_count_ > 0);
        first_.emplace(comm, in_place_ ? std::max(in_count_, out_count_) : in_count_, of_group[0]);
        if (!in_place_) second_.emplace(comm, out_count_, of_group[1]);
        in_ = first_->data();
        out_ = in_place_ ? first_->data() : second_->data();
        if (in_place_ && (s_.what == collective::gather || s_.what == collective::all_gather)) in_ += before(rank_);
        if (in_place_ && (s_.what == collective::scatter || s_.what == collective::reduce_scatter))
            out_ += before(rank_);
        fill();
    }
    // The call keeps pointers to what is in here.
    collective_case(const collective_case&) = delete;
    collective_case& operator=(const collective_case&) = delete;

    /// The call, to its end, and judged; prepared, twice, with other data.
    void run() {
        if (s_.how == way::started) {
            start().wait();
        } else if (s_.how == way::prepared) {
            plan p = choose<prepare>();
            p.run();
            judge();
            s_.seed = hashed(s_.seed, 3);
            fill();
            p.start().wait();
        } else {
            choose<blocking>();
        }
        judge();
    }
    operation start() { return choose<v1::start>(); }
    /// Throws a finding.
    void judge() {
        for (std::size_t i = 0; i < out_count_; ++i)
            if (const T want = expected(i); out_[i] != want)
                throw finding(where() + "element " + std::to_string(i) + " of the result's " +
                              std::to_string(out_count_) + " is " + std::to_string(out_[i]) + ", and should be " +
                              std::to_string(want));
        if (!in_place_ && s_.what != collective::broadcast)
            for (std::size_t i = 0; i < in_count_; ++i)
                if (in_[i] != input(rank_, i))
                    throw finding(where() + "element " + std::to_string(i) + " of the input has changed");
        if (!first_->intact() || (second_ && !second_->intact()))
            throw finding(where() + "memory beside a buffer has changed");
    }

private:
    static constexpr T filler = static_cast<T>(0x7171717171717171ull);

    std::string where() const {
        return described(s_) + ": rank " + std::to_string(rank_) + " of " + std::to_string(n_) + ": ";
    }
    T input(int rank, std::size_t i) const { return element<T>(hashed(s_.seed, index(rank)), i); }

    // Blocks: all_to_all has one for each pair, [from * n + to]; the others that have blocks one for each rank.
    void share_out() {
        const std::size_t n = index(n_), count = s_.bytes / sizeof(T);
        if (s_.what == collective::all_to_all) {
            for (std::size_t from = 0; from < n; ++from)
                for (std::size_t to = 0; to < n; ++to) {
                    // In place what goes to a rank is as long as what comes from it.
                    const std::size_t a = s_.in_place ? std::min(from, to) : from,
                                      b = s_.in_place ? std::max(from, to) : to;
                    blocks_.push_back(s_.variable ? hashed(s_.seed, a, b) % 4 * count / (2 * n) : count / n);
                }
        } else if (s_.variable) {
            std::size_t left = count;
            for (std::size_t r = 0; r < n; ++r) {
                blocks_.push_back(r + 1 == n ? left : std::min(left, hashed(s_.seed, r) % 4 * count / n));
                left -= blocks_.back();
            }
        } else {
            for (std::size_t r = 0; r < n; ++r) blocks_.push_back(count / n + (r < count % n));
        }
    }
    std::size_t block(int r) const { return blocks_[index(r)]; }
    std::size_t sum(std::size_t first, std::size_t number, std::size_t step = 1) const {
        std::size_t all = 0;
        for (std::size_t i = 0; i < number; ++i) all += blocks_[first + i * step];
        return all;
    }
    std::size_t before(int r) const { return sum(0, index(r)); }
    std::size_t total() const { return sum(0, index(n_)); }
    std::size_t gives() const {
        switch (s_.what) {
            case collective::barrier:
            case collective::broadcast:
                return 0;  // one buffer, for out
            case collective::scatter:
                return rank_ == s_.root ? total() : 0;
            case collective::gather:
            case collective::all_gather:
                return block(rank_);
            case collective::all_to_all:
                return sum(index(rank_ * n_), index(n_));
            default:
                return total();
        }
    }
    std::size_t takes() const {
        switch (s_.what) {
            case collective::barrier:
                return 0;
            case collective::gather:
            case collective::reduce:
                return rank_ == s_.root ? total() : 0;
            case collective::scatter:
            case collective::reduce_scatter:
                return block(rank_);
            case collective::all_to_all:
                return sum(index(rank_), index(n_), index(n_));
            default:
                return total();
        }
    }
    void fill() {
        std::fill_n(out_, out_count_, filler);
        for (std::size_t i = 0; i < in_count_; ++i) in_[i] = input(rank_, i);
        if (s_.what == collective::broadcast && rank_ == s_.root)
            for (std::size_t i = 0; i < out_count_; ++i) out_[i] = input(rank_, i);
    }

    T fold(int ranks, std::size_t i) const {
        T all = input(0, i);
        for (int r = 1; r < ranks; ++r) all = s_.ordered ? compose_maps{}(all, input(r, i)) : sum_t{}(all, input(r, i));
        return all;
    }
    // Where an element of all blocks, one after the other, belongs.
    T from_blocks(std::size_t i) const {
        int r = 0;
        while (i >= block(r)) i -= block(r++);
        return input(r, i);
    }
    T from_all(std::size_t i) const {
        const std::size_t n = index(n_);
        std::size_t from = 0;
        while (i >= blocks_[from * n + index(rank_)]) i -= blocks_[from++ * n + index(rank_)];
        return input(static_cast<int>(from), sum(from * n, index(rank_)) + i);
    }
    T expected(std::size_t i) const {
        switch (s_.what) {
            case collective::broadcast:
                return input(s_.root, i);
            case collective::scatter:
                return input(s_.root, before(rank_) + i);
            case collective::gather:
            case collective::all_gather:
                return from_blocks(i);
            case collective::all_to_all:
                return from_all(i);
            case collective::reduce_scatter:
                return fold(n_, before(rank_) + i);
            case collective::inclusive_scan:
                return fold(rank_ + 1, i);
            case collective::exclusive_scan:
                return rank_ > 0 ? fold(rank_, i) : in_place_ ? input(0, i) : filler;
            default:
                return fold(n_, i);
        }
    }

    template <class Way>
    typename Way::result choose() {
        if constexpr (sizeof(T) == 8 && std::is_void_v<typename Way::result>) {  // enough to compile
            if (s_.schedule == by::direct) return call<Way, direct>();
            if (s_.schedule == by::ring) return call<Way, ring>();
            if (s_.schedule == by::tree) return call<Way, tree<2>>();
        }
        return s_.variable ? call_v<Way>() : call<Way, automatic>();
    }
    template <class Way, class S>
    typename Way::result call() {
        const std::span<const T> in(in_, in_count_);
        const std::span<T> out(out_, out_count_);
        switch (s_.what) {
            case collective::broadcast:
                if constexpr (can<S, collective::broadcast>) return Way::template broadcast<S>(comm_, out, s_.root);
                break;
            case collective::scatter:
                if constexpr (can<S, collective::scatter>) return Way::template scatter<S>(comm_, in, out, s_.root);
                break;
            case collective::gather:
                if constexpr (can<S, collective::gather>) return Way::template gather<S>(comm_, in, out, s_.root);
                break;
            case collective::all_gather:
                if constexpr (can<S, collective::all_gather>) return Way::template all_gather<S>(comm_, in, out);
                break;
            case collective::all_to_all:
                if constexpr (can<S, collective::all_to_all>) return Way::template all_to_all<S>(comm_, in, out);
                break;
            case collective::barrier:
                if constexpr (can<S, collective::barrier>) return Way::template barrier<S>(comm_);
                break;
            default:
                // Most schedules do not keep the order of ranks, and are refused by the compiler.
                if constexpr (std::is_same_v<S, automatic> || std::is_same_v<S, direct>)
                    if (s_.ordered) return fold_call<Way, S>(compose_maps{}, in, out);
                return fold_call<Way, S>(sum_t{}, in, out);
        }
        throw finding(where() + "the kit itself: no such call");
    }
    template <class Way, class S, class Op>
    typename Way::result fold_call(Op op, std::span<const T> in, std::span<T> out) {
        switch (s_.what) {
            case collective::reduce:
                if constexpr (can<S, collective::reduce>) return Way::template reduce<S>(comm_, in, out, op, s_.root);
                break;
            case collective::reduce_scatter:
                if constexpr (can<S, collective::reduce_scatter>)
                    return Way::template reduce_scatter<S>(comm_, in, out, op);
                break;
            case collective::all_reduce:
                if constexpr (can<S, collective::all_reduce>)
                    return in_place_ ? Way::template all_reduce<S>(comm_, out, op)
                                     : Way::template all_reduce<S>(comm_, in, out, op);
                break;
            case collective::inclusive_scan:
                if constexpr (can<S, collective::inclusive_scan>)
                    return Way::template inclusive_scan<S>(comm_, in, out, op);
                break;
            default:
                if constexpr (can<S, collective::exclusive_scan>)
                    return Way::template exclusive_scan<S>(comm_, in, out, op);
                break;
        }
        throw finding(where() + "the kit itself: no such call");
    }
    template <class Way>
    typename Way::result call_v() {
        const std::span<const T> in(in_, in_count_);
        const std::span<T> out(out_, out_count_);
        switch (s_.what) {
            case collective::scatter:
                return Way::scatter_v(comm_, in, out, blocks_, s_.root);
            case collective::gather:
                return Way::gather_v(comm_, in, out, blocks_, s_.root);
            case collective::all_gather:
                return Way::all_gather_v(comm_, in, out, blocks_);
            case collective::reduce_scatter:
                return s_.ordered ? Way::reduce_scatter_v(comm_, in, out, blocks_, compose_maps{})
                                  : Way::reduce_scatter_v(comm_, in, out, blocks_, sum_t{});
            default: {
                const std::size_t n = index(n_);
                std::vector<std::size_t> sends, receives;
                for (std::size_t r = 0; r < n; ++r) {
                    sends.push_back(blocks_[index(rank_) * n + r]);
                    receives.push_back(blocks_[r * n + index(rank_)]);
                }
                return Way::all_to_all_v(comm_, in, out, sends, receives);
            }
        }
    }

    communicator& comm_;
    spec s_;
    const int n_, rank_;
    std::vector<std::size_t> blocks_;
    std::size_t in_count_ = 0, out_count_ = 0;
    bool in_place_ = false;
    std::optional<guarded<T>> first_, second_;
    T *in_ = nullptr, *out_ = nullptr;
};

}  // namespace colls::inline v1::testing::detail
