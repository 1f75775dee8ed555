// Calls by op::exact.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/dynamic.hpp>
#include <colls/exact/exact_all_reduce.hpp>
#include <colls/types.hpp>

#include <span>

namespace colls::inline v1::detail {

/// Makes the typed call.
template <class T>
void exact_call_of(communicator& comm, const dynamic_arguments<>& a) {
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

using exact_caller = void (*)(communicator& comm, const dynamic_arguments<>& a);
/// Null where the type has no exact sums.
inline exact_caller exact_caller_of(dynamic::type code) {
    switch (code) {
        case dynamic::type::half:
            return &exact_call_of<half>;
        case dynamic::type::bfloat16:
            return &exact_call_of<bfloat16>;
        case dynamic::type::float32:
            return &exact_call_of<float>;
        case dynamic::type::float64:
            return &exact_call_of<double>;
        default:
            return nullptr;
    }
}

}  // namespace colls::inline v1::detail
