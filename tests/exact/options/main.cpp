// Exact sums of both units against sums bit by bit, in each rounding mode, and while subnormals are flushed.
#include "exact/numbers.hpp"
#include "unit.hpp"

#include <cfenv>
#include <cstdio>
#include <cstring>
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

int failures = 0;

template <class F>
void in_mode(int rounding, bool flushes, F f) {
    std::fesetround(rounding);
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    if (flushes) _mm_setcsr(before | 0x8040u);
    f();
    const bool kept = ((_mm_getcsr() ^ (before | (flushes ? 0x8040u : 0u))) & 0xe040u) == 0;
    _mm_setcsr(before);
#else
    if (flushes) return;
    f();
    const bool kept = std::fegetround() == rounding;
#endif
    std::fesetround(FE_TONEAREST);
    if (!kept && failures++ < 20) std::printf("the mode of the processor is another one after a sum\n");
}
void check(bool right, const std::string& what) {
    if (!right && failures++ < 20) std::printf("wrong: %s\n", what.c_str());
}

struct unit {
    const char* name;
    sum_function* sum;
    product_function* multiply;
};
/// f(unit, in a mode of the processor that f's argument enters, what to say of it).
template <class F>
void each_unit_and_mode(F f) {
    for (const unit& u : {unit{"plain", plain::sum, plain::multiply}, unit{"other", other::sum, other::multiply}})
        for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO})
            for (const bool flushes : {false, true})
                f(
                    u, [=](auto call) { in_mode(rounding, flushes, call); },
                    std::string(u.name) + ", rounding " + std::to_string(rounding) + (flushes ? ", flushing" : ""));
}
template <class T>
void check_sums(kind k) {
    constexpr std::size_t count = 130;
    for (const int ranks : {1, 3, 33})
        for (int s = 0; s < samples; ++s) {
            random_source random(static_cast<std::uint64_t>(100 * s + ranks));
            const auto n = static_cast<std::size_t>(ranks);
            const std::vector<T> x = numbers<T>(static_cast<sample>(s), n * count, random);
            std::vector<bits_of<T>> wanted, at_hand(count), by_integers(count);
            std::vector<T> addends(n);
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t r = 0; r < n; ++r) addends[r] = x[r * count + i];
                wanted.push_back(by_formula(addends));
            }
            const bits_of<T> all = expected<T>(summed<T>(x));
            each_unit_and_mode([&](const unit& u, auto in_its_mode, const std::string& mode) {
                bits_of<T> of_array = 0;
                in_its_mode([&] { u.sum(k, x.data(), ranks, count, {at_hand.data(), by_integers.data(), &of_array}); });
                const std::string where = mode + ", kind " + std::to_string(k) + ", sample " + std::to_string(s) +
                                          ", " + std::to_string(ranks) + " ranks: ";
                check(at_hand == wanted, where + "addends at hand");
                check(by_integers == wanted, where + "integers");
                check(of_array == all, where + "exact_sum of an array");
            });
        }
}
void check_products() {
    for (const sample s : {finite_bits, alike, subnormal}) {
        random_source random(7);
        const auto a = numbers<float>(s, 3000, random), b = numbers<float>(s, 3000, random);
        reference::bit_sum sum;
        for (std::size_t i = 0; i < a.size(); ++i) sum.add(real(a[i]) * real(b[i]));
        const auto wanted = expected<double>(sum);
        each_unit_and_mode([&](const unit& u, auto in_its_mode, const std::string& mode) {
            double singly = 0, together = 0;
            in_its_mode([&] { u.multiply(a.data(), b.data(), a.size(), &singly, &together); });
            check(raw(singly) == wanted && raw(together) == wanted, mode + ": products");
        });
    }
}

}  // namespace

int main() {
    check_sums<float>(floats);
    check_sums<double>(doubles);
    check_sums<bfloat16>(bfloat16s);
    check_sums<half>(halfs);
    check_products();
    if (failures > 0) std::printf("%d failures\n", failures);
    return failures > 0;
}
