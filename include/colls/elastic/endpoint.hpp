// Endpoints, at which other processes reach this one, and groups of the processes whose handles are listed.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/communicator.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace colls::inline v1 {

/// How an endpoint listens.
struct endpoint_options {
    /// Interface (eth0) or own address. Empty: COLLS_INTERFACE says it; where that is not set either, all interfaces,
    /// and the handle has the first addresses that are neither loopback nor link-local.
    std::string_view interface_name = {};
};

/// Where other processes reach this one. A process opens one and keeps it, as its listening socket, for all groups that
/// it joins, one after the other. One thread at a time uses it. A forked child cannot use its parent's.
class endpoint {
public:
    /// Throws colls::error: invalid_argument where this host has no such interface, unsupported where the system gives
    /// no socket.
    static endpoint open(const endpoint_options& how = {});
    endpoint(endpoint&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
    endpoint& operator=(endpoint&& other) noexcept {
        state* const mine = state_;
        state_ = other.state_, other.state_ = mine;
        return *this;
    }
    ~endpoint() { close(); }

    /// A text without spaces, of at most 255 characters, by which any process can join a group with this one: where it
    /// is, and a random name, and nothing secret. (COLLS_TOKEN is the secret, where the network is not trusted: it must
    /// be the same for all.) Throws invalid_argument where the endpoint is closed.
    std::string handle() const;
    /// No process reaches this one from now on. Groups that it has joined go on.
    void close() noexcept;

    /// For the library.
    struct state;
    /// For the library. Throws invalid_argument where it is closed, or another process has opened it.
    state& opened() const;

private:
    explicit endpoint(state* s) : state_(s) {}
    state* state_ = nullptr;
};

/// How a group is joined.
struct join_options {
    /// Seconds until all have to be there. 0: COLLS_TIMEOUT. (The deadline of the group's calls is COLLS_TIMEOUT in any
    /// case: see communicator::set_timeout.)
    double timeout = 0;
    /// As in bootstrap_options.
    std::string_view interface_name = {};
    /// Called once the arguments have been found right, before any other process hears of it: here a group that is to
    /// be replaced can end.
    std::function<void()> accepted = {};
};

/// Makes a group from the processes whose handles are listed, with ranks in the order of the list. Collective: each of
/// them calls it, with the same list and the same uuid: a name of this attempt, which an endpoint never takes twice.
/// The transport is that of world(), and its memory is that of no earlier group.
///
/// All of them get the group or none does. Where one does not come, all others have an error that names it by its
/// position, process and address: at once where it has died, or at the deadline; a try with another uuid, and perhaps
/// another list, can follow. (Where a process dies just after the group was formed, some may have it already: their
/// first call on it fails.) No process is needed but those on the list. They meet at the first one.
///
/// Throws colls::error: invalid_argument where the list or the uuid is wrong (empty, or a handle that is malformed, of
/// another version, or there twice; this endpoint is not in it; the uuid was used before), or the tokens differ;
/// mismatch where lists, versions or transports differ; timeout where one does not come by the deadline; peer_failed
/// where one has died or cannot take part. error::peer() is a position in the list.
///
/// Costs five exchanges of at most 64 bytes over the first process, which has n - 1 connections meanwhile.
communicator join(
    endpoint& own, std::string_view uuid, std::span<const std::string> handles, const join_options& how = {});

}  // namespace colls::inline v1
