// A report in words.
// IWYU pragma: private, include <colls/verify/report.hpp>
#pragma once

#include <colls/verify/report.hpp>

#include <string>

namespace colls::inline v1 {

inline std::string report::text() const {
    using detail::fault;
    const auto num = [](int i) { return std::to_string(i); };
    const auto name = [&](int r) { return r == none ? std::string("no rank") : "rank " + num(r); };
    const std::string at = round == none ? std::string() : "round " + num(round) + ": ";
    const std::string me = name(rank), mine = "block " + num(block), theirs = "block " + num(peer_block);
    const std::string on = " on port " + num(port);
    const std::string transfer = me + " reduces " + theirs + " from " + name(peer) + " into its " + mine;
    const std::string range = ", but the group has ranks 0 to " + num(n - 1);
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
            what = "the root is rank " + num(value) + range;
            break;
        case fault::home:
            what = mine + " has home rank " + num(value) + range;
            break;
        case fault::homeless:
            what = "no block has its home at " + me;
            break;
        case fault::exchange:
            what = me + " names " + name(peer) + " for its " + mine + ": each rank must be named equally often";
            break;
        case fault::contents:
            what = me + " names block " + num(value) + " for its slot " + num(block) + ", and there is no such block";
            break;
        case fault::peer:
            what = me + on + " names rank " + num(peer) + range;
            break;
        case fault::block:
            what = me + on + " names block " + num(block) + ", but has blocks 0 to " + num(limit - 1);
            break;
        case fault::block_set:
            what = me + on + " names more than " + num(limit) + " blocks, or a set with an extent below 0";
            break;
        case fault::barrier_blocks:
            what = me + on + " names blocks, but a barrier sends none";
            break;
        case fault::sends_undefined:
            what = me + " sends " + mine + ", which holds nothing yet, to " + name(peer);
            break;
        case fault::reduces_into_undefined:
            what = transfer + ", which holds nothing yet";
            break;
        case fault::send_unmatched:
            what = me + " sends to " + name(peer) + on + ", which receives there from " + name(source);
            break;
        case fault::receive_unmatched:
            what = me + " receives from " + name(peer) + on + ", which sends there to " + name(source);
            break;
        case fault::sizes:
            what = me + " receives " + num(received) + " blocks from " + name(peer) + on + ", which sends " + num(sent);
            break;
        case fault::twice:
            what = transfer + ", with the contribution of " + name(source) + " a second time";
            break;
        case fault::mixed:
            what = transfer;
            if (held != none) what += ", but it brings what belongs to block " + num(held);
            break;
        case fault::copied_twice:
            what = me + " copies " + theirs + " from " + name(peer) + " into its " + mine +
                   ", into which another copy lands in this round";
            break;
        case fault::holds_nothing:
            what = me + " ends with nothing in its " + mine;
            break;
        case fault::holds_other:
            what = me + " ends with block " + num(held) + " in its " + mine;
            break;
        case fault::lacks_source:
            what = me + " ends without the contribution of " + name(source) + " in its " + mine;
            break;
        case fault::foreign_source:
            what = me + " ends with the contribution of " + name(source) + " in its " + mine +
                   ", where it does not belong";
            break;
        case fault::unheard:
            what = me + " ends without depending on " + name(source);
            break;
        case fault::stuck:
            what = me + " waits for " + name(peer) + on + " for ever, with channels that hold one message";
            break;
    }
    return at + what + " (law: " + name_of(law) + ")";
}

}  // namespace colls::inline v1
