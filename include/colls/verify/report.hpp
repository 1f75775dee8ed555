// The outcome of a proof: the law that is broken, where, and in words.
#pragma once

#include <colls/detail/prove/fault.hpp>
#include <colls/step.hpp>

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

}  // namespace colls::inline v1

#include <colls/detail/prove/report_text.hpp>  // text()
