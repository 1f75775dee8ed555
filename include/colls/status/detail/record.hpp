// The record in which a process publishes what its ranks do: an anonymous file, which has a place for each rank of each
// group (own_record.hpp). Another process of the same user finds it among this one's descriptors (reader.hpp).
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>
#include <colls/detail/group/call_log.hpp>

namespace colls::inline v1::detail::status {

/// The name of the file, as the system shows it in /proc.
inline constexpr char file_name[] = "colls-status";
inline constexpr std::uint32_t format = 1;
inline constexpr std::uint32_t library = COLLS_VERSION_MAJOR << 20 | COLLS_VERSION_MINOR << 10 | COLLS_VERSION_PATCH;

/// How the file begins; the places follow.
struct record_head {
    static constexpr char begin[16] = "colls status\n";
    static constexpr std::size_t bytes = 4096;       ///< up to the first place
    static constexpr std::uint32_t most = 1024;      ///< places: of further groups nothing is shown
    char magic[16];                                  ///< `begin`
    std::uint32_t form, version, place_bytes, more;  ///< version: of the library
    std::int64_t process;                            ///< that writes it: its forked children have the file, too
    std::atomic<std::uint32_t> used;                 ///< places, the first ones, that were ever taken
};

}  // namespace colls::inline v1::detail::status
