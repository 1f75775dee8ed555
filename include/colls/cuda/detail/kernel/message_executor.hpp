// Moves messages between pairs of ranks in a kernel: a block of each rank moves its channel's slices of them.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Only the two ranks of a message take part, so nothing here counts calls of the group. Within a host the sender offers
// pieces, and the receiver reads them where they are, and says that it has taken them; the next but one may then be
// offered. A piece is a whole slice or, of memory that the receiver does not reach, what has room in scratch memory,
// where the sender has copied it. Between hosts the sender copies pieces to places of its window, and the receiver asks
// for as many as it has places; a proxy moves each piece that both have listed (far_memory.hpp).
//
// All messages of a launch are under way at once, but for those of one pair of ranks in one direction, which keep their
// order; none waits for another pair, nor for the other direction: each has a lane of its own, in scratch memory or in
// windows room of its own, and words of its own. And a group of calls is one launch, however many messages it has. So
// the first message of a lane that is not over moves as soon as both ranks have launched the groups that it is in, and
// a launch ends when every peer has launched its part, in whatever order ranks list messages, and however they divide
// them into groups.
#pragma once

#include <colls/cuda/detail/kernel/fold_elements.hpp>
#include <colls/cuda/detail/kernel/message_state.hpp>
#include <colls/cuda/detail/kernel/schedule_slots.hpp>

namespace colls::inline v1::cuda::detail {

template <class G>
class message_executor {
public:
    COLLS_DEVICE message_executor(const G& g, int channel, const message_list& list)
        : g_(g),
          list_(list),
          channel_(channel),
          messages_(list.is_short() ? list.of : stored()),
          lanes_(list.has_near_lanes() ? g_.messages().lanes
                                       : reinterpret_cast<message_lane*>(
                                             end_of_scratch(channel) - list.stored_bytes() - list.lane_bytes())) {}

    /// Writes a part of a list to where launches find it; by the block of one channel.
    COLLS_DEVICE void store() {
        COLLS_ROLLED
        for (int i = g_.index(); i < list_.stored; i += g_.size()) stored()[list_.stored_first + i] = list_.of[i];
    }

    /// False: the rank has given up.
    COLLS_DEVICE bool run() {
        bool failed = start();
        COLLS_ROLLED
        while (!g_.any(failed)) {
            bool is_left = false;
            COLLS_ROLLED
            for (int i = g_.index(); i < lanes(); i += g_.size()) {
                message_lane& l = lane(i);
                if (l.over != 0) continue;
                l.copy_bytes = 0;
                l.posts = 0;
                if (!look(l)) failed = true;
                is_left = is_left || l.over == 0;
            }
            if (!g_.any(is_left)) break;
            move();
        }
        failed = g_.any(failed) || must_give_up(g_, channel_, lanes(), none, [this](int i) { return lane(i).peer; });
        return !g_.any(failed);
    }

private:
    COLLS_DEVICE const rank_handle& self() const { return g_.state().self; }
    COLLS_DEVICE int lanes() const { return list_.lanes; }
    COLLS_DEVICE message_lane& lane(int i) const { return lanes_[i]; }
    COLLS_DEVICE std::byte* end_of_scratch(int channel) const {
        return scratch_of_channel(self(), self().rank, channel) + self().sizes.scratch_bytes;
    }
    COLLS_DEVICE message* stored() const {
        return reinterpret_cast<message*>(end_of_scratch(0) - list_.stored_bytes());
    }

    /// Makes the lanes. True: the rank had given up before.
    COLLS_DEVICE bool start() {
        bool failed = is_poisoned(g_);
        const int all = list_.messages();
        COLLS_ROLLED
        for (int i = g_.index(); i < all; i += g_.size()) {
            const message& first = messages_[i];
            if (i > 0 && messages_[i - 1].lane == first.lane) continue;
            message_lane& l = lane(first.lane);
            l = {};
            l.sends = i < list_.sends;
            l.peer = first.peer;
            l.is_far = is_far(self(), l.peer);
            l.next = l.end = i;
            COLLS_ROLLED
            for (; l.end < all && messages_[l.end].lane == first.lane; ++l.end)
                if (messages_[l.end].region == shared_address::hidden) l.is_hidden = 1;
        }
        g_.any(false);  // every lane has been made, by one thread or another
        COLLS_ROLLED
        for (int i = g_.index(); i < lanes(); i += g_.size()) {
            message_lane& l = lane(i);
            std::uint32_t before = 0;  // of its kind
            COLLS_ROLLED
            for (int j = 0; j < i; ++j)
                before += l.is_far != 0 ? lane(j).is_far != 0 && lane(j).sends == l.sends : lane(j).is_hidden != 0;
            if (l.is_far != 0) {
                // The places of a direction, in equal shares.
                l.places = self().far.layout.places() / static_cast<std::uint32_t>(list_.far[l.sends != 0 ? 0 : 1]);
                l.place = before * l.places;
            } else {
                const mailbox& theirs = mailbox_of(self(), self().rank, channel_, l.peer);
                // All pieces of earlier launches have been taken.
                l.number = l.sends != 0 ? g_.relaxed(&theirs.taken) : theirs.received;
                l.place = 2 * before;
            }
            begin_message(l);
        }
        // What earlier calls have posted may still be in the windows.
        if (g_.index() == 0 && list_.far[0] + list_.far[1] > 0) failed = !wait_for_posts() || failed;
        return failed;
    }
    COLLS_DEVICE bool wait_for_posts() {
        const channel_state& own = channel_of(self(), self().rank, channel_);
        const std::uint64_t* const done = self().far.done(channel_);
        backoff<G> pauses;
        COLLS_ROLLED
        while (!g_.reached(done, done, own.far_posts))
            if (!pauses.pause(g_, channel_, lane(0).peer, none)) return false;
        return true;
    }

    /// The next message of the lane that has a slice on this channel becomes the one under way.
    COLLS_DEVICE void begin_message(message_lane& l) {
        l.pieces = 0;
        COLLS_ROLLED
        for (; l.next < l.end; ++l.next) {
            const message& m = messages_[l.next];
            const int to = l.sends != 0 ? m.peer - self().rank : self().rank - m.peer;
            const message_slice slice =
                slice_of_message(m.bytes, mod(to, self().sizes.ranks), channel_, self().sizes.channels);
            if (!slice.is_there) continue;
            l.at = m.at + slice.first;
            l.left = l.to_ask = slice.count;
            return;
        }
    }
    COLLS_DEVICE void end_message(message_lane& l) {
        ++l.next;
        begin_message(l);
    }
    COLLS_DEVICE bool has_message(const message_lane& l) const { return l.next < l.end; }
    COLLS_DEVICE std::uint64_t whole(const message_lane& l) const { return messages_[l.next].bytes; }

    /// What a lane can do now. False: this rank has given up.
    COLLS_DEVICE bool look(message_lane& l) {
        const std::uint64_t before = l.number + l.moved;
        const bool ok = l.is_far != 0  ? (l.sends != 0 ? look_far_send(l) : look_far_receive(l))
                        : l.sends != 0 ? look_send(l)
                                       : look_receive(l);
        if (!ok) return false;
        if (l.over != 0 || l.copy_bytes != 0 || l.posts != 0 || l.number + l.moved != before) {
            l.pauses = 0;
            l.since = 0;
            return true;
        }
        return backoff<G>::pause(g_, channel_, l.peer, none, l.pauses, l.since);
    }

    // Within a host.

    COLLS_DEVICE std::uint64_t staged_bytes() const { return list_.staged_bytes(self().sizes.scratch_bytes); }
    /// Where in scratch memory the lane's next piece is copied to.
    COLLS_DEVICE std::uint64_t staged_at(const message_lane& l) const {
        return (l.place + (l.number & 1)) * staged_bytes();
    }
    COLLS_DEVICE void offer(message_lane& l, std::uint64_t bytes, const shared_address& at) {
        mailbox& box = mailbox_of(self(), l.peer, channel_, self().rank);
        box.pieces[l.number & 1] = {whole(l), bytes, at};
        g_.release(&box.offered, ++l.number);
        if (l.left == 0) end_message(l);
    }
    COLLS_DEVICE bool look_send(message_lane& l) {
        const std::uint64_t* const taken = &mailbox_of(self(), self().rank, channel_, l.peer).taken;
        if (l.is_copied != 0) {  // by all threads, since the last look
            l.is_copied = 0;
            offer(l, l.piece, {staged_at(l), shared_address::hidden, 0});
        }
        COLLS_ROLLED
        while (has_message(l)) {
            if (l.number > 0 && !g_.reached(taken, taken, l.number - 1)) return true;
            const message& m = messages_[l.next];
            const bool is_own = l.peer == self().rank;
            if (l.left == 0 || is_own || m.region != shared_address::hidden) {
                const std::uint32_t region = is_own || l.left == 0 ? shared_address::absolute : m.region;
                const std::uint64_t at = reinterpret_cast<std::uint64_t>(l.at) - list_.begins[region], bytes = l.left;
                l.left = 0;
                offer(l, bytes, {at, region, 0});
                continue;
            }
            const std::uint64_t most = staged_bytes();
            l.piece = l.left < most ? l.left : most;
            copy(l, l.at, scratch_of_channel(self(), self().rank, channel_) + staged_at(l), l.piece);
            l.at += l.piece;
            l.left -= l.piece;
            l.is_copied = 1;
            return true;
        }
        l.over = l.number == 0 || g_.reached(taken, taken, l.number);
        return true;
    }
    COLLS_DEVICE bool look_receive(message_lane& l) {
        mailbox& mine = mailbox_of(self(), self().rank, channel_, l.peer);
        if (l.is_copied != 0) {
            l.is_copied = 0;
            if (!take(l)) return true;
        }
        COLLS_ROLLED
        while (has_message(l)) {
            if (!g_.reached(&mine.offered, &mine.offered, l.number + 1)) return true;
            const offered_piece p = mine.pieces[l.number & 1];
            if (p.whole != whole(l) || p.bytes > l.left) {
                give_up(g_, channel_, failure::mismatch, l.peer, none, p.whole);
                return false;
            }
            l.piece = p.bytes;
            l.from = p.at.region == shared_address::hidden ? scratch_of_channel(self(), l.peer, channel_) + p.at.at
                                                           : resolved(self(), l.peer, p.at);
            if (!take(l)) return true;
        }
        mine.received = l.number;
        l.over = 1;
        return true;
    }
    /// Takes the next bytes of the piece under way; true: there are none.
    COLLS_DEVICE bool take(message_lane& l) {
        if (l.piece != 0) {
            constexpr std::uint64_t most = 128 << 10;  // then other messages have a turn
            const std::uint64_t bytes = l.piece < most ? l.piece : most;
            copy(l, l.from, l.at, bytes);
            l.from += bytes;
            l.at += bytes;
            l.left -= bytes;
            l.piece -= bytes;
            l.is_copied = 1;
            return false;
        }
        g_.release(&mailbox_of(self(), l.peer, channel_, self().rank).taken, ++l.number);
        if (l.left == 0) end_message(l);
        return true;
    }

    // Between hosts.

    COLLS_DEVICE std::uint32_t place_of_piece(const message_lane& l, std::uint64_t piece) const {
        return l.place + static_cast<std::uint32_t>(piece) % l.places;
    }
    COLLS_DEVICE bool has_moved(const message_lane& l, std::uint64_t piece) const {
        const std::uint64_t* const w = self().far.moved(channel_, l.sends == 0, place_of_piece(l, piece));
        return g_.reached(w, w, 1);
    }
    /// Begins the next piece, of the bytes that are not asked for yet.
    COLLS_DEVICE std::uint32_t begin_piece(message_lane& l) {
        const std::uint64_t most = self().far.layout.place_bytes(), bytes = l.to_ask < most ? l.to_ask : most;
        l.mail_whole = whole(l);
        l.mail_number = l.pieces++;
        l.mail_place = place_of_piece(l, l.number);
        l.mail_bytes = static_cast<std::uint32_t>(bytes);
        l.to_ask -= bytes;
        l.posts = 1;
        ++l.number;
        return l.mail_bytes;
    }
    COLLS_DEVICE bool look_far_send(message_lane& l) {
        COLLS_ROLLED
        while (l.moved < l.number && (l.number - l.moved == l.places || !has_message(l))) {
            if (!has_moved(l, l.moved)) return true;
            ++l.moved;
        }
        if (!has_message(l)) {
            l.over = 1;
            return true;
        }
        std::byte* const to = self().far.place(channel_, false, place_of_piece(l, l.number));
        const std::uint32_t bytes = begin_piece(l);
        copy(l, l.at, to, bytes);
        l.at += bytes;
        l.left -= bytes;
        if (l.left == 0) end_message(l);
        return true;
    }
    COLLS_DEVICE bool look_far_receive(message_lane& l) {
        if (l.is_copied != 0) {
            l.is_copied = 0;
            ++l.moved;
            if (l.left == 0) end_message(l);
        }
        const std::uint64_t before = l.number;
        if (has_message(l) && (l.to_ask != 0 || l.pieces == 0) && l.number - l.moved < l.places) begin_piece(l);
        if (l.moved < before && has_moved(l, l.moved)) {
            const std::uint64_t most = self().far.layout.place_bytes(), bytes = l.left < most ? l.left : most;
            copy(l, self().far.place(channel_, true, place_of_piece(l, l.moved)), l.at, bytes);
            l.at += bytes;
            l.left -= bytes;
            l.is_copied = 1;
        }
        l.over = !has_message(l);
        return true;
    }

    // All threads.

    COLLS_DEVICE static void copy(message_lane& l, const std::byte* from, std::byte* to, std::uint64_t bytes) {
        l.copy_from = from;
        l.copy_to = to;
        l.copy_bytes = static_cast<std::uint32_t>(bytes);
    }
    /// Makes the copies of all lanes, and lists the pieces that the proxy is to move.
    COLLS_DEVICE void move() {
        int copies = 0, posts = 0;
        COLLS_ROLLED
        for (int i = 0; i < lanes(); ++i) {
            copies += lane(i).copy_bytes != 0;
            posts += lane(i).posts;
        }
        if (copies > 0) {
            const int unit = g_.size() > 32 ? 32 : 1, equal = g_.size() / copies & -unit,
                      size = copies == 1    ? g_.size()
                             : equal > unit ? equal
                                            : unit,
                      teams = g_.size() / size, mine = g_.index() / size;
            const team<G> t(g_, g_.index() % size, size);
            int turn = 0;
            COLLS_ROLLED
            for (int i = 0; i < lanes() && mine < teams; ++i) {
                const message_lane& l = lane(i);
                if (l.copy_bytes == 0 || turn++ % teams != mine) continue;
                const operand from{l.copy_from, 0};
                using byte = unsigned char;
                fold_elements<byte>(t, reinterpret_cast<byte*>(l.copy_to), &from, 1, true, l.copy_bytes, no_operator{},
                    no_epilogue{}, 0, 0);
            }
        }
        if (posts == 0) return;
        const far_memory& far = self().far;
        std::uint64_t& mailed = channel_of(self(), self().rank, channel_).far_mail;
        const std::uint64_t first = mailed;
        COLLS_ROLLED
        for (int i = g_.index(); i < lanes(); i += g_.size()) {
            message_lane& l = lane(i);
            if (l.posts == 0) continue;
            std::uint64_t number = first;
            COLLS_ROLLED
            for (int j = 0; j < i; ++j) number += static_cast<std::uint32_t>(lane(j).posts);
            const bool receives = l.sends == 0;
            far.mail(channel_, number) = {l.peer, receives, l.mail_place, l.mail_bytes, l.mail_whole, l.mail_number};
            g_.put(far.moved(channel_, receives, l.mail_place), 0);
        }
        g_.any(false);  // the copies are made, and the list is written
        if (g_.index() != 0) return;
        mailed = first + static_cast<std::uint32_t>(posts);
        g_.release(far.mailed(channel_), mailed);
    }

    mutable G g_;
    const message_list& list_;
    const int channel_;
    const message* const messages_;
    message_lane* const lanes_;
};

/// Moves messages by the block of one channel, or stores a part of a list; all threads call, after load_call. False:
/// the rank has given up.
template <class G>
    requires thread_group<G>
COLLS_DEVICE bool run_messages(const G& g, int channel, const message_list& list) {
    message_executor<G> executor(g, channel, list);
    if (list.stored == 0) return executor.run();
    executor.store();
    return true;
}

}  // namespace colls::inline v1::cuda::detail
