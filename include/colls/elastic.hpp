// Groups whose members come and go. An endpoint is where other processes reach this one; `join` makes a group from a
// list of endpoints' handles, whoever has made the list.
#pragma once

#include <colls/elastic/endpoint.hpp>

#ifndef COLLS_SEPARATE
#include <colls/elastic/detail/join.hpp>
#endif
