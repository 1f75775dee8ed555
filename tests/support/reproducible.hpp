// Calls with the constraint colls::reproducible, on data cut into calls at random places, against one serial loop over
// the ranks: each element of each result must have the loop's bits.
#pragma once

#include "random.hpp"

#include <colls/collectives.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace support {

/// a * 1.1 + b * 0.9: commutes by declaration only, and a compiler could fuse one of its products with the sum.
struct blend {
    static constexpr bool commutative = true, pure = true;
    template <class T>
    constexpr T operator()(const T& a, const T& b) const {
        return a * T(1.1f) + b * T(0.9f);
    }
};
/// The same, of which the library knows nothing: small floats are rounded after each operation.
struct opaque_blend {
    template <class T>
    constexpr T operator()(const T& a, const T& b) const {
        return a * T(1.1f) + b * T(0.9f);
    }
};

/// Numbers of both signs whose exponents differ by up to 12: sums depend on the order and on each rounding.
template <class T>
std::vector<T> contribution_of(int rank, std::size_t count, std::uint64_t seed) {
    random_source random = stream(seed, static_cast<std::uint64_t>(rank));
    std::vector<T> x;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t bits = random.next();
        const float m = static_cast<float>(static_cast<int>(bits >> 40) - (1 << 23));
        x.push_back(static_cast<T>(std::ldexp(m, static_cast<int>(bits % 13) - 24)));
    }
    return x;
}

/// What the fold expression of a single fold says, for each element: small floats are folded in float by operators that
/// are pure, and rounded once; the last step of an operator follows on the rounded value.
template <class T, class Op>
std::vector<T> serial_fold(const std::vector<std::vector<T>>& x, int end, const Op& op) {
    constexpr bool wide = colls::detail::is_small_float<T> && colls::detail::is_pure<Op>();
    using A = std::conditional_t<wide, float, T>;
    const auto operand = [&](int rank, std::size_t i) {
        const A a = static_cast<A>(x[static_cast<std::size_t>(rank)][i]);
        if constexpr (requires { op.leaf(a); })
            return static_cast<A>(op.leaf(a));
        else
            return a;
    };
    std::vector<T> result;
    for (std::size_t i = 0; i < x[0].size(); ++i) {
        A a = operand(0, i);
        for (int r = 1; r < end; ++r) a = static_cast<A>(op(a, operand(r, i)));
        result.push_back(static_cast<T>(a));
        if constexpr (requires(T t) { op.finish(t, 1); })
            result.back() = static_cast<T>(op.finish(result.back(), static_cast<int>(x.size())));
    }
    return result;
}

template <class T>
std::uint64_t hash_of(const std::vector<T>& x) {
    std::uint64_t h = 14695981039346656037u;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(x.data());
    for (std::size_t i = 0; i < x.size() * sizeof(T); ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

/// One rank's part in the calls on `count` elements that are cut at `cuts` random places.
template <class T, class Op, class Comm>
class reproducible_calls {
public:
    reproducible_calls(Comm& comm, const Op& op, std::size_t count, int cuts, std::uint64_t seed, std::string name)
        : comm_(comm), op_(op), name_(std::move(name)), allocated_(comm.template allocate<T>(2 * count)) {
        for (int r = 0; r < comm.size(); ++r) all_.push_back(contribution_of<T>(r, count, seed));
        own_ = all_[static_cast<std::size_t>(comm.rank())];
        want_ = serial_fold(all_, comm.size(), op);
        random_source random(seed);
        cuts_ = {0, count};
        for (int i = 0; i < cuts; ++i) cuts_.push_back(random.below(count + 1));
        std::sort(cuts_.begin(), cuts_.end());
    }

    /// The hash of the result; throws where a call gives other bits than the serial loop.
    std::uint64_t run() {
        const std::size_t count = own_.size();
        std::vector<T> out(count);
        colls::all_reduce<colls::reproducible>(comm_, own_, out, op_);
        expect("whole", out, 0);
        for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) piece(static_cast<int>(i), cuts_[i], cuts_[i + 1]);
        scans();
        return hash_of(out);
    }

private:
    template <class R>
    void expect(const char* what, const R& got, std::size_t from) const {
        expect(what, got, want_, from);
    }
    template <class R>
    void expect(const char* what, const R& got, const std::vector<T>& want, std::size_t from) const {
        for (std::size_t i = 0; i < got.size(); ++i)
            if (std::memcmp(&got[i], &want[from + i], sizeof(T)) != 0)
                throw std::runtime_error(name_ + ", " + what + ", piece of " + std::to_string(got.size()) + " from " +
                                         std::to_string(from) + ": element " + std::to_string(i) + " is " +
                                         text(got[i]) + " and should be " + text(want[from + i]));
    }
    static std::string text(const T& x) { return std::to_string(static_cast<double>(x)); }

    void piece(int number, std::size_t from, std::size_t to) {
        const std::size_t count = to - from;
        const auto n = static_cast<std::size_t>(comm_.size()), me = static_cast<std::size_t>(comm_.rank());
        const std::span<const T> in = std::span<const T>(own_).subspan(from, count);
        std::vector<T> copy(in.begin(), in.end()), out(count);
        const std::span<T> shared(allocated_.data() + from, count),
            second(allocated_.data() + own_.size() + from, count);
        std::copy(in.begin(), in.end(), shared.begin());
        switch (number % 8) {
            case 0:
                colls::all_reduce(comm_, copy, op_, colls::reproducible{});
                return expect("in place", copy, from);
            case 1:
                colls::start::all_reduce<colls::reproducible>(comm_, in, out, op_).wait();
                return expect("started", out, from);
            case 2:
                colls::all_reduce<colls::reproducible>(comm_, shared, op_);
                return expect("allocated, in place", shared, from);
            case 3:
                colls::all_reduce<colls::reproducible>(comm_, shared, second, op_);
                return expect("allocated", second, from);
            case 4: {
                auto plan = colls::prepare::all_reduce<colls::reproducible>(comm_, in, second, op_);
                for (int k = 0; k < 2; ++k) {
                    k == 0 ? plan.run() : plan.start().wait();
                    expect("prepared, mixed memory", second, from);
                }
                return;
            }
            case 5: {
                const int root = number / 8 % comm_.size();
                colls::reduce<colls::reproducible>(comm_, in, out, op_, root);
                if (root == comm_.rank()) expect("reduce", out, from);
                return;
            }
            case 6: {
                const colls::buffer_block own = colls::block_of(count, comm_.size(), comm_.rank());
                std::vector<T> block(own.size);
                colls::reduce_scatter<colls::reproducible>(comm_, in, block, op_);
                return expect("reduce_scatter", block, from + own.offset);
            }
            default: {
                std::vector<std::size_t> counts(n, count / (2 * n));
                counts[static_cast<std::size_t>(number) % n] += count - n * (count / (2 * n));
                std::size_t before = 0;
                for (std::size_t r = 0; r < me; ++r) before += counts[r];
                std::vector<T> block(counts[me]);
                colls::reduce_scatter_v<colls::reproducible>(comm_, in, block, counts, op_);
                return expect("reduce_scatter_v", block, from + before);
            }
        }
    }
    /// On the last piece and on everything: rank r's bits are those of a loop over ranks 0 to r.
    void scans() {
        if constexpr (!requires(T t) { op_.finish(t, 1); }) {
            const std::vector<T> upto = serial_fold(all_, comm_.rank() + 1, op_);
            for (const std::size_t from : {std::size_t{0}, cuts_[cuts_.size() / 2]}) {
                const std::span<const T> in = std::span<const T>(own_).subspan(from);
                std::vector<T> out(in.size());
                colls::inclusive_scan<colls::reproducible>(comm_, in, out, op_);
                expect("inclusive_scan", out, upto, from);
                colls::exclusive_scan<colls::reproducible>(comm_, in, out, op_);
                if (comm_.rank() > 0) expect("exclusive_scan", out, serial_fold(all_, comm_.rank(), op_), from);
            }
        }
    }

    Comm& comm_;
    const Op op_;
    const std::string name_;
    colls::memory<T> allocated_;
    std::vector<std::vector<T>> all_;
    std::vector<T> own_, want_;
    std::vector<std::size_t> cuts_;
};

/// All types and operators on one rank; returns the hashes of sum in float and in bfloat16.
template <class Comm>
std::pair<std::uint64_t, std::uint64_t> check_reproducible(
    Comm& comm, std::size_t count, int cuts, std::uint64_t seed) {
    const auto run = [&]<class T, class Op>(T, const Op& op, std::size_t elements, const char* name) {
        return reproducible_calls<T, Op, Comm>(comm, op, elements, cuts, seed, name).run();
    };
    const std::size_t few = std::min<std::size_t>(count, 30'000);
    const std::uint64_t in_float = run(0.0f, colls::sum, count, "sum in float");
    const std::uint64_t in_bfloat16 = run(colls::bfloat16{}, colls::sum, count, "sum in bfloat16");
    run(colls::half{}, colls::sum, few, "sum in half");
    run(0.0, colls::prod, few, "prod in double");
    run(0.0f, colls::avg, few, "avg in float");
    run(colls::bfloat16{}, colls::avg, few, "avg in bfloat16");
    run(colls::half{}, colls::avg, few, "avg in half");
    run(0.0f, colls::premul_sum(1.1f), few, "premul_sum in float");
    run(colls::bfloat16{}, colls::premul_sum(1.1f), few, "premul_sum in bfloat16");
    run(colls::half{}, colls::premul_sum(1.1f), few, "premul_sum in half");
    run(0.0f, blend{}, few, "a pure operator in float");
    run(colls::bfloat16{}, blend{}, few, "a pure operator in bfloat16");
    run(colls::bfloat16{}, opaque_blend{}, few, "an operator that does not commute, in bfloat16");
    run(0.0f, opaque_blend{}, few, "an operator that does not commute, in float");
    return {in_float, in_bfloat16};
}

}  // namespace support
