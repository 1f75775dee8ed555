// One transport made of two: through memory to the ranks of this host, over the net to the others.
//
// Each peer is reached by one of them, always the same, so the numbers of messages are that transport's own. News of a
// peer count whichever way they come; only that it leaves must come the way of its messages, for it is heard behind
// them. A peer's end may be seen both ways, and is reported once.
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/transport/vocabulary.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace colls::inline v1::detail {

class routed_transport final : public message_transport {
public:
    /// `near_ranks`: of each rank of the group its number on `near`, or `none` where `far` reaches it, whose numbers
    /// are the group's. `rank` is this one's own, and is on both. Throws std::bad_alloc.
    routed_transport(int rank, const std::vector<int>& near_ranks, std::unique_ptr<message_transport> near,
        std::unique_ptr<message_transport> far)
        : peers_(near_ranks.size()),
          near_(*this, std::move(near), near_ranks.size()),
          far_(*this, std::move(far), near_ranks.size()) {
        for (std::size_t r = 0; r < near_ranks.size(); ++r) {
            const bool is_near = near_ranks[r] != none;
            side& s = is_near ? near_ : far_;
            peers_[r].on = &s;
            peers_[r].number = is_near ? near_ranks[r] : static_cast<int>(r);
            s.others += static_cast<int>(r) != rank;
            if (is_near) near_.ranks[static_cast<std::size_t>(near_ranks[r])] = static_cast<int>(r);
            far_.ranks[r] = static_cast<int>(r);
        }
    }
    routed_transport(const routed_transport&) = delete;
    routed_transport& operator=(const routed_transport&) = delete;
    /// As its transports', one after the other: two seconds at most.
    ~routed_transport() override {
        near_.way->linger = far_.way->linger = linger;
        near_.way.reset();
        far_.way.reset();
    }

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        end& e = note(peer);
        const std::uint64_t number = e.on->way->send(e.number, label, pieces, count);
        e.sends = number + 1;
        return number;
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        end& e = note(peer);
        const std::uint64_t number = e.on->way->receive(e.number, label, pieces, count);
        e.receives = number + 1;
        return number;
    }
    void flush() override { far_.way->flush(); }  // what goes through memory has gone
    void request_completion(int peer) override { with(peer).on->way->request_completion(with(peer).number); }
    std::uint64_t sent(int peer) const override { return with(peer).on->way->sent(with(peer).number); }
    std::uint64_t received(int peer) const override { return with(peer).on->way->received(with(peer).number); }
    bool offloads() const override { return far_.way->offloads(); }
    void abandon() override {
        abandoned_ = true;
        for (side* s : {&near_, &far_}) {
            s->way->abandon();
            while (!s->busy.empty()) forget(*s, 0);
        }
    }

    bool tell(int peer, const control_message& what) override {
        return with(peer).on->way->tell(with(peer).number, what);
    }
    void tell_all(const control_message& what) override {
        near_.way->tell_all(what);
        far_.way->tell_all(what);
    }

    /// While only ranks of this host are waited for, the net is looked at less often: that costs as much as a small
    /// message.
    void progress() override {
        if (near_.others > 0) serve(near_);
        if (far_.others > 0 && (near_.busy.empty() || !far_.busy.empty() || ++turns_ % 16 == 0)) serve(far_);
    }
    /// Nothing wakes it for both: where both have others, it yields at first, and then sleeps on the net's, for 50 us
    /// at most while something is to come through memory, and for a millisecond otherwise.
    void idle(double seconds) override {
        if (near_.others == 0) return far_.way->idle(seconds);
        if (far_.others == 0) return near_.way->idle(seconds);
        if (near_.busy.empty()) return far_.way->idle(std::min(seconds, 1e-3));
        if (++quiet_ > 32) return far_.way->idle(std::min(seconds, 50e-6));
        near_.way->idle(std::min(seconds, 10e-6));
        if (!far_.busy.empty()) far_.way->idle(0);
    }

private:
    /// One of the two, and its listener.
    struct side final : message_transport::listener {
        side(routed_transport& whole, std::unique_ptr<message_transport>&& w, std::size_t n)
            : of(whole), way(std::move(w)), ranks(n, none) {
            way->listening = this;
            busy.reserve(n);
        }
        routed_transport& of;
        std::unique_ptr<message_transport> way;
        std::vector<int> ranks;  // in the group, of its numbers
        list<int> busy;          // ranks from or to which something is to come
        int others = 0;          // how many ranks it is the way to

        void heard(int number, const control_message& what) override {
            const int r = rank_of(number);
            if (r == none || (what.what == control_kind::leave && (of.with(r).on != this || of.ends(r)))) return;
            of.quiet_ = 0;
            if (of.listening) of.listening->heard(r, what);
        }
        void lost(int number, const char* why) override {
            const int r = rank_of(number);
            if (r == none || of.ends(r)) return;
            if (of.listening) of.listening->lost(r, why);
        }
        void failed(int number, const char* why) override {
            const int r = rank_of(number);
            if (r != none && of.listening) of.listening->failed(r, why);
        }
        void unexpected(int number, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
            std::size_t got_bytes) override {
            const int r = rank_of(number);
            if (r != none && of.listening) of.listening->unexpected(r, wanted, got, wanted_bytes, got_bytes);
        }
        int rank_of(int number) const {
            const auto i = static_cast<std::size_t>(number);
            return number >= 0 && i < ranks.size() ? ranks[i] : none;
        }
    };
    struct end {
        side* on = nullptr;
        int number = none;                      // there
        std::uint64_t sends = 0, receives = 0;  // posted
        bool listed = false;                    // in busy
        bool over = false;                      // it has left or is lost, and that has been said
    };

    end& with(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    const end& with(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
    end& note(int peer) {
        end& e = with(peer);
        if (!e.listed && !e.over && !abandoned_) {
            e.listed = true;
            e.on->busy.push_back(peer);
        }
        return e;
    }
    // True: it had ended before.
    bool ends(int peer) {
        const bool before = with(peer).over;
        with(peer).over = true;
        return before;
    }
    void forget(side& s, std::size_t i) {
        with(s.busy[i]).listed = false;
        s.busy.drop(i);
    }
    void serve(side& s) {
        s.way->progress();
        for (std::size_t i = 0; i < s.busy.size();) {
            const end& e = with(s.busy[i]);
            if (e.over || (s.way->sent(e.number) == e.sends && s.way->received(e.number) == e.receives)) {
                forget(s, i);
                quiet_ = 0;
            } else {
                ++i;
            }
        }
    }

    std::vector<end> peers_;
    side near_, far_;
    bool abandoned_ = false;
    unsigned turns_ = 0, quiet_ = 0;  // quiet: rests since something last came
};

}  // namespace colls::inline v1::detail
