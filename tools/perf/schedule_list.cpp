#include "schedule_list.hpp"

#include <colls/detail/request/known_families.hpp>  // the list behind COLLS_SCHEDULE, which no public header gives

#include <algorithm>
#include <utility>

namespace perf {

namespace {

using colls::collective;

/// Calls f(schedule, name) for each family's schedule of the collective.
template <collective C, class F>
void for_each_schedule(F f) {
    colls::detail::known_families::for_each([&]<class Family>(const Family& family, std::string_view name) {
        if constexpr (colls::provides<Family, C>) f(colls::schedule_of<C>(family), name);
    });
}
/// The same for a collective that is known at run time.
template <class F>
void for_each_schedule(collective what, F f) {
    [&]<int... C>(std::integer_sequence<int, C...>) {
        ((what == static_cast<collective>(C) ? for_each_schedule<static_cast<collective>(C)>(f) : void()), ...);
    }(std::make_integer_sequence<int, colls::collective_count>{});
}

struct named {
    colls::any_schedule schedule;
    std::string_view name;
};
template <collective C>
const std::vector<named>& list() {
    static const std::vector<named> all = [] {
        std::vector<named> made;
        for_each_schedule<C>(
            [&](const auto& s, std::string_view name) { made.push_back({colls::any_schedule(s), name}); });
        return made;
    }();
    return all;
}
const std::vector<named>& list_of(collective what) {
    return what == collective::scatter ? list<collective::scatter>() : list<collective::gather>();
}

}  // namespace

std::vector<std::string> schedule_names() {
    std::vector<std::string> names{"eager"};
    for (const std::string_view name : colls::detail::known_names()) names.emplace_back(name);
    return names;
}

bool provides(std::string_view family, collective what) {
    bool found = family == "eager";
    for_each_schedule(what, [&](const auto&, std::string_view name) { found = found || name == family; });
    return found;
}
bool supports(std::string_view family, collective what, int n) {
    bool found = family == "eager";
    for_each_schedule(what, [&](const auto& s, std::string_view name) {
        if (name == family) found = colls::supports(s, n);
    });
    return found;
}
int fewest_rounds(collective what, int n) {
    int fewest = n;
    for_each_schedule(what, [&](const auto& s, std::string_view) {
        if (colls::supports(s, n)) fewest = std::min(fewest, s.rounds(n));
    });
    return fewest;
}

const colls::any_schedule& scatter_schedule(int index) {
    return list<collective::scatter>()[static_cast<std::size_t>(index)].schedule;
}
const colls::any_schedule& gather_schedule(int index) {
    return list<collective::gather>()[static_cast<std::size_t>(index)].schedule;
}
int index_of(std::string_view family, collective what) {
    if (what != collective::scatter && what != collective::gather) return -1;
    const std::vector<named>& all = list_of(what);
    const auto at = std::ranges::find(all, family, &named::name);
    return at == all.end() ? -1 : static_cast<int>(at - all.begin());
}

}  // namespace perf
