// elastic::member: how its group changes.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/collectives.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/elastic/detail/admission.hpp>
#include <colls/elastic/detail/join.hpp>
#include <colls/elastic/detail/store.hpp>
#include <colls/elastic/member.hpp>
#include <colls/operators.hpp>

#include <chrono>
#include <exception>
#include <set>
#include <stdexcept>

namespace colls::inline v1 {
namespace detail::endpoints {

/// What each member of a group tells the others where it may change.
struct report {
    rendezvous::nonce who{};      ///< the name in its handle: lists may differ where one has not heard all reports
    std::uint32_t is_member = 0;  ///< it has not only been invited
    std::uint32_t has_done = 0;   ///< its `done` counts: it was a member when the others began to ask
    std::uint64_t decided = 0, leaves = 0, knocks = 0, done = 0, random = 0;
};
inline constexpr std::size_t handle_bytes = handle::most_text + 1;

/// How many bytes an invitation has behind its reply, which says the number of handles, the uuid and the epoch: a
/// digest, and the handles.
inline std::size_t invitation_bytes(std::size_t members) { return sizeof(digest) + members * handle_bytes; }

[[gnu::cold]] inline std::vector<std::byte> encode_handles(const std::vector<std::string>& all) {
    std::vector<std::byte> bytes(all.size() * handle_bytes);
    for (std::size_t i = 0; i < all.size(); ++i)
        std::memcpy(bytes.data() + i * handle_bytes, all[i].data(), std::min(all[i].size(), handle_bytes - 1));
    return bytes;
}
[[gnu::cold]] inline std::vector<std::string> decode_handles(rendezvous::bytes_view bytes) {
    std::vector<std::string> all(bytes.size() / handle_bytes);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const char* const at = reinterpret_cast<const char*>(bytes.data() + i * handle_bytes);
        all[i].assign(at, strnlen(at, handle_bytes));
    }
    return all;
}

struct invitation {
    std::string uuid;
    std::uint64_t epoch = 0;
    std::vector<std::string> handles;
};
/// Shows that the writer of the list knows the token; `to`: the connection on which it travels.
[[gnu::cold]] inline digest proof_of(rendezvous::bytes_view list, const peer_line& to, std::string_view token) {
    return keyed_digest(std::as_bytes(std::span(token)), {to.host, to.guest, list});
}
/// False: the visitor has gone.
[[gnu::cold]] inline bool invite(const visitor& v, const invitation& i, std::string_view token) {
    rendezvous::reply a{
        .what = rendezvous::verdict::complete, .size = static_cast<std::int32_t>(i.handles.size()), .group = i.epoch};
    rendezvous::set_text(a, i.uuid);
    const std::vector<std::byte> list = encode_handles(i.handles);
    const digest proof = proof_of(list, v.line, token);
    const double until = seconds_now() + 1;
    return v.line.send(a, token, until) && rendezvous::send_record(*v.line.socket, proof, until) == 0 &&
           rendezvous::send_record(*v.line.socket, list, until) == 0;
}
/// Behind that reply. None: what came is none.
[[gnu::cold]] inline std::optional<invitation> read_invitation(
    const rendezvous::reply& a, const peer_line& from, std::string_view token, double until) {
    if (a.what != rendezvous::verdict::complete || a.size < 1 || a.size > 1 << 20) return {};
    std::vector<std::byte> bytes(invitation_bytes(static_cast<std::size_t>(a.size)));
    if (receive_all(*from.socket, bytes.data(), bytes.size(), until) != 0) return {};
    const auto list = rendezvous::bytes_view(bytes).subspan(sizeof(digest));
    digest proof;
    std::copy_n(bytes.begin(), proof.size(), proof.begin());
    if (!same(proof, proof_of(list, from, token))) return {};
    return invitation{a.text, a.group, decode_handles(list)};
}

}  // namespace detail::endpoints

struct elastic::member::state {
    state(endpoint&& e, const options& o) : own(std::move(e)), how(o) {
        const double all = detail::environment::read().timeout;
        if (!(how.timeout > 0)) how.timeout = all;
        how.admission_timeout = std::min(how.admission_timeout, all / 2);
        if (how.min < 1 || how.max < how.min || !(how.admission_timeout > 0) || how.patience < 0)
            throw error(errc::invalid_argument,
                detail::error_text() << "colls: elastic: min is " << how.min << " and max is " << how.max
                                     << ": 1 <= min <= max is needed, an admission_timeout above 0, and a "
                                        "patience of 0 or more");
    }

    endpoint own;
    options how;
    store* door = nullptr;             ///< null: none
    std::string name;                  ///< there
    std::vector<std::string> records;  ///< what it may have there, as far as these members have written it
    communicator comm;
    std::uint64_t epoch = 0;
    std::vector<std::string> handles, came, gone;  ///< handles: by rank
    std::uint64_t done = 0, done_by_all = 0, done_by_any = 0;

    [[gnu::cold]] void found(std::span<const std::string> list) {
        std::string all;
        for (const std::string& h : list) all += h;
        using namespace detail::endpoints;
        comm = join(own, "founders " + text_of(number_of_group(all)), list, {.timeout = how.timeout});
        epoch = 1;
        handles.assign(list.begin(), list.end());
        came = handles;
        wait_for_members();
    }
    /// Returns when this process is a member.
    [[gnu::cold]] void knock(std::span<const std::string> at) {
        const double until = detail::seconds_now() + how.timeout;
        std::vector<std::string> doors(at.begin(), at.end());
        is_new = true;
        for (std::string why;;) {
            const detail::endpoints::invitation i = wait_for_invitation(doors, until, why);
            doors = i.handles;
            try {
                const double left = std::max(until - detail::seconds_now(), 0.1);
                comm = join(own, i.uuid, i.handles, {.timeout = std::min(how.admission_timeout, left)});
                epoch = i.epoch;
                handles = i.handles;
                is_member = false;
                try {
                    confirm(comm, false);
                    is_member = true;
                } catch (const error& x) {
                    if (!comm.context().by_messages || !may_shrink(x) || !goes_on_with_members()) throw;
                }
                came.assign(1, own.handle());
                break;
            } catch (const error& x) {
                comm = {};
                if (x.code() == errc::invalid_argument || detail::seconds_now() > until) throw;
                why = x.what();  // the others have stayed in their group: once more
                std::erase(doors, own.handle());
            }
        }
        if (door) records = {door->read(name)};  // that of the epoch before, or this one's
        write_record();                          // as all members do after a change
        wait_for_members();
        is_new = false;
    }

    /// By the list in the store.
    [[gnu::cold]] void enter() {
        for (const double until = detail::seconds_now() + how.timeout;;) {
            const std::string known = door->read(name);
            std::vector<std::string> at = members_of(known);
            const bool mine = std::find(at.begin(), at.end(), own.handle()) != at.end();
            if (!at.empty() && !mine) try {
                    return knock(at);
                } catch (const error& x) {
                    // Only those that have ended for certain are replaced.
                    if (x.code() != errc::peer_failed || detail::seconds_now() > until) throw;
                }
            if (found_alone(known)) return wait_for_members();
        }
    }
    /// False: the store has another list by now.
    [[gnu::cold]] bool found_alone(const std::string& known) {
        const std::uint64_t next = std::strtoull(known.c_str(), nullptr, 10) + 1;
        const std::vector<std::string> self{own.handle()};
        if (!door->compare_and_set(name, known, record_of(next, self))) return false;
        comm = join(own, "alone " + std::to_string(detail::random_id()), self, {.timeout = how.timeout});
        epoch = next, handles = came = self;
        is_new = false, is_member = true;
        records = {record_of(epoch, handles)};
        return true;
    }

    /// At a boundary. True: the epoch has changed.
    bool update() {
        const std::uint64_t before = epoch;
        bool broken = false;
        try {
            if (!news(false) && comm.size() >= how.min) return false;
        } catch (const error& x) {
            if (!may_shrink(x)) throw;
            broken = true;
        }
        const std::vector<std::string> old = handles;
        go_on(broken);
        wait_for_members();
        if (epoch == before) return false;
        show();
        came = without(handles, old);
        gone = without(old, handles);
        return true;
    }
    /// For other programs (status/).
    void show() { comm.context().status->epoch.store(epoch, std::memory_order_relaxed); }
    /// Where that fails, the others find this one gone.
    void leave() {
        try {
            if (news(true)) change(false, true);  // those that stay write it
        } catch (const error&) {}
        attempt = {};
        comm = {};
    }

private:
    using report = detail::endpoints::report;
    using admission = detail::endpoints::admission;

    static std::vector<std::string> without(std::vector<std::string> all, const std::vector<std::string>& some) {
        std::erase_if(all, [&](const std::string& x) { return std::find(some.begin(), some.end(), x) != some.end(); });
        return all;
    }
    static bool may_shrink(const error& x) {
        return x.code() == errc::peer_failed || x.code() == errc::timeout || x.code() == errc::mismatch;
    }
    /// Has a member anything to say? Its `done`, too.
    bool news(bool leaves) {
        endpoint::state& e = own.opened();
        if (const double now = detail::seconds_now(); now > served_at + 1e-3) {  // steps may be short
            e.serve();
            served_at = now;
        }
        std::uint64_t all[3] = {leaves || wants(e) ? 1u : 0u, is_new ? 0 : done, is_new ? 0 : ~done};
        all_reduce(comm, std::span(all), colls::max);
        if ((all[1] | all[2]) != 0) done_by_any = all[1], done_by_all = ~all[2];
        return all[0] != 0;
    }
    bool wants(const endpoint::state& e) const {
        if (comm.size() >= how.max) return false;
        for (const detail::endpoints::visitor& v : e.visitors)
            if (v.said.size == 0) return true;
        return false;
    }

    static std::string record_of(std::uint64_t epoch, const std::vector<std::string>& members) {
        std::string text = std::to_string(epoch) + "\n";
        for (const std::string& h : members) text.append(h).append("\n");
        return text;
    }
    static std::vector<std::string> members_of(std::string_view record) {
        std::vector<std::string> all;
        for (bool first = true; !record.empty(); first = false) {
            const std::size_t end = std::min(record.find('\n'), record.size());
            if (!first) all.emplace_back(record.substr(0, end));
            record.remove_prefix(std::min(end + 1, record.size()));
        }
        return all;
    }
    /// A change. Where no majority is left, the store decides who goes on.
    [[gnu::cold]] void go_on(bool broken) {
        try {
            change_and_write(broken);
        } catch (const error& x) {
            if (!shrinking || !door || !comm.context().by_messages || x.code() != errc::peer_failed) throw;
            const std::string known = door->read(name);
            const bool ours = std::find(records.begin(), records.end(), known) != records.end();
            comm = {};
            attempt = {};
            if (!ours || !found_alone(known)) enter();
        }
    }
    /// A change, and its record in the store.
    [[gnu::cold]] void change_and_write(bool broken) {
        const std::uint64_t before = epoch;
        change(broken, false);
        if (epoch != before) write_record();
    }
    /// The first member writes the list of the members, if there is a store; all hear whether it could. What its store
    /// throws is no error of the group, which does not shrink for that.
    [[gnu::cold]] void write_record() {
        for (bool refused = false;;) try {
                if (door) records.push_back(record_of(epoch, handles));
                std::exception_ptr thrown;
                std::uint64_t lost = 0;  // 2: the store has thrown
                if (door && comm.rank() == 0) try {
                        // What another one of these members has written, and died, counts like the record before.
                        const std::string now = door->read(name);
                        lost = std::find(records.begin(), records.end(), now) == records.end() ||
                               !door->compare_and_set(name, now, records.back());
                    } catch (...) {
                        thrown = std::current_exception();
                        lost = 2;
                    }
                all_reduce(comm, std::span(&lost, 1), colls::max);
                refused = lost != 0;
                if (thrown) std::rethrow_exception(thrown);
                if (lost == 2)
                    throw error(errc::unsupported,
                        detail::error_text() << "colls: elastic: rank 0 cannot write the list of the members of '"
                                             << name << "': its store fails",
                        comm.rank(), 0);
                if (lost != 0)
                    throw error(errc::peer_failed,
                        detail::error_text() << "colls: elastic: the store has another list of the members of '" << name
                                             << "': others go on without this one, which may knock again",
                        comm.rank());
                if (door) records = {records.back()};
                return;
            } catch (const error& x) {
                if (refused || !may_shrink(x)) throw;
                change(true, false);
            }
    }
    /// One change, with what it takes to come to its end. `broken`: the group has to be shrunk first.
    [[gnu::cold]] void change(bool broken, bool leaves) {
        attempt = {};
        shrinking = false;
        for (;;) try {
                while (broken) broken = settle();
                const std::vector<report> all = reports(leaves);
                std::vector<std::string> next = stayers(all);
                const std::vector<std::string> guests = newcomers(all, next.size());
                next.insert(next.end(), guests.begin(), guests.end());
                if (next != handles && !next.empty()) replace(next, all[0].random, leaves);
                return;
            } catch (const error& x) {
                if (shrinking || leaves || !may_shrink(x)) throw;
                broken = true;
                if (attempt.comm.size() > 0) attempt.comm.abort("the group that it was to replace has failed");
            }
    }
    /// Shrinks the group, and ends an attempt to replace it. True: the group is another one now, and is to be shrunk.
    [[gnu::cold]] bool settle() {
        using next = admission::next;
        try {
            using seconds = std::chrono::duration<double>;
            const double deadline = comm.context().env.timeout;
            if (how.patience > 0 && how.patience < deadline) comm.set_timeout(seconds(how.patience));
            shrinking = true;
            comm = comm.shrink();
            shrinking = false;
            comm.set_timeout(seconds(deadline));  // that of the group it comes from, until here
        } catch (const error&) {
            if (!comm.context().by_messages || attempt.of.no_majority() != next::go_over_and_shrink) throw;
            shrinking = false;
            return go_over(), true;
        }
        ++epoch;
        // All that are left have given up what they were at, and none of them can begin anew before the reports.
        own.opened().serve();
        own.opened().refuse_late();
        const std::vector<report> all = reports(false);
        bool one_has_decided = false;
        std::vector<std::string> left;
        for (const report& r : all) {
            is_member = is_member || r.is_member != 0;
            one_has_decided = one_has_decided || r.decided != 0;
            left.push_back(handle_of(r));
        }
        const next then = attempt.of.settled(one_has_decided);
        if (then == next::spread) barrier(comm);
        handles = std::move(left);
        if (then == next::spread) return go_over(), true;
        attempt = {};
        return false;
    }
    /// A newcomer's: the new group has broken before it has confirmed. Members may have gone over to it, and need it
    /// for a majority. True: so it is, and this one is a member, too. (Newcomers alone are none: the members have
    /// stayed where they were.)
    [[gnu::cold]] bool goes_on_with_members() {
        for (bool broken = true; broken;) try {
                broken = settle();
            } catch (const error& x) {
                if (std::exchange(shrinking, false) || !may_shrink(x)) return false;
            }
        return is_member;
    }
    [[gnu::cold]] void go_over() {
        comm = std::move(attempt.comm);
        handles = std::move(attempt.handles);
        epoch = attempt.epoch;
        attempt = {};
    }
    [[gnu::cold]] std::vector<report> reports(bool leaves) {
        report mine;
        mine.who = own.opened().own.name;
        mine.is_member = is_member;
        mine.has_done = !is_new;
        mine.decided = attempt.of.has_decided();
        mine.leaves = leaves;
        for (const detail::endpoints::visitor& v : own.opened().visitors) mine.knocks += v.said.size == 0;
        mine.done = done;
        mine.random = detail::random_id();
        std::vector<report> all(static_cast<std::size_t>(comm.size()));
        all_gather(comm, std::span(&mine, 1), all);
        const auto counts = [](const report& r) { return r.has_done != 0; };
        if (std::any_of(all.begin(), all.end(), counts)) done_by_all = ~std::uint64_t{0}, done_by_any = 0;
        for (const report& r : all)
            if (counts(r)) {
                done_by_all = std::min(done_by_all, r.done);
                done_by_any = std::max(done_by_any, r.done);
            }
        return all;
    }
    std::vector<std::string> stayers(const std::vector<report>& all) const {
        std::vector<std::string> rest;
        for (const report& r : all)
            if (!r.leaves) rest.push_back(handle_of(r));
        return rest;
    }
    const std::string& handle_of(const report& r) const {
        const std::string who = detail::endpoints::text_of(r.who);
        for (const std::string& h : handles)
            if (detail::endpoints::name_in(h) == who) return h;
        throw error(errc::peer_failed, "colls: elastic: a member that is in no list of members", comm.rank());
    }
    /// The handles of those that have knocked at any member and are to be admitted: the same on all members.
    [[gnu::cold]] std::vector<std::string> newcomers(const std::vector<report>& all, std::size_t stay) {
        using namespace detail::endpoints;
        std::vector<std::size_t> counts;
        std::size_t bytes = 0;
        for (const report& r : all) bytes += counts.emplace_back(r.knocks * handle_bytes);
        if (bytes == 0) return {};
        std::vector<std::string> mine;
        for (const visitor& v : own.opened().visitors)
            if (v.said.size == 0) mine.push_back(v.own.text());
        std::vector<std::byte> everybody(bytes);
        all_gather_v(comm, encode_handles(mine), everybody, counts);
        std::set<std::string> guests;  // in an order that does not depend on whom they have asked
        for (std::string& h : decode_handles(everybody))
            if (std::find(handles.begin(), handles.end(), h) == handles.end()) guests.insert(std::move(h));
        std::vector<std::string> admitted(guests.begin(), guests.end());
        const auto most = static_cast<std::size_t>(how.max);
        admitted.resize(std::min(admitted.size(), most - std::min(most, stay)));
        return admitted;
    }
    /// The group becomes that of `next`, or remains as it is. Throws where it is broken: then `attempt` says how far it
    /// had come.
    [[gnu::cold]] void replace(const std::vector<std::string>& next, std::uint64_t random, bool leaves) {
        using namespace detail::endpoints;
        const invitation i{"epoch " + std::to_string(epoch + 1) + "/" + std::to_string(random), epoch + 1, next};
        endpoint::state& e = own.opened();
        std::erase_if(e.visitors, [&](const visitor& v) {
            const bool is = v.said.size == 0 && std::find(next.begin(), next.end(), v.own.text()) != next.end();
            if (is) invite(v, i, e.token);
            return is;
        });
        attempt.handles = next, attempt.epoch = i.epoch;
        int formed = 1;
        if (!leaves) try {
                const looking beside(e, comm);
                attempt.comm = join(own, i.uuid, next, {.timeout = how.admission_timeout});
            } catch (const std::exception&) {
                formed = 0;  // a newcomer has failed, or a member: then the vote says so, too
            }
        all_reduce(comm, std::span(&formed, 1), colls::min);
        const bool goes = attempt.of.voted(formed == 1) == admission::next::confirm;
        if (goes && !leaves) {
            confirm(attempt.comm, true);
            go_over();
        }
        attempt = {};
    }
    /// While it lives, a join ends where the group has broken that it is to replace: a member has died, or shrinks it.
    class looking {
    public:
        looking(endpoint::state& e, communicator& group) : e_(e) {
            e.look_beside = [&self = group.context()] {
                const detail::progress_lock inside(self);
                self.backend->look(self, nullptr, 0);
                // Relaxed: nothing of the report is read.
                if (self.memory.poison().state.load(std::memory_order_relaxed) != 0)
                    throw std::runtime_error("the group that it is a member of has broken");
            };
        }
        looking(const looking&) = delete;
        looking& operator=(const looking&) = delete;
        ~looking() { e_.look_beside = nullptr; }

    private:
        endpoint::state& e_;
    };
    /// All members of the new group have decided for it. Newcomers hear what has been done.
    [[gnu::cold]] void confirm(communicator& next, bool was_member) {
        std::uint64_t all[2] = {was_member ? done_by_any : 0, was_member ? ~done_by_all : 0};
        all_reduce(next, std::span(all), colls::max);
        done_by_any = all[0], done_by_all = ~all[1];
    }

    /// Returns when there are `min` members.
    [[gnu::cold]] void wait_for_members() {
        const double until = detail::seconds_now() + how.timeout;
        while (comm.size() < how.min) {
            if (detail::seconds_now() > until)
                throw error(errc::timeout,
                    detail::error_text() << "colls: elastic: " << comm.size() << " members are left, and " << how.min
                                         << " are needed (min): nobody has come within " << how.timeout << " s",
                    comm.rank());
            detail::poll_set p;
            own.opened().watch(p);
            p.wait(detail::seconds_now() + 0.02);
            bool broken = false;
            try {
                if (!news(false)) continue;
            } catch (const error& x) {
                if (!may_shrink(x)) throw;
                broken = true;
            }
            go_on(broken);
        }
    }

    [[gnu::cold]] detail::endpoints::invitation wait_for_invitation(
        const std::vector<std::string>& doors, double until, const std::string& before) {
        using namespace detail;
        using namespace endpoints;
        endpoint::state& e = own.opened();
        endpoints::knock k;
        e.text.copy(k.own, handle::most_text);
        std::vector<std::unique_ptr<call_at>> calls;
        std::vector<handle> listed;
        std::string why;
        std::optional<error> refusal;  // by one that may be a member, and lives: others may admit this one yet
        const auto note_refusal = [&](errc code) {
            return refusal.emplace(code, error_text() << "colls: elastic: not admitted: " << why);
        };
        for (const std::string& text : doors) {
            const char* wrong = "";
            const auto h = parse_handle(text, wrong);
            if (!h)
                throw error(errc::invalid_argument,
                    error_text() << "colls: elastic: '" << std::string_view(text).substr(0, 60) << "' " << wrong);
            calls.push_back(std::make_unique<call_at>(*h, k, e.token));
            listed.push_back(*h);
        }
        for (poll_set p;; p.wait(until)) {
            for (auto& c : calls) {
                if (!c) continue;
                bool again = false;
                if (const auto a = c->step()) {
                    if (const auto i = read_invitation(*a, c->take(), e.token, seconds_now() + 5)) return *i;
                    again = a->what == rendezvous::verdict::complete;  // it was cut: that member may live
                    why = again ? "an invitation has not arrived whole" : a->text;
                    const errc code = a->what == rendezvous::verdict::version_skew ? errc::mismatch
                                      : a->what == rendezvous::verdict::failed     ? rendezvous::code_of(*a)
                                                                                   : errc::peer_failed;
                    if (code == errc::invalid_argument) throw note_refusal(code);
                    if (code != errc::peer_failed) note_refusal(code);
                } else if (c->over()) {
                    why = c->why();
                    if (c->distrusted()) note_refusal(errc::invalid_argument);
                    // A connection may have failed, and the process be there.
                    again = !c->refused() && !c->distrusted();
                } else {
                    c->watch(p);
                    continue;
                }
                c.reset();
                if (again)
                    c = std::make_unique<call_at>(listed[static_cast<std::size_t>(&c - calls.data())], k, e.token);
            }
            const bool late = seconds_now() > until;
            if (std::any_of(calls.begin(), calls.end(), [](auto& c) { return c != nullptr; }) && !late) continue;
            if (refusal && !late) throw error(*refusal);
            error_text text;
            text << "colls: elastic: ";
            if (late)
                text << "not admitted within " << how.timeout << " s: do the members call update()? Is the group full?";
            else
                text << "none of the " << doors.size() << " members that are listed is there any more";
            if (!why.empty()) text << " (" << why << ")";
            if (!before.empty()) text << "; an attempt before: " << quoted(before.c_str());
            throw error(late ? errc::timeout : errc::peer_failed, text);
        }
    }

    struct {
        admission of{};
        communicator comm{};
        std::vector<std::string> handles{};
        std::uint64_t epoch = 0;
    } attempt;               // to admit newcomers
    bool is_new = false;     // the constructor has not returned
    bool is_member = true;   // false: only invited
    double served_at = 0;    // when it has looked who knocks
    bool shrinking = false;  // an error is that of comm.shrink()
};

[[gnu::cold]] COLLS_INLINE elastic::member::member(
    endpoint&& own, std::span<const std::string> handles, const options& how) {
    auto s = std::make_unique<state>(std::move(own), how);
    const std::string mine = s->own.handle();
    if (handles.empty()) throw error(errc::invalid_argument, "colls: elastic: the list of handles is empty");
    if (std::find(handles.begin(), handles.end(), mine) != handles.end())
        s->found(handles);
    else
        s->knock(handles);
    s->show();
    state_ = s.release();
}
[[gnu::cold]] COLLS_INLINE elastic::member::member(
    endpoint&& own, store& door, std::string_view name, const options& how) {
    auto s = std::make_unique<state>(std::move(own), how);
    s->door = &door;
    s->name = name;
    s->enter();
    s->show();
    state_ = s.release();
}
COLLS_INLINE elastic::member::~member() { delete state_; }
COLLS_INLINE elastic::member::state& elastic::member::there() const {
    if (state_ == nullptr) throw error(errc::invalid_argument, "colls: elastic: a member that was moved from");
    return *state_;
}
COLLS_INLINE communicator& elastic::member::comm() { return there().comm; }
COLLS_INLINE std::uint64_t elastic::member::epoch() const { return there().epoch; }
COLLS_INLINE const std::vector<std::string>& elastic::member::handles() const { return there().handles; }
COLLS_INLINE const std::vector<std::string>& elastic::member::came() const { return there().came; }
COLLS_INLINE const std::vector<std::string>& elastic::member::gone() const { return there().gone; }
COLLS_INLINE std::uint64_t elastic::member::done_by_all() const { return there().done_by_all; }
COLLS_INLINE std::uint64_t elastic::member::done_by_any() const { return there().done_by_any; }
COLLS_INLINE bool elastic::member::update(std::uint64_t done) {
    there().done = done;
    return there().update();
}
COLLS_INLINE void elastic::member::leave(std::uint64_t done) {
    there().done = done;
    there().leave();
    there().own.close();
}

}  // namespace colls::inline v1
