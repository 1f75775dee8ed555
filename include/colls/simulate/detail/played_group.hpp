// The ranks of a group and their transfers, played event by event.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/simulate.hpp>
#include <colls/simulate/detail/checks.hpp>
#include <colls/simulate/detail/moving_transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

namespace colls::inline v1::detail {

/// Plays rounds first ... last - 1 of a schedule, with all ranks ready at time 0.
class played_group {
public:
    played_group(const schedule_reader& s, int n, const simulation::topology& t, double bytes,
        const simulation::options& o, int first, int last)
        : s_(s),
          n_(n),
          ports_(s.ports(n)),
          last_(last),
          block_(s.kind() != collective::barrier && s.blocks(n) > 0 ? bytes / s.blocks(n) : 0),
          o_(o),
          members_(static_cast<std::size_t>(n)),
          steps_(static_cast<std::size_t>(ports_)),
          transfers_(t, o.resolution) {
        for (member& m : members_) m.round = first;
    }

    simulation::outcome play() {
        for (int r = 0; r < n_; ++r) go_on(r, 0);
        transfers_.play([&](const transfer_ended& t) {
            for (const int r : {t.from, t.to}) {
                member& m = at(r);
                if (--m.pending > 0) continue;
                ++m.round;
                go_on(r, t.time + o_.gamma * m.folded);
            }
        });
        out_.transfers = transfers_.begun();
        out_.settlements = transfers_.settlements();
        out_.finished.resize(members_.size());
        for (int r = 0; r < n_; ++r) {
            const member& m = members_[static_cast<std::size_t>(r)];
            if (m.round < last_) unmatched(r);
            out_.finished[static_cast<std::size_t>(r)] = m.ready;
            out_.seconds = std::max(out_.seconds, m.ready);
        }
        return out_;
    }

private:
    struct member {
        int round = 0;
        int pending = 0;    ///< transfers that are not done; 0: it is not in the round yet
        double ready = 0;   ///< when it can begin the round's transfers; in the end when it is done
        double folded = 0;  ///< bytes to be folded at the end of the round
    };
    member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }

    /// Rank r ends what was before its round at `time`: it begins the first round from there in which it has a peer.
    void go_on(int r, double time) {
        member& m = at(r);
        for (; m.round < last_; ++m.round) {
            m.folded = 0;
            int sends = 0, receives = 0;
            for (int port = 0; port < ports_; ++port) {
                const step& st = steps_[static_cast<std::size_t>(port)] = s_.at(r, n_, m.round, port);
                sends += is_peer(r, st.send.peer, n_);
                receives += is_peer(r, st.recv.peer, n_);
                if (st.recv.peer != none && st.recv.action == action::reduce) m.folded += size(st.recv.blocks);
            }
            if (sends + receives > 0) {
                m.pending = sends + receives;
                m.ready = time + o_.overhead * std::max(sends, receives) + (o_.late ? o_.late(r, m.round) : 0);
                return meet_peers(r);
            }
            time += o_.gamma * m.folded;
        }
        m.ready = time;
    }
    /// Begins the transfers whose other rank is in the round already. The other ones begin when that rank comes.
    void meet_peers(int r) {
        for (const step& st : steps_) {
            if (is_peer(r, st.send.peer, n_) && meets(r, st.send.peer)) begin(r, st.send.peer, size(st.send.blocks));
            if (is_peer(r, st.recv.peer, n_) && meets(r, st.recv.peer)) begin(st.recv.peer, r, size(st.recv.blocks));
        }
    }
    bool meets(int r, int peer) const {
        const member& p = members_[static_cast<std::size_t>(peer)];
        return p.pending > 0 && p.round == members_[static_cast<std::size_t>(r)].round;
    }
    double size(const block_set& b) const { return block_ * static_cast<double>(size_of(b)); }

    void begin(int from, int to, double bytes) {
        transfers_.begin(from, to, bytes, std::max(at(from).ready, at(to).ready));
    }
    [[noreturn]] void unmatched(int r) {
        error_text text;
        text << "colls: simulate: rank " << r << " waits in round " << at(r).round
             << " for a transfer that no other rank makes";
        throw error(errc::wrong_schedule, text.text(), r, none, at(r).round);
    }

    const schedule_reader& s_;
    const int n_, ports_, last_;
    const double block_;  // bytes
    const simulation::options& o_;
    std::vector<member> members_;
    std::vector<step> steps_;  // of the rank that begins a round, by port
    moving_transfers<simulation::topology> transfers_;
    simulation::outcome out_;
};

/// What rank r does in a round, with peers relative to it: (peer sent to, blocks, peer received from, blocks reduced).
using round_shape = std::vector<std::tuple<int, long, int, long>>;

inline round_shape shape_of(const schedule_reader& s, int n, int round, int r) {
    round_shape shape;
    for (int port = 0; port < s.ports(n); ++port) {
        const step st = s.at(r, n, round, port);
        const auto offset = [&](int peer) { return peer == none ? none : mod(peer - r, n); };
        shape.emplace_back(offset(st.send.peer), st.send.peer == none ? 0 : size_of(st.send.blocks),
            offset(st.recv.peer), st.recv.action == action::reduce ? size_of(st.recv.blocks) : 0);
    }
    return shape;
}

/// With a barrier between rounds: the sum of what they take, each played alone. Where all ranks do the same, rounds of
/// one shape take the same time.
inline simulation::outcome played_in_step(
    const schedule_reader& s, int n, const simulation::topology& t, double bytes, const simulation::options& o) {
    std::map<round_shape, simulation::outcome> known;
    simulation::outcome sum, one;
    const simulation::outcome* last = &one;
    for (int round = 0; round < s.rounds(n); ++round) {
        round_shape shape;
        if (o.symmetric && !o.late) {
            shape = shape_of(s, n, round, 0);
            for (const int r : {n / 2, n - 1})
                if (shape_of(s, n, round, r) != shape)
                    throw error(errc::wrong_schedule,
                        "colls: simulate: options.symmetric is set, but not all ranks do the same", r, none, round);
            if (const auto found = known.find(shape); found != known.end()) {
                sum.seconds += found->second.seconds;
                last = &found->second;
                continue;
            }
        }
        one = played_group(s, n, t, bytes, o, round, round + 1).play();
        sum.seconds += one.seconds;
        sum.transfers += one.transfers;
        sum.settlements += one.settlements;
        last = !shape.empty() ? &(known[shape] = one) : &one;
    }
    sum.finished = last->finished;
    sum.finished.resize(static_cast<std::size_t>(n));
    for (double& finished : sum.finished) finished += sum.seconds - last->seconds;
    return sum;
}

inline simulation::outcome played_buffered(const schedule_reader& s, int n, const simulation::topology& t, double bytes,
    const simulation::options& o);  // played_messages.hpp

inline simulation::outcome played(
    const schedule_reader& s, int n, const simulation::topology& t, double bytes, const simulation::options& o) {
    error_text text;
    text << "colls: simulate: ";
    if (n < 1 || n > t.ranks())
        text << n << " ranks do not fit on a topology of " << t.ranks();
    else if (!s.supports(n))
        text << "the schedule does not support " << n << " ranks";
    else if (!(bytes >= 0 && o.gamma >= 0 && o.overhead >= 0 && o.resolution >= 0))
        text << "bytes, gamma, overhead and resolution are not negative";
    else if (!(o.chunk >= 0 && o.under_way >= 1))
        text << "options.chunk is not negative, and options.under_way is 1 or more";
    else if (o.buffered ? o.in_step : o.chunk > 0)
        text << (o.buffered ? "options.buffered knows no options.in_step" : "options.chunk needs options.buffered");
    else if (o.buffered)
        return played_buffered(s, n, t, bytes, o);
    else
        return o.in_step ? played_in_step(s, n, t, bytes, o) : played_group(s, n, t, bytes, o, 0, s.rounds(n)).play();
    throw error(errc::invalid_argument, text.text());
}

}  // namespace colls::inline v1::detail

namespace colls::inline v1::simulation {

template <class S>
outcome simulate(const S& s, int n, const topology& t, double bytes, const options& o) {
    return detail::played(detail::reader_of<S>(s), n, t, bytes, o);
}

}  // namespace colls::inline v1::simulation
