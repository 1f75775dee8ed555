// What has begun on a rank and may not be over: each wait of the rank advances all of it.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/wait_site.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

/// How far it has come, in chunks or pieces, and within one of them.
struct position {
    std::size_t chunk = 0, at = 0;
    friend bool operator==(const position&, const position&) = default;
};

/// A collective or a message. The executors implement it.
class pending {
public:
    pending(const pending&) = delete;
    pending& operator=(const pending&) = delete;
    virtual ~pending() = default;

    /// Goes on as far as it gets without waiting; true when it is over.
    virtual bool advance() = 0;
    /// Appends how far another rank is in it, as far as this rank knows: for a dump.
    virtual void describe(error_text&, int /*rank*/) const {}

    wait_site site;              ///< where it waits
    position now;                ///< changes when it has moved: then another wait begins
    std::uint64_t sequence = 0;  ///< number among those of its kind, and of a message to or from its peer
    bool done = true;
    const bool is_collective;  ///< else a message

protected:
    explicit pending(bool collective) : is_collective(collective) {}
};

}  // namespace colls::inline v1::detail
