// The calls on elements of one type: included by the two sources that instantiate them.
#pragma once

#include "data.hpp"
#include "schedule_list.hpp"

#include <stdexcept>

namespace perf {

template <class T, bool scan, class F>
auto with_operator(reduction op, F f) {
    if constexpr (std::is_unsigned_v<T>)
        if (op == reduction::compose) return f(compose_maps{});
    if constexpr (!std::is_same_v<T, std::uint16_t>) {  // only there for the check of order
        if constexpr (!scan)
            if (op == reduction::avg) return f(colls::avg);
        switch (op) {
            case reduction::sum:
                return f(colls::sum);
            case reduction::prod:
                return f(colls::prod);
            case reduction::min:
                return f(colls::min);
            case reduction::max:
                return f(colls::max);
            default:
                break;
        }
    }
    throw std::logic_error("colls_perf: no such operator on this type");
}

template <class Calls, class T>
typename Calls::result make_call(colls::communicator& comm, const call& c) {
    std::span<T> in(reinterpret_cast<T*>(c.in), c.in_count), out(reinterpret_cast<T*>(c.out), c.out_count);
    const int root = c.root;
    switch (c.what) {
        case job::broadcast:
            return Calls::broadcast(comm, out, root);
        case job::scatter:
            if (c.schedule < 0) return Calls::scatter(comm, in, out, root);
            return [&](auto s) { return Calls::scatter(comm, in, out, root, s); }(
                       listed<colls::collective::scatter>{c.schedule});
        case job::gather:
            if (c.schedule < 0) return Calls::gather(comm, in, out, root);
            return [&](auto s) { return Calls::gather(comm, in, out, root, s); }(
                       listed<colls::collective::gather>{c.schedule});
        case job::all_gather:
            return Calls::all_gather(comm, in, out);
        case job::reduce:
            return with_operator<T, false>(c.op, [&](auto op) { return Calls::reduce(comm, in, out, op, root); });
        case job::reduce_scatter:
            return with_operator<T, false>(c.op, [&](auto op) { return Calls::reduce_scatter(comm, in, out, op); });
        case job::all_reduce:
            return with_operator<T, false>(c.op, [&](auto op) { return Calls::all_reduce(comm, in, out, op); });
        case job::all_to_all:
            return Calls::all_to_all(comm, in, out);
        case job::barrier:
            return Calls::barrier(comm);
        case job::inclusive_scan:
            return with_operator<T, true>(c.op, [&](auto op) { return Calls::inclusive_scan(comm, in, out, op); });
        case job::exclusive_scan:
            return with_operator<T, true>(c.op, [&](auto op) { return Calls::exclusive_scan(comm, in, out, op); });
        case job::all_to_all_v:
            return Calls::all_to_all_v(comm, in, out, c.sends, c.receives);
        case job::send_recv:
            break;
    }
    const int n = comm.size(), next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
    if constexpr (std::is_void_v<typename Calls::result>) {
        colls::exchange(comm, in, next, out, previous);
    } else {
        throw std::logic_error("colls_perf: send_recv is started as two operations");
    }
}
template <class T>
void start_call(colls::communicator& comm, const call& c, std::vector<colls::operation>& started) {
    if (c.what != job::send_recv) return started.push_back(make_call<colls::start, T>(comm, c));
    const int n = comm.size();
    std::span<T> in(reinterpret_cast<T*>(c.in), c.in_count), out(reinterpret_cast<T*>(c.out), c.out_count);
    started.push_back(colls::start::recv(comm, out, (comm.rank() + n - 1) % n));
    started.push_back(colls::start::send(comm, in, (comm.rank() + 1) % n));
}

template <class T>
element_type make_type(std::string_view name) {
    return {name, sizeof(T), &make_call<colls::blocking, T>, &start_call<T>, &contribute<T>, &fold<T>};
}

/// The types of each source.
std::vector<element_type> integer_types();
std::vector<element_type> float_types();

}  // namespace perf
