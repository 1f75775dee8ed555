// The steps of a redistribution: which pieces of the matrix there are, and which rank sends which of them to which rank
// in which round.
// IWYU pragma: private, include <colls/redistribute.hpp>
//
// How they are found is described in redistribute.hpp. Everything is constexpr: a table is made at compile time for
// layouts that are template arguments, and else at run time, once for each pair of layouts.
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/redistribute/layout.hpp>
#include <colls/step.hpp>

namespace colls::inline v1::detail {

/// What moves as a whole: a rectangle within one part of the source layout and one part of the target layout.
struct transfer_piece {
    tensor_block at;
    int from_part = 0, to_part = 0;
};

/// What one rank does in one round. Slots are the rank's own.
struct transfer_step {
    int to = none, sent_first = 0, sent_count = 0;
    int from = none, received_first = 0, received_count = 0;
};

/// A redistribution as tables. The slots of a rank are the pieces that it holds or is to hold, in ascending order of
/// their numbers; the number of a piece is its label in the proof.
struct transfer_table {
    layout from, to;
    int ranks = 0;   ///< the group has at least these
    int blocks = 1;  ///< slots of a rank, at most
    int rounds = 0;
    int pieces = 0;
    const transfer_piece* piece = nullptr;
    const int* slots_of = nullptr;        ///< rank r has the slots [slots_of[r], slots_of[r + 1]) of `label`
    const int* label = nullptr;           ///< the piece of each slot
    const transfer_step* step = nullptr;  ///< [round * ranks + rank]

    constexpr int slots(int rank) const { return rank < ranks ? slots_of[rank + 1] - slots_of[rank] : 0; }
    constexpr int label_of(int rank, int slot) const {
        return slot < slots(rank) ? label[slots_of[rank] + slot] : none;
    }
    constexpr bool holds(int rank, int number) const { return piece[number].from_part == from.part_of(rank); }
    constexpr bool wants(int rank, int number) const { return piece[number].to_part == to.part_of(rank); }
};

class transfer_builder {
public:
    constexpr transfer_builder(const layout& from, const layout& to) : from_(from), to_(to) {
        table_.from = from;
        table_.to = to;
        table_.ranks = from.group_size() > to.group_size() ? from.group_size() : to.group_size();
        cut_pieces();
        number_slots();
        route();
        assign_rounds();
        lay_out_steps();
    }
    transfer_builder(const transfer_builder&) = delete;
    transfer_builder& operator=(const transfer_builder&) = delete;

    /// The table, whose arrays are the builder's.
    constexpr const transfer_table& table() const { return table_; }
    constexpr int all_slots() const { return table_.slots_of[table_.ranks]; }

private:
    /// Pieces with the slots [from_slot, from_slot + count) of `from` go to `to`.
    struct transfer {
        int hop, from, to, first_piece, count;
        int turn;  ///< how many transfers between the two ranks come before it in the same hop
        int round;
    };

    static constexpr std::size_t unsigned_of(int i) { return static_cast<std::size_t>(i); }
    static constexpr int divided_up(int a, int b) { return (a + b - 1) / b; }

    // Every part of the source is cut by the parts of the target. Where replicas are to share a part, but it is cut
    // into few pieces for that, all pieces are cut further: shares differ by a piece.
    static constexpr int pieces_of_a_share = 4;
    constexpr void cut_pieces() {
        buffer<tensor_block> parts(from_.parts());
        for (int p = 0; p < from_.parts(); ++p) parts.p[p] = from_.part(p);
        const auto for_each_cell = [&](auto f) {
            for (int q = 0; q < to_.parts(); ++q) {
                const tensor_block target = to_.part(q);
                for (int p = 0; p < from_.parts(); ++p)
                    if (const tensor_block both = intersection(parts.p[p], target); both.size() > 0) f(p, q, both);
            }
        };
        buffer<int> in_source(from_.parts()), in_target(to_.parts());
        for_each_cell([&](int p, int q, const tensor_block&) { ++in_source.p[p], ++in_target.p[q]; });
        int most = 1;
        const auto share = [&most](int cells, int replicas) {
            if (replicas > 1 && cells > 0 && cells * most < pieces_of_a_share * replicas)
                most = divided_up(pieces_of_a_share * replicas, cells);
        };
        for (int p = 0; p < from_.parts(); ++p) share(in_source.p[p], from_.replicas);
        for (int q = 0; q < to_.parts(); ++q) share(in_target.p[q], to_.replicas);
        for_each_cell([&](int p, int q, const tensor_block& cell) { cut_cell(p, q, cell, unsigned_of(most)); });
        table_.piece = pieces_.p;
    }
    static constexpr tensor_block intersection(const tensor_block& a, const tensor_block& b) {
        tensor_block c;
        c.row = a.row > b.row ? a.row : b.row;
        c.column = a.column > b.column ? a.column : b.column;
        const std::size_t row_end = a.row + a.rows < b.row + b.rows ? a.row + a.rows : b.row + b.rows;
        const std::size_t column_end =
            a.column + a.columns < b.column + b.columns ? a.column + a.columns : b.column + b.columns;
        if (row_end > c.row && column_end > c.column) c.rows = row_end - c.row, c.columns = column_end - c.column;
        return c;
    }
    // By rows if there are enough, since these pieces are contiguous where the whole is.
    constexpr void cut_cell(int p, int q, const tensor_block& cell, std::size_t most) {
        const bool by_rows = cell.rows >= most || cell.rows >= cell.columns;
        const std::size_t length = by_rows ? cell.rows : cell.columns, count = most < length ? most : length;
        for (std::size_t i = 0; i < count; ++i) {
            const extent e = balanced(length, count, i);
            tensor_block b = cell;
            (by_rows ? b.row : b.column) += e.first;
            (by_rows ? b.rows : b.columns) = e.count;
            pieces_.need(table_.pieces + 1, table_.pieces);
            pieces_.p[table_.pieces++] = {b, p, q};
        }
    }

    constexpr void number_slots() {
        slots_of_.need(table_.ranks + 1);
        int slots = 0;
        for (int r = 0; r < table_.ranks; ++r) {
            const int p = from_.part_of(r), q = to_.part_of(r);
            for (int i = 0; i < table_.pieces; ++i) {
                if (pieces_.p[i].from_part != p && pieces_.p[i].to_part != q) continue;
                labels_.need(slots + 1, slots);
                labels_.p[slots++] = i;
            }
            slots_of_.p[r + 1] = slots;
            if (slots - slots_of_.p[r] > table_.blocks) table_.blocks = slots - slots_of_.p[r];
        }
        table_.slots_of = slots_of_.p;
        table_.label = labels_.p;
    }
    constexpr int slot_of(int rank, int number) const {
        int low = slots_of_.p[rank], high = slots_of_.p[rank + 1];
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (labels_.p[middle] <= number ? low : high) = middle;
        }
        return low - slots_of_.p[rank];
    }

    // Which of `shares` equal shares of `whole` an element at `position` belongs to. (No overflow below 2^63 elements.)
    static constexpr int share_at(std::size_t position, std::size_t whole, int shares) {
        const std::size_t each = whole / unsigned_of(shares), longer = whole % unsigned_of(shares);
        const std::size_t in_longer = longer * (each + 1);
        const std::size_t i =
            position < in_longer ? position / (each + 1) : longer + (position - in_longer) / (each > 0 ? each : 1);
        return i < unsigned_of(shares) ? static_cast<int>(i) : shares - 1;
    }

    // For each piece the replica that sends it and the order in which the ranks that lack it pass it on.
    constexpr void route() {
        const int replicas = to_.replicas;
        // By piece: the ranks through which it goes, first the sender, then those that lack it; none at the end.
        buffer<int> path(static_cast<long>(table_.pieces) * (replicas + 1));
        path.fill(none);
        buffer<std::size_t> to_send(from_.parts()), sent(from_.parts()), to_fill(to_.parts()), filled(to_.parts());
        for (int i = 0; i < table_.pieces; ++i) {
            const transfer_piece& x = pieces_.p[i];
            to_fill.p[x.to_part] += x.at.size();
            if (is_lacked(x)) to_send.p[x.from_part] += x.at.size();
        }
        for (int i = 0; i < table_.pieces; ++i) {
            const transfer_piece& x = pieces_.p[i];
            const int p = x.from_part, q = x.to_part;
            int* const through = path.p + static_cast<long>(i) * (replicas + 1);
            if (is_lacked(x)) {
                *through = from_.rank_at(share_at(sent.p[p], to_send.p[p], from_.replicas) * from_.parts() + p);
                sent.p[p] += x.at.size();
                const int lane = share_at(filled.p[q], to_fill.p[q], replicas);
                for (int k = 0, at = 1; k < replicas; ++k) {
                    const int rank = to_.rank_at((lane + k) % replicas * to_.parts() + q);
                    if (from_.part_of(rank) != p) through[at++] = rank;
                }
            }
            filled.p[q] += x.at.size();
        }
        merge_paths(path.p);
    }
    // Some rank that is to hold the piece does not.
    constexpr bool is_lacked(const transfer_piece& x) const {
        for (int k = 0; k < to_.replicas; ++k)
            if (from_.part_of(to_.rank_at(k * to_.parts() + x.to_part)) != x.from_part) return true;
        return false;
    }
    // Neighbouring pieces that go from one rank to another in the same hop are one transfer.
    constexpr void merge_paths(const int* path) {
        const int stops = to_.replicas + 1;
        buffer<int> latest(static_cast<long>(table_.ranks) * table_.ranks),
            hop_of(static_cast<long>(table_.ranks) * table_.ranks);
        for (int hop = 0; hop + 1 < stops; ++hop)
            for (int i = 0; i < table_.pieces; ++i) {
                const int a = path[static_cast<long>(i) * stops + hop],
                          b = path[static_cast<long>(i) * stops + hop + 1];
                if (a == none || b == none) continue;
                const long pair = static_cast<long>(a) * table_.ranks + b;
                const bool again = hop_of.p[pair] == hop + 1;
                transfer* const before = again ? transfers_.p + latest.p[pair] : nullptr;
                if (before && follows(a, b, before->first_piece + before->count - 1, i)) {
                    ++before->count;
                    continue;
                }
                transfers_.need(count_ + 1, count_);
                transfers_.p[count_] = {hop, a, b, i, 1, again ? transfers_.p[latest.p[pair]].turn + 1 : 0, 0};
                hop_of.p[pair] = hop + 1;
                latest.p[pair] = count_++;
            }
    }
    constexpr bool follows(int a, int b, int last, int next) const {
        return next == last + 1 && slot_of(a, next) == slot_of(a, last) + 1 && slot_of(b, next) == slot_of(b, last) + 1;
    }

    // Transfers of one hop, one turn, and one distance from the sender's index to the receiver's (modulo as many as the
    // larger layout has ranks) are a class: in it no rank sends, or receives, twice. Classes in order could have a
    // round each. Taken in that order, each transfer goes to the earliest round in which its sender and its receiver
    // are free and its pieces have come. That is never later than the round of its class, where both are free: what was
    // placed before is of its own class, or in an earlier round.
    constexpr void assign_rounds() {
        const int distances = from_.ranks() > to_.ranks() ? from_.ranks() : to_.ranks();
        int turns = 1;
        for (int i = 0; i < count_; ++i)
            if (transfers_.p[i].turn >= turns) turns = transfers_.p[i].turn + 1;
        const int classes = to_.replicas * turns * distances;
        buffer<int> end_of(classes), in_order(count_);
        for (int i = 0; i < count_; ++i) ++end_of.p[class_of(transfers_.p[i], turns, distances)];
        int used = 0;  // classes that have a transfer
        for (int c = 0, before = 0; c < classes; ++c) {
            used += end_of.p[c] > 0;
            before = end_of.p[c] += before;
        }
        for (int i = count_; i-- > 0;) in_order.p[--end_of.p[class_of(transfers_.p[i], turns, distances)]] = i;

        buffer<char> sends(static_cast<long>(used) * table_.ranks), receives(static_cast<long>(used) * table_.ranks);
        buffer<int> ready(table_.pieces);  // by piece: the first round in which it can go on
        for (int k = 0; k < count_; ++k) {
            transfer& t = transfers_.p[in_order.p[k]];
            for (int i = t.first_piece; i < t.first_piece + t.count; ++i)
                if (ready.p[i] > t.round) t.round = ready.p[i];
            const auto at = [&](int rank) { return static_cast<long>(t.round) * table_.ranks + rank; };
            while (sends.p[at(t.from)] != 0 || receives.p[at(t.to)] != 0) ++t.round;
            sends.p[at(t.from)] = receives.p[at(t.to)] = 1;
            for (int i = t.first_piece; i < t.first_piece + t.count; ++i) ready.p[i] = t.round + 1;
            if (t.round >= table_.rounds) table_.rounds = t.round + 1;
        }
    }
    constexpr int class_of(const transfer& t, int turns, int distances) const {
        const layout& senders = t.hop == 0 ? from_ : to_;
        const int distance = to_.index_of(t.to) - senders.index_of(t.from);
        return (t.hop * turns + t.turn) * distances + mod(distance, t.hop == 0 ? distances : to_.ranks());
    }

    constexpr void lay_out_steps() {
        steps_.need(static_cast<long>(table_.rounds) * table_.ranks);
        for (int i = 0; i < count_; ++i) {
            const transfer& t = transfers_.p[i];
            transfer_step* const round = steps_.p + static_cast<long>(t.round) * table_.ranks;
            transfer_step &sender = round[t.from], &receiver = round[t.to];
            sender.to = t.to;
            sender.sent_first = slot_of(t.from, t.first_piece);
            receiver.from = t.from;
            receiver.received_first = slot_of(t.to, t.first_piece);
            sender.sent_count = receiver.received_count = t.count;
        }
        table_.step = steps_.p;
    }

    const layout from_, to_;
    transfer_table table_;
    buffer<transfer_piece> pieces_;
    buffer<int> slots_of_, labels_;
    buffer<transfer> transfers_;
    int count_ = 0;
    buffer<transfer_step> steps_;
};

}  // namespace colls::inline v1::detail
