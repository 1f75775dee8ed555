// What dynamic.hpp knows of its definitions.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

namespace colls::inline v1::detail {

struct hashed_name;
class dynamic_request;

}  // namespace colls::inline v1::detail
