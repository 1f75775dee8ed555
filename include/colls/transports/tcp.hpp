// Ranks as processes anywhere, over TCP: world() makes the group, and takes TCP between hosts; within one where
// COLLS_TRANSPORT=tcp says so.
#pragma once

#include <colls/world.hpp>
