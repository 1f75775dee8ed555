// Where the tables of a redistribution are: in static memory, made by the compiler, or made at run time.
// IWYU pragma: private, include <colls/redistribute.hpp>
#pragma once

#include <colls/redistribute/detail/transfer_table.hpp>

namespace colls::inline v1::detail {

/// The table of a redistribution, made when it is first asked for and kept until the process ends, as execution plans
/// are. Equal layouts give the same table. Threads may call it at once.
const transfer_table* transfer_table_of(const layout& from, const layout& to);

struct tables_at_run_time {
    const transfer_table* made = nullptr;
    constexpr const transfer_table& table() const { return *made; }
};

template <layout From, layout To>
struct tables_at_compile_time {
    static_assert(From.shape() == To.shape(), "colls: redistribute: the layouts are of matrices of different shapes");
    static constexpr const transfer_table& table() { return made; }

private:
    struct extents {
        int pieces, slots, ranks, blocks, rounds;
    };
    static constexpr extents sizes = [] {
        const transfer_builder builder(From, To);
        const transfer_table& t = builder.table();
        return extents{t.pieces, builder.all_slots(), t.ranks, t.blocks, t.rounds};
    }();
    struct arrays {
        transfer_piece piece[sizes.pieces + 1];
        int slots_of[sizes.ranks + 1];
        int label[sizes.slots + 1];
        transfer_step step[sizes.rounds * sizes.ranks + 1];
    };
    static constexpr arrays filled = [] {
        const transfer_builder builder(From, To);
        const transfer_table& t = builder.table();
        arrays all{};
        for (int i = 0; i < sizes.pieces; ++i) all.piece[i] = t.piece[i];
        for (int i = 0; i <= sizes.ranks; ++i) all.slots_of[i] = t.slots_of[i];
        for (int i = 0; i < sizes.slots; ++i) all.label[i] = t.label[i];
        for (int i = 0; i < sizes.rounds * sizes.ranks; ++i) all.step[i] = t.step[i];
        return all;
    }();
    static constexpr transfer_table made = {.from = From,
        .to = To,
        .ranks = sizes.ranks,
        .blocks = sizes.blocks,
        .rounds = sizes.rounds,
        .pieces = sizes.pieces,
        .piece = filled.piece,
        .slots_of = filled.slots_of,
        .label = filled.label,
        .step = filled.step};
};

}  // namespace colls::inline v1::detail
