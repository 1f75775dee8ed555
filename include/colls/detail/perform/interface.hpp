// What the calls and the objects that they return are made of: declarations.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Nothing here depends on the type of a schedule, an element or an operator. definitions.hpp includes the definitions.
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/error.hpp>
#include <colls/extend/host_map.hpp>

#include <cstddef>
#include <string_view>

namespace colls::inline v1::detail {

enum class operation_kind : unsigned char;
struct call;
struct composite_call;
struct request;
struct rank_context;
class operation_state;
struct prepared;
struct allocation;
struct progress_worker;

// Unless noexcept, each of these may throw colls::error.

/// Throws an error of this rank about arguments from which no request could be made, and tells ranks that wait for its
/// next call.
[[noreturn]] void refuse_call(rank_context& self, errc code, const char* why);
/// From now on this rank's calls are parts of that one, or of none. Returns of which they were before.
const composite_call* set_composite(rank_context& self, const composite_call* whole);
/// Checks a request and runs the collective to its end.
void perform(rank_context& self, request& q);
void perform_message(rank_context& self, operation_kind kind, const call& c, int peer);
/// A send and a receive at once.
void perform_exchange(rank_context& self, const call& sent, int to, const call& received, int from);
/// A receive from any rank; returns that rank.
int perform_recv_any(rank_context& self, const call& c);
/// The rank from which it would receive now; or none.
int probe_any(rank_context& self);

/// Checks a request and starts the collective. The caller owns the operation until one of the functions below sets its
/// pointer to null.
operation_state* begin(rank_context& self, request& q);
operation_state* begin_message(rank_context& self, operation_kind kind, const call& c, int peer);
/// Would `begin` return without waiting for other ranks? It waits where some rank has so many operations of the group
/// in flight that there is no place for another one.
bool begins_at_once(rank_context& self);
/// Each advances all operations of the thread; where o is over or has failed, it is released and o becomes null.
void test_operation(rank_context& self, operation_state*& o);
void wait_operation(rank_context& self, operation_state*& o);
void wait_operation_for(rank_context& self, operation_state*& o, double seconds);
/// For a destructor: waits, and releases o. While an exception unwinds it waits for a second at most, and then breaks
/// the group: the other ranks may wait for calls that this rank will not make any more.
void finish_operation(rank_context& self, operation_state*& o, bool unwinding) noexcept;
/// Yields the processor between two rounds of tests, and sleeps once they have gone on for some milliseconds. Takes
/// what it returned the last time, at first 0.
double pause_between_tests(double since);

/// Checks a request and keeps it.
prepared* prepare_call(rank_context& self, request& q);
/// Checks the arguments of a request that is then prepared with copies of its buffers.
void check_arguments(rank_context& self, request& q);
/// Both throw invalid_argument where p is null, which a moved-from plan is.
void run_prepared(prepared* p);
operation_state* start_prepared(prepared* p);
void drop_prepared(prepared* p);

// A rank context is held by its communicator, its operations, prepared calls and progress threads. The last of them to
// go makes the rank leave the group.
joined_group split(rank_context& self, int color, int key);
joined_group shrink(rank_context& self);
void leave_group(rank_context* self);
void dump(rank_context& self);
void abort_group(rank_context& self, std::string_view why);
/// `off`: there is no deadline.
void set_timeout(rank_context& self, double seconds, bool off);
/// Ranks on each host, where there are several hosts with equally many consecutive ranks each; else 0.
int ranks_per_host(const rank_context& self);
/// Which ranks share a host, where there are several hosts and one of them has several ranks; else not known.
host_map hosts_of(const rank_context& self);
[[noreturn]] void throw_no_group();

allocation* allocate(rank_context& self, std::size_t count, std::size_t element, std::byte*& at);
void deallocate(allocation* a);
/// The same kind of memory, of `bytes` bytes or more, as the length that it sets says; out of what the rank keeps for
/// its calls. The system has given its pages.
std::byte* take_kept(rank_context& self, std::size_t& bytes);
void give_kept(rank_context& self, std::byte* at, std::size_t bytes);

progress_worker* start_progress(rank_context& self);
void stop_progress(progress_worker* w);

}  // namespace colls::inline v1::detail
