// How ranks that pass messages agree on which of them remain, for a shrink.
//
// Each rank says that it is here. When all others have said so, are known to be dead, or the deadline has passed, the
// lowest rank that is here proposes the members (and after the deadline the next ones, one after the other, since it
// may have been stopped), by the synod of Paxos (Lamport, The Part-Time Parliament, 1998) over the whole old group:
// what a majority has accepted is decided, whichever rank dies meanwhile, and a part of the group that is cut off from
// the majority decides nothing. A rank that learns the decision tells it to all others before it goes on, so that the
// proposer may die at any point. Where there is an arbiter, its answer is the decision.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/transport/vocabulary.hpp>

#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace colls::inline v1::detail {

class shrink_agreement {
public:
    enum class line : std::uint8_t { here, prepare, promise, accept, accepted, decide };
    /// The members of the new group, and a number for it.
    struct value {
        std::vector<bool> members;
        std::uint64_t place = 0;
    };

    /// Instead of a majority: takes this rank's proposal for the group, unless it has taken another one before, and
    /// returns what it has taken.
    using arbiter = std::function<value(const rank_context& group, const value& own)>;

    /// Takes a control message of kind `join`. It is read when this rank shrinks the group, too.
    void heard(int peer, const control_message& what) { inbox_.push_back({peer, what.a, what.b, what.c, what.text}); }

    /// Returns the decision. `dead(r)`: is the rank known to be dead? `make_place`: makes the place of the new group.
    /// `look_at_others`: called now and then, for the thread's other groups. Throws colls::error: timeout, or
    /// peer_failed where no majority is left or the decision excludes this rank; and what the arbiter throws.
    template <class Dead, class MakePlace, class Look>
    value agree(rank_context& self, message_transport& transport, Dead dead, MakePlace make_place, Look look_at_others,
        const arbiter& decides) {
        begin(self, transport, seconds_now());
        decides_ = decides ? &decides : nullptr;
        const auto gone = [&](int r) {
            return dead(r) || self.memory.state(r).gone.load(std::memory_order_relaxed) != 0;
        };
        while (transport.progress(), look_at_others(), !step(seconds_now(), gone, make_place))
            transport.idle(call_hooks(self) ? sleep_between_hooks : 1e-3);
        transport.progress();
        return decision();
    }
    // The parts of `agree`, without its clock and its waiting.
    void begin(rank_context& self, message_transport& transport, double now) {
        self_ = &self, transport_ = &transport, until_ = now + self.env.timeout, again_ = 0;
        if (self.size > most_size)
            refuse(errc::unsupported, error_text() << "a group that passes messages and has more than " << most_size
                                                   << " ranks cannot be shrunk");
        here_.assign(static_cast<std::size_t>(self.size), false);
        to_all(line::here, 0, 0, {});
    }
    /// Reads what was heard, and proposes where it is this rank's turn. True: there is a decision, and all are told.
    template <class Gone, class MakePlace>
    bool step(double now, Gone gone, MakePlace make_place) {
        for (; !inbox_.empty() && !decided_; inbox_.pop_front()) read(inbox_.front());
        if (decided_) return to_all(line::decide, 0, 0, accepted_), true;
        std::size_t count = 0, missing = 0;
        int before = 0;  // lower ranks that are here
        for (int r = 0; r < self_->size; ++r) {
            const bool alive = !gone(r) || r == self_->rank, is_here = here_[static_cast<std::size_t>(r)] && alive;
            count += is_here;
            missing += alive && !is_here;
            before += is_here && r < self_->rank;
        }
        if (missing > 0 && now <= until_) return false;
        if (decides_ == nullptr && 2 * count <= here_.size())
            refuse(errc::peer_failed,
                error_text() << "only " << count << " of " << here_.size() << " ranks are left, not a majority: "
                             << "another part of the group may continue without this one. Start again");
        if (now > until_ + self_->env.timeout + 5)
            refuse(errc::timeout, error_text() << "the ranks that are left did not agree");
        if (before > 0) {
            if (now <= until_ || before > most_turns) return false;
            if (again_ == 0) again_ = now + turn * before;
        }
        if (now <= again_) return false;
        if (own_.members.empty()) own_ = {here_, make_place()};
        for (int r = 0; r < self_->size; ++r)
            if (gone(r) && r != self_->rank) own_.members[static_cast<std::size_t>(r)] = false;
        again_ = now + 0.5;
        if (decides_ == nullptr) return propose(), false;
        accepted_ = (*decides_)(*self_, own_);
        decided_ = true;  // the next step tells the others
        return false;
    }
    const value& decision() const {
        if (!accepted_.members[static_cast<std::size_t>(self_->rank)])
            refuse(errc::peer_failed, error_text()
                                          << "the others have shrunk the group without this rank, which came too "
                                             "late: leave, and start again");
        return accepted_;
    }

private:
    friend struct agreement_state;  // by which a test tells two agreements apart
    struct received_line {
        int from;
        std::uint64_t a, b, c;
        std::string text;
    };
    [[noreturn]] void refuse(errc code, const error_text& why) const {
        throw_in_call(self_->rank, "shrink", code, why);
    }
    // Fields of the control message: a: ballot and kind of line; b: ballot of the value; c and text: the value, a
    // printable character for six members; a longer text would be cut.
    static constexpr int most_size = 6 * 400;
    void to(int peer, line what, std::uint64_t ballot, std::uint64_t of, const value& v) {
        std::string text((v.members.size() + 5) / 6, '0');
        for (std::size_t i = 0; i < v.members.size(); ++i)
            if (v.members[i]) text[i / 6] = static_cast<char>(text[i / 6] + (1 << i % 6));
        const std::uint64_t a = ballot << 8 | static_cast<std::uint64_t>(what);
        if (peer == self_->rank)
            inbox_.push_back({peer, a, of, v.place, text});
        else
            transport_->tell(peer, {control_kind::join, a, of, v.place, text.c_str()});
    }
    void to_all(line what, std::uint64_t ballot, std::uint64_t of, const value& v) {
        for (int r = 0; r < self_->size; ++r)
            if (r != self_->rank || what != line::decide) to(r, what, ballot, of, v);
    }
    value read_value(const received_line& l) const {
        value v{std::vector<bool>(static_cast<std::size_t>(self_->size)), l.c};
        for (std::size_t i = 0; i < v.members.size() && i / 6 < l.text.size(); ++i)
            v.members[i] = ((l.text[i / 6] - '0') >> i % 6 & 1) != 0;
        return v;
    }

    void propose() {
        // Higher than every ballot that this rank has seen, and never one of another rank.
        const auto n = static_cast<std::uint64_t>(self_->size);
        ballot_ = (promised_ / n + 1) * n + static_cast<std::uint64_t>(self_->rank);
        promises_.assign(static_cast<std::size_t>(n), false);
        acceptances_.assign(static_cast<std::size_t>(n), false);
        best_ = 0, asked_ = false;
        to_all(line::prepare, ballot_, 0, {});
    }
    /// Have most ranks answered, now that `from` has?
    static bool majority(std::vector<bool>& ranks, std::size_t from) {
        ranks[from] = true;
        std::size_t count = 0;
        for (const bool x : ranks) count += x;
        return 2 * count > ranks.size();
    }
    void read(const received_line l) {  // a copy: answers to this rank itself are added behind it
        const std::uint64_t ballot = l.a >> 8;
        const auto from = static_cast<std::size_t>(l.from);
        switch (static_cast<line>(l.a & 0xff)) {
            case line::here:
                here_[from] = true;
                break;
            case line::prepare:
                if (ballot <= promised_) break;
                promised_ = ballot;
                to(l.from, line::promise, ballot, accepted_ballot_, accepted_);
                break;
            case line::promise:
                if (ballot != ballot_ || asked_) break;
                if (l.b > best_) best_ = l.b, own_ = read_value(l);  // this value may have been decided already
                if (!majority(promises_, from)) break;
                asked_ = true;
                to_all(line::accept, ballot_, ballot_, own_);
                break;
            case line::accept:
                if (ballot < promised_) break;
                promised_ = accepted_ballot_ = ballot;
                accepted_ = read_value(l);
                to(l.from, line::accepted, ballot, 0, {});
                break;
            case line::accepted:
                if (ballot != ballot_ || !majority(acceptances_, from)) break;
                accepted_ = own_, decided_ = true;
                break;
            case line::decide:
                accepted_ = read_value(l), decided_ = true;
                break;
        }
    }

    rank_context* self_ = nullptr;
    message_transport* transport_ = nullptr;
    const arbiter* decides_ = nullptr;  // null: a majority does
    std::deque<received_line> inbox_;
    std::vector<bool> here_, promises_, acceptances_;
    std::uint64_t promised_ = 0, accepted_ballot_ = 0, ballot_ = 0, best_ = 0;
    value accepted_, own_;
    bool asked_ = false, decided_ = false;
    static constexpr double turn = 0.02;  // seconds; together less than one second
    static constexpr int most_turns = 40;
    double until_ = 0, again_ = 0;  // the deadline; when it may propose, or again
};

}  // namespace colls::inline v1::detail
