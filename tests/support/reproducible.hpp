// Calls with the constraint colls::reproducible, on data cut into calls at random places, against one serial loop over
// the ranks: each element of each result must have the loop's bits.
#pragma once

#include "random.hpp"

#include <colls/collectives.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
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
            return static_cast<A>(static_cast<T>(op.leaf(a)));
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

/// An element type and an operator on it, their types erased: what follows is compiled once.
struct typed_fold {
    const char* name;
    std::size_t size;  ///< of an element
    void (*contribute)(std::byte* to, int rank, std::size_t count, std::uint64_t seed);
    /// serial_fold over the ranks before `end`.
    void (*fold)(std::byte* to, const std::vector<std::vector<std::byte>>& x, int end, const void* op);
    std::string (*text)(const std::byte* element);
    void (*say)(colls::detail::request& q, const void* op);  ///< sets the type and the operator of a call
    bool commutative, finishes;
    const void* op;
};
template <class T>
std::vector<T> elements_of(const std::vector<std::byte>& bytes) {
    std::vector<T> x(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(x.data(), bytes.data(), bytes.size());
    return x;
}
template <class T>
void contribute(std::byte* to, int rank, std::size_t count, std::uint64_t seed) {
    if (count != 0) std::memcpy(to, contribution_of<T>(rank, count, seed).data(), count * sizeof(T));
}
template <class T, class Op>
void fold_serially(std::byte* to, const std::vector<std::vector<std::byte>>& x, int end, const void* op) {
    std::vector<std::vector<T>> all;
    for (const auto& bytes : x) all.push_back(elements_of<T>(bytes));
    const std::vector<T> result = serial_fold(all, end, *static_cast<const Op*>(op));
    if (!result.empty()) std::memcpy(to, result.data(), result.size() * sizeof(T));
}
template <class T>
std::string text_of(const std::byte* element) {
    T x;
    std::memcpy(&x, element, sizeof(T));
    return std::to_string(static_cast<double>(x));
}
template <class T, class Op>
void say_types(colls::detail::request& q, const void* op) {
    colls::detail::set_type(q.c, sizeof(T), colls::detail::name_of_type<T>);
    colls::detail::set_operator<true, T>(q, *static_cast<const Op*>(op));
}
/// `op` must outlive the result.
template <class T, class Op>
typed_fold typed(const Op& op, const char* name) {
    return {name, sizeof(T), &contribute<T>, &fold_serially<T, Op>, &text_of<T>, &say_types<T, Op>,
        colls::is_commutative<Op, T>, colls::detail::has_finish<Op, T>, &op};
}

/// Calls with the constraint, on `count` elements at `in`, of the types of a fold.
struct constrained_calls {
    virtual ~constrained_calls() = default;
    virtual void all_reduce(const std::byte* in, std::byte* out, std::size_t count) = 0;
    virtual void all_reduce_in_place(std::byte* inout, std::size_t count) = 0;
    virtual colls::operation start(const std::byte* in, std::byte* out, std::size_t count) = 0;
    virtual colls::plan prepare(const std::byte* in, std::byte* out, std::size_t count) = 0;
    virtual void reduce(const std::byte* in, std::byte* out, std::size_t count, int root) = 0;
    virtual void reduce_scatter(const std::byte* in, std::size_t count, std::byte* out, std::size_t own) = 0;
    virtual void reduce_scatter_v(
        const std::byte* in, std::size_t count, std::byte* out, const std::vector<std::size_t>& counts) = 0;
    virtual void inclusive_scan(const std::byte* in, std::byte* out, std::size_t count) = 0;
    virtual void exclusive_scan(const std::byte* in, std::byte* out, std::size_t count) = 0;
};

/// As a user writes them.
template <class T, class Op>
class written_calls final : public constrained_calls {
public:
    written_calls(colls::communicator& comm, const Op& op) : comm_(comm), op_(op) {}

    void all_reduce(const std::byte* in, std::byte* out, std::size_t count) override {
        colls::all_reduce<colls::reproducible>(comm_, of(in, count), of(out, count), op_);
    }
    void all_reduce_in_place(std::byte* inout, std::size_t count) override {
        colls::all_reduce(comm_, of(inout, count), op_, colls::reproducible{});
    }
    colls::operation start(const std::byte* in, std::byte* out, std::size_t count) override {
        return colls::start::all_reduce<colls::reproducible>(comm_, of(in, count), of(out, count), op_);
    }
    colls::plan prepare(const std::byte* in, std::byte* out, std::size_t count) override {
        return colls::prepare::all_reduce<colls::reproducible>(comm_, of(in, count), of(out, count), op_);
    }
    void reduce(const std::byte* in, std::byte* out, std::size_t count, int root) override {
        colls::reduce<colls::reproducible>(comm_, of(in, count), of(out, count), op_, root);
    }
    void reduce_scatter(const std::byte* in, std::size_t count, std::byte* out, std::size_t own) override {
        colls::reduce_scatter<colls::reproducible>(comm_, of(in, count), of(out, own), op_);
    }
    void reduce_scatter_v(
        const std::byte* in, std::size_t count, std::byte* out, const std::vector<std::size_t>& counts) override {
        const std::size_t own = counts[static_cast<std::size_t>(comm_.rank())];
        colls::reduce_scatter_v<colls::reproducible>(comm_, of(in, count), of(out, own), counts, op_);
    }
    void inclusive_scan(const std::byte* in, std::byte* out, std::size_t count) override {
        colls::inclusive_scan<colls::reproducible>(comm_, of(in, count), of(out, count), op_);
    }
    void exclusive_scan(const std::byte* in, std::byte* out, std::size_t count) override {
        colls::exclusive_scan<colls::reproducible>(comm_, of(in, count), of(out, count), op_);
    }

private:
    static std::span<const T> of(const std::byte* data, std::size_t count) {
        return {reinterpret_cast<const T*>(data), count};
    }
    static std::span<T> of(std::byte* data, std::size_t count) { return {reinterpret_cast<T*>(data), count}; }

    colls::communicator& comm_;
    const Op op_;
};

/// The same requests, without a template instance of each call for each pair of types.
class erased_calls final : public constrained_calls {
public:
    erased_calls(colls::communicator& comm, const typed_fold& fold) : comm_(comm), fold_(fold) {}

    void all_reduce(const std::byte* in, std::byte* out, std::size_t count) override {
        submit<colls::detail::blocking_mode, colls::collective::all_reduce>(in, count, out, count);
    }
    void all_reduce_in_place(std::byte* inout, std::size_t count) override { all_reduce(inout, inout, count); }
    colls::operation start(const std::byte* in, std::byte* out, std::size_t count) override {
        return submit<colls::detail::start_mode, colls::collective::all_reduce>(in, count, out, count);
    }
    colls::plan prepare(const std::byte* in, std::byte* out, std::size_t count) override {
        return submit<colls::detail::prepare_mode, colls::collective::all_reduce>(in, count, out, count);
    }
    void reduce(const std::byte* in, std::byte* out, std::size_t count, int root) override {
        submit<colls::detail::blocking_mode, colls::collective::reduce>(in, count, out, count, root);
    }
    void reduce_scatter(const std::byte* in, std::size_t count, std::byte* out, std::size_t own) override {
        submit<colls::detail::blocking_mode, colls::collective::reduce_scatter>(in, count, out, own);
    }
    void reduce_scatter_v(
        const std::byte* in, std::size_t count, std::byte* out, const std::vector<std::size_t>& counts) override {
        submit<colls::detail::blocking_mode, colls::collective::reduce_scatter>(
            in, count, out, counts[static_cast<std::size_t>(comm_.rank())], 0, &counts);
    }
    void inclusive_scan(const std::byte* in, std::byte* out, std::size_t count) override {
        submit<colls::detail::blocking_mode, colls::collective::inclusive_scan>(in, count, out, count);
    }
    void exclusive_scan(const std::byte* in, std::byte* out, std::size_t count) override {
        submit<colls::detail::blocking_mode, colls::collective::exclusive_scan>(in, count, out, count);
    }

private:
    template <class Mode, colls::collective C>
    typename Mode::result submit(const std::byte* in, std::size_t in_count, std::byte* out, std::size_t out_count,
        int root = 0, const std::vector<std::size_t>* counts = nullptr) {
        const auto run = [&]<bool ordered>() {
            colls::detail::typed_request<C, true, ordered> r{colls::detail::request(C, root)};
            fold_.say(r.q, fold_.op);
            r.q.c.in = in, r.q.c.out = out;
            r.q.in_count = in_count, r.q.out_count = out_count;
            if (counts) colls::detail::set_counts(r.q, r.q.sends, *counts);
            return colls::detail::submit<Mode, colls::reproducible>(comm_, std::move(r));
        };
        return fold_.commutative ? run.template operator()<false>() : run.template operator()<true>();
    }

    colls::communicator& comm_;
    const typed_fold& fold_;
};

/// One rank's part in the calls on `count` elements that are cut at `cuts` random places.
class reproducible_calls {
public:
    reproducible_calls(colls::communicator& comm, constrained_calls& calls, const typed_fold& fold, std::size_t count,
        int cuts, std::uint64_t seed)
        : comm_(comm),
          calls_(calls),
          fold_(fold),
          size_(fold.size),
          count_(count),
          allocated_(comm.allocate<std::byte>(2 * count * fold.size)),
          want_(count * fold.size) {
        for (int r = 0; r < comm.size(); ++r) fold.contribute(all_.emplace_back(count * size_).data(), r, count, seed);
        own_ = all_[static_cast<std::size_t>(comm.rank())];
        fold.fold(want_.data(), all_, comm.size(), fold.op);
        random_source random(seed);
        cuts_ = {0, count};
        for (int i = 0; i < cuts; ++i) cuts_.push_back(random.below(count + 1));
        std::sort(cuts_.begin(), cuts_.end());
    }

    /// The hash of the result; throws where a call gives other bits than the serial loop.
    std::uint64_t run() {
        std::vector<std::byte> out(count_ * size_);
        calls_.all_reduce(own_.data(), out.data(), count_);
        expect("whole", out.data(), count_, want_, 0);
        for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) piece(static_cast<int>(i), cuts_[i], cuts_[i + 1]);
        scans();
        return hash_of(out);
    }

private:
    void expect(const char* what, const std::byte* got, std::size_t count, const std::vector<std::byte>& want,
        std::size_t from) const {
        for (std::size_t i = 0; i < count; ++i) {
            const std::byte *const is = got + i * size_, *const should = want.data() + (from + i) * size_;
            if (std::memcmp(is, should, size_) != 0)
                throw std::runtime_error(std::string(fold_.name) + ", " + what + ", piece of " + std::to_string(count) +
                                         " from " + std::to_string(from) + ": element " + std::to_string(i) + " is " +
                                         fold_.text(is) + " and should be " + fold_.text(should));
        }
    }

    void piece(int number, std::size_t from, std::size_t to) {
        const std::size_t count = to - from;
        const auto n = static_cast<std::size_t>(comm_.size()), me = static_cast<std::size_t>(comm_.rank());
        const std::byte* const in = own_.data() + from * size_;
        std::vector<std::byte> copy(in, in + count * size_), out(count * size_);
        std::byte *const shared = allocated_.data() + from * size_, *const second =
                                                                        allocated_.data() + (count_ + from) * size_;
        std::copy(copy.begin(), copy.end(), shared);
        const auto expect_all = [&](const char* what, const std::byte* got) { expect(what, got, count, want_, from); };
        switch (number % 8) {
            case 0:
                calls_.all_reduce_in_place(copy.data(), count);
                return expect_all("in place", copy.data());
            case 1:
                calls_.start(in, out.data(), count).wait();
                return expect_all("started", out.data());
            case 2:
                calls_.all_reduce_in_place(shared, count);
                return expect_all("allocated, in place", shared);
            case 3:
                calls_.all_reduce(shared, second, count);
                return expect_all("allocated", second);
            case 4: {
                auto plan = calls_.prepare(in, second, count);
                for (int k = 0; k < 2; ++k) {
                    k == 0 ? plan.run() : plan.start().wait();
                    expect_all("prepared, mixed memory", second);
                }
                return;
            }
            case 5: {
                const int root = number / 8 % comm_.size();
                calls_.reduce(in, out.data(), count, root);
                if (root == comm_.rank()) expect_all("reduce", out.data());
                return;
            }
            case 6: {
                const colls::buffer_block own = colls::block_of(count, comm_.size(), comm_.rank());
                calls_.reduce_scatter(in, count, out.data(), own.size);
                return expect("reduce_scatter", out.data(), own.size, want_, from + own.offset);
            }
            default: {
                std::vector<std::size_t> counts(n, count / (2 * n));
                counts[static_cast<std::size_t>(number) % n] += count - n * (count / (2 * n));
                std::size_t before = 0;
                for (std::size_t r = 0; r < me; ++r) before += counts[r];
                calls_.reduce_scatter_v(in, count, out.data(), counts);
                return expect("reduce_scatter_v", out.data(), counts[me], want_, from + before);
            }
        }
    }
    /// On the last piece and on everything: rank r's bits are those of a loop over ranks 0 to r.
    void scans() {
        if (fold_.finishes) return;
        std::vector<std::byte> upto(count_ * size_), below(count_ * size_);
        fold_.fold(upto.data(), all_, comm_.rank() + 1, fold_.op);
        if (comm_.rank() > 0) fold_.fold(below.data(), all_, comm_.rank(), fold_.op);
        for (const std::size_t from : {std::size_t{0}, cuts_[cuts_.size() / 2]}) {
            const std::size_t count = count_ - from;
            const std::byte* const in = own_.data() + from * size_;
            std::vector<std::byte> out(count * size_);
            calls_.inclusive_scan(in, out.data(), count);
            expect("inclusive_scan", out.data(), count, upto, from);
            calls_.exclusive_scan(in, out.data(), count);
            if (comm_.rank() > 0) expect("exclusive_scan", out.data(), count, below, from);
        }
    }

    colls::communicator& comm_;
    constrained_calls& calls_;
    const typed_fold& fold_;
    const std::size_t size_, count_;
    colls::memory<std::byte> allocated_;
    std::vector<std::vector<std::byte>> all_;
    std::vector<std::byte> own_, want_;
    std::vector<std::size_t> cuts_;
};

/// All types and operators on one rank; returns the hashes of sum in float and in bfloat16. The calls are as a user
/// writes them for an operator that commutes and for one that does not, and otherwise the requests that these make.
inline std::pair<std::uint64_t, std::uint64_t> check_reproducible(
    colls::communicator& comm, std::size_t count, int cuts, std::uint64_t seed) {
    using colls::bfloat16;
    using colls::half;
    const auto run = [&](constrained_calls& calls, const typed_fold& fold, std::size_t elements) {
        return reproducible_calls(comm, calls, fold, elements, cuts, seed).run();
    };
    const std::size_t few = std::min<std::size_t>(count, 30'000);
    const blend by_blend;
    const opaque_blend by_opaque_blend;
    const auto by_premul_sum = colls::premul_sum(1.1f);
    written_calls<float, colls::sum_t> in_float(comm, colls::sum);
    const std::uint64_t float_hash = run(in_float, typed<float>(colls::sum, "sum in float"), count);
    written_calls<bfloat16, opaque_blend> in_order(comm, by_opaque_blend);
    run(in_order, typed<bfloat16>(by_opaque_blend, "an operator that does not commute, in bfloat16"), few);

    const auto run_erased = [&](const typed_fold& fold, std::size_t elements) {
        erased_calls calls(comm, fold);
        return run(calls, fold, elements);
    };
    const std::uint64_t bfloat16_hash = run_erased(typed<bfloat16>(colls::sum, "sum in bfloat16"), count);
    for (const typed_fold& fold : {typed<half>(colls::sum, "sum in half"), typed<double>(colls::prod, "prod in double"),
             typed<float>(colls::avg, "avg in float"), typed<bfloat16>(colls::avg, "avg in bfloat16"),
             typed<half>(colls::avg, "avg in half"), typed<float>(by_premul_sum, "premul_sum in float"),
             typed<bfloat16>(by_premul_sum, "premul_sum in bfloat16"), typed<half>(by_premul_sum, "premul_sum in half"),
             typed<float>(by_blend, "a pure operator in float"),
             typed<bfloat16>(by_blend, "a pure operator in bfloat16"),
             typed<float>(by_opaque_blend, "an operator that does not commute, in float")})
        run_erased(fold, few);
    return {float_hash, bfloat16_hash};
}

}  // namespace support
