// The pieces of a redistribution in a rank's buffer, and next to each other.
// IWYU pragma: private, include <colls/redistribute.hpp>
#pragma once

#include <colls/detail/request/request.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/redistribute/detail/copy_rows.hpp>
#include <colls/redistribute/detail/transfer_table.hpp>

#include <cstddef>

namespace colls::inline v1::detail {

/// `rows` times `bytes` bytes: next to each other where they are packed, `stride` apart in the rank's buffer.
struct packed_rows {
    std::size_t packed, local, rows, bytes, stride;
};

/// How a rank's input or output is packed: only where its pieces are not next to each other as they are.
struct packing {
    bool is_needed = false;
    std::size_t bytes = 0;  ///< of the packed buffer; 0 where it is not needed
    list<packed_rows> pieces;
};

enum class packed_side : bool { input, output };

/// Pieces that the rank neither sends nor keeps have a place in the packed buffer, and are not copied there.
inline packing packing_of(const transfer_table& t, int rank, packed_side side, std::size_t element) {
    const bool input = side == packed_side::input;
    const tensor_block local = (input ? t.from : t.to).held_by(rank);
    list<char> used;
    used.resize(static_cast<std::size_t>(t.slots(rank)));
    for (int slot = 0; slot < t.slots(rank); ++slot) used[slot] = t.wants(rank, t.label_of(rank, slot));
    for (int round = 0; round < t.rounds && rank < t.ranks; ++round) {
        const transfer_step& does = t.step[static_cast<long>(round) * t.ranks + rank];
        for (int i = 0; does.to != none && i < does.sent_count; ++i) used[does.sent_first + i] = 1;
    }
    packing p;
    std::size_t at = 0;
    for (int slot = 0; slot < t.slots(rank); ++slot) {
        const int number = t.label_of(rank, slot);
        if (!(input ? t.holds(rank, number) : t.wants(rank, number))) continue;
        const tensor_block& b = t.piece[number].at;
        const std::size_t begin = (b.row - local.row) * local.columns + b.column - local.column;
        p.is_needed = p.is_needed || begin != at || (b.rows > 1 && b.columns != local.columns);
        if (used[slot])
            p.pieces.push_back({at * element, begin * element, b.rows, b.columns * element, local.columns * element});
        at += b.size();
    }
    p.bytes = p.is_needed ? at * element : 0;
    return p;
}

inline void pack(const packing& p, const std::byte* local, std::byte* packed) {
    for (const packed_rows& x : p.pieces)
        copy_rows(packed + x.packed, x.bytes, local + x.local, x.stride, x.rows, x.bytes);
}
inline void unpack(const packing& p, const std::byte* packed, std::byte* local) {
    for (const packed_rows& x : p.pieces)
        copy_rows(local + x.local, x.stride, packed + x.packed, x.bytes, x.rows, x.bytes);
}

[[noreturn, gnu::cold]] inline void refuse_shapes(const layout& from, const layout& to) {
    throw error(errc::invalid_argument, error_text() << "colls: redistribute: the layouts are of matrices of "
                                                     << from.rows.extent << " x " << from.columns.extent << " and "
                                                     << to.rows.extent << " x " << to.columns.extent
                                                     << " elements, and must be of one shape");
}

inline std::uint64_t hash_of(std::uint64_t h, const partition& p) {
    h = hash_mix(hash_mix(h, p.extent), static_cast<std::uint64_t>(p.parts));
    for (int i = 0; p.given && i < p.parts; ++i) h = hash_mix(h, p.ends[i]);
    return h;
}
inline std::uint64_t hash_of(std::uint64_t h, const layout& l) {
    h = hash_of(hash_of(h, l.rows), l.columns);
    return hash_mix(hash_mix(h, static_cast<std::uint64_t>(l.replicas)),
        static_cast<std::uint64_t>(l.first) << 32 | static_cast<std::uint64_t>(l.stride));
}

/// Sets in a request with buffers what it is and how long its blocks are on this rank. Throws invalid_argument where a
/// layout has more ranks than the group.
inline void describe_redistribution(request& q, const transfer_table& t, int rank, int size) {
    for (const layout* l : {&t.from, &t.to})
        if (l->group_size() > size)
            throw error(errc::invalid_argument,
                error_text() << "colls: rank " << rank << " in redistribute: the layout of the "
                             << (l == &t.from ? "input" : "output") << " has ranks " << l->first << " to "
                             << l->group_size() - 1 << ", and this group has " << size
                             << (size == 1 ? " rank" : " ranks"),
                rank);
    q.c.signature = hash_of(hash_of(q.c.signature, t.from), t.to);
    q.with_counts = true;
    for (int slot = 0; slot < t.blocks; ++slot) {
        const int number = t.label_of(rank, slot);
        const std::size_t size_of = number == none ? 0 : t.piece[number].at.size();
        q.sends.push_back(number != none && t.holds(rank, number) ? size_of : 0);
        q.receives.push_back(number != none && t.wants(rank, number) ? size_of : 0);
    }
}

}  // namespace colls::inline v1::detail
