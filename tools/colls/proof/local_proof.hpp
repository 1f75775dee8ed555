// The proof by local conditions: each rank's own steps, and those of its peers in the same rounds, are checked against
// conditions that imply the laws of verify.hpp (docs/proof.md has the theorems). No sets of contributions are kept, so
// that one rank takes O(steps + blocks moved), and a schedule that translates by construction is proven by rank 0.
//
// The conditions are sufficient, not necessary: what does not meet them is refused, and may still be right.
#pragma once

#include <colls/algebra/synchronising.hpp>
#include <colls/detail/prove/reader.hpp>
#include <proof/translates.hpp>

#include <new>
#include <string>

namespace colls::inline v1::detail {

/// What a proof by local conditions has found: where the first condition that is not met is, and which it is.
struct local_finding {
    const char* refused = nullptr;  ///< null: proven
    int n = 0, rank = none, round = none, port = none, block = none;

    constexpr bool proven() const { return refused == nullptr; }
    /// The finding in words.
    std::string text() const {
        if (proven()) return "proven";
        std::string t = "not proven by local conditions: ";
        const auto put = [&t](const char* what, int number) {
            if (number != none) t += what + std::to_string(number) + ", ";
        };
        put("group of ", n);
        put("rank ", rank);
        put("round ", round);
        put("port ", port);
        put("block ", block);
        return t + refused;
    }
};

/// Proves a schedule at one group size after another; its memory is kept between them.
class local_conditions {
public:
    /// s must outlive this.
    explicit local_conditions(const schedule_reader& s)
        : s_(s), kind_(s.kind()), combines_(reduces(kind_)), barrier_(kind_ == collective::barrier) {}

    /// Proven, or refused. `one`: every rank does what rank 0 does, translated, and so do slots as `motion` says: then
    /// in O(steps of a rank + blocks moved by a rank); else n times that. Collectives: all but scans and redistribute;
    /// all_to_all and barrier only with `one`.
    local_finding at(int n, bool one, slot_motion motion) {
        found_ = {.refused = "not examined", .n = n};
        n_ = n;
        one_ = one;
        motion_ = motion;
        return examine() ? local_finding{.n = n} : found_;
    }

private:
    /// A slot in a reduction is open until its partial result is sent on, then spent. It is full once it holds the
    /// result (of a reduction, or what it is to hold).
    enum class state : unsigned char { absent, open, spent, full };

    bool refuse(const char* why, int port = none, int block = none) {
        found_.refused = why;
        found_.rank = rank_;
        found_.round = round_;
        found_.port = port;
        found_.block = block;
        return false;
    }

    bool examine() {
        rank_ = round_ = none;
        if (n_ < 1 || !s_.supports(n_)) return refuse("the schedule does not support this group size");
        rounds_ = s_.rounds(n_);
        ports_ = s_.ports(n_);
        blocks_ = barrier_ ? 0 : s_.blocks(n_);
        if (rounds_ < 0 || ports_ < 1 || blocks_ < 0) return refuse("an extent is negative");
        if (s_.scratch(n_) != 0) return refuse("slots other than blocks are not represented");
        if (is_scan(kind_) || kind_ == collective::redistribute) return refuse("this collective is not represented");
        steps_.need(ports_);
        if (owned(kind_) && !read_homes()) return false;
        if (one_ && motion_ == slot_motion::follows_rank && !barrier_ && blocks_ != n_)
            return refuse("slots that follow the rank must be as many as the ranks");
        if (barrier_) return hears_all();
        if (kind_ == collective::all_to_all) return exchanges();
        if (kind_ == collective::all_reduce && one_ && motion_ == slot_motion::stays) return combines_at_once();
        return grows_trees();
    }

    bool read_homes() {
        home_.need(blocks_);
        seen_.need(n_);
        for (int r = 0; r < n_; ++r) seen_.p[r] = 0;
        for (int x = 0; x < blocks_; ++x) {
            const int h = home_.p[x] = s_.home(n_, x);
            if (h < 0 || h >= n_) return refuse("a block has no rank that owns it", none, x);
            if (one_ && h != x) return refuse("the owners of blocks are not translated with the ranks", none, x);
            seen_.p[h] = 1;
        }
        if (one_ && motion_ == slot_motion::stays) return refuse("owned slots follow the rank");
        for (int r = 0; r < n_; ++r)
            if (seen_.p[r] == 0) return refuse("a rank owns no block");
        return true;
    }

    // Law 2, and what it takes of law 1. `same_slots`: each block arrives in the slot from which it was sent. What a
    // peer does is, where s translates, what rank 0 does, translated.
    bool read_step(int port, bool same_slots) {
        const step& now = *new (static_cast<void*>(steps_.p + port)) step(s_.at(rank_, n_, round_, port));
        for (const int peer : {now.send.peer, now.recv.peer})
            if (peer < none || peer >= n_ || peer == rank_) return refuse("a peer is not another rank", port);
        if (one_ && motion_ == slot_motion::follows_rank)
            for (const block_set* b : {&now.send.blocks, &now.recv.blocks})
                if (!translatable(*b, n_) || (!b->empty() && (b->first < 0 || b->first >= n_)))
                    return refuse("blocks that follow the rank are one block, or a set modulo n", port);
        if (!in_range(now.send.blocks)) return refuse("a send names a block that does not exist", port);
        if (!in_range(now.recv.blocks)) return refuse("a receive names a block that does not exist", port);
        if (one_) return meets(now, port, same_slots);
        if (now.send.peer != none) {
            const step there = s_.at(now.send.peer, n_, round_, port);
            if (there.recv.peer != rank_) return refuse("a send meets no receive", port);
            reduced_there_ = there.recv.action == action::reduce;
            if (!in_range(there.recv.blocks)) return refuse("a receive names a block that does not exist", port);
            if (!fits(now.send.blocks, there.recv.blocks, there.recv.blocks.first, same_slots))
                return refuse("the blocks sent are not those received", port);
        }
        return now.recv.peer == none || s_.at(now.recv.peer, n_, round_, port).send.peer == rank_ ||
               refuse("a receive meets no send", port);
    }
    // By symmetry, the receive that a send meets is this rank's own, translated to the peer: so both take place, or
    // none.
    bool meets(const step& now, int port, bool same_slots) {
        const int to = now.send.peer, from = now.recv.peer;
        if (to == none && from == none) return true;
        if (from == none || to == none || translated(from, to, n_) != 0)
            return refuse(to == none ? "a receive meets no send" : "a send meets no receive", port);
        reduced_there_ = now.recv.action == action::reduce;
        return fits(now.send.blocks, now.recv.blocks, translated_first(now.recv.blocks, to, n_, motion_), same_slots) ||
               refuse("the blocks sent are not those received", port);
    }
    bool in_range(const block_set& b) const {
        if (barrier_) return b.count == 0;
        return single(b) || well_formed(b, blocks_);
    }
    /// Whether the blocks sent are those received; the latter begin at `first`.
    bool fits(const block_set& here, const block_set& there, int first, bool same_slots) {
        if (here.first == first && here.count == there.count && here.modulus == there.modulus &&
            here.run == there.run && here.period == there.period && here.base == there.base &&
            here.grain == there.grain && here.reps == there.reps && here.stride == there.stride)
            return true;
        if (!same_slots) return (here.empty() ? 0 : here.size()) == (there.empty() ? 0 : there.size());
        block_set moved = there;
        moved.first = first;
        const int count = expanded(here, list_);
        if (count != expanded(moved, other_)) return false;
        for (int j = 0; j < count; ++j)
            if (list_.p[j] != other_.p[j]) return false;
        return true;
    }
    static int expanded(const block_set& b, buffer<int>& to) {
        const int count = b.empty() ? 0 : b.size();
        to.need(count);
        expand(b, to.p);
        return count;
    }
    /// Calls f(slot) for each block while it returns true. Blocks out of range are refused.
    template <class F>
    bool each(const block_set& b, int port, F f) {
        const auto one = [&](int x) {
            return x < 0 || x >= blocks_ ? refuse("a block does not exist", port, x) : f(state_.p[x], x);
        };
        if (single(b)) {
            int x = b.first;
            if (b.modulus > 0 && (x < 0 || x >= b.modulus)) x = mod(x, b.modulus);
            return one(b.base + x);
        }
        const int count = expanded(b, list_);
        for (int j = 0; j < count; ++j)
            if (!one(list_.p[j])) return false;
        return true;
    }

    // ---- reductions and distributions: for each block, its transfers are a tree ----

    bool grows_trees() {
        if (one_ && rooted(kind_)) return refuse("with a root, the ranks do not all do the same");
        const int ranks = one_ ? 1 : n_;
        root_ = s_.root(n_);
        if (root_ < 0 || root_ >= n_) return refuse("the root is not a rank");
        state_.need(blocks_);
        ends_.need(blocks_);
        unsent_.need(blocks_);
        for (int x = 0; x < blocks_; ++x) ends_.p[x] = 0;
        for (rank_ = 0; rank_ < ranks; ++rank_) {
            begin();
            for (round_ = 0; round_ < rounds_; ++round_)
                if (!play_round()) return false;
            round_ = none;
            if (!ends_well()) return false;
        }
        rank_ = none;
        if (!combines_) return true;
        int ends = 0;
        for (int x = 0; x < blocks_; ++x) {
            ends += ends_.p[x];
            if (!one_ && ends_.p[x] != 1) return refuse("its contributions do not all end at one rank", none, x);
        }
        // Translated, the slots of rank 0 are the ranks that hold one block.
        return !one_ || ends == 1 || refuse("the contributions to a block do not all end at one rank");
    }
    void begin() {
        for (int x = 0; x < blocks_; ++x) {
            unsent_.p[x] = 1;
            const bool holds = kind_ == collective::broadcast || kind_ == collective::scatter ? rank_ == root_
                               : owned(kind_)                                                 ? home_.p[x] == rank_
                                                                                              : false;
            state_.p[x] = combines_ ? state::open : holds ? state::full : state::absent;
        }
    }
    // All sends see the slots as they were before the round; copies come before reductions.
    bool play_round() {
        bool receives[2] = {};
        for (int port = 0; port < ports_; ++port) {
            if (!read_step(port, true)) return false;
            const step& now = steps_.p[port];
            if (now.recv.peer != none) receives[now.recv.action == action::reduce] = true;
            if (now.send.peer != none && !(reduced_there_ ? passes_on(now, port) : shares(now, port))) return false;
        }
        for (const action what : {action::copy, action::reduce})
            for (int port = 0; receives[what == action::reduce] && port < ports_; ++port) {
                const receive_part& r = steps_.p[port].recv;
                if (r.peer != none && r.action == what &&
                    !(what == action::copy ? fills(r, port) : combines_in(r, port)))
                    return false;
            }
        return true;
    }
    bool passes_on(const step& now, int port) {
        return each(now.send.blocks, port, [&](state& is, int x) {
            if (is != state::open) return refuse("a partial result is sent twice, or where there is none", port, x);
            is = state::spent;
            unsent_.p[x] = 0;
            return true;
        });
    }
    bool shares(const step& now, int port) {
        return each(now.send.blocks, port, [&](state& is, int x) {
            if (is == state::open) is = state::full;  // the end of the tree, where no more arrives
            return is == state::full || refuse("a result is sent by a rank that does not hold it", port, x);
        });
    }
    bool fills(const receive_part& r, int port) {
        return each(r.blocks, port, [&](state& is, int x) {
            if (is != state::absent && is != state::spent)
                return refuse("a result arrives where there is one, or a partial result not sent on", port, x);
            is = state::full;
            return true;
        });
    }
    bool combines_in(const receive_part& r, int port) {
        return each(r.blocks, port, [&](state& is, int x) {
            return is == state::open || refuse("a contribution arrives in a slot that has been sent on", port, x);
        });
    }
    bool ends_well() {
        for (int x = 0; x < blocks_; ++x) {
            ends_.p[x] += unsent_.p[x];
            const bool wanted = kind_ == collective::reduce || kind_ == collective::gather ? rank_ == root_
                                : kind_ == collective::reduce_scatter || kind_ == collective::scatter
                                    ? home_.p[x] == rank_
                                    : true;
            if (wanted && state_.p[x] != state::full && !(combines_ && state_.p[x] == state::open))
                return refuse("the result does not arrive", none, x);
        }
        return true;
    }

    // ---- one block that every rank receives from every other in one round ----

    bool combines_at_once() {
        if (blocks_ != 1) return refuse("several blocks that do not follow the rank are not represented");
        state_.need(1);
        seen_.need(n_);
        for (int r = 0; r < n_; ++r) seen_.p[r] = 0;
        rank_ = 0;
        int heard = 0, in_round = none;
        for (round_ = 0; round_ < rounds_; ++round_)
            for (int port = 0; port < ports_; ++port) {
                if (!read_step(port, true)) return false;
                const receive_part& got = steps_.p[port].recv;
                if (got.peer == none || got.blocks.empty()) continue;
                if (got.action != action::reduce) return refuse("a copy replaces a contribution", port);
                if (in_round != none && in_round != round_) return refuse("contributions arrive in two rounds", port);
                if (seen_.p[got.peer] != 0) return refuse("a rank contributes twice", port);
                if (!each(got.blocks, port, [](state&, int) { return true; })) return false;
                seen_.p[got.peer] = 1;
                in_round = round_;
                ++heard;
            }
        round_ = none;
        return heard == n_ - 1 || refuse("a contribution does not arrive");
    }

    // ---- all_to_all: where each block of rank 0 comes from, and where it must go ----

    bool exchanges() {
        if (!one_) return refuse("an all_to_all that is not symmetric by construction is not represented");
        if (blocks_ != n_) return refuse("an all_to_all with several blocks for a rank is not represented");
        rank_ = 0;
        source_.need(n_), to_.need(n_), seen_.need(n_), copied_.need(n_);
        for (int x = 0; x < n_; ++x) seen_.p[x] = 0;
        for (int x = 0; x < n_; ++x) {
            const int to = s_.input(0, n_, x);
            if (to < 0 || to >= n_ || seen_.p[to] != 0) return refuse("no block, or two, for a rank", none, x);
            seen_.p[to] = 1;
            to_.p[x] = to;
            source_.p[x] = 0;
            copied_.p[x] = none;
        }
        for (round_ = 0; round_ < rounds_; ++round_) {
            int staged = 0;
            for (int port = 0; port < ports_; ++port) {
                if (!read_step(port, false)) return false;
                const receive_part& got = steps_.p[port].recv;
                const int from = got.peer;
                if (from == none || got.blocks.empty()) continue;
                if (got.action != action::copy) return refuse("blocks of an all_to_all are combined", port);
                // What arrives is what rank 0 sends, translated to the rank that sends it.
                const int count = expanded(got.blocks, list_);
                expanded(steps_.p[port].send.blocks, other_);
                staged_slot_.need(staged + count, staged);
                staged_source_.need(staged + count, staged);
                staged_to_.need(staged + count, staged);
                for (int j = 0; j < count; ++j, ++staged) {
                    const int y = list_.p[j], x = other_.p[j];
                    if (y < 0 || y >= n_ || x < 0 || x >= n_) return refuse("a block does not exist", port, y);
                    if (copied_.p[y] == round_) return refuse("two blocks arrive in one slot", port, y);
                    copied_.p[y] = round_;
                    staged_slot_.p[staged] = y;
                    staged_source_.p[staged] = translated(source_.p[x], from, n_);
                    staged_to_.p[staged] = translated(to_.p[x], from, n_);
                }
            }
            for (int j = 0; j < staged; ++j) {
                source_.p[staged_slot_.p[j]] = staged_source_.p[j];
                to_.p[staged_slot_.p[j]] = staged_to_.p[j];
            }
        }
        round_ = none;
        for (int x = 0; x < n_; ++x) {
            if (to_.p[x] != 0) return refuse("a slot holds a block for another rank", none, x);
            if (source_.p[x] != s_.output(0, n_, x)) return refuse("a slot holds the block of another rank", none, x);
            if (seen_.p[source_.p[x]] == 2) return refuse("two slots hold blocks of one rank", none, x);
            seen_.p[source_.p[x]] = 2;
        }
        return true;
    }

    // ---- barrier: the ranks that rank 0 depends on are those from -heard + 1 to 0 ----

    bool hears_all() {
        if (!one_) return refuse("a barrier that is not symmetric by construction is not represented");
        rank_ = 0;
        long heard = 1;
        for (round_ = 0; round_ < rounds_; ++round_) {
            const long before = heard;
            for (int port = 0; port < ports_; ++port) {
                if (!read_step(port, true)) return false;
                if (steps_.p[port].recv.peer == none) continue;
                const long back = n_ - steps_.p[port].recv.peer;
                if (back > heard) return refuse("the ranks heard of are not an interval", port);
                if (back + before > heard) heard = back + before < n_ ? back + before : n_;
            }
        }
        round_ = none;
        return heard == n_ || refuse("rank 0 does not hear of every rank");
    }

    const schedule_reader& s_;
    const collective kind_;
    const bool combines_, barrier_;
    slot_motion motion_ = slot_motion::stays;
    int n_ = 0, rounds_ = 0, ports_ = 0, blocks_ = 0, root_ = 0, rank_ = none, round_ = none;
    bool one_ = false, reduced_there_ = false;
    local_finding found_;
    buffer<state> state_;
    buffer<step> steps_;
    buffer<unsigned char> unsent_;
    buffer<int> home_, ends_, seen_, list_, other_;
    buffer<int> source_, to_, copied_, staged_slot_, staged_source_, staged_to_;
};

/// What is proven of S: S itself, or of a synchronising<S> the inner schedule, whose messages it sends, and after which
/// each rank depends on every other.
template <class S>
struct locally_proven {
    using type = S;
    static constexpr const S& of(const S& s) { return s; }
};
template <class S>
struct locally_proven<synchronising<S>> {
    using type = S;
    static constexpr S of(const synchronising<S>& s) { return s.inner(); }
};

/// The proof of S by local conditions, from rank 0 where its type says that it translates.
template <class S>
class local_proof {
    using proven = typename locally_proven<S>::type;
    using translation = translation_of<proven>;

public:
    explicit local_proof(const S& s = {}) : s_(locally_proven<S>::of(s)) {}
    local_proof(const local_proof&) = delete;
    local_proof& operator=(const local_proof&) = delete;

    /// Whether the steps of rank 0 prove all ranks.
    static constexpr bool from_rank_0() { return translation::holds; }
    /// As local_conditions::at.
    local_finding at(int n) {
        return conditions_.at(n, translation::holds && translation::at(s_, n), translation::motion);
    }

private:
    const proven s_;
    const reader_of<proven> reader_{s_};
    local_conditions conditions_{reader_};
};

}  // namespace colls::inline v1::detail
