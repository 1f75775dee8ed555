// The library's operator for each kind, and the calls with it: what takes long to compile, once for all tests.
#include "matrix.hpp"

namespace support {

namespace kinds {

// The library's element type and operator of each kind.
template <class K>
struct of_library;
template <class T>
struct of_library<sum_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::sum; }
};
template <class T>
struct of_library<wild_sum_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::sum; }
};
template <class T>
struct of_library<prod_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::prod; }
};
template <class T>
struct of_library<min_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::min; }
};
template <class T>
struct of_library<max_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::max; }
};
template <class T>
struct of_library<and_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::bit_and; }
};
template <class T>
struct of_library<or_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::bit_or; }
};
template <class T>
struct of_library<xor_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::bit_xor; }
};
template <class T>
struct of_library<avg_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::avg; }
};
template <class T>
struct of_library<premul_of<T>> {
    using type = T;
    static constexpr auto op() { return colls::premul_sum(T(3)); }
};
template <>
struct of_library<bfloat16_sum> {
    using type = colls::bfloat16;
    static constexpr auto op() { return colls::sum; }
};
template <>
struct of_library<wild_bfloat16_sum> {
    using type = colls::bfloat16;
    static constexpr auto op() { return colls::sum; }
};
template <>
struct of_library<bfloat16_max> {
    using type = colls::bfloat16;
    static constexpr auto op() { return colls::max; }
};
template <>
struct of_library<half_sum> {
    using type = colls::half;
    static constexpr auto op() { return colls::sum; }
};
template <>
struct of_library<wild_half_sum> {
    using type = colls::half;
    static constexpr auto op() { return colls::sum; }
};
template <>
struct of_library<half_min> {
    using type = colls::half;
    static constexpr auto op() { return colls::min; }
};
template <>
struct of_library<complex_sum> {
    using type = std::complex<float>;
    static constexpr auto op() { return colls::sum; }
};
template <>
struct of_library<minloc_double> {
    using type = located<double, std::int64_t>;
    static constexpr auto op() { return colls::minloc; }
};
template <>
struct of_library<maxloc_float> {
    using type = colls::value_index<float, std::int32_t>;
    static constexpr auto op() { return colls::maxloc; }
};

// A user's callables. One that is not marked commutative is applied in rank order.
template <class K>
struct of_library {
    using type = typename K::type;
    static constexpr auto op() {
        const auto plain = [](const type& a, const type& b) { return K::fold(a, b); };
        if constexpr (K::how == judged::in_order)
            return plain;
        else
            return colls::commutative(plain);
    }
};
/// Integer sums through a lambda that is not marked commutative.
struct silent_sum : sum_of<std::uint64_t> {};
template <>
struct of_library<silent_sum> {
    using type = std::uint64_t;
    static constexpr auto op() {
        return [](std::uint64_t a, std::uint64_t b) { return a + b; };
    }
};

template <class Comm, class K, bool AllWays>
void run(Comm& comm, const arguments& a, way w, flight& in_flight) {
    using T = typename of_library<K>::type;
    static_assert(sizeof(T) == sizeof(typename K::type));
    const auto op = of_library<K>::op();
    const bool folds = reduces(a.collective);
    if constexpr (AllWays) {
        if (w == way::started) {
            in_flight.push_back(folds ? fold_call<start_way, T>(comm, a, op) : move_call<start_way, T>(comm, a));
            return;
        }
        if (w == way::prepared) {
            auto plan = folds ? fold_call<prepare_way, T>(comm, a, op) : move_call<prepare_way, T>(comm, a);
            plan.run();
            return;
        }
    }
    if (folds)
        fold_call<blocking_way, T>(comm, a, op);
    else
        move_call<blocking_way, T>(comm, a);
}

template <class Comm, class K, bool AllWays = false>
constexpr entry<Comm> entry_for(const char* name) {
    using library = of_library<K>;
    constexpr bool averages = requires(typename K::type& x) { K::after(x, 1); };
    constexpr bool ordered = !colls::is_commutative<decltype(library::op()), typename library::type>;
    return {erased<K>(name), &run<Comm, K, AllWays>, AllWays, averages, ordered};
}

}  // namespace kinds

/// Kinds that every suite uses.
template <class Comm>
const std::vector<entry<Comm>>& common_kinds() {
    using namespace kinds;
    static const std::vector<entry<Comm>> list = {
        entry_for<Comm, sum_of<float>, true>("float sum"),
        entry_for<Comm, sum_of<std::int32_t>, true>("int32 sum"),
        entry_for<Comm, wild_sum_of<float>, true>("float sum of wild values"),
        entry_for<Comm, matrix_product, true>("matrix product"),
        entry_for<Comm, word_chain, true>("word concatenation"),
        entry_for<Comm, sum_of<std::int8_t>>("int8 sum"),
    };
    return list;
}

/// All of them.
template <class Comm>
const std::vector<entry<Comm>>& all_kinds() {
    using namespace kinds;
    static const std::vector<entry<Comm>> list = [] {
        std::vector<entry<Comm>> all = common_kinds<Comm>();
        for (const entry<Comm>& e : {
                 entry_for<Comm, sum_of<double>>("double sum"),
                 entry_for<Comm, sum_of<std::uint64_t>>("uint64 sum"),
                 entry_for<Comm, prod_of<std::uint32_t>>("uint32 prod"),
                 entry_for<Comm, prod_of<float>>("float prod"),
                 entry_for<Comm, min_of<std::int64_t>>("int64 min"),
                 entry_for<Comm, min_of<double>>("double min"),
                 entry_for<Comm, max_of<std::int16_t>>("int16 max"),
                 entry_for<Comm, max_of<float>>("float max"),
                 entry_for<Comm, and_of<std::uint64_t>>("uint64 and"),
                 entry_for<Comm, or_of<std::uint8_t>>("uint8 or"),
                 entry_for<Comm, xor_of<std::uint16_t>>("uint16 xor"),
                 entry_for<Comm, avg_of<float>>("float avg"),
                 entry_for<Comm, avg_of<std::int64_t>>("int64 avg"),
                 entry_for<Comm, premul_of<double>>("double premul_sum(3)"),
                 entry_for<Comm, premul_of<std::int32_t>>("int32 premul_sum(3)"),
                 entry_for<Comm, wild_sum_of<double>>("double sum of wild values"),
                 entry_for<Comm, bfloat16_sum>("bfloat16 sum"),
                 entry_for<Comm, wild_bfloat16_sum>("bfloat16 sum of wild values"),
                 entry_for<Comm, bfloat16_max>("bfloat16 max"),
                 entry_for<Comm, half_sum>("half sum"),
                 entry_for<Comm, wild_half_sum>("half sum of wild values"),
                 entry_for<Comm, half_min>("half min"),
                 entry_for<Comm, complex_sum>("complex sum"),
                 entry_for<Comm, minloc_double>("minloc"),
                 entry_for<Comm, maxloc_float>("maxloc"),
                 entry_for<Comm, affine_chain>("affine maps"),
                 entry_for<Comm, interval_join>("interval join"),
                 entry_for<Comm, leftmost>("leftmost"),
                 entry_for<Comm, rightmost>("rightmost"),
                 entry_for<Comm, rgb_lighten>("rgb"),
                 entry_for<Comm, body_sum>("bodies"),
                 entry_for<Comm, silent_sum>("uint64 sum by a lambda"),
             })
            all.push_back(e);
        return all;
    }();
    return list;
}

template const std::vector<entry<colls::communicator>>& common_kinds<colls::communicator>();
template const std::vector<entry<colls::communicator>>& all_kinds<colls::communicator>();

}  // namespace support
