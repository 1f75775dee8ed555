// Groups whose members come and go. An endpoint is where other processes reach this one; `join` makes a group from a
// list of endpoints' handles, wherever that is from; elastic::member lets the members of a group agree on the list.
#pragma once

#include <colls/elastic/endpoint.hpp>
#include <colls/elastic/member.hpp>
#include <colls/elastic/shrink.hpp>

#ifndef COLLS_SEPARATE
#include <colls/elastic/detail/member.hpp>
#include <colls/elastic/detail/shrink.hpp>
#endif
