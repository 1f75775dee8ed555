// How the processes of a list meet, and exchange what the forming of their group needs: each of them connects to the
// first one, the leader.
//
// While one has not come, the leader knocks at its endpoint, and so hears at once when its process ends; where the
// other one leads as well, since it has another list, it refuses. A member hears from its own connection that the
// leader has ended. Whoever gives up tells the leader why, and the leader tells all.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/detail/call_at.hpp>

#include <unordered_map>

namespace colls::inline v1::detail::endpoints {

/// The handles of a join, as this process was given them.
struct join_list {
    std::vector<handle> members;
    int own = none;
    digest in_order{};
    std::uint64_t set = 0;  ///< a hash that does not depend on the order

    int size() const { return static_cast<int>(members.size()); }
    const handle& at(int i) const { return members[static_cast<std::size_t>(i)]; }
    /// "position 2 of the list (process 7 at 10.0.0.3:2000)".
    std::string name(int i) const { return "position " + std::to_string(i) + " of the list (" + at(i).place() + ")"; }
};

/// How the errors of a join begin; the user's uuid may have any bytes.
[[gnu::cold]] inline error_text text_of_join(std::string_view uuid) {
    std::string shown(uuid.substr(0, 60));
    for (char& c : shown)
        if (c < ' ' || c > '~') c = '?';
    return error_text() << "colls: join '" << shown << "': ";
}
[[noreturn, gnu::cold]] inline void refuse_join(std::string_view uuid, const error_text& why, int peer = none) {
    throw error(errc::invalid_argument, text_of_join(uuid) << why, none, peer);
}

/// Throws invalid_argument.
[[gnu::cold]] inline join_list read_list(
    const handle& own, std::string_view uuid, std::span<const std::string> handles) {
    if (handles.empty()) refuse_join(uuid, error_text() << "the list of handles is empty");
    join_list l;
    sha256 sum;
    struct by_bytes {
        std::size_t operator()(const endpoint_name& n) const {
            std::size_t hash;
            std::memcpy(&hash, n.data(), sizeof hash);  // it is random
            return hash;
        }
    };
    std::unordered_map<endpoint_name, int, by_bytes> found;
    for (const std::string& text : handles) {
        const int i = l.size();
        const char* why = "";
        auto h = parse_handle(text, why);
        if (!h)
            refuse_join(uuid,
                error_text() << "position " << i << " of the list " << why << ": '"
                             << std::string_view(text).substr(0, 60) << "'",
                i);
        if (const auto [before, is_new] = found.emplace(h->name, i); !is_new)
            refuse_join(uuid,
                error_text() << "positions " << before->second << " and " << i << " of the list are the same handle ("
                             << h->place() << ")",
                i);
        if (h->name == own.name) {
            if (text != own.text())
                refuse_join(
                    uuid, error_text() << "position " << i << " of the list is this endpoint's handle, changed", i);
            l.own = i;
        }
        sum.add(std::as_bytes(std::span(text))).add(std::as_bytes(std::span("\n", 1)));
        std::uint64_t hash = hash_mix(0, h->host);
        for (const std::byte b : h->name) hash = hash_mix(std::to_integer<std::uint64_t>(b), hash);
        l.set += hash;
        l.members.push_back(std::move(*h));
    }
    if (l.own == none)
        refuse_join(uuid, error_text() << "this endpoint's own handle is not among the " << l.size() << " of the list ("
                                       << own.place() << ")");
    l.in_order = sum.finish();
    return l;
}

class star final : public star_exchange {
public:
    star(endpoint::state& e, std::string_view uuid, const join_list& list, double timeout)
        : star_exchange(list.own, list.size(), timeout, seconds_now() + timeout), e_(e), uuid_(uuid), list_(list) {
        said_.group = e.joining = number_of_group(uuid);
        e.use(said_.group);
        said_.list = list.in_order, said_.set = list.set;
        said_.position = list.own, said_.size = list.size();
        e.text.copy(said_.own, handle::most_text);
        lines_.resize(leads() ? list.members.size() : 1);
    }
    /// Those that come later, or twice, are refused.
    ~star() override {
        e_.joining = {};
        for (visitor& v : take_visitors())
            v.line.send(rendezvous::refusal(errc::peer_failed, none, "its attempt with that uuid has ended"), e_.token);
    }

    /// Returns when all have come. Throws colls::error.
    [[gnu::cold]] void meet_all() {
        if (list_.size() == 1) return;
        leads() ? gather() : go();
    }
    double seconds_left() const { return std::max(until_ - seconds_now(), 0.1); }

    std::string name(int i) const override { return list_.name(i); }
    [[gnu::cold]] void tell(errc code, int about, std::string_view why) override {
        e_.last = said_.group, e_.last_end = why.substr(0, 160), e_.last_about = about;
        // Those that have not come, and wait, are told, too.
        for (visitor& v : take_visitors()) v.line.send(rendezvous::refusal(code, about, why), e_.token);
        for (watched& w : watches_) w.call.reset();
        star_exchange::tell(code, about, why);
    }
    /// Ranks are positions.
    [[gnu::cold]] error pass_on(const error& x) override {
        const int about = x.peer() == none ? own() : x.peer();
        error_text why;
        why << name(about) << ": " << quoted(x.what());
        tell(x.code(), about, why.text());
        return error_of(x.code(), about, why);
    }

private:
    static constexpr double patience = 0.05;        // seconds after which the leader looks whether a member is alive
    static constexpr double report_interval = 0.1;  // between two replies that name those that are missing

    struct watched {
        std::optional<call_at> call{};
        peer_line line{};
        bool met = false;
    };

    error error_of(errc code, int about, const error_text& why) const override {
        return {code, text_of_join(uuid_) << why, own(), about};
    }

    // The leader.
    [[gnu::cold]] void gather() {
        watches_.resize(lines_.size());
        const double began = seconds_now();
        double reported_at = began;
        bool changed = true;
        for (poll_set p;; p.wait(until_)) {
            e_.serve();
            for (visitor& v : take_visitors()) {
                welcome(v);
                changed = true;
            }
            int missing = 0;
            for (int i = 1; i < list_.size(); ++i)
                if (line(i).socket)
                    hear_failure(i), p.add(line(i));
                else
                    ++missing, look_for(i, began, p);
            if (missing == 0) break;
            const double now = seconds_now();
            if (now > until_) fail_missing();
            if (changed && now > reported_at + report_interval) {
                changed = false, reported_at = now;
                for (int i = 1; i < list_.size(); ++i)
                    if (line(i).socket) say(i, rendezvous::verdict::waiting, names_missing().c_str(), first_missing());
            }
            e_.watch(p);
        }
        watches_.clear();
        for (int i = 1; i < list_.size(); ++i) say(i, rendezvous::verdict::complete, "");
    }
    [[gnu::cold]] void welcome(visitor& v) {
        const int i = v.said.position;
        check_list(v);
        if (i == 0 || list_.at(i).name != v.own.name)
            fail(errc::mismatch, i,
                error_text() << v.own.place() << " has come as position " << i << " of the list, which is "
                             << list_.at(i).place());
        if (line(i).socket) {
            error_text text;
            text << list_.name(i) << " has come twice: do two processes use one handle?";
            v.line.send(rendezvous::refusal(errc::invalid_argument, i, text.text()), e_.token);
            return;
        }
        line(i) = std::move(v.line);
        watches_[static_cast<std::size_t>(i)].call.reset();
        say(i, rendezvous::verdict::accepted, names_missing().c_str(), first_missing());
    }
    /// Throws where the visitor has another list for this group.
    [[gnu::cold]] void check_list(visitor& v) {
        if (v.said.list == list_.in_order && v.said.size == list_.size()) return;
        error_text text;
        text << "the lists differ: that of " << v.own.place();
        if (v.said.set == list_.set && v.said.size == list_.size())
            text << " has the same handles as that of " << list_.at(own()).place() << ", in another order";
        else
            text << " has " << v.said.size << " handles, that of " << list_.at(own()).place() << " has " << list_.size()
                 << (v.said.size == list_.size() ? " others" : "");
        text << ": all must call join with the same list";
        v.line.send(rendezvous::refusal(errc::mismatch, none, text.text()), e_.token);
        fail(errc::mismatch, none, text);
    }
    /// A member that has not come: is its process there?
    [[gnu::cold]] void look_for(int i, double began, poll_set& p) {
        watched& w = watches_[static_cast<std::size_t>(i)];
        if (seconds_now() < began + patience) return;
        if (!w.call && !w.met) w.call.emplace(list_.at(i), said_, e_.token);
        if (!w.call) {
            // It was there and has this list, and now comes. Or ends: then its connection does, too.
            if (w.line.read(1) == arriving::not_yet) return p.add(w.line);
            w.met = false;
            return;
        }
        if (const auto a = w.call->step()) {
            if (a->what == rendezvous::verdict::accepted) {
                w.line = w.call->take();
                w.met = true;
                w.call.reset();
                return;
            }
            if (a->what == rendezvous::verdict::broken)
                fail(errc::peer_failed, culprit(*a, i), error_text() << list_.name(i) << " does not come: " << a->text);
            fail(rendezvous::code_of(*a), i, error_text() << list_.name(i) << " has refused: " << a->text);
        }
        if (w.call->over() && w.call->gone())
            fail(errc::peer_failed, i,
                error_text() << list_.name(i) << " is not there any more: " << w.call->why()
                             << ": has the process ended?");
        w.call->watch(p);
    }
    [[noreturn, gnu::cold]] void fail_missing() {
        const int first = first_missing();
        int count = 0;
        for (int i = 1; i < list_.size(); ++i) count += !line(i).socket;
        const watched& w = watches_[static_cast<std::size_t>(first)];
        error_text text;
        text << list_.name(first) << " has not come within " << timeout_ << " s: ";
        if (!w.call)
            text << "it was on its way";
        else
            text << (w.call->reached() ? "its endpoint is there, but has it called join with this uuid and list?"
                                       : "it is not reached: ");
        if (w.call && !w.call->reached()) text << w.call->why();
        if (count > 1) text << "; nor have " << count - 1 << " others: " << names_missing(first);
        if (!e_.refused.empty()) text << ". Refused: " << e_.refused;
        fail(errc::timeout, first, text);
    }
    int first_missing() const {
        for (int i = 1; i < list_.size(); ++i)
            if (!line(i).socket) return i;
        return none;
    }
    std::string names_missing(int after = 0) const {
        return names_of("position", list_.size(), [&](int i) { return i > after && !line(i).socket; });
    }

    // The others.
    [[gnu::cold]] void go() {
        call_at call(list_.at(0), said_, e_.token);
        bool complete = false;
        for (poll_set p; !complete; p.wait(until_)) {
            e_.serve();
            for (visitor& v : take_visitors()) {
                check_list(v);
                v.line.send(answer(rendezvous::verdict::accepted, ""), e_.token);
                knocked_.push_back(std::move(v.line));  // the leader's: it hears by it that this process ends
            }
            if (!line(0).socket) {
                if (const auto a = call.step()) {
                    line(0) = call.take();
                    hear(0, *a);
                } else if (call.over() && call.gone()) {
                    fail(errc::peer_failed, 0,
                        error_text() << list_.name(0) << " is not there any more: " << call.why()
                                     << ": has the process ended?");
                } else {
                    call.watch(p);
                }
            }
            while (line(0).socket && !complete)
                if (const auto a = read_reply(0)) {
                    complete = a->what == rendezvous::verdict::complete;
                    if (!complete) hear(0, *a);
                } else {
                    p.add(line(0));
                    break;
                }
            if (complete) break;
            // The leader knows more of those that are missing, and its deadline is perhaps a little later.
            if (seconds_now() > until_ + (line(0).socket ? std::min(timeout_ / 4, 1.0) : 0)) {
                error_text text;
                if (line(0).socket && missing_ > 0 && missing_ < list_.size())
                    fail(errc::timeout, missing_,
                        text << list_.name(missing_) << " has not come within " << timeout_
                             << " s: " << list_.at(own()).place() << " has waited for it, like " << list_.name(0));
                if (line(0).socket)
                    text << list_.name(0) << " has accepted this process, and said no more within " << timeout_
                         << " s: is it stopped?";
                else if (call.reached())
                    text << list_.name(0) << " has not come within " << timeout_
                         << " s: its endpoint is there, but has it called join with this uuid and list?";
                else
                    text << list_.name(0) << " is not reached within " << timeout_ << " s: " << call.why();
                fail(errc::timeout, 0, text);
            }
            e_.watch(p);
        }
        knocked_.clear();
    }
    // For whom the leader waits. Throws where it has refused, or given up.
    [[gnu::cold]] void hear(int i, const rendezvous::reply& a) override {
        using rendezvous::verdict;
        if (leads()) return star_exchange::hear(i, a);
        if (a.what == verdict::accepted || a.what == verdict::waiting) {
            missing_ = rendezvous::about_of(a);
            return;
        }
        if (a.what == verdict::version_skew)
            stop_as_told(errc::mismatch, 0, error_text() << name(0) << " has refused this process: " << a.text);
        if (a.what == verdict::broken)
            stop_as_told(errc::peer_failed, culprit(a, 0), error_text() << name(0) << " does not come: " << a.text);
        stop_as_told(rendezvous::code_of(a), rendezvous::about_of(a), error_text() << a.text);
    }

    // Both.
    /// The position for which the attempt of position i has ended, or i.
    int culprit(const rendezvous::reply& a, int i) const {
        const int about = rendezvous::about_of(a);
        return about >= 0 && about < list_.size() ? about : i;
    }
    /// Those that have come for this group.
    std::vector<visitor> take_visitors() {
        std::vector<visitor> mine;
        std::erase_if(e_.visitors, [&](visitor& v) {
            const bool is = v.said.size > 0 && v.said.group == said_.group;
            if (is) mine.push_back(std::move(v));
            return is;
        });
        return mine;
    }
    rendezvous::reply answer(rendezvous::verdict what, const char* text, int about = none) const {
        rendezvous::reply a = rendezvous::refusal(errc::timeout, about, "");
        a.what = what;
        rendezvous::set_text(a, text);
        return a;
    }
    void say(int i, rendezvous::verdict what, const char* text, int about = none) {
        if (!line(i).send(answer(what, text, about), e_.token, until_)) hear_end(i);
    }

    endpoint::state& e_;
    const std::string_view uuid_;
    const join_list& list_;
    knock said_{};
    std::vector<watched> watches_;    // the leader's: of each member
    std::vector<peer_line> knocked_;  // by the leader
    int missing_ = none;              // the first one for which the leader waits, as it has said
};

}  // namespace colls::inline v1::detail::endpoints
