// What a rank tells of its calls, where COLLS_TRACE or COLLS_DEBUG=trace asks for it: see files/.
// IWYU pragma: private
#pragma once

#include <colls/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace colls::inline v1::detail {

struct call;
struct rank_context;

/// A part of a call; times as seconds_now says them.
struct traced_part {
    enum kind : unsigned char { wait, copy, fold };
    double begin = 0, end = 0;
    std::size_t bytes = 0;
    int peer = none, round = none;
    kind what = wait;
};
/// How a call went that is over.
struct traced_call {
    const char* name = "";  ///< the collective, send or recv
    std::string_view schedule = {};
    int peer = none;           ///< of a message; none: a collective
    std::uint64_t number = 0;  ///< of a collective
    double begin = 0;
    bool started = false, failed = false;
};

class tracer {
public:
    virtual ~tracer() = default;
    /// A call begins: returns when.
    virtual double begin() = 0;
    virtual void add(const traced_part& p) = 0;
    virtual void end(const call& c, const traced_call& how) = 0;
};
/// That of a new group; null: nothing is traced. (Groups bring it with them, as their engine.)
std::unique_ptr<tracer> make_tracer(const rank_context& self);

}  // namespace colls::inline v1::detail
