#include "dot.hpp"

#include <colls/views.hpp>

#include <fmt/format.h>

namespace exchange {

namespace {

/// "0-3, 5", or "0-3, 5 to 8-11, 13" where the receiver puts them elsewhere.
std::string block_words(const colls::views::transfer& t) {
    const auto list = [](const colls::block_set& set) {
        std::string text;
        for (int i = 0; i < set.size();) {
            int last = i;
            while (last + 1 < set.size() && set[last + 1] == set[last] + 1) ++last;
            text += fmt::format("{}{}", i > 0 ? ", " : "", set[i]);
            if (last > i) text += fmt::format("-{}", set[last]);
            i = last + 1;
        }
        return text;
    };
    const std::string sent = list(t.blocks), stored = list(t.stored);
    return sent == stored ? sent : sent + " to " + stored;
}

}  // namespace

std::string write_dot(const colls::any_schedule& s, int n, const std::string& name) {
    std::string quotable;
    for (const char c : name) quotable += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
    std::string out = fmt::format(
        "digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n"
        "  edge [fontname=\"sans-serif\", fontsize=10];\n",
        quotable);
    const int rounds = s.rounds(n);
    for (int round = 0; round <= rounds; ++round) {
        out += fmt::format("  subgraph cluster_{} {{\n    label=\"{}\";\n    style=invis;\n", round,
            round < rounds ? fmt::format("before round {}", round) : std::string("at the end"));
        for (int r = 0; r < n; ++r) out += fmt::format("    r{}_{} [label=\"rank {}\"];\n", r, round, r);
        out += "  }\n";
    }
    for (int round = 0; round < rounds; ++round) {
        for (int r = 0; r < n; ++r)
            out +=
                fmt::format("  r{}_{} -> r{}_{} [style=dotted, arrowhead=none, weight=10];\n", r, round, r, round + 1);
        for (const colls::views::transfer& t : colls::views::transfers(s, n, round, round + 1))
            out += fmt::format("  r{}_{} -> r{}_{} [label=\"{}\", color={}, constraint=false];\n", t.from, round, t.to,
                round + 1, block_words(t), t.action == colls::action::reduce ? "red" : "blue");
    }
    return out + "}\n";
}

}  // namespace exchange
