// Finds sizes at which the time of a call jumps, and sizes at which the library chose badly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace bench {

/// What was measured at one size. Times are in one unit, whichever.
struct sweep_point {
    std::size_t bytes = 0;
    double chosen = 0;      ///< time of the library's own choice
    double best_fixed = 0;  ///< time of the best forced choice; 0: none was measured
};

/// What a smooth curve may do.
struct sweep_limits {
    double fall = 0.9;      ///< a larger size takes at least this part of the time of any smaller size
    double rise = 2;        ///< a size takes at most this multiple of the time of the size before it
    double worst = 1.5;     ///< the choice takes at most this multiple of the best fixed choice's time
    double typical = 1.15;  ///< the same for the median over all sizes
};

enum class violation_kind { fall, rise, choice };
inline const char* name_of(violation_kind k) {
    return k == violation_kind::fall ? "falls" : k == violation_kind::rise ? "jumps" : "choice";
}

struct violation {
    violation_kind kind;
    std::size_t from = 0;  ///< index of the smaller size; for a choice that of the size itself
    std::size_t to = 0;    ///< index of the larger size; for a choice that of the size itself
    double ratio = 0;      ///< time at `to` over time at `from`; for a choice its time over that of the best
    friend bool operator==(const violation&, const violation&) = default;
};

inline double choice_ratio(const sweep_point& p) { return p.best_fixed > 0 ? p.chosen / p.best_fixed : 1; }

/// The violations among points that are sorted by size, in their order. Falls from one peak are one violation, that of
/// the deepest point; the peak is the last size before it that took longest.
inline std::vector<violation> find_violations(const std::vector<sweep_point>& points, const sweep_limits& limits = {}) {
    std::vector<violation> found;
    std::size_t peak = 0, fall = points.size();  // index in `found` of the fall from the peak; points.size(): none yet
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (points[i].chosen >= points[peak].chosen) {
            peak = i;
            fall = points.size();
        }
        const double left = points[i].chosen / points[peak].chosen;
        if (left < limits.fall) {
            if (fall == points.size()) {
                fall = found.size();
                found.push_back({violation_kind::fall, peak, i, left});
            } else if (left < found[fall].ratio) {
                found[fall].to = i;
                found[fall].ratio = left;
            }
        }
        if (i > 0 && points[i].chosen > limits.rise * points[i - 1].chosen)
            found.push_back({violation_kind::rise, i - 1, i, points[i].chosen / points[i - 1].chosen});
        if (choice_ratio(points[i]) > limits.worst)
            found.push_back({violation_kind::choice, i, i, choice_ratio(points[i])});
    }
    return found;
}

/// The same violation, measured again: `from` and `to` are the new figures at its two sizes. Its ratio is the new one.
/// Nothing is a violation that does not repeat.
inline bool repeats(violation& v, const sweep_point& from, const sweep_point& to, const sweep_limits& limits = {}) {
    v.ratio = v.kind == violation_kind::choice ? choice_ratio(to) : to.chosen / from.chosen;
    if (v.kind == violation_kind::fall) return v.ratio < limits.fall;
    return v.ratio > (v.kind == violation_kind::rise ? limits.rise : limits.worst);
}

/// The q-quantile of values, between 0 and 1: the value below which that part of them lies, rounded down.
inline double quantile(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

/// The median of choice_ratio over the points.
inline double typical_choice_ratio(const std::vector<sweep_point>& points) {
    std::vector<double> ratios;
    for (const sweep_point& p : points) ratios.push_back(choice_ratio(p));
    return quantile(ratios, 0.5);
}

/// Sizes from `first` to `last` in steps of `factor`, multiples of `unit`, each once.
inline std::vector<std::size_t> sweep_sizes(std::size_t first, std::size_t last, double factor, std::size_t unit) {
    std::vector<std::size_t> sizes;
    for (double x = static_cast<double>(first); x <= static_cast<double>(last) * 1.0001; x *= factor) {
        const std::size_t bytes = std::max<std::size_t>(1, (static_cast<std::size_t>(x) + unit / 2) / unit) * unit;
        if (sizes.empty() || bytes > sizes.back()) sizes.push_back(bytes);
    }
    return sizes;
}

}  // namespace bench
