// The backend of groups whose ranks pass messages: adapts an extend::message_group and its transports.
//
// Ranks that share memory read there whether the group is broken, which ranks have left, and where each waits. Here
// each rank keeps that to itself, in a group_memory of its own that the control messages of its peers are written into,
// so that waiting and failing are the same code for both. A rank that learns that the group is broken tells all ranks
// that it is connected to. Each rank that waits hears of it: it waits for a rank that has died, that waits itself, or
// that has told it.
// IWYU pragma: private, include <colls/extend/message_group.hpp>
#pragma once

#include <colls/detail/backend/group_to_form.hpp>
#include <colls/detail/backend/said.hpp>
#include <colls/detail/backend/shrink_agreement.hpp>
#include <colls/detail/backend/split.hpp>
#include <colls/detail/execute/message_executor.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/extend/message_member.hpp>

#include <cstdlib>
#include <deque>

namespace colls::inline v1::detail {

class messaging_backend final : public group_backend, private message_transport::listener {
public:
    messaging_backend(extend::message_member&& m, int size)
        : group_(std::move(m.group)),
          advances_others_(m.advances_others),
          collectives_(std::move(m.collectives)),
          messages_(std::move(m.messages)),
          // Fresh pages, which calloc takes for that much, cost nothing until they are used.
          memory_(std::calloc(1, group_memory::bytes(size) + line)) {
        if (memory_ == nullptr) throw std::bad_alloc();
        const auto n = static_cast<std::size_t>(size);
        dead_.resize(n);
        accepted_.resize(n);
        asked_by_.resize(n);
        is_ahead_.resize(n);
        offered_.resize(n);
    }
    ~messaging_backend() override { std::free(memory_); }

    static std::unique_ptr<rank_context> context(extend::message_member&& m, int rank, int size) {
        plan_by_messages();
        const bool crowded = m.crowded;
        const std::uint64_t number = m.number;
        const int ranks_per_host = m.ranks_per_host;
        const host_map hosts = m.hosts;
        const auto b = std::make_shared<messaging_backend>(std::move(m), size);
        auto self = std::make_unique<rank_context>(rank, size, b->own_memory(size), b);
        self->by_messages = true;
        self->crowded = crowded;
        self->waits = wait_policy(crowded, true);
        self->number = number;
        self->layout.ranks_per_host = ranks_per_host;
        self->layout.hosts = hosts;
        b->self_ = self.get();
        for (message_transport* t : {b->collectives_.get(), b->messages_.get()}) {
            t->listening = b.get();
            t->linger = std::min(self->env.timeout, environment::most_linger);
        }
        return self;
    }
    /// Adds the group, whose context this is, to the cycle of the thread's other groups that advance together.
    void join_others(rank_context& self) {
        if (advances_others_) join_groups_of_thread(self);
    }

    std::unique_ptr<pending> make_collective(rank_context& self) override {
        return std::make_unique<ordered_collective>(self, *this);
    }
    std::unique_ptr<pending> make_message(rank_context& self) override {
        return std::make_unique<accepted_message>(self, *this);
    }

    void ask_for_messages(rank_context& self) override {
        for (int r = 0; !asks_ && r < self.size; ++r)
            if (r != self.rank) messages_->tell(r, said::one(control_kind::ask));
        asks_ = true;
        messages_->progress();
    }
    bool announced(rank_context& self, int rank) override {
        if (rank == self.rank) return !own_sends_.empty();
        return offered_[rank] > (self.messages.received.empty() ? 0 : self.messages.received[rank].begun);
    }

    void look(rank_context& self, const wait_site* at, double seconds) override {
        collectives_->progress();
        messages_->progress();
        group_->look();
        judge_suspect();
        // A rank that waits for long tells its peer in which call, and tells the ranks that wait for it that it waits.
        if (at == nullptr || seconds < 10e-3 || at->peer == none || at->peer == self.rank) return;
        if (at->fingerprint == no_call) {  // a message has no call number: the peer hears that this rank waits for it
            if (waited_for_ != at->peer || waited_at_ + 0.1 < seconds_now())
                collectives_->tell(at->peer, said::board{no_call, 0, false});
            waited_for_ = at->peer;
            waited_at_ = seconds_now();
            waiting_ = {};
            return;
        }
        waiting_ = *at;
        waited_at_ = seconds_now();
        // Repeated now and then: the answer shows that the peer is alive.
        const bool again = told_call_ == at->call + 1 && told_peer_ == at->peer;
        if (again && waited_at_ < told_at_ + std::min(self.env.timeout, environment::most_linger) / 8) return;
        told_call_ = at->call + 1;
        told_peer_ = at->peer;
        told_at_ = waited_at_;
        collectives_->tell(at->peer, said::board{at->call, at->fingerprint, true});
        if (again) return;
        for (int r = 0; r < self.size; ++r)
            if (const auto call = self.memory.state(r).board_call.load(std::memory_order_relaxed);
                call != 0 && call + 64 > self.log.count && r != at->peer)
                collectives_->tell(r, said::board{at->call, at->fingerprint, false});
    }
    void sleep(rank_context& self) override {
        const bool hooked = self.hook != nullptr || wait_hook_set.call.load(std::memory_order_relaxed) != nullptr;
        collectives_->idle(hooked ? sleep_between_hooks : 1e-3);
    }
    void refused(rank_context& self) override {
        const refusal_state& refusal = self.memory.refusal(self.rank);
        char text[decltype(refusal.text)::most + 1];
        refusal.text.load(text);
        const std::uint64_t call = refusal.call.load(std::memory_order_relaxed);
        const control_message what = said::one(control_kind::refused, call, text);
        if (call == 0)
            collectives_->tell_all(what);
        else
            tell_every_rank(what);  // this rank may not call the library again for long
        for (const double until = seconds_now() + (call == 0 ? 0 : 5e-3);
            collectives_->progress(), seconds_now() < until;)
            sched_yield();
    }
    void absent(rank_context&, std::uint64_t group) override {
        absent_ = group;
        collectives_->tell_all(said::one(control_kind::away, group));
        collectives_->progress();
    }
    double ask_for_waits(rank_context& self) override {
        for (int r = 0; r < self.size; ++r)
            if (r != self.rank) self.memory.state(r).waits.store(long_wait::unanswered, std::memory_order_relaxed);
        tell_every_rank(said::one(control_kind::inquire, of_waits));
        return 0.2;
    }
    void broke(rank_context& self) override { spread(self.memory.poison()); }
    void abandon(rank_context&) override {
        order_.clear();
        collectives_->abandon();
        messages_->abandon();
    }
    void close() override {
        collectives_.reset();  // tells the peers that this rank leaves
        messages_.reset();
        group_->close();
    }
    std::unique_ptr<rank_context> shrink(rank_context& self) override {
        if (const char* const why = group_->cannot_shrink())
            throw error(errc::unsupported,
                (error_text() << "colls: rank " << self.rank << " in shrink: " << why).text(), self.rank);
        break_to_shrink(self);
        const shrink_agreement::value v = agreement_.agree(
            self, *collectives_, [this](int r) { return dead_[r]; }, [&] { return create(self.size); },
            [&] {
                group_->look();
                self.for_others([](rank_context& x) { x.backend->look(x, nullptr, 0); });
                gate_lock::let_others_in();
            });
        list<int> members;
        int mine = none;
        for (int r = 0; r < self.size; ++r) {
            if (!v.members[static_cast<std::size_t>(r)]) continue;
            if (r == self.rank) mine = static_cast<int>(members.size());
            members.push_back(r);
        }
        return attach(self, v.place, mine, members);
    }
    bool dead(int rank) const override { return dead_[rank]; }

    std::byte* take(std::size_t bytes) override { return group_->allocate(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { group_->deallocate(at, bytes); }
    extend::message_group* by_messages() override { return group_.get(); }
    const machine& figures() override { return group_->figures(); }

    std::uint64_t create(int n) override { return group_->create(n); }
    void discard(std::uint64_t place, int n) override { group_->discard(place, n); }
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        // A group that is broken is shrunk: what breaks in it does not concern the new one.
        const bool whole = from.memory.poison().state.load(std::memory_order_relaxed) == 0;
        const group_to_form f({place, rank, {members.data(), members.size()}, from.crowded}, whole ? &from : nullptr);
        std::unique_ptr<rank_context> self = context(group_->join(f), rank, f.size());
        self->layout.two_levels = from.layout.two_levels;
        self->hook = from.hook;
        self->env.timeout = from.env.timeout;
        return self;
    }

private:
    class ordered_collective;
    class accepted_message;
    static constexpr std::uint64_t of_waits = 1;  // an inquiry: for the long wait that the receiver is in

    /// Before an operation begins: what has come meanwhile, and an error where the group is broken.
    void look_before(rank_context& self, const char* what) {
        judge_suspect();
        // An operation that waited just before has moved messages already: what this one sends comes first.
        if (!looked_) collectives_->progress();
        looked_ = false;
        fresh_ = true;
        if (self.memory.poison().state.load(std::memory_order_relaxed) == 0) return;
        leave(self);
        const wait_site at{.what = what};
        throw_poison(self, &at);
    }

    /// A collective. Those of a group post in the order in which they were started: see message_executor.hpp.
    class ordered_collective final : public message_executor {
    public:
        ordered_collective(rank_context& self, messaging_backend& b) : message_executor(self, *b.collectives_), b_(b) {}

        void begin() override {
            b_.look_before(self_, name_of(arguments.what));
            message_executor::begin();
            b_.order_.push_back(this);
            for (std::size_t i = 0; i < b_.ahead_.size();) {
                const int r = b_.ahead_[i];
                if (self_.memory.state(r).board_call.load(std::memory_order_relaxed) > self_.log.count) {
                    ++i;
                    continue;
                }
                b_.ahead_.drop(i);
                b_.is_ahead_[r] = false;
                b_.compare_board(r);
            }
        }
        bool advance() override {
            if (!b_.fresh_) {
                b_.collectives_->progress();
                b_.looked_ = true;
            }
            b_.fresh_ = false;
            bool reached = done;
            for (auto i = b_.order_.begin(); i != b_.order_.end();) {
                ordered_collective& next = **i;
                const bool over = next.go_on();
                reached = reached || &next == this;
                if (!next.posted_all()) {
                    // It waits for an operation that was started before, and so for the peer of that one, which
                    // changes.
                    if (!reached) site.peer = next.site.peer;
                    break;
                }
                i = over ? b_.order_.erase(i) : i + 1;
            }
            return done;
        }

    private:
        messaging_backend& b_;
    };

    /// A message. It waits until its receiver has accepted it, and then goes straight to its place.
    class accepted_message final : public operation_state {
    public:
        accepted_message(rank_context& self, messaging_backend& b) : operation_state(self), b_(b) {}

        void begin() override {
            b_.look_before(self_, site.what);
            is_offered_ = is_posted_ = false;
            const int peer = site.peer;
            if (peer == self_.rank) {
                (kind == operation_kind::send ? b_.own_sends_ : b_.own_receives_).push_back(this);
            } else if (kind == operation_kind::recv) {
                const piece to{arguments.out, bytes()};
                b_.messages_->receive(peer, label(), &to, bytes() > 0);
                b_.messages_->flush();
                b_.messages_->tell(peer, terms().as(control_kind::accept));
            }
        }
        bool advance() override {
            b_.messages_->progress();
            if (site.peer == self_.rank)
                move_to_itself();
            else if (kind == operation_kind::recv)
                over_if(b_.messages_->received(site.peer) > sequence);
            else
                send();
            return done;
        }

    private:
        std::size_t bytes() const { return arguments.count * arguments.element; }
        message_label label() const { return {arguments.signature, sequence, 0}; }
        said::terms terms() const { return {sequence, bytes(), arguments.signature}; }
        void over_if(bool is_over) {
            done = is_over;
            if (done) ++(kind == operation_kind::send ? self_.messages.sent : self_.messages.received)[site.peer].over;
        }
        void move_to_itself() {
            while (!b_.own_sends_.empty() && !b_.own_receives_.empty()) {
                accepted_message &from = *b_.own_sends_.front(), &to = *b_.own_receives_.front();
                to.expect(from.bytes(), from.arguments.signature, "sends");
                copy_bytes(to.arguments.out, from.arguments.in, to.bytes());
                from.over_if(true);
                to.over_if(true);
                b_.own_sends_.pop_front();
                b_.own_receives_.pop_front();
            }
        }
        void send() {
            const int peer = site.peer;
            auto& accepted = b_.accepted_[static_cast<std::size_t>(peer)];
            if (b_.asked_by_[peer] && !is_offered_ && (accepted.empty() || accepted.back().number < sequence)) {
                b_.messages_->tell(peer, terms().as(control_kind::offer));
                is_offered_ = true;
            }
            if (!is_posted_ && !accepted.empty() && accepted.front().number == sequence) {
                expect(accepted.front().bytes, accepted.front().type, "expects");
                accepted.pop_front();
                const piece from{const_cast<std::byte*>(arguments.in), bytes()};
                b_.messages_->send(peer, label(), &from, bytes() > 0);
                b_.messages_->request_completion(peer);
                b_.messages_->flush();
                is_posted_ = true;
            }
            over_if(is_posted_ && b_.messages_->sent(peer) > sequence);
        }
        /// Throws mismatch unless the peer has said the same of the message.
        void expect(std::uint64_t theirs, std::uint64_t type, const char* does) const {
            if (theirs == bytes() && type == arguments.signature) return;
            fail(self_, errc::mismatch, site,
                error_text() << (kind == operation_kind::send ? "sends " : "expects ") << bytes() << " bytes, rank "
                             << site.peer << " " << does << " " << static_cast<std::size_t>(theirs)
                             << (theirs == bytes() ? " of another type" : ""));
        }

        messaging_backend& b_;
        bool is_offered_ = false, is_posted_ = false;  // this rank has said that it sends; has posted the message
    };

    /// Also ranks that it has no connection to, unless they are many.
    void tell_every_rank(const control_message& what) {
        constexpr int few = 64;
        if (self_->size > few) return collectives_->tell_all(what);
        for (int r = 0; r < self_->size; ++r)
            if (r != self_->rank) collectives_->tell(r, what);
    }
    void spread(const poison_state& p) {
        const control_message what = said::breach{static_cast<errc>(p.code), p.rank, p.peer, p.round, p.text};
        messages_->tell_all(what);
        // Also to ranks that it has no connection to: one that comes only after this rank has gone would take this rank
        // for the one that failed. In a large group, distant ranks hear it from others.
        constexpr int few = 64;
        if (self_->size > few) collectives_->tell_all(what);
        for (int far = 1; far<self_->size; far = self_->size> few ? 2 * far : far + 1) {
            const int r = self_->rank + far;
            collectives_->tell(r < self_->size ? r : r - self_->size, what);
        }
    }
    void breaks(errc code, int rank, int peer, int round, const char* text) {
        if (poison(self_->memory, code, rank, peer, round, text)) spread(self_->memory.poison());
    }

    void heard(int peer, const control_message& what) override {
        rank_state& s = self_->memory.state(peer);
        switch (what.what) {
            case control_kind::accept:
                accepted_[static_cast<std::size_t>(peer)].push_back(said::terms::of(what));
                break;
            case control_kind::board: {
                const auto at = said::board::of(what);
                s.board_call.store(at.call + 1, std::memory_order_relaxed);
                s.board_at.store(milliseconds_now(), std::memory_order_relaxed);
                s.board_fingerprint.store(at.fingerprint, std::memory_order_relaxed);
                if (at.for_receiver && waiting_.peer != none && seconds_now() < waited_at_ + 0.1)
                    collectives_->tell(peer, said::board{waiting_.call, waiting_.fingerprint, false});
                if (at.call + 1 > self_->log.count && !is_ahead_[peer]) {
                    is_ahead_[peer] = true;
                    ahead_.push_back(peer);
                }
                compare_board(peer);
                if (absent_ != 0) collectives_->tell(peer, said::one(control_kind::away, absent_));
                break;
            }
            case control_kind::inquire:
                if (what.a == of_waits) {
                    const std::uint64_t own = self_->memory.state(self_->rank).waits.load(std::memory_order_relaxed);
                    collectives_->tell(peer, said::one(control_kind::waits, own));
                    break;
                }
                for (std::uint64_t i = first_told(self_->log.count); i < self_->log.count; ++i) {
                    const call_record& c = self_->log.of(i);
                    collectives_->tell(peer, said::told_call{i, c.fingerprint, parts_of(c).text()});
                }
                break;
            case control_kind::told: {
                const auto call = said::told_call::of(what);
                tell_call(self_->memory.told(peer, call.number), call.number, call.fingerprint, call.text);
                break;
            }
            case control_kind::refused: {
                refusal_state& refusal = self_->memory.refusal(peer);
                refusal.text.store(what.text);
                refusal.call.store(what.a, std::memory_order_relaxed);
                break;
            }
            case control_kind::away:
                s.away.store(what.a, std::memory_order_relaxed);
                break;
            case control_kind::broken:
                if (said::breach::valid(what, self_->size)) {
                    const auto p = said::breach::of(what);
                    breaks(p.code, p.rank, p.peer, p.round, p.text);
                }
                break;
            case control_kind::leave:
                s.gone.store(1, std::memory_order_relaxed);
                break;
            case control_kind::join:
                agreement_.heard(peer, what);
                break;
            case control_kind::ask:
                asked_by_[peer] = true;
                break;
            case control_kind::offer:
                if (what.a + 1 > offered_[peer]) offered_[peer] = what.a + 1;
                break;
            case control_kind::waits:
                s.waits.store(what.a, std::memory_order_relaxed);
                break;
            case control_kind::wiring:
                break;
        }
    }
    void lost(int peer, const char* why) override {
        if (dead_[peer]) return;
        dead_[peer] = true;
        if (self_->memory.state(peer).gone.load(std::memory_order_relaxed) != 0) return;
        breaks(errc::peer_failed, self_->rank, peer, none,
            (error_text() << "colls: rank " << self_->rank << ": rank " << peer
                          << " has died, or cannot be reached any more: " << why)
                .text());
    }
    void failed(int peer, const char* why) override {
        breaks(errc::peer_failed, self_->rank, peer, waiting_round(peer),
            (error_text() << "colls: rank " << self_->rank << ": messages to or from rank " << peer
                          << " cannot be moved: " << why)
                .text());
    }
    // The round of the oldest operation that waits for the peer.
    int waiting_round(int peer) const {
        for (const ordered_collective* o : order_)
            if (o->site.peer == peer) return o->site.round;
        return none;
    }
    void unexpected(int peer, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
        std::size_t got_bytes) override {
        if (wanted.fingerprint != got.fingerprint) {
            std::uint64_t call = self_->log.count;  // the call that expects the message
            while (call > 0 && call + call_record::kept > self_->log.count &&
                   self_->log.of(call - 1).fingerprint != wanted.fingerprint)
                --call;
            return suspects(peer, call > 0 ? call - 1 : 0, wanted.fingerprint, got.fingerprint);
        }
        error_text text;
        text << "colls: rank " << self_->rank << ": rank " << peer << " sends " << got_bytes
             << " bytes where this rank expects " << wanted_bytes
             << ": their counts differ, or the order of their calls";
        breaks(errc::mismatch, self_->rank, peer, none, text.text());
    }
    // Compares the call in which the peer waits, as far as it has said so, with this rank's call of that number.
    void compare_board(int peer) {
        const rank_state& s = self_->memory.state(peer);
        const std::uint64_t call = s.board_call.load(std::memory_order_relaxed),
                            theirs = s.board_fingerprint.load(std::memory_order_relaxed);
        if (call == 0 || call > self_->log.count || call + 64 <= self_->log.count) return;
        if (const std::uint64_t own = self_->log.of(call - 1).fingerprint; own != theirs)
            suspects(peer, call - 1, own, theirs);
    }
    // The peer's calls differ: asks it for its calls, so that the error can say how.
    void suspects(int peer, std::uint64_t call, std::uint64_t own, std::uint64_t theirs) {
        if (suspect_.peer != none) return;
        suspect_ = {peer, call, own, theirs, seconds_now() + time_to_tell};
        collectives_->tell(peer, said::one(control_kind::inquire));
    }
    void judge_suspect() {
        if (suspect_.peer == none ||
            (!has_told(self_->memory, suspect_.peer, suspect_.call) && seconds_now() < suspect_.until))
            return;
        error_text text;
        text << "colls: rank " << self_->rank << ": ";
        say_mismatch(text, *self_, suspect_.peer, suspect_.call, suspect_.own, suspect_.theirs);
        text << "; every rank must make the same calls in the same order";
        breaks(errc::mismatch, self_->rank, suspect_.peer, none, text.text());
    }
    group_memory own_memory(int n) const {
        const auto at = (reinterpret_cast<std::uintptr_t>(memory_) + line - 1) / line * line;
        return {reinterpret_cast<std::byte*>(at), n};
    }

    const std::shared_ptr<extend::message_group> group_;
    const bool advances_others_;
    std::unique_ptr<message_transport> collectives_, messages_;
    void* const memory_;
    rank_context* self_ = nullptr;
    std::vector<ordered_collective*> order_;  // that are not over, in the order in which they were started
    std::deque<accepted_message*> own_sends_, own_receives_;
    std::vector<std::deque<said::terms>> accepted_;
    // For recv_any: this rank has asked for offers; ranks that have asked this one; 1 + the latest number that each
    // rank offered.
    bool asks_ = false;
    list<bool> asked_by_;
    list<std::uint64_t> offered_;
    list<bool> dead_;
    // Ranks that have said in which call they wait, one that this rank had not made then.
    list<int> ahead_;
    list<bool> is_ahead_;
    std::uint64_t told_call_ = 0;
    int told_peer_ = none;
    double told_at_ = 0;
    wait_site waiting_;  // where this rank has waited for long, when it last looked
    double waited_at_ = 0;
    struct suspicion {
        int peer = none;
        std::uint64_t call = 0, own = 0, theirs = 0;
        double until = 0;
    } suspect_;                 // whose calls do not fit, until the error is reported
    int waited_for_ = none;     // by a message, when it last looked
    std::uint64_t absent_ = 0;  // this rank shrinks the group of that number
    shrink_agreement agreement_;
    bool fresh_ = false, looked_ = false;  // an operation has just begun; progress has been made in one
};

COLLS_INLINE void exchange_by_messages(extend::message_member&& over, int rank, int size, rank_context* from,
    const void* own, std::size_t bytes, void* all) {
    std::unique_ptr<rank_context> self = messaging_backend::context(std::move(over), rank, size);
    self->forming_from = from;
    detail::exchange(*self, own, bytes, all);
    end_membership(std::move(self));  // tells the others that this rank leaves
}

COLLS_INLINE joined_group join_by_messages(extend::message_member&& member, int rank, int size) {
    std::unique_ptr<rank_context> self = messaging_backend::context(std::move(member), rank, size);
    static_cast<messaging_backend&>(*self->backend).join_others(*self);
    return joined(std::move(self));
}

}  // namespace colls::inline v1::detail
