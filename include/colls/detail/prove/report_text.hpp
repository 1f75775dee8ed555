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

}  // namespace colls::inline v1
