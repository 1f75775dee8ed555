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

#include <colls/detail/execute/executor.hpp>
#include <colls/detail/execute/message_policy.hpp>
#include <colls/detail/support/copy.hpp>
#include <colls/detail/transport/vocabulary.hpp>
#include <colls/schedules/tree.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace colls::inline v1::detail {

/// What the message executor knows of an operation besides operation_state. It stays with the operation_state, whose
/// next operation uses its memory again.
struct message_state {
    /// The numbers of messages on their channels, by slot of the chunk and number in the program.
    std::vector<std::uint64_t> sent, received;
    /// 1 + the number of the last message sent, by slot of the chunk and channel (rank_program::peers).
    std::vector<std::uint64_t> last_sent;
    /// Messages that are still to be posted, by channel.
    std::vector<std::size_t> to_send, to_receive;
    std::vector<piece> pieces;  ///< of the message that is being posted
    std::size_t step = 0;
    std::size_t stagger = 1;               ///< steps by which a chunk begins after the one before
    std::size_t under_way = 1;             ///< chunks under way at once: each has a slot, used in turn
    std::size_t oldest_chunk = 0;          ///< that is not over
    std::size_t count = 0;                 ///< as the root tells it, in operation_phase::learning_count
    const execution_plan* plan = nullptr;  ///< that is followed once the count is known
};

/// Executes one operation of a rank context whose backend passes messages.
class message_executor : executor {
public:
    message_executor(rank_context& e, operation_state& o, message_transport& transport)
        : executor(e, o), transport_(transport), s_(*o.messaging) {}

    void begin();
    /// Has the operation posted all messages that it ever will?
    bool posted_all() const { return o_.phase == operation_phase::running && o_.chunk >= o_.layout.chunks; }
    /// Runs the operation, which is not over, as far as it gets without waiting; true when it is over.
    bool advance();

private:
    void enter();
    void lay_out(const execution_plan& plan);
    void count_messages();
    bool run();
    bool try_wait_until_left(std::size_t slot);
    /// The schedule by which the root tells the count.
    static const any_schedule& count_schedule() {
        static const any_schedule by_tree = [] {
            const auto s = schedule_of<collective::broadcast>(tree<2>{});
            return any_schedule(s, proven_table_of<std::remove_const_t<decltype(s)>>, "tree");
        }();
        return by_tree;
    }
    bool is_learning() const { return o_.phase == operation_phase::learning_count; }
    /// Does no rank between root and leaves handle the blocks of others, so that only the root need know all counts?
    bool has_own_blocks_only() const { return plan_->own_blocks_only && is_owned_and_rooted(); }
    /// Does this rank handle its own block alone?
    bool handles_own_block_only() const { return has_own_blocks_only() && e_.rank != o_.request.root; }
    std::size_t element() const { return is_learning() ? 1 : o_.request.element; }
    std::size_t slot() const { return o_.chunk % s_.under_way; }
    std::size_t channels() const { return o_.program->peers.size(); }
    /// The current chunk's number of a message on its channel, by the message's number in the program.
    std::uint64_t& sent_number(int i) {
        return s_.sent[slot() * static_cast<std::size_t>(o_.program->sends) + static_cast<std::size_t>(i)];
    }
    std::uint64_t& received_number(int i) {
        return s_.received[slot() * static_cast<std::size_t>(o_.program->receives) + static_cast<std::size_t>(i)];
    }
    std::size_t slots_bytes() const {
        return static_cast<std::size_t>(o_.program->scratch) * s_.under_way * o_.layout.slot_bytes;
    }
    extent unit_in(place where, int unit) const;
    std::byte* address(const location& l, int unit, std::size_t& count) const;
    bool perform(const instruction& i);
    void post(const instruction& i);
    void copy(const instruction& i);
    void fold(const instruction& i);
    void note_wait(const instruction& i, int peer) {
        o_.site.peer = peer;
        o_.site.round = i.round;
    }

    message_transport& transport_;
    message_state& s_;
    const std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
};

inline void message_executor::begin() {
    sign_call();
    o_.sequence = e_.sequence++;
    o_.chunk = o_.at = 0;
    o_.done = false;
    o_.phase = operation_phase::begun;
}

/// The first step of an operation. Where ranks between the root and others pass on blocks that are not their own, they
/// must know how long those are: the root tells all ranks the count first, by a broadcast.
inline void message_executor::enter() {
    const call& c = o_.request;
    if (is_owned_and_rooted() && !c.ragged && !plan_->own_blocks_only && e_.size > 1) {
        o_.phase = operation_phase::learning_count;
        s_.count = c.count;
        s_.plan = plan_;
        lay_out(*execution_plan_for(count_schedule(), e_.size, reach::nothing));
    } else {
        o_.phase = operation_phase::running;
        lay_out(*plan_);
    }
}

inline extent message_executor::unit_in(place where, int unit) const {
    const call& c = o_.request;
    if (is_learning()) return {0, sizeof(std::size_t)};
    const bool alone = handles_own_block_only();
    return unit_at(where, unit,
        alone                   ? nullptr
        : where == place::input ? c.in_offsets
                                : c.out_offsets,
        alone || c.ragged, c.own_count);
}

/// From now on the operation runs by this plan: in which chunks, with which scratch memory for those under way. All
/// ranks come to the same numbers, since there is one chunk where they do not know all counts.
inline void message_executor::lay_out(const execution_plan& plan) {
    follow(plan);
    const call& c = o_.request;
    const std::size_t longest = is_learning()              ? sizeof(std::size_t)
                                : handles_own_block_only() ? longest_part(c.own_count)
                                                           : longest_unit();
    if (is_learning() || c.ragged || has_own_blocks_only())
        o_.layout.keep_whole();
    else
        o_.layout.cut(longest, c.element, message_policy::chunk, chunk_layout::any_number);
    o_.layout.slot_bytes = padded((o_.layout.count < longest ? o_.layout.count : longest) * element());
    const std::size_t segments = static_cast<std::size_t>(plan.rounds) + 1;
    s_.stagger = (segments + message_policy::chunks - 1) / message_policy::chunks;
    s_.under_way = std::min((segments + s_.stagger - 1) / s_.stagger, o_.layout.chunks);
    const std::size_t slots = slots_bytes(), copied = is_learning() ? 0 : copied_input();
    take_scratch(e_, o_, slots + copied);
    if (copied > 0) std::memcpy(o_.scratch.at + slots, c.in, copied);
    count_messages();
    s_.step = s_.oldest_chunk = 0;
    o_.chunk = o_.at = 0;
}

/// Makes room for the messages' numbers, and counts how many the operation posts to and from each peer.
inline void message_executor::count_messages() {
    const std::size_t n = channels();
    s_.sent.assign(s_.under_way * static_cast<std::size_t>(o_.program->sends), 0);
    s_.received.assign(s_.under_way * static_cast<std::size_t>(o_.program->receives), 0);
    s_.last_sent.assign(s_.under_way * n, 0);
    s_.to_send.assign(n, 0);
    s_.to_receive.assign(n, 0);
    for (const instruction& i : o_.program->body) {
        if (i.op == opcode::send) s_.to_send[static_cast<std::size_t>(i.channel)] += o_.layout.chunks;
        if (i.op == opcode::fold) make_room_for_operands(i);
        if (i.op == opcode::receive) s_.to_receive[static_cast<std::size_t>(i.channel)] += o_.layout.chunks;
    }
    // Completion is requested with the last message to a peer, or, where nothing is sent to it, the last from it.
    for (std::size_t c = 0; c < n; ++c)
        if (s_.to_send[c] > 0) s_.to_receive[c] = 0;
}

/// The current chunk of an operand, and its number of elements; `unit` is the unit that has the length of a scratch
/// slot.
inline std::byte* message_executor::address(const location& l, int unit, std::size_t& count) const {
    if (l.where == place::scratch) {
        count = chunk_of(unit_in(place::input, unit)).count;
        return o_.scratch.at + (static_cast<std::size_t>(l.index) * s_.under_way + slot()) * o_.layout.slot_bytes;
    }
    const extent part = chunk_of(unit_in(l.where, l.index));
    count = part.count;
    return const_cast<std::byte*>(l.where == place::input ? in_ : out_) + part.first * o_.request.element;
}

/// Posts the send or the receive of a message.
inline void message_executor::post(const instruction& i) {
    s_.pieces.clear();
    const int peer = rank_of(i.peer);
    for (int k = 0; k < i.count; ++k) {
        const auto at = static_cast<std::size_t>(i.first + k);
        std::size_t count;
        std::byte* const data = address(o_.program->operands[at], o_.program->units[at], count);
        const std::size_t bytes = count * element();
        if (!s_.pieces.empty() && s_.pieces.back().data + s_.pieces.back().bytes == data)
            s_.pieces.back().bytes += bytes;  // neighbours are one piece
        else if (bytes > 0)
            s_.pieces.push_back({data, bytes});
    }
    const message_label label{o_.fingerprint, o_.sequence * 2 + is_learning(),
        static_cast<std::uint32_t>(
            o_.chunk * 2654435761u + static_cast<std::size_t>(i.round) * 40503u + static_cast<std::size_t>(i.unit))};
    const int pieces = static_cast<int>(s_.pieces.size());
    const auto c = static_cast<std::size_t>(i.channel);
    bool last = false;
    if (i.op == opcode::send) {
        const std::uint64_t number = transport_.send(peer, label, s_.pieces.data(), pieces);
        sent_number(i.value) = number;
        s_.last_sent[slot() * channels() + c] = number + 1;
        last = --s_.to_send[c] == 0;
    } else {
        received_number(i.value) = transport_.receive(peer, label, s_.pieces.data(), pieces);
        last = s_.to_receive[c] > 0 && --s_.to_receive[c] == 0;
    }
    if (last && !is_learning()) transport_.request_completion(peer);
}

inline void message_executor::copy(const instruction& i) {
    const auto at = static_cast<std::size_t>(i.first);
    std::size_t count, room;
    const std::byte* const from = address(o_.program->operands[at], i.unit, count);
    std::byte* const to = address(i.to, i.unit, room);
    if (from == to) return;
    o_.moved = std::min(count, room) * element();
    copy_bytes(to, from, o_.moved);
}

inline void message_executor::fold(const instruction& i) {
    make_room_for_operands(i);
    const int first = first_operand(i);
    std::size_t count = 0;
    for (int k = 0; k < i.count; ++k) {
        const location& from = o_.program->operands[static_cast<std::size_t>(i.first + (k + first) % i.count)];
        o_.operands[k] = {address(from, i.unit, count)};
    }
    std::byte* const to = address(i.to, i.unit, count);
    o_.moved = count * o_.request.element;
    if (count > 0) fold_operands(i, to, o_.operands.data(), count);
}

/// False where the instruction waits for a message that has not arrived, or not left.
inline bool message_executor::perform(const instruction& i) {
    switch (i.op) {
        case opcode::send:
        case opcode::receive:
            post(i);
            return true;
        case opcode::arrived: {
            const int peer = rank_of(i.peer);
            note_wait(i, peer);
            return transport_.received(peer) > received_number(i.value);
        }
        case opcode::left: {
            const int peer = rank_of(i.peer);
            note_wait(i, peer);
            return transport_.sent(peer) > sent_number(i.value);
        }
        case opcode::copy:
            return record(recorded::copy, i, none, [&] { return copy(i), true; });
        case opcode::fold:
            return record(recorded::fold, i, none, [&] { return fold(i), true; });
        default:
            return true;  // the direct executor's
    }
}

inline bool message_executor::advance() {
    if (o_.phase == operation_phase::begun) enter();
    if (!run()) return false;
    if (is_learning()) {
        o_.phase = operation_phase::running;
        take_count_of_root(s_.count);
        lay_out(*s_.plan);
        if (!run()) return false;
    }
    give_scratch(e_, o_);
    o_.done = true;
    return true;
}

/// Passes if all messages have left that were sent from a slot, whose scratch memory another chunk may use then; else
/// false, and the operation waits for the peer of one of them.
inline bool message_executor::try_wait_until_left(std::size_t slot) {
    for (std::size_t c = 0; c < channels(); ++c) {
        const int peer = rank_of(o_.program->peers[c]);
        if (transport_.sent(peer) < s_.last_sent[slot * channels() + c]) {
            o_.site.peer = peer;
            return false;
        }
    }
    return true;
}

/// Runs the program for all chunks, as far as it gets without waiting; true when it is done and all messages have left.
inline bool message_executor::run() {
    in_ = o_.request.in;
    out_ = o_.request.out;
    if (is_learning())
        in_ = out_ = reinterpret_cast<std::byte*>(&s_.count);
    else if (copied_input() > 0)
        in_ = o_.scratch.at + slots_bytes();
    const std::size_t segments = static_cast<std::size_t>(plan_->rounds) + 1;
    const std::size_t steps = (o_.layout.chunks - 1) * s_.stagger + segments;
    const bool young_first = transport_.offloads();
    const auto youngest = [&] { return std::min(s_.step / s_.stagger, o_.layout.chunks - 1); };
    for (; steps > s_.step;  // nvcc's host parser takes `step <` for the type `step`
        ++s_.step, o_.chunk = young_first ? youngest() : s_.oldest_chunk) {
        for (;; o_.chunk = young_first ? o_.chunk - 1 : o_.chunk + 1) {
            const bool last = o_.chunk == (young_first ? s_.oldest_chunk : youngest());
            const std::size_t segment = s_.step - o_.chunk * s_.stagger;
            const auto& ends = o_.program->segments;
            const std::size_t begin = segment == 0 ? 0 : static_cast<std::size_t>(ends[segment - 1]);
            const std::size_t end =
                segment < ends.size() ? static_cast<std::size_t>(ends[segment]) : o_.program->body.size();
            if (segment == 0 && o_.chunk >= s_.under_way && !try_wait_until_left(slot())) return false;
            for (; begin + o_.at < end; ++o_.at)
                if (!perform(o_.program->body[begin + o_.at])) {
                    transport_.flush();
                    return false;
                }
            transport_.flush();  // before the next chunk's folds
            o_.at = 0;
            if (segment + 1 == segments) s_.oldest_chunk = o_.chunk + 1;
            if (last) break;
        }
    }
    o_.chunk = o_.layout.chunks;
    for (std::size_t k = 0; k < s_.under_way; ++k)
        if (!try_wait_until_left(k)) return false;
    return true;
}

}  // namespace colls::inline v1::detail
