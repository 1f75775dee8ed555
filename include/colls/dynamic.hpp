// The calls of collectives.hpp for programs that learn element type, operator and schedule at run time: bindings of
// other languages, other libraries' interfaces, file formats.
//
//   namespace dynamic = colls::dynamic;
//   dynamic::all_reduce(comm, {in, count, dynamic::type::float32}, {out, count, dynamic::type::float32},
//                       dynamic::op::sum, {.schedule = "ring"});
//
// Each call does what the typed call of its name does, with the same rules for lengths, blocks, in place, costs and
// errors (collectives.hpp), by the same code; and it is the same call for the other ranks, which may make the typed
// one. In three forms: dynamic::all_reduce(...) returns when it is over, dynamic::start::all_reduce(...) returns a
// colls::operation, dynamic::prepare::all_reduce(...) a colls::plan. Started and prepared calls copy operator, counts
// and options; the buffers must outlive them, and so must the context of a vector function.
//
// What would be a compile error there is an error here, before anything moves: invalid_argument where input and output
// are of different types, where the type has no such operator, where a scan takes an average, where a schedule's
// name is unknown or the schedule is of another collective; unsupported where the schedule does not keep the order that
// the operator needs.
//
// A program links colls::colls (CMake): the reduce loops of all types and operators are compiled there, once.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/communicator.hpp>
#include <colls/detail/call/modes.hpp>
#include <colls/dynamic/codes.hpp>
#include <colls/dynamic/count_list.hpp>
#include <colls/dynamic/data_layout.hpp>
#include <colls/dynamic/detail/declarations.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace colls::inline v1 {
namespace dynamic {

/// An element type with its size.
class element_type {
public:
    /// One of the listed types; type::bytes is one byte.
    constexpr element_type(type code) : code_(code) {}
    /// An element of k bytes of any meaning, of any alignment that divides k; in typed calls std::array<std::byte, k>.
    /// Bitwise operators and vector functions fold it. Throws invalid_argument where k is 0.
    static element_type bytes(std::size_t k);

    /// As it was made; type::bytes for bytes(k).
    constexpr type code() const { return code_; }
    /// Bytes of an element.
    std::size_t size() const;
    /// As ranks compare it and errors name it: "float", "std::array<std::byte, 12>".
    std::string_view name() const;
    friend constexpr bool operator==(const element_type&, const element_type&) = default;

private:
    friend class colls::detail::dynamic_request;
    type code_;
    std::size_t bytes_ = 1;                             // of type::bytes
    const colls::detail::hashed_name* name_ = nullptr;  // of more than one byte
};

/// An input: `count` elements from `data` on. Null where count is 0, or where the call does not read it.
///
/// With a layout (data_layout.hpp): `count` repetitions of it, whose elements are to the call as if they lay in a row.
/// Whatever else a call says of the buffer's elements, blocks and counts is about those. The layout need not outlive
/// the statement that makes the call.
struct const_buffer {
    const void* data = nullptr;                ///< the first element, or where the layout's offset 0 is
    std::size_t count = 0;                     ///< in elements, or in repetitions of the layout
    element_type type = dynamic::type::bytes;  ///< of an element
    const data_layout* layout = nullptr;       ///< null: elements lie in a row
};
/// An output, or a buffer that is both.
struct buffer {
    void* data = nullptr;                      ///< the first element, or where the layout's offset 0 is
    std::size_t count = 0;                     ///< in elements, or in repetitions of the layout
    element_type type = dynamic::type::bytes;  ///< of an element
    const data_layout* layout = nullptr;       ///< null: elements lie in a row

    /// The same as an input.
    constexpr operator const_buffer() const { return {data, count, type, layout}; }
};

/// Folds two vectors: inout[i] = in[i] op inout[i] for all i below count, as functions of MPI do. `in` is the
/// contribution of the lower rank. The two do not overlap; both are aligned as the type needs. It may be called for any
/// part of the elements, by any thread that advances the call; it must not call the library and must not throw.
using vector_function = void (*)(const void* in, void* inout, std::size_t count, void* context);

/// How a call reduces: an operator of the library, or a vector function.
class reduction {
public:
    /// An operator of the library. op::premul_sum is a sum by factor 1; op::function throws invalid_argument in calls.
    constexpr reduction(op code) : code_(code) {}
    /// The sum of every rank's contribution times `factor`, a double or std::int64_t: in typed calls
    /// colls::premul_sum(double) or colls::premul_sum(std::int64_t), which are different calls.
    template <class Factor>
        requires(std::is_arithmetic_v<Factor>)
    static constexpr reduction premul_sum(Factor factor) {
        reduction r(op::premul_sum);
        if constexpr (std::is_integral_v<Factor>) {
            r.integer_ = static_cast<std::int64_t>(factor);
            r.by_integer_ = true;
        } else {
            r.real_ = static_cast<double>(factor);
        }
        return r;
    }
    /// A vector function, which must be associative.
    ///
    /// @param f            is called on as many elements at a time as lie in a row
    /// @param context      is passed to f
    /// @param commutative  operands may be swapped, so any schedule does; else contributions are folded in rank order
    /// @param name         by which ranks compare their calls, in place of the pointer: the same on all ranks; it is
    ///                     copied
    ///
    /// Costs a lock and a search among the names so far: make it once, and use it in many calls.
    static reduction function(vector_function f, void* context, bool commutative, std::string_view name = "function");

    /// As it was made; op::function for a vector function.
    constexpr op code() const { return code_; }
    /// "sum_t", "premul_sum_t<double>", or the name of the function.
    std::string_view name() const;

private:
    friend class colls::detail::dynamic_request;
    op code_;
    bool by_integer_ = false, commutative_ = true;
    double real_ = 1;
    std::int64_t integer_ = 1;
    vector_function function_ = nullptr;
    void* context_ = nullptr;
    const colls::detail::hashed_name* name_ = nullptr;  // of a function
};

/// How data moves.
struct options {
    /// A family of the library, as COLLS_SCHEDULE names it: "ring", "tree<4>", "circulant". Empty: the library chooses.
    std::string_view schedule = {};
    /// A schedule of the call's collective, instead of a name; null: none.
    const any_schedule* given = nullptr;
    /// The call has the constraint colls::reproducible.
    bool reproducible = false;
};

/// The calls in one form: a member returns when its call is over, or an operation, or a plan. Each is as the function
/// of its name below. A class, so that a template may take it as an argument; all members are static.
template <class Mode>
struct calls {
    using result = typename Mode::result;  ///< what its members return

    /// @cond
    static result broadcast(communicator& comm, buffer inout, int root, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::broadcast, .in = inout, .out = inout, .root = root}, how);
    }
    static result scatter(communicator& comm, const_buffer in, buffer out, int root, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::scatter, .in = in, .out = out, .root = root}, how);
    }
    static result gather(communicator& comm, const_buffer in, buffer out, int root, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::gather, .in = in, .out = out, .root = root}, how);
    }
    static result all_gather(communicator& comm, const_buffer in, buffer out, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(comm, {.what = collective::all_gather, .in = in, .out = out}, how);
    }
    static result all_to_all(communicator& comm, const_buffer in, buffer out, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(comm, {.what = collective::all_to_all, .in = in, .out = out}, how);
    }
    static result reduce(
        communicator& comm, const_buffer in, buffer out, const reduction& op, int root, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::reduce, .in = in, .out = out, .op = &op, .root = root}, how);
    }
    static result reduce_scatter(
        communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::reduce_scatter, .in = in, .out = out, .op = &op}, how);
    }
    static result all_reduce(
        communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::all_reduce, .in = in, .out = out, .op = &op}, how);
    }
    static result all_reduce(communicator& comm, buffer inout, const reduction& op, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::all_reduce, .in = inout, .out = inout, .op = &op}, how);
    }
    static result inclusive_scan(
        communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::inclusive_scan, .in = in, .out = out, .op = &op}, how);
    }
    static result exclusive_scan(
        communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::exclusive_scan, .in = in, .out = out, .op = &op}, how);
    }
    static result barrier(communicator& comm, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(comm, {.what = collective::barrier}, how);
    }
    static result scatter_v(
        communicator& comm, const_buffer in, buffer out, count_list counts, int root, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::scatter, .in = in, .out = out, .counts = &counts, .root = root}, how);
    }
    static result gather_v(
        communicator& comm, const_buffer in, buffer out, count_list counts, int root, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::gather, .in = in, .out = out, .counts = &counts, .root = root}, how);
    }
    static result all_gather_v(
        communicator& comm, const_buffer in, buffer out, count_list counts, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::all_gather, .in = in, .out = out, .counts = &counts}, how);
    }
    static result reduce_scatter_v(communicator& comm, const_buffer in, buffer out, count_list counts,
        const reduction& op, const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::reduce_scatter, .in = in, .out = out, .op = &op, .counts = &counts}, how);
    }
    static result all_to_all_v(communicator& comm, const_buffer in, buffer out, count_list sent, count_list received,
        const options& how = {}) {
        return colls::detail::dynamic_call<Mode>(
            comm, {.what = collective::all_to_all, .in = in, .out = out, .counts = &sent, .received = &received}, how);
    }
    static result send(communicator& comm, const_buffer data, int peer)
        requires(Mode::messages)
    {
        return colls::detail::dynamic_message<Mode>(comm, true, data, peer);
    }
    static result recv(communicator& comm, buffer data, int peer)
        requires(Mode::messages)
    {
        return colls::detail::dynamic_message<Mode>(comm, false, data, peer);
    }
    /// @endcond
};
using blocking = calls<colls::detail::blocking_mode>;  ///< the functions below
using start = calls<colls::detail::start_mode>;        ///< returns colls::operation
using prepare = calls<colls::detail::prepare_mode>;    ///< returns colls::plan; without send and recv

/// As colls::broadcast.
inline void broadcast(communicator& comm, buffer inout, int root, const options& how = {}) {
    blocking::broadcast(comm, inout, root, how);
}
/// As colls::scatter.
inline void scatter(communicator& comm, const_buffer in, buffer out, int root, const options& how = {}) {
    blocking::scatter(comm, in, out, root, how);
}
/// As colls::gather.
inline void gather(communicator& comm, const_buffer in, buffer out, int root, const options& how = {}) {
    blocking::gather(comm, in, out, root, how);
}
/// As colls::all_gather.
inline void all_gather(communicator& comm, const_buffer in, buffer out, const options& how = {}) {
    blocking::all_gather(comm, in, out, how);
}
/// As colls::all_to_all.
inline void all_to_all(communicator& comm, const_buffer in, buffer out, const options& how = {}) {
    blocking::all_to_all(comm, in, out, how);
}
/// As colls::reduce.
inline void reduce(
    communicator& comm, const_buffer in, buffer out, const reduction& op, int root, const options& how = {}) {
    blocking::reduce(comm, in, out, op, root, how);
}
/// As colls::reduce_scatter.
inline void reduce_scatter(
    communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
    blocking::reduce_scatter(comm, in, out, op, how);
}
/// As colls::all_reduce.
inline void all_reduce(communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
    blocking::all_reduce(comm, in, out, op, how);
}
/// As colls::all_reduce, in place.
inline void all_reduce(communicator& comm, buffer inout, const reduction& op, const options& how = {}) {
    blocking::all_reduce(comm, inout, op, how);
}
/// As colls::inclusive_scan.
inline void inclusive_scan(
    communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
    blocking::inclusive_scan(comm, in, out, op, how);
}
/// As colls::exclusive_scan.
inline void exclusive_scan(
    communicator& comm, const_buffer in, buffer out, const reduction& op, const options& how = {}) {
    blocking::exclusive_scan(comm, in, out, op, how);
}
/// As colls::barrier.
inline void barrier(communicator& comm, const options& how = {}) { blocking::barrier(comm, how); }
/// As colls::scatter_v: the schedule is direct.
inline void scatter_v(
    communicator& comm, const_buffer in, buffer out, count_list counts, int root, const options& how = {}) {
    blocking::scatter_v(comm, in, out, counts, root, how);
}
/// As colls::gather_v: the schedule is direct.
inline void gather_v(
    communicator& comm, const_buffer in, buffer out, count_list counts, int root, const options& how = {}) {
    blocking::gather_v(comm, in, out, counts, root, how);
}
/// As colls::all_gather_v.
inline void all_gather_v(communicator& comm, const_buffer in, buffer out, count_list counts, const options& how = {}) {
    blocking::all_gather_v(comm, in, out, counts, how);
}
/// As colls::reduce_scatter_v.
inline void reduce_scatter_v(
    communicator& comm, const_buffer in, buffer out, count_list counts, const reduction& op, const options& how = {}) {
    blocking::reduce_scatter_v(comm, in, out, counts, op, how);
}
/// As colls::all_to_all_v: the schedule is direct.
inline void all_to_all_v(
    communicator& comm, const_buffer in, buffer out, count_list sent, count_list received, const options& how = {}) {
    blocking::all_to_all_v(comm, in, out, sent, received, how);
}
/// As colls::send.
inline void send(communicator& comm, const_buffer data, int peer) { blocking::send(comm, data, peer); }
/// As colls::recv.
inline void recv(communicator& comm, buffer data, int peer) { blocking::recv(comm, data, peer); }
/// As colls::recv_any.
int recv_any(communicator& comm, buffer data);
/// As colls::exchange.
void exchange(communicator& comm, const_buffer sent, int to, buffer received, int from);

}  // namespace dynamic
}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/dynamic/detail/definitions.hpp>
#endif
