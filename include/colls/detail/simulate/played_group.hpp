// The ranks of a group and their transfers, played event by event.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/detail/prove/block_count.hpp>
#include <colls/detail/simulate/event_queue.hpp>
#include <colls/detail/simulate/fair_share.hpp>
#include <colls/simulate.hpp>

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
          topology_(t),
          o_(o),
          members_(static_cast<std::size_t>(n)),
          steps_(static_cast<std::size_t>(ports_)),
          share_(bandwidths(t)) {
        for (member& m : members_) m.round = first;
    }

    simulation::outcome play() {
        for (int r = 0; r < n_; ++r) go_on(r, 0);
        while (!events_.empty()) {
            play_moment();
            if (!share_.settled()) {
                ++out_.settlements;
                share_.settle([&](int number, double rate) { change_rate(number, rate); });
            }
            if (events_.size() > 4 * flows_.size() + 64)
                events_.forget([&](const event& e) { return e.version != numbered(e.number).version; });
        }
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
    struct flow {
        int from = none, to = none;
        double left = 0;  ///< bytes, at time `since`
        double rate = 0, since = 0;
        unsigned version = 0;  ///< of its one event that counts
        bool flows = false;    ///< past its latency
        std::vector<int> route;
    };

    static std::vector<double> bandwidths(const simulation::topology& t) {
        std::vector<double> all;
        for (const simulation::link& l : t.links()) all.push_back(l.bandwidth);
        return all;
    }
    member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }
    flow& numbered(int number) { return flows_[static_cast<std::size_t>(number)]; }

    /// Rank r ends what was before its round at `time`: it begins the first round from there in which it has a peer.
    void go_on(int r, double time) {
        member& m = at(r);
        for (; m.round < last_; ++m.round) {
            m.folded = 0;
            int sends = 0, receives = 0;
            for (int port = 0; port < ports_; ++port) {
                const step& st = steps_[static_cast<std::size_t>(port)] = s_.at(r, n_, m.round, port);
                sends += is_peer(r, st.send.peer);
                receives += is_peer(r, st.recv.peer);
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
            if (is_peer(r, st.send.peer) && meets(r, st.send.peer)) begin(r, st.send.peer, size(st.send.blocks));
            if (is_peer(r, st.recv.peer) && meets(r, st.recv.peer)) begin(st.recv.peer, r, size(st.recv.blocks));
        }
    }
    static bool is_peer(int r, int peer) { return peer != none && peer != r; }
    bool meets(int r, int peer) const {
        const member& p = members_[static_cast<std::size_t>(peer)];
        return p.pending > 0 && p.round == members_[static_cast<std::size_t>(r)].round;
    }
    double size(const block_set& b) const { return block_ * static_cast<double>(size_of(b)); }

    void begin(int from, int to, double bytes) {
        int number = static_cast<int>(flows_.size());
        if (free_.empty()) {
            flows_.emplace_back();
        } else {
            number = free_.back();
            free_.pop_back();
        }
        flow& f = numbered(number);
        f.from = from;
        f.to = to;
        f.left = bytes;
        f.flows = false;
        topology_.route(from, to, f.route);
        double time = std::max(at(from).ready, at(to).ready);
        for (const int l : f.route) time += topology_.links()[static_cast<std::size_t>(l)].latency;
        expect(number, time);
        ++out_.transfers;
    }
    void expect(int number, double time) { events_.add(time, {number, ++numbered(number).version}); }
    /// All events that happen at once, and what follows from them at the same time.
    void play_moment() {
        const double until = events_.time() * (1 + 1e-13) + o_.resolution;
        while (!events_.empty() && events_.time() <= until) {
            const double time = events_.time();
            events_.take(due_);
            for (const event& e : due_) happen(e, time);
        }
    }
    void happen(const event& e, double time) {
        flow& f = numbered(e.number);
        if (e.version != f.version) return;
        now_ = std::max(now_, time);
        if (f.flows || f.left <= 0 || f.route.empty()) return end(e.number, time);
        f.flows = true;
        f.rate = 0;
        f.since = time;
        share_.start(e.number, f.route);
    }
    void end(int number, double time) {
        flow& f = numbered(number);
        if (f.flows) share_.stop(number);
        ++f.version;
        const int ends[] = {f.from, f.to};
        free_.push_back(number);  // from here on f may be another transfer
        for (const int r : ends) {
            member& m = at(r);
            if (--m.pending > 0) continue;
            ++m.round;
            go_on(r, time + o_.gamma * m.folded);
        }
    }
    void change_rate(int number, double rate) {
        flow& f = numbered(number);
        f.left = std::max(0.0, f.left - f.rate * (now_ - f.since));
        f.since = now_;
        f.rate = rate;
        expect(number, now_ + f.left / rate);
    }
    [[noreturn]] void unmatched(int r) {
        message text;
        text << "colls: simulate: rank " << r << " waits in round " << at(r).round
             << " for a transfer that no other rank makes";
        throw error(errc::wrong_schedule, text.text(), r, none, at(r).round);
    }

    const schedule_reader& s_;
    const int n_, ports_, last_;
    const double block_;  // bytes
    const simulation::topology& topology_;
    const simulation::options& o_;
    std::vector<member> members_;
    std::vector<step> steps_;  // of the rank that begins a round, by port
    std::vector<flow> flows_;
    std::vector<int> free_;  // numbers of flows that have ended
    event_queue events_;
    std::vector<event> due_;  // now
    fair_share share_;
    double now_ = 0;
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

inline simulation::outcome played(
    const schedule_reader& s, int n, const simulation::topology& t, double bytes, const simulation::options& o) {
    message text;
    text << "colls: simulate: ";
    if (n < 1 || n > t.ranks())
        text << n << " ranks do not fit on a topology of " << t.ranks();
    else if (!s.supports(n))
        text << "the schedule does not support " << n << " ranks";
    else if (!(bytes >= 0 && o.gamma >= 0 && o.overhead >= 0 && o.resolution >= 0))
        text << "bytes, gamma, overhead and resolution are not negative";
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
