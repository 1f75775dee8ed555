// What happens to a request: done at once, started, or kept to be done many times. Not templates: compiled once.
#pragma once

#include <colls/request.hpp>

namespace colls::inline v1 {
namespace detail {

/// The schedule, checked against what the call needs.
inline pick settle(endpoint& e, const request& q, bool mail) {
    const call& c = q.c;
    const pick p = resolve(e, c, q.how, mail);
    if (q.how.given && c.op && !c.op->commutative && !p.steps->order_preserving)
        throw error(errc::unsupported,
                    (message() << "colls: rank " << e.rank << " in " << name_of(c.what) << ": at " << e.size << " ranks "
                               << p.steps->schedule.name() << " does not keep the order of ranks, which this operator needs")
                        .text(), e.rank);
    return q.how.instead ? resolve(e, c, {q.how.instead, nullptr, nullptr}, mail) : p;
}

/// Fills an operation with a call; it is not begun.
inline void fill(operation_state& o, const call& c, const pick& p) {
    o.kind = operation_kind::collective;
    o.request = c;
    o.steps = p.steps;
    o.tuned = p.tuned;
}

/// Back to the idle ones when it leaves the scope.
struct loan {
    endpoint& e;
    operation_state* o;
    ~loan() {
        if (o) e.idle.push_back(o);
    }
};

[[gnu::cold]] [[gnu::noinline]] inline void trace(const endpoint& e, const call& c, const pick& p) {
    say(message() << "colls: rank " << e.rank << ": call " << static_cast<std::size_t>(e.calls) << ": " << name_of(c.what) << " of "
                  << c.count << " elements by " << (p.steps ? p.steps->schedule.name() : std::string_view("mailbox")));
}

inline void run_to_end(endpoint& e, const call& c, const pick& p) {
    if (e.env.debug == debug_level::trace) trace(e, c, p);
    if (p.steps == nullptr) {
        mailman m(e, c);
        try {
            m.run();
        } catch (const error&) {
            throw;
        } catch (...) {
            operator_threw(e, name_of(c.what));
            throw;
        }
        return;
    }
    const loan own{e, take_operation(e)};
    fill(*own.o, c, p);
    runner(e, *own.o).begin();
    wait_until_done(e, *own.o);
}

[[gnu::noinline]] inline void perform(endpoint& e, request& q) {
    checker(e, q).run();
    run_to_end(e, q.c, settle(e, q, true));
}

/// Starts a call whose operator and counts `keep` and the tables hold.
inline operation begin_call(endpoint& e, const call& c, const pick& p, const std::shared_ptr<const void>& keep,
                            list<std::size_t>&& in_offsets, list<std::size_t>&& out_offsets) {
    if (e.env.debug == debug_level::trace) trace(e, c, p);
    loan own{e, take_operation(e)};
    operation_state& o = *own.o;
    fill(o, c, p);
    o.request.non_blocking = true;
    o.keep = keep;
    o.in_offsets = static_cast<list<std::size_t>&&>(in_offsets);   // the data stays where it is
    o.out_offsets = static_cast<list<std::size_t>&&>(out_offsets);
    runner(e, o).begin();
    rest(e);
    own.o = nullptr;
    e.in_flight.push_back(&o);
    return operation(e, &o);
}
[[gnu::noinline]] inline operation begin(endpoint& e, request& q) {
    checker(e, q).run();
    const pick p = settle(e, q, false);
    return begin_call(e, q.c, p, q.keep, static_cast<list<std::size_t>&&>(q.in_offsets), static_cast<list<std::size_t>&&>(q.out_offsets));
}

inline operation_state& new_message(endpoint& e, operation_state& o, operation_kind kind, const call& c, int peer) {
    o.kind = kind;
    o.request = c;
    o.site = {peer, none, kind == operation_kind::send ? "send" : "recv", {}, 0, ~std::uint64_t{0}};
    auto& counters = kind == operation_kind::send ? e.sent : e.received;
    if (counters.empty()) counters.resize(static_cast<std::size_t>(e.size));
    o.sequence = counters[peer]++;
    o.at = 0;
    o.done = false;
    return o;
}
inline void check_message(const endpoint& e, operation_kind kind, const call& c, int peer) {
    const std::byte* const data = kind == operation_kind::send ? c.in : c.out;
    if (peer >= 0 && peer < e.size && (data != nullptr || c.count == 0)) return;
    message text;
    text << "colls: rank " << e.rank << " in " << (kind == operation_kind::send ? "send" : "recv") << ": ";
    if (data != nullptr || c.count == 0)
        text << "peer " << peer << " of a group of " << e.size << " ranks";
    else
        text << "the buffer is null, of " << c.count << " elements";
    throw error(errc::invalid_argument, text.text(), e.rank, peer);
}
inline operation begin_message(endpoint& e, operation_kind kind, const call& c, int peer) {
    check_message(e, kind, c, peer);
    operation_state& o = new_message(e, *take_operation(e), kind, c, peer);
    e.in_flight.push_back(&o);
    return operation(e, &o);
}
inline void perform_message(endpoint& e, operation_kind kind, const call& c, int peer) {
    begin_message(e, kind, c, peer).wait();
}

}  // namespace detail

/// A call made ready by prepare::...: its schedule chosen, its arguments checked. The buffers, and the communicator,
/// must outlive it. All ranks start and run their plans in the same order.
class [[nodiscard]] plan {
public:
    plan(detail::endpoint& e, detail::request& q) : e_(&e) {
        detail::checker(e, q).run();
        blocking_ = detail::settle(e, q, true);
        started_ = detail::settle(e, q, false);
        c_ = q.c;
        keep_ = static_cast<std::shared_ptr<const void>&&>(q.keep);
        in_offsets_ = static_cast<detail::list<std::size_t>&&>(q.in_offsets);
        out_offsets_ = static_cast<detail::list<std::size_t>&&>(q.out_offsets);
    }
    /// The call, once more, to its end. Does not allocate after its first time. Throws colls::error.
    void run() { detail::run_to_end(*e_, c_, blocking_); }
    /// The call, once more, without waiting: the plan must outlive the operation.
    operation start() { return detail::begin_call(*e_, c_, started_, keep_, {}, {}); }

private:
    detail::endpoint* e_;
    detail::call c_;
    detail::pick blocking_, started_;
    std::shared_ptr<const void> keep_;
    detail::list<std::size_t> in_offsets_, out_offsets_;
};

}  // namespace colls::inline v1
