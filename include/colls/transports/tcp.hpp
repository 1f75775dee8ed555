// Ranks as processes on any hosts, over TCP: colls::world() makes the group. Between hosts it uses TCP; within a host
// it uses TCP where COLLS_TRANSPORT=tcp is set.
#pragma once

#include <colls/world.hpp>
