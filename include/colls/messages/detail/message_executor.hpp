// The executor for transports that pass messages.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// It runs one rank's program of an execution plan made within reach::nothing. Several chunks are under way at once, so
// that one is folded while another travels: at step t, chunk c does segment t - c * stagger of the program. The older
// chunks go first, whose data are still in the cache; or the youngest first, where a device moves the data and would
// have nothing to do while the older are folded. A segment waits for the messages of a round, folds them, and posts the
// messages of the next round.
//
// Why nothing blocks for ever: all ranks post in one order, by step and then by chunk. (Messages that are sent ahead,
// with those of the first round, are an exception: they wait for nothing and are alone on their channel.) So the order
// is the same at both ends of every channel, and what is at the head of a channel is always what its receiver asks for
// next; by induction over the order each post is matched, however little a channel holds. Operations post in the order
// in which they were started, each only when the one before has posted all: the order extends over operations.
#pragma once

#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/execute/executor.hpp>
#include <colls/detail/support/copy.hpp>
#include <colls/detail/transport/vocabulary.hpp>
#include <colls/messages/detail/message_lowering.hpp>
#include <colls/schedules/tree.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace colls::inline v1::detail {

/// How far an operation that has begun has come on this rank:
///     begin     -> begun
///     enter     begun -> learning_count, where the root tells the count ahead; else -> running
///     go_on     learning_count -> running
enum class message_phase : unsigned char { begun, learning_count, running };

/// Whoever makes one says by `advance` when it may go on: see the order above.
class message_executor : public executor {
public:
    message_executor(rank_context& self, message_transport& transport) : executor(self), transport_(transport) {}

    void begin() override {
        sign_call();
        sequence = self_.direct.count++;
        now.chunk = now.at = 0;
        done = false;
        phase_ = message_phase::begun;
    }
    /// Has the operation posted all messages that it ever will?
    bool posted_all() const { return phase_ == message_phase::running && now.chunk >= layout_.chunks; }
    /// Runs the operation, which is not over, as far as it gets without waiting; true when it is over.
    bool go_on() {
        if (phase_ == message_phase::begun) enter();
        if (!run()) return false;
        if (is_learning()) {
            phase_ = message_phase::running;
            take_count_of_root(count_);
            lay_out(*counted_plan_);
            if (!run()) return false;
        }
        give_scratch();
        return done = true;
    }

private:
    /// The first step of an operation. Where ranks between the root and others pass on blocks that are not their own,
    /// they must know how long those are: the root tells all ranks the count first, by a broadcast.
    void enter() {
        const call& c = arguments;
        if (is_unsized(c) && !c.ragged && !plan_->own_blocks_only && self_.size > 1) {
            phase_ = message_phase::learning_count;
            count_ = c.count;
            counted_plan_ = plan_;
            lay_out(*execution_plan_for(count_schedule(), self_.size, reach::nothing));
        } else {
            phase_ = message_phase::running;
            lay_out(*plan_);
        }
    }
    /// From now on the operation runs by this plan: in which chunks, with which scratch memory for those under way. All
    /// ranks come to the same numbers, since there is one chunk where they do not know all counts.
    void lay_out(const execution_plan& plan) {
        follow(plan);
        const call& c = arguments;
        const std::size_t longest = is_learning()              ? sizeof(std::size_t)
                                    : handles_own_block_only() ? longest_part(c.own_count)
                                                               : longest_unit();
        if (is_learning() || c.ragged || has_own_blocks_only())
            layout_.keep_whole();
        else
            layout_.cut(longest, c.element, message_policy::chunk, chunk_layout::any_number);
        layout_.slot_bytes = padded((layout_.count < longest ? layout_.count : longest) * element());
        const std::size_t segments = static_cast<std::size_t>(plan.rounds) + 1;
        stagger_ = (segments + message_policy::chunks - 1) / message_policy::chunks;
        under_way_ = std::min((segments + stagger_ - 1) / stagger_, layout_.chunks);
        const std::size_t slots = slots_bytes(), copied = is_learning() ? 0 : copied_input();
        take_scratch(slots + copied);
        if (copied > 0) std::memcpy(scratch_.at + slots, c.in, copied);
        count_messages();
        step_ = oldest_chunk_ = 0;
        now.chunk = now.at = 0;
    }
    /// Makes room for the messages' numbers and for operands, and counts how many the operation posts to and from each
    /// peer.
    void count_messages() {
        const std::size_t n = channels();
        sent_.assign(under_way_ * static_cast<std::size_t>(program_->sends), 0);
        received_.assign(under_way_ * static_cast<std::size_t>(program_->receives), 0);
        last_sent_.assign(under_way_ * n, 0);
        to_send_.assign(n, 0);
        to_receive_.assign(n, 0);
        for (const instruction& i : program_->body) {
            if (i.op == opcode::send) to_send_[static_cast<std::size_t>(i.channel)] += layout_.chunks;
            if (i.op == opcode::fold) operands_.reserve(static_cast<std::size_t>(i.count));
            if (i.op == opcode::receive) to_receive_[static_cast<std::size_t>(i.channel)] += layout_.chunks;
        }
        // Completion is requested with the last message to a peer, or, where nothing is sent to it, the last from it.
        for (std::size_t c = 0; c < n; ++c)
            if (to_send_[c] > 0) to_receive_[c] = 0;
    }
    /// Runs the program for all chunks, as far as it gets without waiting; true when it is done and all messages have
    /// left.
    bool run() {
        in_ = arguments.in;
        out_ = arguments.out;
        if (is_learning())
            in_ = out_ = reinterpret_cast<std::byte*>(&count_);
        else if (copied_input() > 0)
            in_ = scratch_.at + slots_bytes();
        const std::size_t segments = static_cast<std::size_t>(plan_->rounds) + 1;
        const std::size_t steps = (layout_.chunks - 1) * stagger_ + segments;
        const bool young_first = transport_.offloads();
        const auto youngest = [&] { return std::min(step_ / stagger_, layout_.chunks - 1); };
        for (; step_ < steps; ++step_, now.chunk = young_first ? youngest() : oldest_chunk_) {
            for (;; now.chunk = young_first ? now.chunk - 1 : now.chunk + 1) {
                const bool last = now.chunk == (young_first ? oldest_chunk_ : youngest());
                const std::size_t segment = step_ - now.chunk * stagger_;
                const auto& ends = program_->segments;
                const std::size_t begin = segment == 0 ? 0 : static_cast<std::size_t>(ends[segment - 1]);
                const std::size_t end =
                    segment < ends.size() ? static_cast<std::size_t>(ends[segment]) : program_->body.size();
                if (segment == 0 && now.chunk >= under_way_ && !try_wait_until_left(slot())) return false;
                for (bool waits = false; begin + now.at < end; ++now.at) {
                    const instruction& i = program_->body[begin + now.at];
                    const auto c = static_cast<std::size_t>(i.channel);
                    bool completes = false;
                    switch (i.op) {
                        case opcode::send: {
                            const message_label label = collect(i);
                            const std::uint64_t posted = transport_.send(
                                rank_of(i.peer), label, pieces_.data(), static_cast<int>(pieces_.size()));
                            sent_number(i.value) = posted;
                            last_sent_[slot() * channels() + c] = posted + 1;
                            completes = --to_send_[c] == 0;
                            break;
                        }
                        case opcode::receive: {
                            const message_label label = collect(i);
                            received_number(i.value) = transport_.receive(
                                rank_of(i.peer), label, pieces_.data(), static_cast<int>(pieces_.size()));
                            completes = to_receive_[c] > 0 && --to_receive_[c] == 0;
                            break;
                        }
                        case opcode::arrived:
                            waits = !has_arrived(i);
                            break;
                        case opcode::left:
                            waits = !has_left(i);
                            break;
                        case opcode::copy:
                            copy(i);
                            break;
                        case opcode::fold:
                            fold(i);
                            break;
                        default:  // the direct executor's
                            break;
                    }
                    if (completes && !is_learning()) transport_.request_completion(rank_of(i.peer));
                    if (waits) {
                        transport_.flush();
                        return false;
                    }
                }
                transport_.flush();  // before the next chunk's folds
                now.at = 0;
                if (segment + 1 == segments) oldest_chunk_ = now.chunk + 1;
                if (last) break;
            }
        }
        now.chunk = layout_.chunks;
        for (std::size_t k = 0; k < under_way_; ++k)
            if (!try_wait_until_left(k)) return false;
        return true;
    }
    /// Passes if all messages have left that were sent from a slot, whose scratch memory another chunk may use then;
    /// else false, and the operation waits for the peer of one of them.
    bool try_wait_until_left(std::size_t slot) {
        for (std::size_t c = 0; c < channels(); ++c) {
            const int peer = rank_of(program_->peers[c]);
            if (transport_.sent(peer) < last_sent_[slot * channels() + c]) {
                site.peer = peer;
                return false;
            }
        }
        return true;
    }
    /// The schedule by which the root tells the count.
    static const any_schedule& count_schedule() {
        static const any_schedule by_tree = [] {
            const auto s = schedule_of<collective::broadcast>(tree<2>{});
            return any_schedule(s, table_of<std::remove_const_t<decltype(s)>, true>, "tree");
        }();
        return by_tree;
    }
    bool is_learning() const { return phase_ == message_phase::learning_count; }
    /// Does no rank between root and leaves handle the blocks of others, so that only the root need know all counts?
    bool has_own_blocks_only() const {
        return plan_->own_blocks_only && owned(arguments.what) && rooted(arguments.what);
    }
    /// Does this rank handle its own block alone?
    bool handles_own_block_only() const { return has_own_blocks_only() && self_.rank != arguments.root; }
    std::size_t element() const { return is_learning() ? 1 : arguments.element; }
    std::size_t slot() const { return now.chunk % under_way_; }
    std::size_t channels() const { return program_->peers.size(); }
    /// The current chunk's number of a message on its channel, by the message's number in the program.
    std::uint64_t& sent_number(int i) {
        return sent_[slot() * static_cast<std::size_t>(program_->sends) + static_cast<std::size_t>(i)];
    }
    std::uint64_t& received_number(int i) {
        return received_[slot() * static_cast<std::size_t>(program_->receives) + static_cast<std::size_t>(i)];
    }
    std::size_t slots_bytes() const {
        return static_cast<std::size_t>(program_->scratch) * under_way_ * layout_.slot_bytes;
    }
    extent unit_in(buffer_kind where, int unit) const {
        const call& c = arguments;
        if (is_learning()) return {0, sizeof(std::size_t)};
        const bool alone = handles_own_block_only();
        return unit_at(where, unit,
            alone                         ? nullptr
            : where == buffer_kind::input ? c.in_offsets
                                          : c.out_offsets,
            alone || c.ragged, c.own_count);
    }
    /// The current chunk of an operand, and its number of elements; `unit` is the unit that has the length of a scratch
    /// slot.
    std::byte* address(const location& l, int unit, std::size_t& count) const {
        if (l.where == buffer_kind::scratch) {
            count = chunk_of(unit_in(buffer_kind::input, unit)).count;
            return scratch_.at + (static_cast<std::size_t>(l.index) * under_way_ + slot()) * layout_.slot_bytes;
        }
        const extent part = chunk_of(unit_in(l.where, l.index));
        count = part.count;
        return const_cast<std::byte*>(l.where == buffer_kind::input ? in_ : out_) + part.first * arguments.element;
    }
    /// The pieces of a message that is to be posted, and its label.
    message_label collect(const instruction& i) {
        pieces_.clear();
        for (int k = 0; k < i.count; ++k) {
            const auto at = static_cast<std::size_t>(i.first + k);
            std::size_t count;
            std::byte* const data = address(program_->operands[at], program_->units[at], count);
            const std::size_t bytes = count * element();
            if (!pieces_.empty() && pieces_.back().data + pieces_.back().bytes == data)
                pieces_.back().bytes += bytes;  // neighbours are one piece
            else if (bytes > 0)
                pieces_.push_back({data, bytes});
        }
        return {fingerprint_, sequence * 2 + is_learning(),
            static_cast<std::uint32_t>(now.chunk * 2654435761u + static_cast<std::size_t>(i.round) * 40503u +
                                       static_cast<std::size_t>(i.unit))};
    }
    bool has_arrived(const instruction& i) { return transport_.received(note_wait(i)) > received_number(i.value); }
    bool has_left(const instruction& i) { return transport_.sent(note_wait(i)) > sent_number(i.value); }
    void copy(const instruction& i) {
        const recorded_work recorder(*this, traced_part::copy, i, none);
        const auto at = static_cast<std::size_t>(i.first);
        std::size_t count, room;
        const std::byte* const from = address(program_->operands[at], i.unit, count);
        std::byte* const to = address(i.to, i.unit, room);
        if (from == to) return;
        moved_ = std::min(count, room) * element();
        copy_bytes(to, from, moved_);
    }
    void fold(const instruction& i) {
        const recorded_work recorder(*this, traced_part::fold, i, none);
        const int first = first_operand(i);
        std::size_t count = 0;
        for (int k = 0; k < i.count; ++k) {
            const location& from = program_->operands[static_cast<std::size_t>(i.first + (k + first) % i.count)];
            operands_.data()[k] = {address(from, i.unit, count)};
        }
        std::byte* const to = address(i.to, i.unit, count);
        moved_ = count * arguments.element;
        if (count == 0) return;
        arguments.op->fold(to, operands_.data(), i.count, count, arguments.op_value);
        finish_fold(i, to, count);
    }
    /// Returns the peer that the operation waits for.
    int note_wait(const instruction& i) {
        site.round = i.round;
        return site.peer = rank_of(i.peer);
    }

    message_transport& transport_;
    message_phase phase_ = message_phase::running;
    const std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    /// The numbers of messages on their channels, by slot of the chunk and number in the program.
    std::vector<std::uint64_t> sent_, received_;
    /// 1 + the number of the last message sent, by slot of the chunk and channel (rank_program::peers).
    std::vector<std::uint64_t> last_sent_;
    /// Messages that are still to be posted, by channel.
    std::vector<std::size_t> to_send_, to_receive_;
    std::vector<piece> pieces_;  ///< of the message that is being posted
    std::size_t step_ = 0;
    std::size_t stagger_ = 1;                       ///< steps by which a chunk begins after the one before
    std::size_t under_way_ = 1;                     ///< chunks under way at once: each has a slot, used in turn
    std::size_t oldest_chunk_ = 0;                  ///< that is not over
    std::size_t count_ = 0;                         ///< as the root tells it, in message_phase::learning_count
    const execution_plan* counted_plan_ = nullptr;  ///< that is followed once the count is known
};

}  // namespace colls::inline v1::detail
