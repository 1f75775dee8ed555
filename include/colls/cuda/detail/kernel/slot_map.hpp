// The slot map of a schedule: where slots lie in the user's buffers, and when they change.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// It says in which rounds a slot is first received into, complete and delivered; a kernel reads it beside the
// schedule's steps. It is built on the host, once for a schedule and group size, from the schedule's members alone.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/cuda/options.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/type_name.hpp>
#include <colls/error.hpp>
#include <colls/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// The most sends or receives of a rank in a round.
inline constexpr int max_ports = 72;

/// Part `part` of user block `block`; block none: no data.
struct block_part {
    std::int32_t block = none, part = 0;
};

/// A slot of a rank (the slot of a role, with rooted schedules). Its data lies in the input until round
/// `first_receive`, from then on in the output or in scratch memory.
struct slot_info {
    block_part data{};                   ///< gives the slot its length; none: the slot is never used
    block_part in{};                     ///< of the input, which the slot begins as
    block_part out{};                    ///< of the output, which the slot ends as
    std::int32_t parts = 1;              ///< that its user block is cut in
    std::int32_t first_receive = 0;      ///< the first round that receives into it; the number of rounds, if none does
    std::int32_t complete_round = none;  ///< the round whose fold completes it: every rank's contribution is in it
    std::int32_t result_round = none;    ///< the round that receives the result, which is not sent on
    std::int32_t is_sent = 0;            ///< some round sends it to another rank
};

/// What a rank receives into in a round among the slots that it also sends in that round: none; at least one that has
/// been received into before; only slots that still are input, which a receive overwrites only in place.
enum overwrite : std::uint8_t { overwrites_nothing = 0, overwrites_slots = 1, overwrites_input = 2 };

/// The slots of all ranks, at one group size. Flat tables, which are copied to a device.
struct slot_map {
    int n = 0, rounds = 0, ports = 1;
    int width = 0;                ///< slots of a rank, scratch slots included
    int blocks = 1;               ///< user blocks
    bool keeps_input = false;     ///< some slot of the output ends as it is in the input
    bool scratch_needed = false;  ///< some slot is neither input nor output, or a round overwrites what it sends
    std::uint64_t fingerprint = 0;
    std::vector<slot_info> slots;          ///< [rank * width + slot]
    std::vector<std::uint8_t> overwrites;  ///< [rank * rounds + round]: an `overwrite`
    std::int32_t most_transfers = 0;       ///< slots that a rank sends in a round, if each port sends as many as any

    slot_info& at(int rank, int slot) {
        return slots[static_cast<std::size_t>(rank) * static_cast<std::size_t>(width) + static_cast<std::size_t>(slot)];
    }
};

/// A hash of the hash h and of x.
constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t x) { return v1::detail::hash_mix(h, x); }

/// A hash of the types' names: the same in all processes that run the same program.
template <class... X>
constexpr std::uint64_t name_hash() {
    return v1::detail::hash_text(__PRETTY_FUNCTION__);
}

/// The begin of an error: which call, by which schedule.
template <class S>
v1::detail::error_text kernel_of(int n) {
    v1::detail::error_text text;
    text << "colls: cuda: " << name_of(implemented_by<S>) << " by ";
    v1::detail::put_brief(text, v1::detail::type_name<S>()) << " at " << n << " ranks: ";
    return text;
}

/// Builds a slot map by following the slots of all ranks, round by round.
template <class S>
class slot_map_builder {
public:
    slot_map_builder(const S& s, int n) : s_(s), n_(n) {}

    /// `proves`: for a schedule of a user. A kernel cannot refuse a wrong one, and the tables here trust it, too.
    template <bool proves>
    slot_map build() {
        if (!supports(s_, n_)) refuse("the schedule does not support this group size: take direct");
        if (n_ > max_ranks_of_hosts) refuse("a kernel takes 1024 ranks at most");
        map_.n = n_;
        map_.rounds = s_.rounds(n_);
        map_.ports = ports_of(s_, n_);
        blocks_ = blocks_of(s_, n_);
        map_.width = blocks_ + scratch_of(s_, n_);
        map_.blocks = owned(what) || what == collective::all_to_all ? n_ : blocks_;
        if (map_.ports > max_ports) refuse("the schedule has more ports than a kernel takes, which is 72");
        if (map_.width > blocks_ && blocks_ > 1)
            refuse("a kernel takes scratch slots only with schedules of one block");
        if constexpr (proves)
            if (const v1::detail::finding f = any_schedule(s_).prove(n_); !f.right)
                throw error(f.unproven ? errc::unsupported : errc::wrong_schedule,
                    (kernel_of<S>(n_) << f.text.text()).text(), f.rank, none, f.round);
        map_.slots.resize(index(n_) * index(map_.width));
        map_.overwrites.resize(index(n_) * index(map_.rounds));
        for (int r = 0; r < n_; ++r) assign_blocks(r);
        follow_rounds();
        return static_cast<slot_map&&>(map_);
    }

private:
    static constexpr collective what = implemented_by<S>;
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    [[noreturn]] void refuse(const char* why) const {
        throw error(errc::unsupported, (kernel_of<S>(n_) << why).text());
    }

    // Which user block each slot of a rank stands for. Several slots of one block are its parts, in ascending slot
    // order.
    void assign_blocks(int r) {
        std::vector<int> seen(index(n_)), from(index(n_)), to(index(n_));
        for (int s = 0; s < map_.width; ++s) {
            slot_info& slot = map_.at(r, s);
            slot.first_receive = map_.rounds;
            if (what == collective::barrier) continue;
            if (s >= blocks_) {
                slot.data = {0, 0};
            } else if constexpr (owned(what)) {
                const int home = home_of(s_, n_, s);
                if (home == none) continue;
                slot.data = {home, seen[index(home)]++};
            } else if constexpr (what == collective::all_to_all) {
                const int a = input_of(s_, r, n_, s), b = output_of(s_, r, n_, s);
                slot.in = {a, from[index(a)]++};
                slot.out = {b, to[index(b)]++};
                slot.data = slot.in;
                slot.parts = blocks_ / n_;
                continue;
            } else {
                slot.data = {s, 0};
            }
            const int root = rooted(what) ? root_of(s_, n_) : none;
            if (s >= blocks_) continue;
            if (what == collective::scatter || what == collective::broadcast   ? r == root
                : what == collective::gather || what == collective::all_gather ? slot.data.block == r
                                                                               : true)
                slot.in = slot.data;
            if (what == collective::gather || what == collective::reduce            ? r == root
                : what == collective::scatter || what == collective::reduce_scatter ? slot.data.block == r
                : what == collective::exclusive_scan                                ? r != 0
                                                                                    : true)
                slot.out = slot.data;
        }
        if constexpr (owned(what))
            for (int s = 0; s < blocks_; ++s)
                if (slot_info& slot = map_.at(r, s); slot.data.block != none) slot.parts = seen[index(slot.data.block)];
    }

    void follow_rounds() {
        const std::size_t all = map_.slots.size();
        std::vector<int> held(all), next(all), received(all, none), last_send(all, none), copied(all);
        for (std::size_t i = 0; i < all; ++i) held[i] = map_.slots[i].in.block != none;
        std::uint64_t h = mixed(index(map_.rounds), index(map_.width));
        for (int k = 0; k < map_.rounds; ++k) {
            next.assign(all, 0);
            int longest = 0;
            for (int r = 0; r < n_; ++r)
                for (int p = 0; p < map_.ports; ++p) {
                    const step mine = step_of(s_, r, n_, k, p);
                    const int q = mine.recv.peer;
                    h = mixed(h, index(mine.send.peer + 1) << 32 | index(q + 1));
                    if (mine.send.peer != none && mine.send.blocks.size() > longest) longest = mine.send.blocks.size();
                    for (int i = 0; mine.send.peer != none && i < mine.send.blocks.size(); ++i) {
                        last_send[at(r, mine.send.blocks[i])] = k;
                        if (mine.send.peer != r) map_.at(r, mine.send.blocks[i]).is_sent = 1;
                        h = mixed(h, index(mine.send.blocks[i]));
                    }
                    if (q == none) continue;
                    const step theirs = step_of(s_, q, n_, k, p);
                    for (int i = 0; i < mine.recv.blocks.size(); ++i) {
                        const std::size_t to = at(r, mine.recv.blocks[i]), from = at(q, theirs.send.blocks[i]);
                        h = mixed(h, index(mine.recv.blocks[i]) << 1 | index(mine.recv.action == action::reduce));
                        if (received[to] == k && copied[to] != (mine.recv.action == action::copy))
                            refuse(
                                "the schedule copies and reduces into one block in the same round, which a kernel does "
                                "not do");
                        copied[to] = mine.recv.action == action::copy;
                        received[to] = k;
                        next[to] += held[from];
                        if (map_.slots[to].first_receive > k) map_.slots[to].first_receive = k;
                    }
                }
            map_.most_transfers = std::max(map_.most_transfers, map_.ports * longest);
            for (std::size_t i = 0; i < all; ++i) {
                if (received[i] != k) continue;
                held[i] = next[i] + (copied[i] ? 0 : held[i]);
                if (!copied[i] && held[i] == n_) map_.slots[i].complete_round = k;
                const std::size_t rank = i / index(map_.width);
                if (last_send[i] != k) continue;
                std::uint8_t& mark = map_.overwrites[rank * index(map_.rounds) + index(k)];
                mark =
                    mark != overwrites_slots && map_.slots[i].first_receive == k ? overwrites_input : overwrites_slots;
                map_.scratch_needed = true;
            }
        }
        for (std::size_t i = 0; i < all; ++i) {
            slot_info& slot = map_.slots[i];
            if (slot.in.block != none && slot.out.block != none && received[i] == none) map_.keeps_input = true;
            if (slot.out.block != none && received[i] != none && last_send[i] <= received[i])
                slot.result_round = received[i];
            if ((slot.out.block == none || what == collective::all_to_all) && received[i] != none &&
                slot.first_receive != slot.result_round)
                map_.scratch_needed = true;
        }
        map_.fingerprint = h;
    }
    std::size_t at(int rank, int slot) const { return index(rank) * index(map_.width) + index(slot); }

    const S& s_;
    const int n_;
    int blocks_ = 1;
    slot_map map_;
};

/// The slot map at n ranks of a schedule of the library, which its own tests prove. Throws unsupported where kernels
/// cannot run it. Cost: O(n * rounds * ports) steps, and each block in them once.
template <class S>
slot_map make_slot_map(const S& s, int n) {
    return slot_map_builder<S>(s, n).template build<false>();
}
/// The same of any schedule. Throws unsupported, wrong_schedule.
template <class S>
slot_map proven_slot_map(const S& s, int n) {
    return slot_map_builder<S>(s, n).template build<true>();
}

}  // namespace colls::inline v1::cuda::detail
