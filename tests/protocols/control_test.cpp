// What a rank of a group that passes messages does with the control messages of its peers, which the test writes.
#include "catch.hpp"

#include "support/says.hpp"

#include <colls/collectives.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/extend/message_group.hpp>
#include <colls/messages/detail/reports.hpp>
#include <colls/operators.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using colls::errc;
using colls::extend::control_kind;
using colls::extend::control_message;
using colls::extend::message_label;
using colls::extend::piece;
using support::says;

/// One of rank 0's transports: the test is the peers.
struct scripted_transport final : colls::extend::message_transport {
    struct told {
        int to;
        control_message what;
        std::string text;
    };
    struct peer {
        std::uint64_t posted_sends = 0, posted_receives = 0, sent = 0, received = 0;
    };
    std::vector<told> all;
    std::vector<peer> peers = std::vector<peer>(3);
    bool abandoned = false;
    std::vector<int> pieces;  // of each message that is posted

    std::uint64_t send(int to, const message_label&, const piece*, int count) override {
        pieces.push_back(count);
        return of(to).posted_sends++;
    }
    std::uint64_t receive(int from, const message_label&, const piece*, int count) override {
        pieces.push_back(count);
        return of(from).posted_receives++;
    }
    std::uint64_t sent(int to) const override { return peers[static_cast<std::size_t>(to)].sent; }
    std::uint64_t received(int from) const override { return peers[static_cast<std::size_t>(from)].received; }
    void abandon() override { abandoned = true; }
    bool tell(int to, const control_message& what) override {
        all.push_back({to, what, what.text});
        return true;
    }
    void tell_all(const control_message& what) override {
        for (const int r : {1, 2}) tell(r, what);
    }
    void progress() override {}
    void idle(double) override {}

    peer& of(int r) { return peers[static_cast<std::size_t>(r)]; }
    std::vector<told> of_kind(control_kind kind) const {
        std::vector<told> some;
        for (const told& t : all)
            if (t.what.what == kind) some.push_back(t);
        return some;
    }
    void hear(int from, const control_message& what) { listening->heard(from, what); }
};

struct scripted_group final : colls::extend::message_group {
    std::uint64_t create(int) override { return 1; }
    colls::extend::message_member join(const colls::extend::message_formation&) override { return {}; }
    const colls::extend::machine& figures() const override { return figures_; }

private:
    colls::extend::machine figures_;
};

/// Rank 0 of 3, whose peers are the test.
struct scripted_rank {
    scripted_rank() {
        auto c = std::make_unique<scripted_transport>(), m = std::make_unique<scripted_transport>();
        collectives = c.get(), messages = m.get();
        comm = colls::extend::join({std::make_shared<scripted_group>(), std::move(c), std::move(m)}, 0, 3);
        comm.set_timeout(std::chrono::milliseconds(100));
    }
    /// What the operation throws, or "" where it goes on. `fails`: it does.
    static std::string error_of(colls::operation& o, bool fails, errc code, int peer) {
        try {
            for (int i = 0; i < 3; ++i) static_cast<void>(o.test());
            if (fails) o.wait();
        } catch (const colls::error& x) {
            CHECK(x.code() == code);
            CHECK(x.peer() == peer);
            return x.what();
        }
        return "";
    }
    scripted_transport* collectives;
    scripted_transport* messages;
    colls::communicator comm;
};

}  // namespace

TEST_CASE("control: what a peer says of the group's end is taken where it can be, and else ignored", "[control]") {
    using colls::detail::control::breach;
    const auto last = static_cast<std::uint64_t>(errc::peer_failed);
    for (const breach& b : {breach{errc::timeout, 2, 1, 5, "the words"},
             {errc::mismatch, 0, colls::none, colls::none, ""}, {errc::peer_failed, 1, 0, 0, "x"}}) {
        const control_message m = b;
        CHECK(breach::valid(m, 3));
        const breach read = breach::of(m);
        CHECK(read.code == b.code);
        CHECK(read.rank == b.rank);
        CHECK(read.peer == b.peer);
        CHECK(read.round == b.round);
        CHECK(std::string(read.text) == b.text);
    }
    for (const auto& [code, rank, valid] : {std::tuple{std::uint64_t{1}, 0u, true}, {last, 2u, true}, {0, 0u, false},
             {last + 1, 0u, false}, {~std::uint64_t{0}, 0u, false}, {1, 3u, false}, {1, 4u, false}}) {
        CAPTURE(code, rank);
        scripted_rank r;
        std::int64_t x = 1;
        auto o = colls::start::recv(r.comm, std::span(&x, 1), 2);
        // Its peer is rank 1, and there is no round.
        r.messages->hear(1, {control_kind::broken, code, std::uint64_t{2} << 32, rank, "the words"});
        const std::string why = scripted_rank::error_of(o, valid, static_cast<errc>(code), 1);
        CHECK(says(why, "the words") == valid);
        CHECK(r.collectives->abandoned == valid);
        // All others hear of it.
        const auto passed = r.messages->of_kind(control_kind::broken);
        REQUIRE(passed.size() == (valid ? 2 : 0));
        for (const auto& p : passed) {
            CHECK(p.what.a == code);
            CHECK(p.what.b == std::uint64_t{2} << 32);
            CHECK(p.what.c == rank);
            CHECK(p.text == "the words");
        }
        const auto also = r.collectives->of_kind(control_kind::broken);
        REQUIRE(also.size() == (valid ? 2 : 0));
        if (valid) CHECK((also[0].to == 1 && also[1].to == 2));
    }
}

TEST_CASE(
    "control: a message goes when its receiver has accepted it, and is offered where that was asked", "[control]") {
    const auto is = [](const scripted_transport::told& t, std::uint64_t number, std::uint64_t bytes) {
        return t.what.a == number && t.what.b == bytes;
    };
    std::int64_t out[4] = {}, in[4] = {};
    std::uint64_t type = 0;
    {
        scripted_rank r;
        auto first = colls::start::recv(r.comm, std::span(in, 4), 1);
        auto second = colls::start::recv(r.comm, std::span(in, 1), 1);
        const auto accepts = r.messages->of_kind(control_kind::accept);
        REQUIRE(accepts.size() == 2);
        CHECK((is(accepts[0], 0, 32) && is(accepts[1], 1, 8)));
        CHECK(accepts[0].to == 1);
        CHECK(r.messages->of(1).posted_receives == 2);
        type = accepts[0].what.c;
        CHECK(accepts[1].what.c == type);
        CHECK(!first.test());
        r.messages->of(1).received = 1;
        CHECK(first.test());
        CHECK(!second.test());
        r.messages->of(1).received = 2;
        CHECK(second.test());
    }
    {
        scripted_rank r;
        auto first = colls::start::send(r.comm, std::span(out, 2), 1);
        auto second = colls::start::send(r.comm, std::span(out, 4), 1);
        const auto test = [&] { return std::pair(first.test(), second.test()); };
        CHECK(test() == std::pair(false, false));
        CHECK(r.messages->of(1).posted_sends == 0);
        r.messages->hear(2, {control_kind::ask});  // another one asks
        r.messages->hear(2, {control_kind::accept, 0, 16, type});
        CHECK(test() == std::pair(false, false));
        CHECK(r.messages->all.empty());
        r.messages->hear(1, {control_kind::accept, 0, 16, type});
        CHECK(test() == std::pair(false, false));
        CHECK(r.messages->of(1).posted_sends == 1);
        r.messages->hear(1, {control_kind::ask});
        CHECK(test() == std::pair(false, false));
        CHECK(test() == std::pair(false, false));
        auto offers = r.messages->of_kind(control_kind::offer);
        REQUIRE(offers.size() == 2);  // the first one is offered though it is on its way; each once
        CHECK(std::count_if(offers.begin(), offers.end(), [&](const auto& o) { return is(o, 1, 32); }) == 1);
        CHECK(offers[1].what.c == type);
        CHECK(offers[1].to == 1);
        r.messages->of(1).sent = 1;
        CHECK(test() == std::pair(true, false));
        r.messages->hear(1, {control_kind::accept, 1, 32, type});
        CHECK(!second.test());
        CHECK(r.messages->of(1).posted_sends == 2);
        r.messages->of(1).sent = 2;
        CHECK(second.test());
        // One that is accepted already is not offered.
        r.messages->all.clear();
        r.messages->hear(1, {control_kind::accept, 2, 8, type});
        auto third = colls::start::send(r.comm, std::span(out, 1), 1);
        CHECK(!third.test());
        CHECK(r.messages->of_kind(control_kind::offer).empty());
        CHECK(r.messages->of(1).posted_sends == 3);
        r.messages->of(1).sent = 3;
        CHECK(third.test());
    }
    // One that does not fit.
    for (const auto& [bytes, its_type, words] :
        {std::tuple{std::uint64_t{16}, type, ""}, {std::uint64_t{17}, type, "sends 16 bytes, rank 1 expects 17"},
            {std::uint64_t{16}, type + 1, "sends 16 bytes, rank 1 expects 16 of another type"}}) {
        scripted_rank r;
        auto o = colls::start::send(r.comm, std::span(out, 2), 1);
        r.messages->hear(1, {control_kind::accept, 0, bytes, its_type});
        const std::string why = scripted_rank::error_of(o, *words != '\0', errc::mismatch, 1);
        CHECK(says(why, words));
        CHECK(why.empty() == (*words == '\0'));
        CHECK(r.messages->of(1).posted_sends == (why.empty() ? 1 : 0));
        if (!why.empty()) continue;
        r.messages->of(1).sent = 1;
        CHECK(o.test());
    }
}

TEST_CASE("control: a rank takes from any rank what was offered, each message once", "[control]") {
    scripted_rank r;
    std::int64_t in = 0;
    CHECK(colls::probe_any(r.comm) == colls::none);
    const auto asks = r.messages->of_kind(control_kind::ask);
    REQUIRE(asks.size() == 2);  // once for all
    CHECK((asks[0].to == 1 && asks[1].to == 2));
    r.messages->hear(2, {control_kind::offer, 1, 8, 0});  // its second, which says that there is a first one
    CHECK(colls::probe_any(r.comm) == 2);
    r.messages->of(2).received = 2;
    CHECK(colls::recv_any(r.comm, std::span(&in, 1)) == 2);
    r.messages->hear(2, {control_kind::offer, 0, 8, 0});  // says nothing new
    CHECK(colls::probe_any(r.comm) == 2);
    CHECK(colls::recv_any(r.comm, std::span(&in, 1)) == 2);
    CHECK(colls::probe_any(r.comm) == colls::none);
    r.messages->hear(1, {control_kind::offer, 0, 8, 0});
    CHECK(colls::probe_any(r.comm) == 1);
    auto taken = colls::start::recv(r.comm, std::span(&in, 1), 1);
    CHECK(colls::probe_any(r.comm) == colls::none);
    r.messages->of(1).received = 1;
    CHECK(taken.test());
    CHECK(r.messages->of_kind(control_kind::ask).size() == 2);
}

TEST_CASE("control: a rank that is asked tells its latest calls", "[control]") {
    scripted_rank r;
    constexpr std::uint64_t kept = colls::detail::told_call::kept;
    std::int64_t x = 0;
    std::uint64_t made = 0;
    std::vector<colls::operation> all;
    for (const std::uint64_t calls : {std::uint64_t{0}, std::uint64_t{1}, kept, kept + 3}) {
        for (; made < calls; ++made) all.push_back(colls::start::all_reduce(r.comm, std::span(&x, 1), colls::sum));
        r.collectives->all.clear();
        r.collectives->hear(2, {control_kind::inquire});
        const auto told = r.collectives->of_kind(control_kind::told);
        REQUIRE(told.size() == std::min(calls, kept));
        for (std::size_t i = 0; i < told.size(); ++i) {
            CHECK(told[i].to == 2);
            CHECK(told[i].what.a == calls - told.size() + i);
            CHECK(told[i].what.b == r.comm.context().log.of(told[i].what.a).fingerprint);
            CHECK(told[i].text.rfind("all_reduce|1|", 0) == 0);
        }
    }
    // With 1: for a long wait.
    r.comm.context().memory.state(0).waits = 77;
    r.collectives->hear(1, {control_kind::inquire, 1});
    const auto waits = r.collectives->of_kind(control_kind::waits);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].to == 1);
    CHECK(waits[0].what.a == 77);
    // What peers say is kept for the texts of errors.
    r.collectives->hear(2, {control_kind::away, 5});
    r.collectives->hear(2, {control_kind::waits, 6});
    r.collectives->hear(1, {control_kind::leave});
    CHECK(r.comm.context().memory.state(2).away == 5);
    CHECK(r.comm.context().memory.state(2).waits == 6);
    CHECK(r.comm.context().memory.state(1).gone == 1);
    CHECK(r.comm.context().memory.state(2).gone == 0);
    r.collectives->listening->lost(1, "it has left, and now ended");
    CHECK(r.comm.context().memory.poison().state == 0);
    r.collectives->listening->lost(2, "the words");
    CHECK(r.comm.context().memory.poison().state != 0);
    const auto broken = r.messages->of_kind(control_kind::broken).size();
    r.collectives->listening->lost(2, "the words");
    CHECK(r.messages->of_kind(control_kind::broken).size() == broken);
}

TEST_CASE(
    "control: messages of a rank to itself are copied in order, and one without bytes has no piece", "[control]") {
    scripted_rank r;
    std::int64_t out[3] = {5, 6, 7}, in[3] = {};
    CHECK(colls::probe_any(r.comm) == colls::none);
    auto one = colls::start::send(r.comm, std::span(out, 1), 0);
    CHECK(!one.test());
    CHECK(colls::probe_any(r.comm) == 0);
    auto two = colls::start::send(r.comm, std::span(out + 1, 2), 0);
    auto to_one = colls::start::recv(r.comm, std::span(in, 1), 0);
    CHECK(to_one.test());
    CHECK(one.test());
    CHECK(!two.test());
    auto to_two = colls::start::recv(r.comm, std::span(in + 1, 2), 0);
    CHECK(to_two.test());
    CHECK(two.test());
    CHECK(std::equal(in, in + 3, out));
    CHECK(colls::probe_any(r.comm) == colls::none);
    CHECK(r.messages->pieces.empty());

    auto empty = colls::start::recv(r.comm, std::span(in, 0), 1);
    auto some = colls::start::recv(r.comm, std::span(in, 1), 1);
    CHECK(r.messages->pieces == std::vector{0, 1});
    const std::uint64_t type = r.messages->of_kind(control_kind::accept).at(0).what.c;
    r.messages->of(1).received = 2;
    CHECK((empty.test() && some.test()));
    auto nothing = colls::start::send(r.comm, std::span(out, 0), 1);
    r.messages->hear(1, {control_kind::accept, 0, 0, type});
    CHECK(!nothing.test());
    CHECK(r.messages->pieces == std::vector{0, 1, 0});
    r.messages->of(1).sent = 1;
    CHECK(nothing.test());

    auto more = colls::start::send(r.comm, std::span(out, 2), 0);
    auto less = colls::start::recv(r.comm, std::span(in, 1), 0);
    const std::string why = scripted_rank::error_of(less, true, errc::mismatch, 0);
    CHECK(says(why, "expects 8 bytes, rank 0 sends 16"));
}

TEST_CASE(
    "control: a peer whose calls differ is asked for them, once, and the error says how they differ", "[control]") {
    std::int64_t x = 0;
    const auto begin = [&](scripted_rank& r) { return colls::start::all_reduce(r.comm, std::span(&x, 1), colls::sum); };
    const auto own_call = [](scripted_rank& r) { return r.comm.context().log.of(0).fingerprint; };
    const auto asked = [](const scripted_rank& r) { return r.collectives->of_kind(control_kind::inquire); };
    std::uint64_t right = 0;
    for (const bool ahead : {false, true})
        for (const bool differs : {false, true}) {
            CAPTURE(ahead, differs);
            scripted_rank r;
            std::vector<colls::operation> all;
            if (!ahead) all.push_back(begin(r)), right = own_call(r);
            const std::uint64_t theirs = right + differs;
            r.collectives->hear(1, {control_kind::board, 0, theirs, 1});
            if (ahead) {
                CHECK(asked(r).empty());
                all.push_back(begin(r));
            }
            REQUIRE(asked(r).size() == differs);
            r.collectives->hear(2, {control_kind::board, 0, right + 5, 1});  // another one: the first is reported
            REQUIRE(asked(r).size() == 1);
            CHECK(asked(r)[0].to == (differs ? 1 : 2));
            CHECK(asked(r)[0].what.a == 0);
            if (!differs) continue;
            r.collectives->hear(1, {control_kind::told, 0, theirs, 0, "barrier|0|none|none|none|direct|blocking|"});
            const std::string why = scripted_rank::error_of(all[0], true, errc::mismatch, 1);
            CHECK(says(why, "barrier"));
            CHECK(says(why, "all_reduce"));
        }
    for (const auto& [by_message, tells] : {std::pair{false, true}, {true, true}, {false, false}, {true, false}}) {
        CAPTURE(by_message, tells);
        scripted_rank r;
        std::vector<colls::operation> all;
        for (int i = 0; i < 3; ++i) all.push_back(begin(r));
        const std::uint64_t own = r.comm.context().log.of(1).fingerprint,
                            theirs = static_cast<std::uint64_t>(colls::collective::all_gather) << 60 | 5;
        if (by_message)
            r.collectives->listening->unexpected(1, {own, 0, 1}, {theirs, 0, 1}, 8, 8);
        else
            r.collectives->hear(1, {control_kind::board, 1, theirs, 1});
        r.comm.set_timeout(std::chrono::seconds(60));
        if (tells)
            r.collectives->hear(1, {control_kind::told, 1, theirs, 0, "barrier|0|none|none|none|direct|blocking|"});
        const std::string why = scripted_rank::error_of(all[0], true, errc::mismatch, 1);
        if (tells) CHECK(says(why, "barrier"));
        if (!tells) CHECK(says(why, "rank 1 called all_gather, this rank all_reduce"));
    }
    {  // a message that comes instead of another
        scripted_rank r;
        auto o = begin(r);
        r.collectives->listening->unexpected(2, {own_call(r), 0, 1}, {own_call(r), 0, 1}, 8, 16);
        const std::string why = scripted_rank::error_of(o, true, errc::mismatch, 2);
        CHECK(says(why, "rank 2 sends 16 bytes where this rank expects 8"));
    }
    {
        scripted_rank r;
        auto o = begin(r);
        r.collectives->listening->unexpected(2, {own_call(r), 0, 1}, {own_call(r) + 1, 0, 1}, 8, 8);
        REQUIRE(asked(r).size() == 1);
        CHECK(asked(r)[0].to == 2);
        r.collectives->hear(
            2, {control_kind::told, 0, own_call(r) + 1, 0, "barrier|0|none|none|none|direct|blocking|"});
        CHECK(says(scripted_rank::error_of(o, true, errc::mismatch, 2), "barrier"));
    }
    // One that shrinks another group says so, also to those that say later that they wait.
    scripted_rank r;
    r.comm.context().backend->absent(r.comm.context(), 9);
    CHECK(r.collectives->of_kind(control_kind::away).size() == 2);
    r.collectives->hear(2, {control_kind::board, 0, 1, 1});
    REQUIRE(r.collectives->of_kind(control_kind::away).size() == 3);
    CHECK(r.collectives->of_kind(control_kind::away)[2].to == 2);
    CHECK(r.collectives->of_kind(control_kind::away)[2].what.a == 9);
    r.comm.context().backend->absent(r.comm.context(), 0);
    r.collectives->all.clear();
    r.collectives->hear(2, {control_kind::board, 0, 1, 1});
    CHECK(r.collectives->all.empty());
    // All hear of a call that is refused here.
    try {
        colls::broadcast(r.comm, std::span(&x, 1), 3);
        CHECK(false);
    } catch (const colls::error& e) {
        CHECK(e.code() == errc::invalid_argument);
    }
    const auto refused = r.collectives->of_kind(control_kind::refused);
    REQUIRE(refused.size() == 2);
    CHECK((refused[0].to == 1 && refused[1].to == 2));
    CHECK(refused[0].what.a != 0);
    CHECK(says(refused[0].text, "root 3"));
}
