// The connections of a rendezvous, kept until the group stands: a rank that waits for another one hears at once that it
// has ended, or that it cannot take part and why.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/net/detail/forming/records.hpp>

namespace colls::inline v1::detail {

/// Each rank has a connection to rank 0, which passes on what it hears. On them travel records of the kind `reply`:
/// `formed` when a rank has come to a step of forming, `failed` with a text where it cannot go on.
class forming_line {
public:
    forming_line() = default;
    /// `ends` of rank 0: by rank, and the first is none. Those of another rank: the one to rank 0.
    forming_line(int rank, std::vector<descriptor> ends) : rank_(rank), ends_(ends.size()) {
        for (std::size_t i = 0; i < ends.size(); ++i) ends_[i].fd = std::move(ends[i]);
    }

    /// Throws colls::error (peer_failed) if a rank has ended, or has told of a failure. Never waits; looks at most once
    /// a millisecond.
    [[gnu::cold]] void check() {
        const double now = seconds_now();
        if (over_ || now < looked_at_ + 1e-3) return;
        looked_at_ = now;
        polls_.clear();
        for (const end& e : ends_) polls_.push_back({e.fd.get(), POLLIN, 0});
        if (poll(polls_.data(), polls_.size(), 0) <= 0) return;
        for (std::size_t i = 0; i < ends_.size(); ++i)
            if (polls_[i].revents != 0) hear(i);
    }
    /// The connection of that rank has ended. Throws.
    [[noreturn]] void lost(int rank) {
        fail(rank_ == 0 ? static_cast<std::size_t>(rank) : 0,
            error_text() << "rank " << rank << " has ended before all ranks had formed it");
    }
    /// This rank cannot take part: the others hear why.
    [[gnu::cold]] void tell(std::string_view why) {
        if (why.starts_with("colls: ")) why.remove_prefix(7);
        if (over_) return;
        error_text text;
        if (!why.starts_with("rank ")) text << "rank " << rank_ << ": ";
        send(rendezvous::verdict::failed, text << why, none);
    }
    /// Returns when all ranks have come to the same step of forming the group. Throws as `check`, and timeout.
    [[gnu::cold]] void meet(double timeout) {
        ++step_;
        const double until = seconds_now() + timeout;
        if (rank_ != 0) send(rendezvous::verdict::formed, "", none);
        for (std::size_t i = 0; i < ends_.size(); ++i)
            while (ends_[i].fd && ends_[i].steps < step_) {
                if (seconds_now() > until)
                    throw_of_rank(rank_, errc::timeout,
                        error_text() << "rank " << rank_of(i) << " has not formed the group within " << timeout
                                     << " s: is it stopped?",
                        rank_of(i));
                call_wait_hook();
                pollfd p{ends_[i].fd.get(), POLLIN, 0};
                poll(&p, 1, 1);
                check();
            }
        if (rank_ == 0) send(rendezvous::verdict::formed, "", none);
    }
    /// Throws as `check`, if there is a reason to within a moment: for a rank to which another one seems to have ended.
    void look_for_cause() {
        for (const double until = seconds_now() + 0.3; !over_ && !ends_.empty() && seconds_now() < until; check())
            poll(nullptr, 0, 1);
    }

private:
    struct end {
        descriptor fd;
        int steps = 0;  // to which it has come
        std::size_t got = 0;
        std::array<std::byte, rendezvous::reply::bytes> bytes;
    };
    int rank_of(std::size_t i) const { return rank_ == 0 ? static_cast<int>(i) : 0; }

    [[gnu::cold]] void hear(std::size_t i) {
        end& e = ends_[i];
        const ssize_t n = ::recv(e.fd.get(), e.bytes.data() + e.got, e.bytes.size() - e.got, MSG_DONTWAIT);
        if (n < 0 && may_try_again(errno)) return;
        if (n <= 0) lost(rank_of(i));
        e.got += static_cast<std::size_t>(n);
        if (e.got < e.bytes.size()) return;
        e.got = 0;
        const auto what = rendezvous::parse<rendezvous::reply>(e.bytes);
        if (!what || what->what != rendezvous::verdict::formed)
            fail(i, what ? what->text : "bytes that are not of this protocol came");
        ++e.steps;
    }
    [[noreturn]] void fail(std::size_t from, const char* why) {
        over_ = true;
        if (rank_ == 0) send(rendezvous::verdict::failed, why, static_cast<int>(from));
        throw_of_rank(rank_, errc::peer_failed, error_text() << "the group was not formed: " << why, rank_of(from));
    }
    // A record fits into the buffer of a socket on which nothing else travels.
    [[gnu::cold]] void send(rendezvous::verdict what, const char* why, int except) {
        rendezvous::reply r{.what = what, .size = 1};
        rendezvous::set_text(r, why);
        const auto bytes = encode(r);
        for (std::size_t i = 0; i < ends_.size(); ++i)
            if (ends_[i].fd && static_cast<int>(i) != except) rendezvous::send_record(ends_[i].fd.get(), bytes, 0);
    }

    int rank_ = 0, step_ = 0;
    std::vector<end> ends_;
    std::vector<pollfd> polls_;
    double looked_at_ = 0;
    bool over_ = false;  // an error has been heard
};

}  // namespace colls::inline v1::detail
