// Groups of processes, on one host and on several, compiled once for programs whose units define COLLS_SEPARATE
// (CMake: colls::colls). The calls themselves are in calls.cpp.
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#include <colls/elastic/detail/member.hpp>
#include <colls/elastic/detail/shrink.hpp>
#include <colls/messages/detail/messaging_backend.hpp>
#include <colls/net/detail/forming/rendezvous.hpp>
