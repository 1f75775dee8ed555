// Calls by op::exact.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/dynamic/codes.hpp>
#include <colls/dynamic/count_list.hpp>
#include <colls/exact/exact_all_reduce.hpp>
#include <colls/schedule.hpp>
#include <colls/types.hpp>

#include <span>

namespace colls::inline v1::detail {

/// Makes the typed call. Arguments: dynamic_arguments<>.
template <class T, class Arguments>
void exact_call_of(communicator& comm, const Arguments& a) {
    const std::span<const T> in(static_cast<const T*>(a.in.data), a.in.count);
    const std::span<T> out(static_cast<T*>(a.out.data), a.out.count);
    if (a.what == collective::all_reduce)
        all_reduce(comm, in, out, exact);
    else if (a.what == collective::reduce)
        reduce(comm, in, out, exact, a.root);
    else if (a.counts)
        reduce_scatter_v(comm, in, out, std::span(a.counts->data(), a.counts->size()), exact);
    else
        reduce_scatter(comm, in, out, exact);
}

template <class Arguments>
using exact_caller = void (*)(communicator& comm, const Arguments& a);
/// Null where the type has no exact sums.
template <class Arguments>
exact_caller<Arguments> exact_caller_of(dynamic::type code) {
    switch (code) {
        case dynamic::type::half:
            return &exact_call_of<half, Arguments>;
        case dynamic::type::bfloat16:
            return &exact_call_of<bfloat16, Arguments>;
        case dynamic::type::float32:
            return &exact_call_of<float, Arguments>;
        case dynamic::type::float64:
            return &exact_call_of<double, Arguments>;
        default:
            return nullptr;
    }
}

}  // namespace colls::inline v1::detail
