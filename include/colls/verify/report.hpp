// What a proof says: the law that is broken, where, and in words.
#pragma once

#include <colls/schedule.hpp>

#include <string>

namespace colls::inline v1 {

// g++ 12 takes law::none for a shadow of colls::none.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// The laws of a schedule (see verify.hpp). `none`: no law is broken.
enum class law : unsigned char { none, in_range, matched, exactly_once, unmixed, complete, live, hazards };
#pragma GCC diagnostic pop

constexpr const char* name_of(law l) {
    constexpr const char* names[] = {
        "none", "in_range", "matched", "exactly_once", "unmixed", "complete", "live", "hazards"};
    return names[static_cast<int>(l)];
}

namespace detail {
/// How a law is broken: what text() words.
enum class fault : unsigned char {
    none,
    unsupported,
    extent,
    root,
    home,
    homeless,
    exchange,
    peer,
    block,
    block_set,
    barrier_blocks,
    sends_undefined,
    reduces_into_undefined,
    send_unmatched,
    receive_unmatched,
    sizes,
    twice,
    mixed,
    copied_twice,
    holds_nothing,
    holds_other,
    lacks_source,
    foreign_source,
    unheard,
    stuck
};

constexpr law law_of(fault f) {
    switch (f) {
        case fault::none:
            return law::none;
        case fault::send_unmatched:
        case fault::receive_unmatched:
        case fault::sizes:
            return law::matched;
        case fault::twice:
            return law::exactly_once;
        case fault::mixed:
            return law::unmixed;
        case fault::copied_twice:
            return law::hazards;
        case fault::holds_nothing:
        case fault::holds_other:
        case fault::lacks_source:
        case fault::foreign_source:
        case fault::unheard:
            return law::complete;
        case fault::stuck:
            return law::live;
        default:
            return law::in_range;
    }
}
}  // namespace detail

/// The outcome of a proof at one group size. Fields that do not apply are `none` (-1).
struct report {
    colls::law law = colls::law::none;         ///< the first law found broken
    detail::fault kind = detail::fault::none;  ///< how it is broken
    int n = 0;                                 ///< group size
    int rank = none;                           ///< where
    int round = none;                          ///< when; none: before the first round, or after the last
    int port = none;
    int block = none;       ///< the slot of `rank`
    int peer = none;        ///< the other rank
    int peer_block = none;  ///< the slot of `peer`
    int received = none;    ///< how many blocks `rank` receives, ...
    int sent = none;        ///< ... where `peer` sends another number
    int value = none;       ///< the extent, root or home that is out of range
    int limit = none;       ///< how many blocks a rank has, where one beyond is named
    int source = none;      ///< the rank whose contribution is missing, foreign or there twice
    int held = none;        ///< the block whose contents lie in `block`, where not its own

    constexpr bool ok() const { return law == colls::law::none; }
    constexpr explicit operator bool() const { return ok(); }
    /// The finding in one line, e.g. "round 3: rank 4 reduces block 5 from rank 2 into its block 6 (law: unmixed)".
    std::string text() const;
};

inline std::string report::text() const {
    using detail::fault;
    const auto num = [](int i) { return std::to_string(i); };
    const auto who = [&](int r) { return r == none ? std::string("no one") : "rank " + num(r); };
    const std::string at = round == none ? std::string() : "round " + num(round) + ": ";
    const std::string me = who(rank), mine = "block " + num(block), theirs = "block " + num(peer_block);
    const std::string on = " on port " + num(port);
    const std::string transfer = me + " reduces " + theirs + " from " + who(peer) + " into its " + mine;
    std::string what;
    switch (kind) {
        case fault::none:
            return "proven for " + num(n) + (n == 1 ? " rank" : " ranks");
        case fault::unsupported:
            what = "the schedule does not support " + num(n) + " ranks";
            break;
        case fault::extent:
            what = "rounds, blocks, ports or scratch is out of range (" + num(value) + ")";
            break;
        case fault::root:
            what = "the root is " + num(value) + " of " + num(n) + " ranks";
            break;
        case fault::home:
            what = mine + " has home " + num(value) + " of " + num(n) + " ranks";
            break;
        case fault::homeless:
            what = "no block has its home at " + me;
            break;
        case fault::exchange:
            what = me + " names " + who(peer) + " for its " + mine + ": each rank must be named equally often";
            break;
        case fault::peer:
            what = me + " names rank " + num(peer) + " of " + num(n) + " ranks" + on;
            break;
        case fault::block:
            what = me + " names block " + num(block) + " of " + num(limit) + on;
            break;
        case fault::block_set:
            what = me + " names more than " + num(limit) + " blocks, or a set that is none," + on;
            break;
        case fault::barrier_blocks:
            what = me + " moves blocks in a barrier" + on;
            break;
        case fault::sends_undefined:
            what = me + " sends " + mine + ", which holds nothing yet, to " + who(peer);
            break;
        case fault::reduces_into_undefined:
            what = transfer + ", which holds nothing yet";
            break;
        case fault::send_unmatched:
            what = me + " sends to " + who(peer) + on + ", which receives there from " + who(source);
            break;
        case fault::receive_unmatched:
            what = me + " receives from " + who(peer) + on + ", which sends there to " + who(source);
            break;
        case fault::sizes:
            what = me + " receives " + num(received) + " blocks from " + who(peer) + on + ", which sends " + num(sent);
            break;
        case fault::twice:
            what = transfer + ", with the contribution of " + who(source) + " a second time";
            break;
        case fault::mixed:
            what = transfer;
            if (held != none) what += ", but it brings what belongs to block " + num(held);
            break;
        case fault::copied_twice:
            what = me + " copies " + theirs + " from " + who(peer) + " into its " + mine +
                   ", into which another copy lands in this round";
            break;
        case fault::holds_nothing:
            what = me + " ends with nothing in its " + mine;
            break;
        case fault::holds_other:
            what = me + " ends with block " + num(held) + " in its " + mine;
            break;
        case fault::lacks_source:
            what = me + " ends without the contribution of " + who(source) + " in its " + mine;
            break;
        case fault::foreign_source:
            what =
                me + " ends with the contribution of " + who(source) + " in its " + mine + ", where it does not belong";
            break;
        case fault::unheard:
            what = me + " ends without having heard of " + who(source);
            break;
        case fault::stuck:
            what = me + " waits for " + who(peer) + on + " for ever, with channels that hold one message";
            break;
    }
    return at + what + " (law: " + name_of(law) + ")";
}

}  // namespace colls::inline v1
