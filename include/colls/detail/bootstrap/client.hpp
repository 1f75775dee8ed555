// The other ranks' side of a rendezvous: they call on rank 0 until it answers.
#pragma once

#include <colls/detail/bootstrap/meeting.hpp>

namespace colls::inline v1::detail::rendezvous {

class visit {
public:
    visit(const launch& l, double timeout) : l_(l), timeout_(timeout), until_(seconds_now() + timeout) {}

    meeting run() {
        for (;;) {
            find_addresses();
            for (int port = l_.port; port < l_.port + l_.ports; ++port)
                for (address& at : addresses_)
                    if (seconds_now() < until_ && greet(at.set_port(port))) return await_the_others();
            if (seconds_now() + pause_between >= until_) give_up();
            poll(nullptr, 0, static_cast<int>(pause_between * 1e3));
        }
    }

    /// For another rank 0 that finds its port taken: throws if that is by a rank 0 of the same group.
    void look_at(const address& at) { greet(at); }

private:
    static constexpr double pause_between = 0.05;
    static constexpr double patience = 10,
                            patience_of_many = 2;  ///< seconds for an answer, where there is one address, or more

    void find_addresses() {
        if (!addresses_.empty() && seconds_now() < found_ + 1) return;  // names may change, but not so fast
        addresses_ = resolve(l_.host, l_.port, &unknown_);
        found_ = seconds_now();
        if (addresses_.empty()) why_ = (message() << "the name is not known: " << unknown_).text();
    }

    /// True if rank 0 of this group is there, and has accepted this rank. Throws if it has refused it. Else false:
    /// `why_`.
    bool greet(const address& at) {
        const bool only = l_.ports == 1 && addresses_.size() == 1;
        const double limit = std::min(until_, seconds_now() + (only ? patience : patience_of_many));
        at_ = text_of(at);
        fd_ = start_connect(at);
        if (!fd_) return failed(errno);
        connection_state state;
        while ((state = connected(fd_.get())).is == connection_state::no)
            if (!wait_for(fd_.get(), POLLOUT, limit)) return failed(ETIMEDOUT);
        if (state.is == connection_state::failed) return failed(state.error);

        // Nothing is sent to anyone who does not speak first, and in this library's way.
        std::array<std::byte, challenge_bytes> theirs;
        if (const int e = receive_all(fd_.get(), theirs.data(), prefix_bytes, limit)) return failed(e);
        const auto version = parse_prefix(theirs);
        if (!version || version->kind != record_kind::challenge) return failed("something else listens there");
        own_ = listen_for_members(l_, local_address(fd_.get()));
        hello h{.once = random_nonce(), .rank = l_.rank, .size = l_.size, .who = self(own_)};
        if (version->protocol != rendezvous_version) {
            const auto bytes = encode(h);  // for rank 0 to see the other version
            send_all(fd_.get(), bytes.data(), bytes.size(), limit);
            message text;
            text << "rank 0 uses colls " << *version << ", but this rank uses colls " << prefix{};
            if (only) refused(errc::mismatch, text.text());
            return failed(text.text());
        }
        if (const int e = receive_all(fd_.get(), theirs.data() + prefix_bytes, challenge_bytes - prefix_bytes, limit))
            return failed(e);
        const auto c = parse_challenge(theirs);
        if (!c) return failed("something else listens there");
        ours_ = h.once;
        theirs_ = c->once;
        h.proof = prove(l_.token, theirs_, ours_, encode(h));
        const auto bytes = encode(h);
        if (const int e = send_all(fd_.get(), bytes.data(), bytes.size(), limit)) return failed(e);

        reply a;
        bool known = false;
        if (const int e = hear(a, known, limit)) return failed(e);
        if (!known) {
            if (only)
                refused(errc::invalid_argument,
                    "the tokens differ (COLLS_TOKEN must be the same for all ranks of a group, "
                    "and of no other group there)");
            return failed("a group with another token is there");
        }
        take(a);
        return true;
    }

    bool failed(const char* why) {
        why_ = why;
        fd_.close();
        return false;
    }
    bool failed(int error) {
        return failed(error == ENODATA     ? "the connection was closed"
                      : error == ETIMEDOUT ? "no answer"
                                           : std::strerror(error));
    }

    /// The next answer; `known` if it is from who has the token. An errno where none comes.
    int hear(reply& to, bool& known, double limit) {
        std::array<std::byte, reply_bytes> bytes;
        if (const int e = receive_all(fd_.get(), bytes.data(), bytes.size(), limit)) return e;
        const auto a = parse_reply(bytes);
        if (!a) return EPROTO;
        known = same(a->proof, prove(l_.token, theirs_, ours_, bytes));
        to = *a;
        return 0;
    }
    /// Throws if it is a refusal.
    void take(const reply& a) {
        switch (a.what) {
            case verdict::accepted:
            case verdict::waiting:
                missing_ = a.text;
                return;
            case verdict::complete:
                return;
            case verdict::version_skew:
            case verdict::other_size:
                refused(errc::mismatch, a.text);
            case verdict::broken:
                fail(errc::timeout, l_, message() << "the group did not come together: " << a.text);
            case verdict::wrong_token:
            case verdict::rank_out_of_range:
            case verdict::rank_taken:
                break;
        }
        refused(errc::invalid_argument, a.text);
    }
    [[noreturn]] void refused(errc code, const char* why) {
        fail(code, l_, message() << "rank 0 at " << at_ << " does not take this rank: " << why, 0);
    }

    meeting await_the_others() {
        for (;;) {
            reply a;
            bool known = false;
            const int e = hear(a, known, until_);
            if (e == ETIMEDOUT)
                fail(errc::timeout, l_,
                    message() << "rank 0 at " << at_ << " was met, but after " << timeout_ << " s it "
                              << "still waited for " << missing_
                              << "; was it started, with the same COLLS_MASTER_ADDR, "
                              << "COLLS_MASTER_PORT and COLLS_TOKEN?");
            if (e || !known) gone(e ? e : EPROTO);
            take(a);
            if (a.what == verdict::complete) return take_table(a.group);
        }
    }
    meeting take_table(std::uint64_t group) {
        digest proof;
        std::vector<std::byte> bytes(table_bytes(l_.size));
        if (const int e = receive_all(fd_.get(), proof.data(), proof.size(), until_)) gone(e);
        if (const int e = receive_all(fd_.get(), bytes.data(), bytes.size(), until_)) gone(e);
        auto members = parse_table(bytes, l_.size);
        if (!members || !same(proof, prove_table(l_.token, theirs_, ours_, sha256().add(bytes).finish()))) gone(EPROTO);
        for (member& m : *members) m = seen_over(fd_.get(), m);
        return {l_.rank, l_.size, group, std::move(*members), std::move(own_)};
    }
    [[noreturn]] void gone(int error) {
        message text;
        text << "rank 0 at " << at_ << " was met, and then ";
        if (error == ETIMEDOUT)
            text << "did not send the list of ranks within " << timeout_ << " s";
        else if (error == ENODATA)
            text << "went away before all ranks had come";
        else
            text << "lost: " << std::strerror(error);
        fail(error == ETIMEDOUT ? errc::timeout : errc::peer_failed, l_, text, 0);
    }

    [[noreturn]] void give_up() {
        message text;
        text << "could not meet rank 0 at " << std::string_view(l_.host).substr(0, 100) << ", port " << l_.port;
        if (l_.ports > 1) text << " to " << l_.port + l_.ports - 1;
        text << ", within " << timeout_ << " s";
        if (!why_.empty()) text << "; at last: " << why_;
        text << ". Was rank 0 started? Are COLLS_MASTER_ADDR (or MASTER_ADDR) and its port right, and the same for all "
                "ranks? Is "
                "there a firewall?";
        fail(errc::timeout, l_, text, 0);
    }

    const launch& l_;
    double timeout_, until_, found_ = 0;
    const char* unknown_ = "";
    std::vector<address> addresses_;
    descriptor fd_, own_;
    nonce ours_{}, theirs_{};
    std::string at_, why_, missing_ = "other ranks";
};

}  // namespace colls::inline v1::detail::rendezvous
