// Lanes of a warp that exchange values: shfl, vote, match, redux, elect and bar.warp. Only bar.warp orders accesses to
// memory.
#include "block.hpp"

#include <bit>

namespace emulated {
namespace {

/// The lane that shfl reads from; `inside` is false where it is out of range and the lane keeps its own value.
u32 source_lane(shuffle_mode mode, u32 lane, u32 b, u32 c, bool& inside) {
    const u32 segment = c >> 8 & 31, clamp = c & 31, highest = (lane & segment) | (clamp & ~segment),
              lowest = lane & segment;
    b &= 31;
    u32 from = lane;
    switch (mode) {
        case shuffle_mode::up:
            from = lane - b;
            inside = static_cast<s32>(from) >= static_cast<s32>(highest);
            break;
        case shuffle_mode::down:
            from = lane + b;
            inside = from <= highest;
            break;
        case shuffle_mode::butterfly:
            from = lane ^ b;
            inside = from <= highest;
            break;
        case shuffle_mode::index:
            from = lowest | (b & ~segment);
            inside = from <= highest;
            break;
    }
    return inside ? from : lane;
}

void give_results(block_context& b, u32 warp_index, const meeting& m) {
    u32 truths = 0, folded = 0;
    bool first = true;
    std::vector<u32> members;
    for (u32 lane = 0; lane < 32; ++lane) {
        if ((m.arrived >> lane & 1) == 0) continue;
        members.push_back(warp_index * 32 + lane);
        if (m.value[lane] != 0) truths |= 1u << lane;
        if (m.f) folded = first ? static_cast<u32>(m.value[lane]) : m.f(folded, static_cast<u32>(m.value[lane]));
        first = false;
    }
    if (m.what == exchange::barrier) join_views(b, members, members, 1u << warp_index, m.arrived);
    for (const u32 thread : members) {
        const u32 lane = thread % 32;
        fiber& f = b.fibers[thread];
        switch (m.what) {
            case exchange::barrier:
                break;
            case exchange::shuffle: {
                bool inside = false;
                const u32 from = source_lane(static_cast<shuffle_mode>(m.mode), lane, m.b[lane], m.c[lane], inside);
                if ((m.arrived >> from & 1) == 0)
                    fail_at(
                        b, thread, f.line, "shfl reads lane " + std::to_string(from) + ", which does not take part");
                f.result = static_cast<u32>(m.value[from]);
                f.second = inside;
                break;
            }
            case exchange::vote:
                switch (static_cast<vote_mode>(m.mode)) {
                    case vote_mode::all:
                        f.result = truths == m.arrived;
                        break;
                    case vote_mode::any:
                        f.result = truths != 0;
                        break;
                    case vote_mode::uniform:
                        f.result = truths == 0 || truths == m.arrived;
                        break;
                    case vote_mode::ballot:
                        f.result = truths;
                        break;
                }
                break;
            case exchange::match: {
                u32 same = 0;
                for (const u32 other : members)
                    if (m.value[other % 32] == m.value[lane]) same |= 1u << (other % 32);
                f.second = same == m.arrived;
                f.result = m.mode != 0 && same != m.arrived ? 0 : same;
                break;
            }
            case exchange::reduce:
                f.result = folded;
                break;
            case exchange::elect:
                f.result = members.front() % 32;
                f.second = f.result == lane;
                break;
        }
    }
    for (const u32 thread : members) wake(b, thread);
}

/// Meets the other lanes of `mask`; returns when all have come.
void meet(thread_context& t, exchange what, u32 mode, u32 mask, u64 value, u32 b, u32 c, u32 (*f)(u32, u32), u32 line) {
    block_context& block = *t.block;
    const u32 index = t.index / 32, lane = t.lane(), bit = 1u << lane;
    warp& w = block.warps[index];
    if ((mask & bit) == 0) t.fail(line, "the mask %#x does not name the thread's own lane %u", mask, lane);
    std::size_t at = 0;
    while (at < w.meetings.size() && (w.meetings[at].mask != mask || (w.meetings[at].arrived & bit) != 0)) ++at;
    if (at == w.meetings.size()) {
        w.meetings.push_back({});
        w.meetings[at].what = what;
        w.meetings[at].mode = mode;
        w.meetings[at].mask = mask;
        w.meetings[at].f = f;
    }
    meeting& m = w.meetings[at];
    if (m.what != what || m.mode != mode || m.f != f) {
        u32 other = 0;
        while ((m.arrived >> other & 1) == 0) ++other;
        t.fail(line, "lanes of the warp meet at different instructions: lane %u is at %s", other,
            place(block, block.fibers[index * 32 + other].line).c_str());
    }
    m.arrived |= bit;
    m.value[lane] = value;
    m.b[lane] = b;
    m.c[lane] = c;
    will_wait(block, line);
    complete_meetings(block, index);
    pause(block);
}

}  // namespace

void complete_meetings(block_context& b, u32 index) {
    warp& w = b.warps[index];
    for (std::size_t i = w.meetings.size(); i-- > 0;) {
        if ((w.meetings[i].mask & w.live & ~w.meetings[i].arrived) != 0) continue;
        const meeting m = w.meetings[i];
        w.meetings.erase(w.meetings.begin() + static_cast<std::ptrdiff_t>(i));
        give_results(b, index, m);
    }
}

void thread_context::warp_barrier(u32 mask, u32 line) {
    meet(*this, exchange::barrier, 0, mask, 0, 0, 0, nullptr, line);
}
u32 thread_context::shuffle(shuffle_mode mode, u32 value, u32 b, u32 c, u32 mask, bool& in_range, u32 line) {
    meet(*this, exchange::shuffle, static_cast<u32>(mode), mask, value, b, c, nullptr, line);
    in_range = block->fibers[index].second != 0;
    return block->fibers[index].result;
}
u32 thread_context::vote(vote_mode mode, bool predicate, u32 mask, u32 line) {
    meet(*this, exchange::vote, static_cast<u32>(mode), mask, predicate, 0, 0, nullptr, line);
    return block->fibers[index].result;
}
u32 thread_context::match(u64 value, u32 bits, bool all, u32 mask, bool& same, u32 line) {
    meet(*this, exchange::match, all, mask, bits == 32 ? static_cast<u32>(value) : value, 0, 0, nullptr, line);
    same = block->fibers[index].second != 0;
    return block->fibers[index].result;
}
u32 thread_context::reduce(u32 value, u32 (*f)(u32, u32), u32 mask, u32 line) {
    meet(*this, exchange::reduce, 0, mask, value, 0, 0, f, line);
    return block->fibers[index].result;
}
bool thread_context::elect(u32 mask, u32& leader, u32 line) {
    meet(*this, exchange::elect, 0, mask, 0, 0, 0, nullptr, line);
    leader = block->fibers[index].result;
    return block->fibers[index].second != 0;
}

}  // namespace emulated
