#include "schedule_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace tool {

namespace {

/// Identifiers, joined by `::`.
bool names_a_type(std::string_view name) {
    bool at_begin = true;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        if (name.substr(i, 2) == "::" && !at_begin) {
            at_begin = true;
            ++i;
        } else if (c == '_' || std::isalpha(static_cast<unsigned char>(c)) ||
                   (!at_begin && std::isdigit(static_cast<unsigned char>(c)))) {
            at_begin = false;
        } else {
            return false;
        }
    }
    return !at_begin;
}

}  // namespace

std::string header_of(const exchange::transfer_table& t, const std::string& name, const std::string& remark) {
    if (!names_a_type(name)) throw std::runtime_error("'" + name + "' is not the name of a type");
    const std::size_t last = name.rfind("::");
    const std::string scope = last == std::string::npos ? "" : name.substr(0, last),
                      type = last == std::string::npos ? name : name.substr(last + 2);
    // A line in which a word of the command breaks would be code.
    std::string origin = remark;
    std::ranges::replace_if(origin, [](unsigned char c) { return c < ' '; }, ' ');
    const char* const number = std::max(t.ranks, t.blocks) > std::numeric_limits<short>::max() ? "int" : "short";
    std::string text = fmt::format(
        "// {0} for {1} ranks, {2}: {3} rounds, {4} blocks.\n#pragma once\n\n#include <colls/schedule.hpp>\n#include "
        "<colls/step.hpp>\n\n{5}struct {6} {{\n    static constexpr auto implements = colls::collective::{0};\n"
        "    static constexpr bool supports(int n) {{ return n == {1}; }}\n"
        "    static constexpr int rounds(int) {{ return {3}; }}\n"
        "    static constexpr int ports(int) {{ return {7}; }}\n"
        "    static constexpr int blocks(int) {{ return {4}; }}\n"
        "    static constexpr colls::step at(int rank, int, int round, int port) {{\n"
        "        const transfer& t = transfers[(round * {1} + rank) * {7} + port];\n"
        "        return {{.send = {{t.to, colls::block_range(t.sent, t.sent_blocks)}},\n"
        "            .recv = {{t.from, colls::block_range(t.got, t.got_blocks),\n"
        "                round < {8} ? colls::action::reduce : colls::action::copy}}}};\n    }}\n\nprivate:\n"
        "    struct transfer {{\n        {9} to, sent, sent_blocks, from, got, got_blocks;  // peers; -1: none\n    "
        "}};\n"
        "    static constexpr transfer transfers[] = {{  // a line for each round and rank\n",
        colls::name_of(t.implements), t.ranks, origin, t.rounds, t.blocks,
        scope.empty() ? "" : "namespace " + scope + " {\n\n", type, t.ports,
        [&] {
            int reducing = 0;  // rounds that reduce come first
            for (int r = 0; r < t.rounds; ++r)
                for (int rank = 0; rank < t.ranks; ++rank)
                    for (int p = 0; p < t.ports; ++p)
                        if (const colls::receive_part& got = t.at(rank, r, p).recv;
                            got.peer != colls::none && got.action == colls::action::reduce)
                            reducing = r + 1;
            return reducing;
        }(),
        number);
    for (int r = 0; r < t.rounds; ++r)
        for (int rank = 0; rank < t.ranks; ++rank) {
            text += "        ";
            for (int p = 0; p < t.ports; ++p) {
                const colls::step& s = t.at(rank, r, p);
                text += fmt::format("{{{},{},{},{},{},{}}},", s.send.peer, s.send.blocks.first, s.send.blocks.count,
                    s.recv.peer, s.recv.blocks.first, s.recv.blocks.count);
            }
            text += "\n";
        }
    text += "    };\n};\n";
    if (!scope.empty()) text += "\n}  // namespace " + scope + "\n";
    return text;
}

}  // namespace tool
