// The outcome of a proof: the law that is broken, where, and in words.
#pragma once

#include <colls/detail/prove/fault.hpp>
#include <colls/step.hpp>
#include <colls/verify/fold_properties.hpp>

#include <string>

namespace colls::inline v1 {

// g++ 12 takes law::none for a shadow of colls::none.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// The laws of a schedule, which verify.hpp states. `none`: no law is broken.
enum class law : unsigned char { none, in_range, matched, exactly_once, unmixed, complete, live, hazards };
#pragma GCC diagnostic pop

/// The name of a law, as verify.hpp spells it.
constexpr const char* name_of(law l) {
    constexpr const char* names[] = {
        "none", "in_range", "matched", "exactly_once", "unmixed", "complete", "live", "hazards"};
    return names[static_cast<int>(l)];
}

/// The outcome of a proof at one group size. Fields that do not apply are `none` (-1).
struct report {
    colls::law law = colls::law::none;         ///< the first law found broken
    detail::fault kind = detail::fault::none;  ///< how it is broken
    int n = 0;                                 ///< group size
    int rank = none;                           ///< the rank at which the law is broken
    int round = none;                          ///< none: before the first round, or after the last
    int port = none;                           ///< of the round
    int block = none;                          ///< the slot of `rank`
    int peer = none;                           ///< the other rank
    int peer_block = none;                     ///< the slot of `peer`
    int received = none;                       ///< blocks that `rank` receives, where `peer` sends another number
    int sent = none;                           ///< blocks that `peer` sends then
    int value = none;                          ///< the extent, root or home that is out of range
    int limit = none;                          ///< number of slots of a rank, where one beyond is named
    int source = none;  ///< source rank of the contribution that is missing, foreign or reduced twice
    int held = none;    ///< the block whose contents `block` holds instead of its own

    /// True where no law is broken.
    constexpr bool ok() const { return law == colls::law::none; }
    /// The same.
    constexpr explicit operator bool() const { return ok(); }
    /// The finding in one line, e.g. "round 3: rank 4 reduces block 5 from rank 2 into its block 6 (law: unmixed)".
    std::string text() const;
};

inline std::string report::text() const {
    using detail::fault;
    const auto num = [](int i) { return std::to_string(i); };
    const auto name = [&](int r) { return r == none ? std::string("no rank") : "rank " + num(r); };
    const std::string at = round == none ? std::string() : "round " + num(round) + ": ";
    const std::string me = name(rank), mine = "block " + num(block), theirs = "block " + num(peer_block);
    const std::string on = " on port " + num(port);
    const std::string transfer = me + " reduces " + theirs + " from " + name(peer) + " into its " + mine;
    const std::string range = ", but the group has ranks 0 to " + num(n - 1);
    const auto words = [&]() -> std::string {
        switch (kind) {
            case fault::none:
                break;
            case fault::unsupported:
                return "the schedule does not support " + num(n) + " ranks";
            case fault::extent:
                return "rounds, blocks, ports or scratch is out of range (" + num(value) + ")";
            case fault::root:
                return "the root is rank " + num(value) + range;
            case fault::home:
                return mine + " has home rank " + num(value) + range;
            case fault::homeless:
                return "no block has its home at " + me;
            case fault::exchange:
                return me + " names " + name(peer) + " for its " + mine + ": each rank must be named equally often";
            case fault::contents:
                return me + " names block " + num(value) + " for its slot " + num(block) +
                       ", and there is no such block";
            case fault::peer:
                return me + on + " names rank " + num(peer) + range;
            case fault::block:
                return me + on + " names block " + num(block) + ", but has blocks 0 to " + num(limit - 1);
            case fault::block_set:
                return me + on + " names more than " + num(limit) + " blocks, or a set with an extent below 0";
            case fault::barrier_blocks:
                return me + on + " names blocks, but a barrier sends none";
            case fault::sends_undefined:
                return me + " sends " + mine + ", which holds nothing yet, to " + name(peer);
            case fault::reduces_into_undefined:
                return transfer + ", which holds nothing yet";
            case fault::send_unmatched:
                return me + " sends to " + name(peer) + on + ", which receives there from " + name(source);
            case fault::receive_unmatched:
                return me + " receives from " + name(peer) + on + ", which sends there to " + name(source);
            case fault::sizes:
                return me + " receives " + num(received) + " blocks from " + name(peer) + on + ", which sends " +
                       num(sent);
            case fault::twice:
                return transfer + ", with the contribution of " + name(source) + " a second time";
            case fault::mixed:
                return transfer + (held == none ? "" : ", but it brings what belongs to block " + num(held));
            case fault::copied_twice:
                return me + " copies " + theirs + " from " + name(peer) + " into its " + mine +
                       ", into which another copy lands in this round";
            case fault::holds_nothing:
                return me + " ends with nothing in its " + mine;
            case fault::holds_other:
                return me + " ends with block " + num(held) + " in its " + mine;
            case fault::lacks_source:
                return me + " ends without the contribution of " + name(source) + " in its " + mine;
            case fault::foreign_source:
                return me + " ends with the contribution of " + name(source) + " in its " + mine +
                       ", where it does not belong";
            case fault::unheard:
                return me + " ends without depending on " + name(source);
            case fault::stuck:
                return me + " waits for " + name(peer) + on + " for ever, with channels that hold one message";
        }
        return {};
    };
    if (kind == fault::none) return "proven for " + num(n) + (n == 1 ? " rank" : " ranks");
    return at + words() + " (law: " + name_of(law) + ")";
}

/// What an executor needs to know of a schedule before it runs it.
struct examination {
    report proof{};                 ///< as verify(s, n), always by executing every rank
    bool order_preserving = false;  ///< as properties_of(s, n)
    fold_properties folds{};        ///< as folds_of(s, n)
    int staged_rounds = 0;          ///< as properties_of(s, n)
};

}  // namespace colls::inline v1
