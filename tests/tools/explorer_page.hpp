// Pages that `colls draw --page` writes, as tests read them.
#pragma once

#include "tool_folder.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

namespace support {

/// What a page has of its schedules.
inline nlohmann::json data_of(const std::string& page) {
    const std::string begin = "<script type=\"application/json\" id=\"data\">";
    const std::size_t at = page.find(begin) + begin.size();
    return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

/// "0-3,7,.2" -> 0, 1, 2, 3, 7, -1, -1
inline std::vector<int> numbers_of(const std::string& text) {
    std::vector<int> all;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        const std::size_t dash = part.find('-');
        if (part[0] == '.') {
            all.insert(all.end(), part == "." ? 1 : std::stoul(part.substr(1)), -1);
        } else {
            const int first = std::stoi(part),
                      last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
            for (int x = first; x <= last; ++x) all.push_back(x);
        }
    }
    return all;
}

/// A header with schedules of which each is wrong in its own way.
inline const char* wrong_schedules() {
    return R"(#include <colls/schedule.hpp>
#include <colls/step.hpp>
namespace wrong {
// A ring's all_gather in which each rank sends what it does not have yet.
struct early {
    static constexpr auto implements = colls::collective::all_gather;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        return {.send = {(rank + 1) % n, colls::block(colls::mod(rank - round - 1, n))},
            .recv = {(rank + n - 1) % n, colls::block(colls::mod(rank - round - 1, n))}};
    }
};
// Ranks send to a neighbour that waits for the other one: right for 2 ranks alone.
template <int to>
struct crossed {
    static constexpr auto implements = colls::collective::all_gather;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        return {.send = {(rank + n + to) % n, colls::block(colls::mod(rank - round, n))},
            .recv = {(rank + 1) % n, colls::block(colls::mod(rank - round - 1, n))}};
    }
};
// An all_reduce that ends a round too soon on more than 4 ranks.
struct hasty {
    static constexpr auto implements = colls::collective::all_reduce;
    static constexpr int blocks(int) { return 1; }
    static constexpr bool supports(int n) { return n > 0 && (n & (n - 1)) == 0; }
    static constexpr int rounds(int n) { return n > 4 ? colls::log2_ceil(n) - 1 : colls::log2_ceil(n); }
    static constexpr colls::step at(int rank, int, int round) {
        const int peer = rank ^ (1 << round);
        return {.send = {peer, colls::block(0)}, .recv = {peer, colls::block(0), colls::action::reduce}};
    }
};
// Peers, blocks and extents that there are not.
struct outside {
    static constexpr auto implements = colls::collective::all_gather;
    static constexpr int rounds(int) { return 1; }
    static constexpr colls::step at(int rank, int n, int) {
        return {.send = {n + rank, colls::block(n + 3)}, .recv = {}};
    }
};
struct less_than_none {
    static constexpr auto implements = colls::collective::all_gather;
    static constexpr int blocks(int) { return -3; }
    static constexpr int rounds(int) { return 1; }
    static constexpr colls::step at(int, int, int) { return {}; }
};
}  // namespace wrong
)";
}

}  // namespace support
