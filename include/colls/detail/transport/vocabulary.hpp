// The interface of message transports, under the names that the library's own ones use.
// IWYU pragma: private, include <colls/extend/message_transport.hpp>
#pragma once

#include <colls/extend/message_transport.hpp>

namespace colls::inline v1::detail {
using namespace extend;
}  // namespace colls::inline v1::detail
