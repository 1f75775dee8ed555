// The ranks of a group as an executor of messages moves them: in chunks, and without waiting for what they send.
// IWYU pragma: private, include <colls/simulate.hpp>
//
// Every rank does the same list of segments, in its order. A segment of a chunk waits for what the chunk receives in
// one round, folds it, and posts the messages of the next one. The messages from one rank to another one follow each
// other.
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/simulate.hpp>
#include <colls/simulate/detail/checks.hpp>
#include <colls/simulate/detail/moving_transfers.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

class played_messages {
public:
    played_messages(
        const schedule_reader& s, int n, const simulation::topology& t, double bytes, const simulation::options& o)
        : s_(s),
          n_(n),
          rounds_(s.rounds(n)),
          ports_(s.ports(n)),
          block_(s.kind() != collective::barrier && s.blocks(n) > 0 ? bytes / s.blocks(n) : 0),
          o_(o),
          members_(static_cast<std::size_t>(n)),
          transfers_(t, o.resolution) {
        list_segments();
    }

    simulation::outcome play() {
        for (int r = 0; r < n_; ++r) go_on(r, 0);
        transfers_.play([&](const transfer_ended& t) {
            channel& c = channels_[{t.from, t.to}];
            c.busy = false;
            c.free_from = t.time;
            begin_next(t.from, t.to, c);
            ++at(t.to).arrived[t.tag];
            go_on(t.to, t.time);
        });
        simulation::outcome out;
        out.transfers = transfers_.begun();
        out.settlements = transfers_.settlements();
        for (int r = 0; r < n_; ++r) {
            const member& m = at(r);
            if (m.next < segments_.size()) unmatched(r, segments_[m.next].round - 1);
            out.finished.push_back(m.ready);
            out.seconds = std::max(out.seconds, m.ready);
        }
        return out;
    }

private:
    /// The round whose messages it posts, after those of the round before have come; the last one posts nothing.
    struct segment {
        int chunk, round;
    };
    struct member {
        std::size_t next = 0;         ///< segment
        double ready = 0;             ///< when it has done the ones before
        std::map<long, int> arrived;  ///< messages, by chunk and round
    };
    struct post {
        double bytes, time;
        long tag;
    };
    /// From one rank to another one.
    struct channel {
        std::deque<post> waiting;
        bool busy = false;
        double free_from = 0;
    };

    member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }
    long tag_of(int chunk, int round) const { return static_cast<long>(chunk) * (rounds_ + 1) + round; }
    /// Bytes of the blocks' parts in that chunk.
    double bytes_of(const block_set& b, int chunk) const {
        const double part = o_.chunk > 0 ? std::min(o_.chunk, block_ - chunk * o_.chunk) : block_;
        return part * static_cast<double>(size_of(b));
    }

    /// Chunk c is in the segment t - c * stagger at step t: at most options.under_way of them at once, older ones
    /// first.
    void list_segments() {
        const int segments = rounds_ + 1, stagger = rounds_ / o_.under_way + 1;
        const double parts = o_.chunk > 0 && block_ > o_.chunk ? std::ceil(block_ / o_.chunk) : 1;
        constexpr double most = 1 << 24;
        error_text text;
        if (parts * segments > most)
            throw error(errc::invalid_argument, text << "colls: simulate: with options.chunk a block has " << parts
                                                     << " parts, which is more than can be simulated");
        const int chunks = static_cast<int>(parts);
        for (int step = 0; step < (chunks - 1) * stagger + segments; ++step)
            for (int c = std::max(0, (step - segments) / stagger); c < chunks && c * stagger <= step; ++c)
                if (step - c * stagger < segments) segments_.push_back({c, step - c * stagger});
    }
    /// Rank r does what it can without waiting.
    void go_on(int r, double time) {
        member& m = at(r);
        for (; m.next < segments_.size(); ++m.next) {
            const auto [chunk, round] = segments_[m.next];
            double folded = 0;
            if (round > 0) {
                int expected = 0;
                for (int port = 0; port < ports_; ++port) {
                    const receive_part from = s_.at(r, n_, round - 1, port).recv;
                    expected += is_peer(r, from.peer, n_);
                    if (from.peer != none && from.action == action::reduce) folded += bytes_of(from.blocks, chunk);
                }
                const auto found = m.arrived.find(tag_of(chunk, round - 1));
                if (expected > 0) {
                    if (found == m.arrived.end() || found->second < expected) return;
                    m.arrived.erase(found);
                    m.ready = std::max(m.ready, time);
                }
            }
            m.ready += o_.gamma * folded;
            if (round < rounds_) post_round(r, m, chunk, round);
        }
    }
    void post_round(int r, member& m, int chunk, int round) {
        int sends = 0, receives = 0;
        for (int port = 0; port < ports_; ++port) {
            const step st = s_.at(r, n_, round, port);
            sends += is_peer(r, st.send.peer, n_);
            receives += is_peer(r, st.recv.peer, n_);
        }
        if (sends + receives == 0) return;
        m.ready += o_.overhead * std::max(sends, receives) + (o_.late && chunk == 0 ? o_.late(r, round) : 0);
        for (int port = 0; port < ports_; ++port) {
            const send_part to = s_.at(r, n_, round, port).send;
            if (!is_peer(r, to.peer, n_)) continue;
            channel& c = channels_[{r, to.peer}];
            c.waiting.push_back({bytes_of(to.blocks, chunk), m.ready, tag_of(chunk, round)});
            begin_next(r, to.peer, c);
        }
    }
    void begin_next(int from, int to, channel& c) {
        if (c.busy || c.waiting.empty()) return;
        const post p = c.waiting.front();
        c.waiting.pop_front();
        c.busy = true;
        transfers_.begin(from, to, p.bytes, p.time, c.free_from, p.tag);
    }
    [[noreturn]] void unmatched(int r, int round) {
        error_text text;
        text << "colls: simulate: rank " << r << " waits in round " << round
             << " for a transfer that no other rank makes";
        throw error(errc::wrong_schedule, text.text(), r, none, round);
    }

    const schedule_reader& s_;
    const int n_, rounds_, ports_;
    const double block_;  // bytes
    const simulation::options& o_;
    std::vector<segment> segments_;
    std::vector<member> members_;
    std::map<std::pair<int, int>, channel> channels_;
    moving_transfers<simulation::topology> transfers_;
};

inline simulation::outcome played_buffered(
    const schedule_reader& s, int n, const simulation::topology& t, double bytes, const simulation::options& o) {
    return played_messages(s, n, t, bytes, o).play();
}

}  // namespace colls::inline v1::detail
