// The operations of a group that passes messages: its collectives, and messages from one rank to another.
// IWYU pragma: private, include <colls/extend/message_group.hpp>
#pragma once

#include <colls/messages/detail/message_executor.hpp>
#include <colls/messages/detail/reports.hpp>

#include <deque>

namespace colls::inline v1::detail {

/// They post in the order in which they were started: see message_executor.hpp.
class collective_posts {
public:
    collective_posts(const message_links& links, rank_reports& reports) : links_(links), reports_(reports) {}

    std::unique_ptr<pending> make() { return std::make_unique<ordered_collective>(*links_.self, *this); }
    void abandon() { order_.clear(); }
    /// The round of the oldest operation that waits for the peer.
    int waiting_round(int peer) const {
        for (const ordered_collective* o : order_)
            if (o->site.peer == peer) return o->site.round;
        return none;
    }
    /// Before an operation begins: what has come meanwhile, and an error where the group is broken.
    void look_before(const char* what) {
        reports_.judge_suspect();
        // An operation that waited just before has moved messages already: what this one sends comes first.
        if (!has_progressed_) links_.collectives->progress();
        has_progressed_ = false;
        has_begun_ = true;
        rank_context& self = *links_.self;
        if (self.memory.poison().state.load(std::memory_order_relaxed) == 0) return;
        leave(self);
        const wait_site at{.what = what};
        throw_poison(self, &at);
    }

private:
    class ordered_collective final : public message_executor {
    public:
        ordered_collective(rank_context& self, collective_posts& all)
            : message_executor(self, *all.links_.collectives), all_(all) {}

        void begin() override {
            all_.look_before(name_of(arguments.what));
            message_executor::begin();
            all_.order_.push_back(this);
            all_.reports_.call_begun();
        }
        bool advance() override {
            if (!all_.has_begun_) {
                all_.links_.collectives->progress();
                all_.has_progressed_ = true;
            }
            all_.has_begun_ = false;
            bool reached = done;
            for (auto i = all_.order_.begin(); i != all_.order_.end();) {
                ordered_collective& next = **i;
                const bool over = next.go_on();
                reached = reached || &next == this;
                if (!next.posted_all()) {
                    // It waits for an operation that was started before, and so for the peer of that one, which
                    // changes.
                    if (!reached) site.peer = next.site.peer;
                    break;
                }
                i = over ? all_.order_.erase(i) : i + 1;
            }
            return done;
        }

    private:
        collective_posts& all_;
    };

    const message_links& links_;
    rank_reports& reports_;
    std::vector<ordered_collective*> order_;           // that are not over, in the order in which they were started
    bool has_begun_ = false, has_progressed_ = false;  // an operation has just begun; progress has been made in one
};

/// Each message waits until its receiver has accepted it, and then goes straight to its place. A rank that receives
/// from any rank asks all for offers.
class message_offers {
public:
    message_offers(const message_links& links, collective_posts& posts, std::size_t n)
        : links_(links), posts_(posts), accepted_(n) {
        asked_by_.resize(n);
        offered_.resize(n);
    }

    std::unique_ptr<pending> make() { return std::make_unique<accepted_message>(*links_.self, *this); }
    /// That all ranks say what they send.
    void ask() {
        for (int r = 0; !asks_ && r < links_.self->size; ++r)
            if (r != links_.self->rank) links_.messages->tell(r, control::plain(control_kind::ask));
        asks_ = true;
        links_.messages->progress();
    }
    bool announced(int rank) const {
        const rank_context& self = *links_.self;
        if (rank == self.rank) return !own_sends_.empty();
        return offered_[rank] > (self.messages.received.empty() ? 0 : self.messages.received[rank].begun);
    }
    /// False: it is a message of another kind.
    bool heard(int peer, const control_message& what) {
        if (what.what == control_kind::accept)
            accepted_[static_cast<std::size_t>(peer)].push_back(control::terms::of(what));
        else if (what.what == control_kind::ask)
            asked_by_[peer] = true;
        else if (what.what == control_kind::offer)
            offered_[peer] = std::max(offered_[peer], what.a + 1);
        else
            return false;
        return true;
    }

private:
    class accepted_message final : public operation_state {
    public:
        accepted_message(rank_context& self, message_offers& all) : operation_state(self), all_(all) {}

        void begin() override {
            all_.posts_.look_before(site.what);
            is_offered_ = is_posted_ = false;
            const int peer = site.peer;
            if (peer == self_.rank) {
                (kind == operation_kind::send ? all_.own_sends_ : all_.own_receives_).push_back(this);
            } else if (kind == operation_kind::recv) {
                const piece to{arguments.out, bytes()};
                transport().receive(peer, label(), &to, bytes() > 0);
                transport().flush();
                transport().tell(peer, terms().as(control_kind::accept));
            }
        }
        bool advance() override {
            transport().progress();
            if (site.peer == self_.rank)
                move_to_itself();
            else if (kind == operation_kind::recv)
                over_if(transport().received(site.peer) > sequence);
            else
                send();
            return done;
        }

    private:
        message_transport& transport() const { return *all_.links_.messages; }
        std::size_t bytes() const { return arguments.count * arguments.element; }
        message_label label() const { return {arguments.signature, sequence, 0}; }
        control::terms terms() const { return {sequence, bytes(), arguments.signature}; }
        void over_if(bool is_over) {
            done = is_over;
            if (done) ++(kind == operation_kind::send ? self_.messages.sent : self_.messages.received)[site.peer].over;
        }
        void move_to_itself() {
            while (!all_.own_sends_.empty() && !all_.own_receives_.empty()) {
                accepted_message &from = *all_.own_sends_.front(), &to = *all_.own_receives_.front();
                to.expect(from.bytes(), from.arguments.signature, "sends");
                copy_bytes(to.arguments.out, from.arguments.in, to.bytes());
                from.over_if(true);
                to.over_if(true);
                all_.own_sends_.pop_front();
                all_.own_receives_.pop_front();
            }
        }
        void send() {
            const int peer = site.peer;
            auto& accepted = all_.accepted_[static_cast<std::size_t>(peer)];
            if (all_.asked_by_[peer] && !is_offered_ && (accepted.empty() || accepted.back().number < sequence)) {
                transport().tell(peer, terms().as(control_kind::offer));
                is_offered_ = true;
            }
            if (!is_posted_ && !accepted.empty() && accepted.front().number == sequence) {
                expect(accepted.front().bytes, accepted.front().type, "expects");
                accepted.pop_front();
                const piece from{const_cast<std::byte*>(arguments.in), bytes()};
                transport().send(peer, label(), &from, bytes() > 0);
                transport().request_completion(peer);
                transport().flush();
                is_posted_ = true;
            }
            over_if(is_posted_ && transport().sent(peer) > sequence);
        }
        /// Throws mismatch unless the peer has said the same of the message.
        void expect(std::uint64_t theirs, std::uint64_t type, const char* does) const {
            if (theirs == bytes() && type == arguments.signature) return;
            fail(self_, errc::mismatch, site,
                error_text() << (kind == operation_kind::send ? "sends " : "expects ") << bytes() << " bytes, rank "
                             << site.peer << " " << does << " " << static_cast<std::size_t>(theirs)
                             << (theirs == bytes() ? " of another type" : ""));
        }

        message_offers& all_;
        bool is_offered_ = false, is_posted_ = false;  // this rank has said that it sends; has posted the message
    };

    const message_links& links_;
    collective_posts& posts_;
    std::deque<accepted_message*> own_sends_, own_receives_;
    std::vector<std::deque<control::terms>> accepted_;
    // This rank has asked for offers; ranks that have asked this one; 1 + the latest number that each rank offered.
    bool asks_ = false;
    list<bool> asked_by_;
    list<std::uint64_t> offered_;
};

}  // namespace colls::inline v1::detail
