// Exchanges of a few bytes while groups are formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/execute/executor.hpp>

namespace colls::inline v1::detail {

/// Every rank's `bytes` bytes, at most 56, to `all` on every rank, in rank order. Collective. By a schedule of its own:
/// COLLS_SCHEDULE is for the program's calls.
inline void exchange(rank_context& e, const void* own, std::size_t bytes, void* all) {
    call c{
        .what = collective::all_gather, .in = static_cast<const std::byte*>(own), .out = static_cast<std::byte*>(all)};
    c.count = bytes * static_cast<std::size_t>(e.size);
    c.signature = hash_text("split");
    if (!e.by_messages) return guarded(e, "split", [&] { eager_executor(e, c).run(); });
    static const any_schedule fixed(schedule_of<collective::all_gather>(circulant<>{}));
    schedule_choice p = resolve(e, c, {&fixed, nullptr, nullptr}, false);
    p.name = "within split";
    withdraw_refusal(e);
    const std::unique_ptr<pending> made = e.backend->make_collective(e);
    executor& o = static_cast<executor&>(*made);
    o.arguments = c;
    o.choose(p);
    guarded(e, name_of(c.what), [&] {
        o.begin();
        run_until_done(e, o);
    });
}

}  // namespace colls::inline v1::detail
