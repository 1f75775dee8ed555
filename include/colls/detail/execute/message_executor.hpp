// The executor for transports that pass messages: one rank's program of a execution plan made within reach::nothing.
//
// Several chunks are under way at once, so that one is folded while another travels: chunk c does the segment t - c *
// stagger of its program at step t: the older chunks first, whose messages are still in the cache, or the youngest
// first where a device moves the data and would stand still while the older are folded. A segment waits for a round's
// messages, folds them, and posts those of the next round. But for messages that are sent ahead, with the first round,
// since they wait for nothing and are alone on their channel, that is one order for all ranks; and so it is on both
// sides of every channel. So what is at the head of a channel is always what its receiver asks for next, and by
// induction over this order nothing blocks for ever, however little a channel holds: a message that is ahead of its
// turn stands in nobody's way. Operations post in the order in which they were started, each only when the one before
// has nothing left to post: the order extends over operations.
#pragma once

#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/operations.hpp>
#include <colls/detail/transport/vocabulary.hpp>

#include <algorithm>
#include <vector>

namespace colls::inline v1::detail {

/// What moves in messages.
struct message_policy {
    static constexpr std::size_t chunk = std::size_t{512} << 10;  ///< bytes of a unit
    static constexpr std::size_t chunks = 4;                      ///< under way, of schedules with many rounds
};

/// What an operation knows while messages pass, besides operation_state: kept with it, for the next one.
struct message_state {
    std::vector<std::uint64_t> sent,
        received;  // messages' numbers on their channels, by chunk under way and number in the program
    std::vector<std::uint64_t> last_sent;          // by chunk under way and peer: 1 + the number of the last
    std::vector<std::size_t> to_send, to_receive;  // by peer: messages that are still to be posted
    std::vector<piece> pieces;
    std::size_t step = 0, stagger = 1, under_way = 1;
    bool learning = false;  // the count, by a broadcast ahead of the operation itself
    std::size_t learnt = 0;
    const execution_plan* then = nullptr;
};

/// Executes one operation of an rank context whose link has a transport.
class message_executor : executor {
public:
    message_executor(rank_context& e, operation_state& o, message_transport& w)
        : executor(e, o), w_(w), s_(*o.passing) {}

    void begin();
    /// Has it posted all that it ever will?
    bool posted_all() const { return o_.done || (o_.entered && !s_.learning && o_.chunk >= o_.chunks); }
    /// As far as it gets without waiting; true when it is over.
    bool advance();

private:
    void lay_out();
    void take_count();
    bool run();
    static const any_schedule& count_schedule() {
        const candidates all = candidates_for<collective::broadcast>();
        int i = 0;
        while (all.first[i].name != "tree") ++i;
        return all.first[i].schedule;
    }
    bool own_only() const {
        return p_->own_only && owned(o_.request.what) && rooted(o_.request.what) && e_.rank != o_.request.root;
    }
    std::size_t slot() const { return o_.chunk % s_.under_way; }
    extent unit_in(place where, int unit) const;
    extent chunk_of(const extent& whole) const {
        const std::size_t skip = o_.chunk * o_.chunk_count;
        if (whole.count <= skip) return {whole.first + whole.count, 0};
        const std::size_t rest = whole.count - skip;
        return {whole.first + skip, rest < o_.chunk_count ? rest : o_.chunk_count};
    }
    // An operand of this chunk, and its elements; `unit` has its length.
    std::byte* address(const location& l, int unit, std::size_t& count) const {
        const call& c = o_.request;
        if (l.where == place::scratch) {
            count = chunk_of(unit_in(place::input, unit)).count;
            return o_.scratch.at + (static_cast<std::size_t>(l.index) * s_.under_way + slot()) * o_.stride;
        }
        const extent part = chunk_of(unit_in(l.where, l.index));
        count = part.count;
        return const_cast<std::byte*>(l.where == place::input ? in_ : out_) + part.first * c.element;
    }
    bool perform(const instruction& i);
    void post(const instruction& i);
    void copy(const instruction& i);
    void fold(const instruction& i);
    bool left(int peer, std::uint64_t count) const { return w_.sent(peer) >= count; }

    message_transport& w_;
    message_state& s_;
    const std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
};

inline void message_executor::begin() {
    s_.learning = false;
    sign();
    o_.sequence = e_.sequence++;
    o_.operands.resize(static_cast<std::size_t>(e_.size) + 1);
    o_.chunk = o_.at = 0;
    o_.done = o_.entered = false;
}

inline extent message_executor::unit_in(place where, int unit) const {
    const call& c = o_.request;
    if (s_.learning) return {0, sizeof(std::size_t)};
    const bool alone = own_only();
    return unit_at(where, unit,
        alone                   ? nullptr
        : where == place::input ? c.in_offsets
                                : c.out_offsets,
        alone || c.ragged, c.own_count);
}

// Chunks, and scratch memory for those that are under way. All ranks come to the same numbers: where they do not know
// all counts, there is one chunk.
inline void message_executor::lay_out() {
    const call& c = o_.request;
    const auto n = static_cast<std::size_t>(e_.size);
    const int v = rooted(c.what) ? mod(e_.rank - c.root + p_->root, e_.size) : e_.rank;
    o_.mine = &p_->ranks[static_cast<std::size_t>(v)];
    const bool one_chunk = s_.learning || c.ragged || (owned(c.what) && rooted(c.what) && p_->own_only);
    std::size_t longest = 0;
    if (s_.learning)
        longest = sizeof(std::size_t);
    else if (own_only())
        longest = c.own_count;
    else if (const std::size_t* offsets = c.in_offsets ? c.in_offsets : c.out_offsets; offsets) {
        for (std::size_t b = 0; b < n; ++b)
            if (offsets[b + 1] - offsets[b] > longest) longest = offsets[b + 1] - offsets[b];
    } else {
        longest = balanced(c.count, static_cast<std::size_t>(p_->blocks), 0).count;
    }
    longest = balanced(longest, static_cast<std::size_t>(p_->fewest_parts), 0).count;
    const std::size_t element = s_.learning ? 1 : c.element;
    o_.chunk_count = message_policy::chunk / element > 0 ? message_policy::chunk / element : 1;
    if (one_chunk || longest == 0) o_.chunk_count = ~std::size_t{0} / 2;
    o_.chunks = longest == 0 ? 1 : (longest + o_.chunk_count - 1) / o_.chunk_count;
    const std::size_t segments = static_cast<std::size_t>(p_->rounds) + 1;
    s_.stagger = (segments + message_policy::chunks - 1) / message_policy::chunks;
    s_.under_way = (segments + s_.stagger - 1) / s_.stagger;
    if (s_.under_way > o_.chunks) s_.under_way = o_.chunks;
    o_.stride = ((o_.chunk_count < longest ? o_.chunk_count : longest) * element + 63) / 64 * 64;
    const bool copied = !s_.learning && c.what == collective::all_to_all && c.in == c.out && c.count > 0;
    const std::size_t slots = static_cast<std::size_t>(o_.mine->scratch) * s_.under_way * o_.stride;
    take_scratch(e_, o_, slots + (copied ? c.count * c.element : 0));
    if (copied) std::memcpy(o_.scratch.at + slots, c.in, c.count * c.element);
    s_.sent.assign(s_.under_way * static_cast<std::size_t>(o_.mine->sends), 0);
    s_.received.assign(s_.under_way * static_cast<std::size_t>(o_.mine->receives), 0);
    s_.last_sent.assign(s_.under_way * n, 0);
    s_.to_send.assign(n, 0);
    s_.to_receive.assign(n, 0);
    for (const instruction& i : o_.mine->body) {
        if (i.op == opcode::send) s_.to_send[static_cast<std::size_t>(actual(i.peer))] += o_.chunks;
        if (i.op == opcode::receive) s_.to_receive[static_cast<std::size_t>(actual(i.peer))] += o_.chunks;
    }
    for (std::size_t r = 0; r < n; ++r)
        if (s_.to_send[r] > 0) s_.to_receive[r] = 0;  // what is sent last, settles it
    s_.step = 0;
    o_.chunk = 0;
    o_.at = 0;
    o_.exit_at = 0;  // here: chunks that are over
}

inline void message_executor::post(const instruction& i) {
    const call& c = o_.request;
    s_.pieces.clear();
    const int peer = actual(i.peer);
    for (int k = 0; k < i.count; ++k) {
        const auto at = static_cast<std::size_t>(i.first + k);
        std::size_t count;
        std::byte* const data = address(o_.mine->operands[at], o_.mine->units[at], count);
        const std::size_t bytes = count * (s_.learning ? 1 : c.element);
        if (!s_.pieces.empty() && s_.pieces.back().data + s_.pieces.back().bytes == data)
            s_.pieces.back().bytes += bytes;  // neighbours are one piece
        else if (bytes > 0)
            s_.pieces.push_back({data, bytes});
    }
    const message_label label{o_.fingerprint, o_.sequence * 2 + s_.learning,
        static_cast<std::uint32_t>(
            o_.chunk * 2654435761u + static_cast<std::size_t>(i.round) * 40503u + static_cast<std::size_t>(i.unit))};
    const int pieces = static_cast<int>(s_.pieces.size());
    if (i.op == opcode::send) {
        const std::uint64_t number = w_.send(peer, label, s_.pieces.data(), pieces);
        s_.sent[slot() * static_cast<std::size_t>(o_.mine->sends) + static_cast<std::size_t>(i.value)] = number;
        s_.last_sent[slot() * static_cast<std::size_t>(e_.size) + static_cast<std::size_t>(peer)] = number + 1;
        if (--s_.to_send[static_cast<std::size_t>(peer)] == 0 && !s_.learning) w_.request_completion(peer);
    } else {
        s_.received[slot() * static_cast<std::size_t>(o_.mine->receives) + static_cast<std::size_t>(i.value)] =
            w_.receive(peer, label, s_.pieces.data(), pieces);
        if (auto& more = s_.to_receive[static_cast<std::size_t>(peer)]; more > 0 && --more == 0 && !s_.learning)
            w_.request_completion(peer);
    }
}

inline void message_executor::copy(const instruction& i) {
    const auto at = static_cast<std::size_t>(i.first);
    std::size_t count, room;
    const std::byte* const from = address(o_.mine->operands[at], i.unit, count);
    std::byte* const to = address(i.to, i.unit, room);
    if (from != to) copy_bytes(to, from, (count < room ? count : room) * (s_.learning ? 1 : o_.request.element));
}

inline void message_executor::fold(const instruction& i) {
    const call& c = o_.request;
    const int first = first_operand(i);
    std::size_t count = 0;
    for (int k = 0; k < i.count; ++k) {
        const location& from = o_.mine->operands[static_cast<std::size_t>(i.first + (k + first) % i.count)];
        o_.operands[k] = {address(from, i.unit, count), from.leaf};
    }
    std::byte* const to = address(i.to, i.unit, count);
    if (count == 0) return;
    c.op->fold(to, o_.operands.data(), i.count, count, c.op_value);
    if (i.finish && c.op->finish) c.op->finish(to, count, e_.size, c.op_value);
}

inline bool message_executor::perform(const instruction& i) {
    switch (i.op) {
        case opcode::send:
        case opcode::receive:
            post(i);
            return true;
        case opcode::arrived: {
            const int peer = actual(i.peer);
            o_.site.peer = peer;
            o_.site.round = i.round;
            return w_.received(peer) > s_.received[slot() * static_cast<std::size_t>(o_.mine->receives) +
                                                   static_cast<std::size_t>(i.value)];
        }
        case opcode::left: {
            const int peer = actual(i.peer);
            o_.site.peer = peer;
            o_.site.round = i.round;
            return left(peer,
                s_.sent[slot() * static_cast<std::size_t>(o_.mine->sends) + static_cast<std::size_t>(i.value)] + 1);
        }
        case opcode::copy:
            copy(i);
            return true;
        case opcode::fold:
            fold(i);
            return true;
        default:
            return true;
    }
}

inline bool message_executor::advance() {
    if (o_.done) return true;
    if (!o_.entered) {
        // Ranks between root and others that pass on others' blocks must know how long those are: the root tells them
        // first.
        const call& c = o_.request;
        if (owned(c.what) && rooted(c.what) && !c.ragged && !p_->own_only && e_.size > 1) {
            s_.learning = true;
            s_.learnt = c.count;
            s_.then = p_;
            p_ = o_.steps = execution_plan_for(count_schedule(), e_.size, reach::nothing);
        }
        o_.entered = true;
        lay_out();
    }
    if (!run()) return false;
    if (s_.learning) {
        s_.learning = false;
        p_ = o_.steps = s_.then;
        take_count();
        lay_out();
        if (!run()) return false;
    }
    if (o_.scratch.at) e_.pieces.push_back(o_.scratch);
    o_.scratch = {};
    o_.done = true;
    return true;
}

inline void message_executor::take_count() {
    call& c = o_.request;
    const std::size_t own =
        balanced(s_.learnt, static_cast<std::size_t>(e_.size), static_cast<std::size_t>(e_.rank)).count;
    o_.site.peer = c.root;
    if (e_.rank != c.root && own != c.own_count)
        fail(e_, errc::mismatch, o_.site,
            message() << "this rank's block has " << c.own_count << " elements, and of the " << s_.learnt << " of rank "
                      << c.root << ", the root, it should have " << own);
    c.count = s_.learnt;
}

inline bool message_executor::run() {
    const call& c = o_.request;
    in_ = c.in;
    out_ = c.out;
    if (s_.learning)
        in_ = out_ = reinterpret_cast<std::byte*>(&s_.learnt);
    else if (c.what == collective::all_to_all && c.in == c.out && c.count > 0)
        in_ = o_.scratch.at + static_cast<std::size_t>(o_.mine->scratch) * s_.under_way * o_.stride;
    const std::size_t segments = static_cast<std::size_t>(p_->rounds) + 1;
    const std::size_t steps = (o_.chunks - 1) * s_.stagger + segments;
    const auto n = static_cast<std::size_t>(e_.size);
    // exit_at: the oldest chunk that is not over; chunk: the one whose turn it is.
    const bool young_first = w_.offloads();
    const auto youngest = [&] { return std::min(s_.step / s_.stagger, o_.chunks - 1); };
    for (; steps > s_.step;
        ++s_.step, o_.chunk = young_first ? youngest() : o_.exit_at) {  // nvcc takes step < for the type
        for (;; o_.chunk = young_first ? o_.chunk - 1 : o_.chunk + 1) {
            const bool last = o_.chunk == (young_first ? o_.exit_at : youngest());
            const std::size_t segment = s_.step - o_.chunk * s_.stagger;
            const auto& ends = o_.mine->segments;
            const std::size_t begin = segment == 0 ? 0 : static_cast<std::size_t>(ends[segment - 1]);
            const std::size_t end =
                segment < ends.size() ? static_cast<std::size_t>(ends[segment]) : o_.mine->body.size();
            if (segment == 0 && o_.chunk >= s_.under_way)  // its scratch slots were another chunk's
                for (std::size_t r = 0; r < n; ++r)
                    if (!left(static_cast<int>(r), s_.last_sent[slot() * n + r])) {
                        o_.site.peer = static_cast<int>(r);
                        return false;
                    }
            for (; begin + o_.at < end; ++o_.at)
                if (!perform(o_.mine->body[begin + o_.at])) {
                    w_.flush();
                    return false;
                }
            w_.flush();  // before the next chunk's folds
            o_.at = 0;
            if (segment + 1 == segments) o_.exit_at = o_.chunk + 1;
            if (last) break;
        }
    }
    o_.chunk = o_.chunks;
    for (std::size_t r = 0; r < n; ++r)
        for (std::size_t k = 0; k < s_.under_way; ++k)
            if (!left(static_cast<int>(r), s_.last_sent[k * n + r])) {
                o_.site.peer = static_cast<int>(r);
                return false;
            }
    return true;
}

}  // namespace colls::inline v1::detail
