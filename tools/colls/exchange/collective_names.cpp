#include "collective_names.hpp"

#include <fmt/format.h>

#include <cctype>

namespace exchange {

using colls::collective;

namespace {

constexpr collective with_plans[] = {collective::broadcast, collective::scatter, collective::gather,
    collective::all_gather, collective::reduce, collective::reduce_scatter, collective::all_reduce,
    collective::all_to_all};

std::string letters(const std::string& text) {
    std::string plain;
    for (const char c : text)
        if (c != '_' && c != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return plain;
}

}  // namespace

collective collective_of_plan(const std::string& name) {
    for (const collective c : with_plans)
        if (plan_name(c) == letters(name)) return c;
    throw refused(fmt::format("'{}' is not a collective with a known result, so the plan cannot be checked", name));
}

std::string plan_name(collective c) {
    for (const collective known : with_plans)
        if (c == known) return letters(colls::name_of(c));
    throw refused(fmt::format("there are no plans for {}", colls::name_of(c)));
}

place place_of(const program& p, int rank, const std::string& buffer, int index, int scratch, const std::string& step) {
    const auto beyond = [&](int size) {
        if (index < 0 || index >= size)
            throw refused(fmt::format("{} names {}[{}], but that buffer has {} chunks", step, buffer, index, size));
    };
    const bool owned = colls::owned(p.implements);
    const bool parts_in = p.implements == collective::all_gather || p.implements == collective::gather;
    const int each = owned ? p.blocks / p.ranks : p.blocks;
    if (buffer == "i") {
        beyond(parts_in ? each : p.blocks);
        return {rank, memory::input, parts_in ? rank * each + index : index};
    }
    if (buffer == "o") {
        const bool part = owned && !parts_in;
        beyond(part ? each : p.blocks);
        return {rank, p.in_place ? memory::input : memory::output, part ? rank * each + index : index};
    }
    if (buffer != "s") throw refused(fmt::format("{} names buffer '{}'; there are i, o and s", step, buffer));
    beyond(scratch);
    return {rank, memory::scratch, index};
}

bool slots_are_chunks(const colls::any_schedule& s, int n) {
    if (!colls::owned(s.implements) && s.implements != collective::all_to_all) return true;
    const int blocks = s.blocks(n), each = blocks / n;
    if (blocks % n != 0) throw refused("the blocks are not divided equally among the ranks");
    for (int slot = 0; slot < blocks; ++slot)
        for (int r = 0; r < n; ++r) {
            const bool as_numbered = s.implements == collective::all_to_all
                                         ? s.input(r, n, slot) == slot / each && s.output(r, n, slot) == slot / each
                                         : s.home(n, slot) == slot / each;
            if (!as_numbered) return false;
        }
    return true;
}

char buffer_of_slots(collective c) { return c == collective::all_gather || c == collective::gather ? 'o' : 'i'; }

}  // namespace exchange
