// What a kernel wants to know of a schedule beyond a step: where a rank's slots lie in the user's buffers, and in which
// round they begin to move, are complete, or are delivered. Played on the host once for a (schedule, group size), from
// at() alone.
#pragma once

#include <colls/detail/support/message.hpp>
#include <colls/error.hpp>
#include <colls/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::inline v1::cuda {

/// The most ranks of a group, and sends or receives of a rank in a round.
inline constexpr int max_ranks = 72, max_ports = 72;

namespace detail {

/// Part `part` of user block `block`, or none.
struct piece {
    std::int32_t block = none, part = 0;
};

/// A slot of a rank. Its data lies in the input until the round `moves`, from then on in its public place.
struct slot_info {
    piece is{};                     ///< whose length it has; none: empty, never moved
    piece in{};                     ///< what of the input it starts as
    piece out{};                    ///< what of the output it ends as
    std::int32_t parts = 1;         ///< of its user block
    std::int32_t moves = 0;         ///< the round in which something first arrives; rounds, if nothing does
    std::int32_t completes = none;  ///< the round whose fold has every rank's contribution
    std::int32_t delivers = none;   ///< the round whose arrival is the result, and is not sent on
    std::int32_t sent = 0;          ///< something of it is sent to others
};

/// Of all ranks, at one group size. Flat, so that it can be copied to a device.
struct slot_map {
    int n = 0, rounds = 0, ports = 1, width = 0, blocks = 1;
    bool scratch_needed = false;  ///< some slot is neither input nor output, or a round sends what it overwrites
    std::uint64_t fingerprint = 0;
    std::vector<slot_info> slots;          ///< [rank * width + slot]
    std::vector<std::uint8_t> overwrites;  ///< [rank * rounds + round]: receives into slots that it sends in that
                                           ///< round: 1; 2 if all of those are still what they began as

    slot_info& at(int rank, int slot) {
        return slots[static_cast<std::size_t>(rank) * static_cast<std::size_t>(width) + static_cast<std::size_t>(slot)];
    }
};

constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t x) {
    h ^= x + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ (h >> 32);
}

/// Plays a schedule's slots, all ranks round by round.
template <class S>
class slot_player {
public:
    slot_player(const S& s, int n) : s_(s), n_(n) {}

    slot_map play() {
        if (!supports(s_, n_)) refuse("the schedule does not support this group size");
        if (n_ > max_ranks) refuse("more ranks than a kernel takes (72)");
        map_.n = n_;
        map_.rounds = s_.rounds(n_);
        map_.ports = ports_of(s_, n_);
        blocks_ = blocks_of(s_, n_);
        map_.width = blocks_ + scratch_of(s_, n_);
        map_.blocks = owned(what) || what == collective::all_to_all ? n_ : blocks_;
        if (map_.ports > max_ports) refuse("more ports than a kernel takes (72)");
        if (map_.width > blocks_ && blocks_ > 1) refuse("scratch slots need a schedule of one block");
        map_.slots.resize(index(n_) * index(map_.width));
        map_.overwrites.resize(index(n_) * index(map_.rounds));
        for (int r = 0; r < n_; ++r) name_slots(r);
        move();
        return static_cast<slot_map&&>(map_);
    }

private:
    static constexpr collective what = implemented_by<S>;
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    [[noreturn]] void refuse(const char* why) const {
        throw error(
            errc::unsupported, (v1::detail::message() << "colls: a kernel at " << n_ << " ranks: " << why).text());
    }

    [[noreturn]] void wrong(const char* why, int rank, int round) const {
        throw error(errc::wrong_schedule,
            (v1::detail::message() << "colls: a kernel at " << n_ << " ranks: the schedule is wrong in round " << round
                                   << " at rank " << rank << ": " << why << "; colls::verify says more")
                .text(),
            rank, none, round);
    }

    // Several slots of one block cut it in ascending slot order.
    void name_slots(int r) {
        std::vector<int> seen(index(n_)), from(index(n_)), to(index(n_));
        for (int s = 0; s < map_.width; ++s) {
            slot_info& slot = map_.at(r, s);
            slot.moves = map_.rounds;
            if (what == collective::barrier) continue;
            if (s >= blocks_) {
                slot.is = {0, 0};
            } else if constexpr (owned(what)) {
                const int home = home_of(s_, n_, s);
                if (home == none) continue;
                slot.is = {home, seen[index(home)]++};
            } else if constexpr (what == collective::all_to_all) {
                const int a = input_of(s_, r, n_, s), b = output_of(s_, r, n_, s);
                slot.in = {a, from[index(a)]++};
                slot.out = {b, to[index(b)]++};
                slot.is = slot.in;
                slot.parts = blocks_ / n_;
                continue;
            } else {
                slot.is = {s, 0};
            }
            const int root = rooted(what) ? root_of(s_, n_) : none;
            if (s >= blocks_) continue;
            if (what == collective::scatter || what == collective::broadcast   ? r == root
                : what == collective::gather || what == collective::all_gather ? slot.is.block == r
                                                                               : true)
                slot.in = slot.is;
            if (what == collective::gather || what == collective::reduce            ? r == root
                : what == collective::scatter || what == collective::reduce_scatter ? slot.is.block == r
                : what == collective::exclusive_scan                                ? r != 0
                                                                                    : true)
                slot.out = slot.is;
        }
        if constexpr (owned(what))
            for (int s = 0; s < blocks_; ++s)
                if (slot_info& slot = map_.at(r, s); slot.is.block != none) slot.parts = seen[index(slot.is.block)];
    }

    void move() {
        const std::size_t all = map_.slots.size();
        std::vector<int> held(all), next(all), received(all, none), last_send(all, none), copied(all);
        for (std::size_t i = 0; i < all; ++i) held[i] = map_.slots[i].in.block != none;
        std::uint64_t h = mixed(index(map_.rounds), index(map_.width));
        for (int k = 0; k < map_.rounds; ++k) {
            next.assign(all, 0);
            for (int r = 0; r < n_; ++r)
                for (int p = 0; p < map_.ports; ++p) {
                    const step mine = step_of(s_, r, n_, k, p);
                    const int q = mine.recv.peer;
                    h = mixed(h, index(mine.send.peer + 1) << 32 | index(q + 1));
                    for (int i = 0; mine.send.peer != none && i < mine.send.blocks.size(); ++i) {
                        last_send[at(r, mine.send.blocks[i])] = k;
                        if (mine.send.peer != r) map_.at(r, mine.send.blocks[i]).sent = 1;
                        h = mixed(h, index(mine.send.blocks[i]));
                    }
                    if (q == none) continue;
                    const step theirs = q >= 0 && q < n_ ? step_of(s_, q, n_, k, p) : step{};
                    if (theirs.send.peer != r || theirs.send.blocks.size() != mine.recv.blocks.size())
                        wrong("what is received is not what is sent", r, k);
                    for (int i = 0; i < mine.recv.blocks.size(); ++i) {
                        const std::size_t to = at(r, mine.recv.blocks[i]), from = at(q, theirs.send.blocks[i]);
                        h = mixed(h, index(mine.recv.blocks[i]) << 1 | index(mine.recv.action == action::reduce));
                        if (received[to] == k && copied[to] != (mine.recv.action == action::copy))
                            refuse("one round copies and reduces into one block");
                        copied[to] = mine.recv.action == action::copy;
                        received[to] = k;
                        next[to] += held[from];
                        if (map_.slots[to].moves > k) map_.slots[to].moves = k;
                    }
                }
            for (std::size_t i = 0; i < all; ++i) {
                if (received[i] != k) continue;
                held[i] = next[i] + (copied[i] ? 0 : held[i]);
                if (!copied[i] && held[i] == n_) map_.slots[i].completes = k;
                const std::size_t rank = i / index(map_.width);
                if (last_send[i] != k) continue;
                std::uint8_t& mark = map_.overwrites[rank * index(map_.rounds) + index(k)];
                mark = mark != 1 && map_.slots[i].moves == k ? 2 : 1;
                map_.scratch_needed = true;
            }
        }
        for (std::size_t i = 0; i < all; ++i) {
            slot_info& slot = map_.slots[i];
            if (slot.out.block != none && received[i] != none && last_send[i] <= received[i])
                slot.delivers = received[i];
            if ((slot.out.block == none || what == collective::all_to_all) && received[i] != none &&
                slot.moves != slot.delivers)
                map_.scratch_needed = true;
        }
        map_.fingerprint = h;
    }
    std::size_t at(int rank, int slot) const {
        if (slot < 0 || slot >= map_.width) wrong("there is no such block", rank, none);
        return index(rank) * index(map_.width) + index(slot);
    }

    const S& s_;
    const int n_;
    int blocks_ = 1;
    slot_map map_;
};

/// Throws unsupported. O(n · rounds · ports) steps, and once through their blocks.
template <class S>
slot_map map_of(const S& s, int n) {
    return slot_player<S>(s, n).play();
}

}  // namespace detail
}  // namespace colls::inline v1::cuda
