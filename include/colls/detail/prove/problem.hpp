// What is to be proven: the state of all slots before a collective, and the state that it must produce.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/verify/report.hpp>

#include <bit>
#include <initializer_list>

namespace colls::inline v1::detail {

/// The law that a fault breaks: the faults of a law follow each other.
constexpr law law_of(fault f) {
    return f == fault::none            ? law::none
           : f < fault::send_unmatched ? law::in_range
           : f < fault::twice          ? law::matched
           : f == fault::twice         ? law::exactly_once
           : f == fault::mixed         ? law::unmixed
           : f == fault::copied_twice  ? law::hazards
           : f < fault::stuck          ? law::complete
                                       : law::live;
}

/// Label of a slot that stands for no user block: its contents are not checked.
inline constexpr int vacant = -2;

/// What a slot must hold: contributions of the ranks [lo, hi) to block `label`; label none: anything.
struct wanted {
    int label = none, lo = 0, hi = 0;
};

/// The extents of a schedule, the contents of its slots before it, and what they must be after it.
class problem {
public:
    constexpr problem(const schedule_reader& reader, int ranks) : s(reader), n(ranks), kind(reader.kind()) {
        read_extents();
    }

    /// The label of slot `slot` of `rank` at the start: its contribution to that block, none or vacant.
    constexpr int initial(int rank, int slot) const {
        if (slot >= blocks) return none;
        if (is_owned && homes.p[slot] == none) return vacant;
        if (kind == collective::redistribute) return s.input(rank, n, slot);
        if (has_source ? rank != root : starts_at_home && homes.p[slot] != rank) return none;
        return slot;
    }
    /// The rank as whose contribution a slot of `rank` with that label counts at the start. Ranks that hold one block
    /// of a redistribution hold the same data: it counts as that of the lowest of them.
    constexpr int contributor(int rank, int label) const {
        return kind == collective::redistribute ? homes.p[label] : rank;
    }
    /// What slot `slot` of `rank` must hold at the end.
    [[gnu::cold]] [[gnu::noinline]] constexpr wanted expected(int rank, int slot) const {
        if (slot >= blocks || (is_owned && homes.p[slot] == none) || kind == collective::all_to_all) return {};
        if (has_target ? rank != root : ends_at_home && homes.p[slot] != rank) return {};
        if (is_scan(kind)) {
            const int end = traits_of(kind).contributors_at(rank, n);
            return end > 0 ? wanted{slot, 0, end} : wanted{};
        }
        if (reduces(kind) || kind == collective::barrier) return {slot, 0, n};
        const int label = kind == collective::redistribute ? s.output(rank, n, slot) : slot;
        if (label == none) return {};
        const int source = has_source ? root : homes.p[label];
        return {label, source, source + 1};
    }
    /// all_to_all: out[slot] = destination (source, if `after`) · blocks + its index among the slots of that rank.
    /// False, with the fault recorded, where the ranks are not named equally often.
    [[gnu::cold]] [[gnu::noinline]] constexpr bool exchange(int rank, bool after, int* out, int* count) {
        const int each = blocks / n;
        for (int r = 0; r < n; ++r) count[r] = 0;
        for (int slot = 0; slot < blocks; ++slot) {
            const int r = after ? s.output(rank, n, slot) : s.input(rank, n, slot);
            if (r < 0 || r >= n || each * n != blocks || count[r] == each) {
                found(fault::exchange, rank, slot);
                report_.peer = r;
                return false;
            }
            out[slot] = r * blocks + count[r]++;
        }
        return true;
    }

    const schedule_reader& s;
    const int n;
    const collective kind;
    // Whose data there are before and after, asked for each slot: the root's alone, or each rank's own block.
    const bool is_owned = owned(kind), has_source = traits_of(kind).in_at_root,
               has_target = traits_of(kind).out_at_root, starts_at_home = traits_of(kind).in == content::own_block,
               ends_at_home = traits_of(kind).out == content::own_block;
    int rounds = 0, blocks = 0, ports = 0, slots = 0, root = 0;
    buffer<int> homes;  // redistribute: the lowest rank that holds the block at the start, or none
    report report_{};

    /// Records a fault. `number` is what the report says of it beside the block.
    [[gnu::cold]] [[gnu::noinline]] constexpr void found(
        fault f, int rank = none, int block = none, int number = none) {
        report_.law = law_of(f);
        report_.kind = f;
        report_.n = n;
        report_.rank = rank;
        switch (f) {
            case fault::sizes:
                report_.received = block;
                report_.sent = number;
                return;
            case fault::extent:
            case fault::root:
            case fault::home:
            case fault::contents:
                report_.value = number;
                break;
            case fault::block:
            case fault::block_set:
                report_.limit = number;
                break;
            default:
                report_.peer_block = number;
        }
        report_.block = block;
    }

private:
    [[gnu::cold]] [[gnu::noinline]] constexpr void read_extents() {
        if (n < 1 || !s.supports(n)) return found(fault::unsupported);
        rounds = s.rounds(n);
        blocks = s.blocks(n);
        ports = s.ports(n);
        int scratch = s.scratch(n);
        root = s.root(n);
        // A barrier sends no blocks. One slot stands for the set of ranks that a rank depends on.
        if (kind == collective::barrier) blocks = 1, scratch = 0;
        for (const int extent : {rounds, blocks, ports, scratch})
            if (extent < 0) return found(fault::extent, none, none, extent);
        // Without blocks, a schedule that leaves the user's buffer as it is would be right.
        if (blocks == 0 || ports == 0) return found(fault::extent, none, none, 0);
        if (scratch > 0x7fffffff - blocks) return found(fault::extent, none, none, scratch);
        if (kind == collective::all_to_all &&
            blocks > 0x7fffffff / n)  // labels, numbers of blocks of all ranks, are int
            return found(fault::extent, none, none, blocks);
        slots = blocks + scratch;
        if (root < 0 || root >= n) return found(fault::root, none, none, root);
        if (is_owned) read_homes();
        if (kind == collective::redistribute) read_holders();
    }
    // Each slot holds a block at the start, or none, and must hold one at the end, or none. Blocks have numbers below
    // that of all slots of all ranks.
    [[gnu::cold]] [[gnu::noinline]] constexpr void read_holders() {
        const long labels = static_cast<long>(n) * blocks;
        homes.need(labels);
        homes.fill(none);
        for (int rank = n; rank-- > 0;)
            for (int slot = 0; slot < blocks; ++slot) {
                const int held = s.input(rank, n, slot), result = s.output(rank, n, slot);
                if (held < none || held >= labels) return found(fault::contents, rank, slot, held);
                if (result < none || result >= labels) return found(fault::contents, rank, slot, result);
                if (held != none) homes.p[held] = rank;
            }
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr void read_homes() {
        homes.need(blocks);
        buffer<int> named(n);
        for (int slot = 0; slot < blocks; ++slot) {
            const int h = homes.p[slot] = s.home(n, slot);
            if (h < none || h >= n) return found(fault::home, none, slot, h);
            if (h != none) named.p[h] = 1;
        }
        for (int r = 0; r < n; ++r)
            if (named.p[r] == 0) return found(fault::homeless, r);
    }
};

/// The first rank in which a mask of contributions differs from the ranks [w.lo, w.hi), or none.
[[gnu::cold]] [[gnu::noinline]] constexpr int first_difference(const std::uint64_t* mask, long words, const wanted& w) {
    for (int word = 0; word < words; ++word) {
        const auto below = [word](int x) {
            const int k = x - word * 64;
            return k <= 0 ? std::uint64_t{0} : k >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << k) - 1;
        };
        const std::uint64_t off = mask[word] ^ (below(w.hi) & ~below(w.lo));
        if (off != 0) return word * 64 + std::countr_zero(off);
    }
    return none;
}

/// The fault of a result that wrongly has, or lacks, the contribution of `source`.
constexpr fault lacking(collective kind, int source, const wanted& w) {
    if (source < w.lo || source >= w.hi) return fault::foreign_source;
    return kind == collective::barrier ? fault::unheard : fault::lacks_source;
}

}  // namespace colls::inline v1::detail
