#include "local_proofs.hpp"

#include "../input.hpp"
#include "commands.hpp"
#include "json_text.hpp"
#include "progress.hpp"

#include <colls/detail/request/known_families.hpp>
#include <proof/local_proof.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace tool {

namespace {

using colls::detail::local_finding;

/// What proves a schedule: one a thread, which keeps its memory from one group size to the next.
struct prover {
    virtual ~prover() = default;
    virtual local_finding at(int n) = 0;
};
template <class Schedule>
struct prover_of final : prover {
    local_finding at(int n) override { return proof.at(n); }
    colls::detail::local_proof<Schedule> proof;
};

struct provable {
    colls::collective what;
    bool from_rank_0;
    bool (*supports)(int n);
    std::unique_ptr<prover> (*make)();
};

template <class Family>
std::vector<provable> schedules_of() {
    std::vector<provable> all;
    const auto one = [&]<int C>(std::integral_constant<int, C>) {
        constexpr auto c = static_cast<colls::collective>(C);
        if constexpr (colls::provides<Family, c>) {
            using schedule = colls::schedule_for<Family, c>;
            all.push_back({c, colls::detail::local_proof<schedule>::from_rank_0(),
                [](int n) { return colls::supports(schedule{}, n); },
                []() -> std::unique_ptr<prover> { return std::make_unique<prover_of<schedule>>(); }});
        }
    };
    [&]<int... C>(std::integer_sequence<int, C...>) { (one(std::integral_constant<int, C>{}), ...); }(
        std::make_integer_sequence<int, colls::collective_count>{});
    return all;
}

std::vector<provable> schedules_named(const request& asked) {
    if (!asked.include.empty())
        throw std::runtime_error("--local takes families of the library: leave out --include, or --local");
    std::vector<provable> all;
    std::vector<std::string> names;
    const auto look = [&]<class Family>(Family, std::string_view name) {
        names.emplace_back(name);
        if (name == asked.name) all = schedules_of<Family>();
    };
    colls::detail::known_families::for_each(look);
    look(colls::circulant<colls::doubling>{}, "circulant<doubling>");
    look(colls::circulant<colls::linear>{}, "circulant<linear>");
    look(colls::bruck<4>{}, "bruck<4>");
    look(colls::pat<4>{}, "pat<4>");
    if (all.empty()) throw std::runtime_error("--local: " + input::unknown("family", asked.name, names));
    if (asked.collective.empty()) return all;
    std::vector<std::string> has;
    for (const provable& p : all) has.emplace_back(colls::name_of(p.what));
    std::erase_if(all, [only = collective_named(asked.collective)](const provable& p) { return p.what != only; });
    if (all.empty())
        throw std::runtime_error(
            fmt::format("{} has no schedule for {}; it has: {}", asked.name, asked.collective, fmt::join(has, ", ")));
    return all;
}

struct outcome {
    int proven = 0;
    local_finding refused;  ///< of the least group size that is not proven, if `refused.n` > 0
};

/// The sizes are dealt out to all cores, the large ones first.
outcome prove_range(const provable& p, const std::string& name, int first, int last) {
    std::atomic<int> next{last}, proven{0}, running{0};
    std::atomic<bool> failed{false};
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<local_finding> refused(cores);
    std::mutex one_at_a_time;
    std::exception_ptr error;
    const auto prove = [&](local_finding& mine) {
        const std::unique_ptr<prover> proof = p.make();
        for (int n = next--; n >= first && !failed; n = next--) {
            if (!p.supports(n)) continue;
            const local_finding found = proof->at(n);
            if (found.proven()) {
                ++proven;
                continue;
            }
            mine = found;
            failed = true;
        }
    };
    const auto work = [&](local_finding& mine) {
        try {
            prove(mine);
        } catch (...) {  // such as too little memory
            const std::lock_guard lock(one_at_a_time);
            error = std::current_exception();
            failed = true;
        }
        --running;
    };
    std::vector<std::jthread> threads;
    for (local_finding& mine : refused) {
        ++running;
        threads.emplace_back(work, std::ref(mine));
    }
    for (progress shown; running > 0; std::this_thread::sleep_for(std::chrono::milliseconds(running > 0 ? 20 : 0)))
        shown.say(fmt::format("{} {}: {} group sizes proven", name, colls::name_of(p.what), proven.load()));
    threads.clear();
    if (error) std::rethrow_exception(error);
    outcome o{proven, {}};
    for (const local_finding& r : refused)
        if (r.n > 0 && (o.refused.n == 0 || r.n < o.refused.n)) o.refused = r;
    return o;
}

}  // namespace

int prove_locally(const request& asked, int first, int last, bool as_json) {
    nlohmann::json rows = nlohmann::json::array();
    bool all_right = true, any_proven = false;
    for (const provable& p : schedules_named(asked)) {
        const auto begin = std::chrono::steady_clock::now();
        const outcome o = prove_range(p, asked.name, first, last);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        const bool right = o.refused.n == 0;
        all_right = all_right && right;
        any_proven = any_proven || o.proven > 0;
        const char* const by = p.from_rank_0 ? "rank 0, by translation" : "every rank";
        if (as_json)
            rows.push_back({{"family", asked.name}, {"collective", colls::name_of(p.what)}, {"first", first},
                {"last", last}, {"proven", o.proven}, {"steps_of", by}, {"seconds", took.count()},
                {"finding", right ? "" : o.refused.text()}});
        else if (!right)
            fmt::print("{:<20} {:<15} {}\n", asked.name, colls::name_of(p.what), o.refused.text());
        else if (o.proven == 0)
            fmt::print("{:<20} {:<15} supports no group size from {} to {}: nothing is proven\n", asked.name,
                colls::name_of(p.what), first, last);
        else
            fmt::print("{:<20} {:<15} proven for {} group size{} from {} to {}, from the steps of {}, in {:.3g} s\n",
                asked.name, colls::name_of(p.what), o.proven, o.proven == 1 ? "" : "s", first, last, by, took.count());
    }
    if (as_json) print(rows);
    return !all_right ? refuted : any_proven ? good : nothing_proven;
}

}  // namespace tool
