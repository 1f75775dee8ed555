// Exchanges of a few bytes while groups are formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/execute/executor.hpp>
#include <colls/schedules/circulant.hpp>

#include <type_traits>

namespace colls::inline v1::detail {

/// While it lives, this rank's calls are parts of `whole`.
class within_call {
public:
    within_call(rank_context& self, const composite_call& whole) : self_(self), before_(self.log.part_of) {
        self.log.part_of = &whole;
    }
    ~within_call() { self_.log.part_of = before_; }
    within_call(const within_call&) = delete;
    within_call& operator=(const within_call&) = delete;

private:
    rank_context& self_;
    const composite_call* before_;
};

/// Every rank's `bytes` bytes, at most 56, to `all` on every rank, in rank order. Collective. By a schedule of its own:
/// COLLS_SCHEDULE is for the program's calls.
inline void exchange(rank_context& self, const void* own, std::size_t bytes, void* all) {
    call c{
        .what = collective::all_gather, .in = static_cast<const std::byte*>(own), .out = static_cast<std::byte*>(all)};
    c.count = bytes * static_cast<std::size_t>(self.size);
    c.signature = hash_text("split");
    const composite_call split{.name = "split", .what = c.what};
    const within_call within(self, split);
    if (!self.by_messages) return guarded(self, "split", [&] { eager_executor(self, c).run(); });
    constexpr auto s = schedule_of<collective::all_gather>(circulant<>{});
    static const any_schedule fixed(s, proven_table_of<std::remove_const_t<decltype(s)>>, "circulant");
    schedule_choice p = resolve(self, c, {&fixed}, false);
    p.name = "within split";
    if (self.log.has_refused) tell_refusal(self, nullptr);
    const std::unique_ptr<pending> made = self.backend->make_collective(self);
    executor& o = static_cast<executor&>(*made);
    o.arguments = c;
    o.choose(p);
    guarded(self, split.name, [&] {
        o.begin();
        run_until_done(self, o);
    });
}

}  // namespace colls::inline v1::detail
