// Plans of other libraries, judged by the import and by a runner of the test's own: what changed plans are checked
// with.
#pragma once

#include "catch.hpp"

#include <exchange/plan_file.hpp>

#include <colls/verify.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace support {

inline std::vector<std::filesystem::path> sample_plans(const std::string& kind) {
    std::vector<std::filesystem::path> all;
    for (const auto& file : std::filesystem::directory_iterator(COLLS_TEST_PLANS))
        if (file.path().extension() == kind) all.push_back(file.path());
    std::ranges::sort(all);
    return all;
}
inline std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

enum class verdict { proven, refuted, refused };
struct judgement {
    verdict what = verdict::proven;
    std::string text;
    std::shared_ptr<const exchange::plan_schedule> read;
};
/// What the import says of a plan; `name` tells its format.
inline judgement judge(const std::string& text, const std::string& name) {
    try {
        const auto p = exchange::read_plan(text, name);
        const colls::report r = colls::verify(p->schedule, p->from->table.ranks);
        return {r.ok() ? verdict::proven : verdict::refuted, r.ok() ? std::string() : r.text(), p};
    } catch (const exchange::refuted& e) {
        return {verdict::refuted, e.what(), nullptr};
    } catch (const exchange::refused& e) {
        return {verdict::refused, e.what(), nullptr};
    }
}

/// What a collective, named as plans name it, starts from and ends with: on numbers that no two sums share.
struct plan_task {
    using value = std::uint64_t;
    std::string coll;
    int ranks = 0, chunks = 0, root = 0;
    bool in_place = true;

    static value mixed(value x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31);
    }
    bool parts_in() const { return coll == "allgather" || coll == "gather"; }
    bool parts_out() const { return coll == "reducescatter" || coll == "scatter"; }
    /// Chunks of one rank where the collective divides them.
    int each() const { return parts_in() || parts_out() || coll == "alltoall" ? chunks / ranks : chunks; }
    int inputs() const { return parts_in() ? each() : chunks; }
    int outputs() const { return parts_out() ? each() : chunks; }
    bool has_input(int r) const { return (coll != "broadcast" && coll != "scatter") || r == root; }
    bool has_output(int r) const { return (coll != "gather" && coll != "reduce") || r == root; }
    /// Chunk c of the input of rank r.
    value input(int r, int c) const { return given(r, parts_in() ? r * each() + c : c); }
    /// Chunk c of the output of rank r.
    value output(int r, int c) const {
        const int chunk = parts_out() ? r * each() + c : c;
        value wanted = 0;
        if (coll == "allreduce" || coll == "reduce" || coll == "reducescatter")
            for (int other = 0; other < ranks; ++other) wanted += given(other, chunk);
        else if (parts_in())
            wanted = given(chunk / each(), chunk);
        else if (coll == "alltoall")
            wanted = given(chunk / each(), r * each() + chunk % each());
        else
            wanted = given(root, chunk);
        return wanted;
    }
    /// In place, input and output are one memory: the buffer and index by which a chunk of either is known.
    std::pair<char, int> known_as(int r, char buffer, int index) const {
        if (in_place && buffer == 'i' && parts_in()) return {'o', index + r * each()};
        if (in_place && buffer == 'o' && !parts_in()) return {'i', index + (parts_out() ? r * each() : 0)};
        return {buffer, index};
    }

private:
    static value given(int rank, int chunk) { return mixed(value(rank) * 65536 + value(chunk) + 1); }
};

/// One change of a plan.
template <class Plan>
struct plan_change {
    std::string kind, what;
    std::function<void(Plan&)> make;
};

/// Makes changes of plans, and compares what the import says with what the test's own runner finds.
class changed_plans {
public:
    /// At most about `most` changes of one plan, evenly chosen. `text`: the plan as the import reads it; `right`:
    /// whether it is right in every order tried.
    template <class Plan, class Text, class Right>
    void check(const std::string& name, const Plan& plan, const std::vector<plan_change<Plan>>& all, std::size_t most,
        Text text, Right right) {
        INFO(name);
        CHECK(right(plan));
        CHECK(judge(text(plan), name).text == "");
        const std::size_t each = std::max<std::size_t>(1, all.size() / most);
        for (std::size_t i = 0; i < all.size(); i += each) {
            Plan changed = plan;
            all[i].make(changed);
            const judgement j = judge(text(changed), name);
            const bool is_right = right(changed);
            INFO(all[i].kind << " of " << all[i].what << ": " << j.text);
            CHECK((j.what == verdict::proven) == j.text.empty());
            wrong += !is_right;
            missed += !is_right && j.what == verdict::proven;
            if (!is_right) CHECK(j.what != verdict::proven);
            ++kinds_[all[i].kind][j.what == verdict::proven ? 1 : is_right ? 2 : 0];
        }
    }
    void print(const std::string& format) const {
        for (const auto& [kind, counts] : kinds_)
            std::cout << "exchange: " << format << ": " << kind << ": " << counts[0] << " refuted, " << counts[1]
                      << " equivalent, " << counts[2] << " refuted though no run was wrong\n";
        std::cout << "exchange: " << format << ": of " << wrong << " wrong plans " << missed << " are not refuted\n";
    }

    int wrong = 0, missed = 0;

private:
    std::map<std::string, std::array<int, 3>> kinds_;  // refuted, equivalent, and refuted though no run was wrong
};

}  // namespace support
