// What dynamic.hpp and data_layout.hpp know of their definitions.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/schedule.hpp>

#include <cstddef>

namespace colls::inline v1 {

class communicator;

namespace dynamic {
class count_list;
class reduction;
struct buffer;
struct const_buffer;
struct options;
}  // namespace dynamic

namespace detail {

struct hashed_name;
class dynamic_request;
class element_sequence;

/// `rows` blocks of `length`, the first one at `offset`, each `stride` behind the one before.
struct strided_blocks {
    std::size_t offset, rows, length, stride;
};

/// The arguments of any call but a message. (A template, since the buffers are declared later.)
template <class Buffer = dynamic::buffer, class Input = dynamic::const_buffer>
struct dynamic_arguments {
    collective what;
    Input in{};
    Buffer out{};
    const dynamic::reduction* op = nullptr;
    const dynamic::count_list *counts = nullptr, *received = nullptr;
    int root = 0;
};
template <class Mode>
typename Mode::result dynamic_call(communicator& comm, const dynamic_arguments<>& a, const dynamic::options& how);
template <class Mode>
typename Mode::result dynamic_message(communicator& comm, bool sends, const dynamic::const_buffer& data, int peer);

}  // namespace detail
}  // namespace colls::inline v1
