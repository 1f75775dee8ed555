// The backend of groups whose ranks pass messages: adapts an extend::message_group and its transports. What ranks post
// is in posts.hpp, what they tell each other of failures and waits in reports.hpp.
// IWYU pragma: private, include <colls/extend/message_group.hpp>
#pragma once

#include <colls/detail/backend/split.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/extend/message_member.hpp>
#include <colls/messages/detail/group_to_form.hpp>
#include <colls/messages/detail/posts.hpp>
#include <colls/messages/detail/shrink_agreement.hpp>

#include <cstdlib>

namespace colls::inline v1::detail {

class messaging_backend final : public group_backend, private message_transport::listener {
public:
    messaging_backend(extend::message_member&& m, int size)
        : group_(std::move(m.group)),
          // Fresh pages, which calloc takes for that much, cost nothing until they are used.
          memory_(std::calloc(1, group_memory::bytes(size) + line)),
          links_{nullptr, std::move(m.collectives), std::move(m.messages)},
          reports_(links_, static_cast<std::size_t>(size)),
          posts_(links_, reports_),
          offers_(links_, posts_, static_cast<std::size_t>(size)) {
        if (memory_ == nullptr) throw std::bad_alloc();
    }
    ~messaging_backend() override { std::free(memory_); }

    static std::unique_ptr<rank_context> context(extend::message_member&& m, int rank, int size) {
        plan_by_messages();
        const bool crowded = m.crowded;
        const std::uint64_t number = m.number;
        const host_map hosts = m.hosts;
        const auto b = std::make_shared<messaging_backend>(std::move(m), size);
        auto self = std::make_unique<rank_context>(rank, size, b->own_memory(size), b);
        self->by_messages = true;
        self->crowded = crowded;
        self->waits = wait_policy(crowded, true);
        self->number = number;
        self->layout.hosts = hosts;
        b->links_.self = self.get();
        for (message_transport* t : {b->links_.collectives.get(), b->links_.messages.get()}) {
            t->listening = b.get();
            t->linger = std::min(self->env.timeout, environment::most_linger);
        }
        return self;
    }

    std::unique_ptr<pending> make_collective(rank_context&) override { return posts_.make(); }
    std::unique_ptr<pending> make_message(rank_context&) override { return offers_.make(); }
    void ask_for_messages(rank_context&) override { offers_.ask(); }
    bool announced(rank_context&, int rank) override { return offers_.announced(rank); }

    void look(rank_context& self, const wait_site* at, double seconds) override {
        links_.collectives->progress();
        links_.messages->progress();
        group_->look();
        if (rank_context* const spare = group_->spare()) look_at(*spare, at, seconds);
        reports_.judge_suspect();
        if (at != nullptr && seconds >= 10e-3 && at->peer != none && at->peer != self.rank) reports_.tell_of_wait(*at);
    }
    void sleep(rank_context& self) override {
        const bool hooked = self.hook != nullptr || wait_hook_set.call.load(std::memory_order_relaxed) != nullptr;
        links_.collectives->idle(hooked ? sleep_between_hooks : 1e-3);
    }
    void refused(rank_context&) override { reports_.tell_refusal(); }
    void absent(rank_context&, std::uint64_t group) override { reports_.tell_absence(group); }
    double ask_for_waits(rank_context&) override {
        reports_.ask_for_waits();
        return 0.2;
    }
    void broke(rank_context& self) override { reports_.spread(self.memory.poison()); }
    void abandon(rank_context&) override {
        posts_.abandon();
        links_.collectives->abandon();
        links_.messages->abandon();
    }
    void close() override {
        links_.collectives.reset();  // tells the peers that this rank leaves
        links_.messages.reset();
        group_->close();
    }
    std::unique_ptr<rank_context> shrink(rank_context& self) override { return shrink_by(self, {}); }
    /// `decides`: what does so instead of a majority; of no function: nothing.
    std::unique_ptr<rank_context> shrink_by(rank_context& self, const shrink_agreement::arbiter& decides) {
        if (const char* const why = group_->cannot_shrink())
            throw_in_call(self.rank, "shrink", errc::unsupported, error_text() << why);
        break_to_shrink(self);
        if (rank_context* const spare = group_->spare()) {
            spare->env.timeout = self.env.timeout;
            if (spare->next == spare) spare->join(self);  // its waits look at the thread's other groups
            if (!spare->by_messages) return spare->backend->shrink(*spare);
            return static_cast<messaging_backend&>(*spare->backend).shrink_by(*spare, decides);
        }
        const shrink_agreement::value v = agreement_.agree(
            self, *links_.collectives, [this](int r) { return dead(r); }, [&] { return create(self.size); },
            [&] {
                group_->look();
                self.for_others([](rank_context& x) { x.backend->look(x, nullptr, 0); });
                gate_lock::let_others_in();
            },
            decides);
        list<int> members;
        for (int r = 0; r < self.size; ++r)
            if (v.members[static_cast<std::size_t>(r)]) members.push_back(r);
        int mine = 0;
        while (members[mine] != self.rank) ++mine;
        return attach(self, v.place, mine, members);
    }
    bool dead(int rank) const override { return reports_.dead(rank); }

    std::byte* take(std::size_t bytes) override { return group_->allocate(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { group_->deallocate(at, bytes); }
    extend::message_group* by_messages() override { return group_.get(); }
    void join_transports(rank_context& self, std::uint64_t place, extend::message_member& to) override {
        std::vector<int> members(static_cast<std::size_t>(self.size));
        for (int r = 0; r < self.size; ++r) members[static_cast<std::size_t>(r)] = r;
        to = group_->join(group_to_form({place, self.rank, members, self.crowded}, &self));
    }
    const machine& figures() override { return group_->figures(); }

    std::uint64_t create(int n) override { return group_->create(n); }
    void discard(std::uint64_t place, int n) override { group_->discard(place, n); }
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        // A group that is broken is shrunk: what breaks in it does not concern the new one.
        const bool whole = from.memory.poison().state.load(std::memory_order_relaxed) == 0;
        const group_to_form f({place, rank, {members.data(), members.size()}, from.crowded}, whole ? &from : nullptr,
            from.env.timeout, !whole);
        std::unique_ptr<rank_context> self = context(group_->join(f), rank, f.size());
        self->layout.two_levels = from.layout.two_levels;
        self->hook = from.hook;
        self->env.timeout = from.env.timeout;
        if (const auto& x = f.failed()) break_group(*self, x->code(), x->peer(), none, x->what());
        return self;
    }

private:
    /// The spare group hears of deaths by itself. Where this rank waits for long, it also tells its peer there: then it
    /// hears whether that one can be reached.
    [[gnu::cold]] void look_at(rank_context& spare, const wait_site* at, double seconds) {
        const wait_site there{.peer = at == nullptr ? none : at->peer, .fingerprint = no_call};
        spare.backend->look(spare, &there, seconds);
        const poison_state& p = spare.memory.poison();
        if (p.state.load(std::memory_order_acquire) != 2) return;
        reports_.breaks(control::breach{static_cast<errc>(p.code), p.rank, p.peer, p.round, p.text});
    }
    void heard(int peer, const control_message& what) override {
        if (what.what == control_kind::join)
            agreement_.heard(peer, what);
        else if (!offers_.heard(peer, what))
            reports_.heard(peer, what);
    }
    void lost(int peer, const char* why) override { reports_.lost(peer, why); }
    void failed(int peer, const char* why) override {
        reports_.breaks(errc::peer_failed, peer, posts_.waiting_round(peer),
            error_text() << "messages to or from rank " << peer << " cannot be moved: " << why);
    }
    void unexpected(int peer, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
        std::size_t got_bytes) override {
        reports_.unexpected(peer, wanted, got, wanted_bytes, got_bytes);
    }
    group_memory own_memory(int n) const {
        const auto at = (reinterpret_cast<std::uintptr_t>(memory_) + line - 1) / line * line;
        return {reinterpret_cast<std::byte*>(at), n};
    }

    const std::shared_ptr<extend::message_group> group_;
    void* const memory_;
    message_links links_;
    rank_reports reports_;
    collective_posts posts_;
    message_offers offers_;
    shrink_agreement agreement_;
};

COLLS_INLINE void exchange_by_messages(extend::message_member&& over, int rank, int size, rank_context* from,
    double timeout, const void* own, std::size_t bytes, void* all) {
    std::unique_ptr<rank_context> self = messaging_backend::context(std::move(over), rank, size);
    if (timeout > 0) self->env.timeout = timeout;
    self->forming_from = from;
    detail::exchange(*self, own, bytes, all);
    end_membership(std::move(self));  // tells the others that this rank leaves
}

COLLS_INLINE joined_group join_by_messages(extend::message_member&& member, int rank, int size) {
    const bool advances_others = member.advances_others;
    std::unique_ptr<rank_context> self = messaging_backend::context(std::move(member), rank, size);
    if (advances_others) join_groups_of_thread(*self);
    return joined(std::move(self));
}

}  // namespace colls::inline v1::detail
