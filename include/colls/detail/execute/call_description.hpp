// How a call is described to errors: where it waits, and what this rank remembers of it.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/request/request.hpp>

namespace colls::inline v1::detail {

/// Appends the blocks that this rank and its peer exchange in the round, the first few of them by number.
[[gnu::cold]] inline void say_blocks(error_text& text, const wait_site& at) {
    const any_schedule& s = *static_cast<const any_schedule*>(at.blocks_of);
    if (at.round >= s.rounds(at.size)) return;  // after the last round a rank waits for others to finish: no blocks
    const auto role = [&](int rank) { return (rank - at.shift + 2 * at.size) % at.size; };
    constexpr int most = 4;
    int found[most + 1], count = 0;
    for (int port = 0; port < s.ports(at.size); ++port) {
        const step does = s.at(role(at.rank), at.size, at.round, port);
        for (const auto& [peer, blocks] : {send_part{does.recv.peer, does.recv.blocks}, does.send}) {
            if (peer != role(at.peer)) continue;
            for (int i = 0; i < blocks.size() && count <= most; ++i) {
                const int slot = blocks[i], block = slot < s.blocks(at.size) ? s.home(at.size, slot) : none;
                if (block != none && (count == 0 || found[count - 1] != block)) found[count++] = block;
            }
        }
    }
    for (int i = 0; i < count; ++i) {
        text << (i > 0 ? ", " : count > 1 ? ", blocks " : ", block ");
        i == most ? text << "..." : text << found[i];
    }
}

/// Remembers the call that has just been made, for errors about calls that do not match.
inline void record_call(rank_context& self, const call& c, std::string_view schedule, bool own_lengths) {
    call_record& r = self.log.latest();
    r.type = c.type;
    r.op = c.op_type;
    r.schedule = schedule;
    r.count = c.count;
    r.root = c.root;
    r.what = c.what;
    r.own_lengths = own_lengths;
    r.non_blocking = c.non_blocking;
    r.reproducible = c.reproducible;
    r.name = nullptr;
    if (const composite_call* const whole = self.log.part_of; whole != nullptr) {
        r.name = whole->name;
        r.type = whole->type;
        r.op = whole->op;
        r.count = whole->count;
        r.root = whole->root;
        r.what = whole->what;
        r.own_lengths = whole->own_lengths;
    }
}

}  // namespace colls::inline v1::detail
